//! Rows of tasks that live.
//!
//! Owns the walk over them: the ledger is locked for some at a time, and of those that are wanted only a page is copied. Must
//! not: change anything. The ledger has no order of age, so each page looks at every live task, or at those of one job: that
//! takes some ten nanoseconds for each, and no row is made for it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use wasmrun_model::id::{DriverId, IdPrefix, TaskId};
use wasmrun_model::task::Phase;
use wasmrun_model::wire::{Held, TaskRow};

use super::Inner;
use super::rows::Wanted;
use super::views::ms;
use crate::history::Place;
use crate::ledger::Ledger;
use crate::records::task::TaskCell;

/// For how many tasks or jobs the ledger is locked at a time.
pub(super) const AT_A_TIME: usize = 1000;

/// The live tasks that are wanted, a page of them at most, the youngest first.
pub(super) fn page(inner: &Inner, wanted: &Wanted<'_>, page: usize) -> Vec<TaskRow> {
    let (mut found, mut after) = (Vec::new(), wanted.after);
    loop {
        let missing = page - found.len();
        let places = youngest(inner, wanted, after, missing);
        let is_all = places.len() < missing;
        after = places.last().copied();
        for places in places.chunks(AT_A_TIME) {
            let rows = live_rows(inner, places.iter().map(|(_, id, _)| *id));
            found.extend(rows.into_iter().filter(|row| wanted.passes(row)));
        }
        // Some may have gone on meanwhile, and others come in their place.
        if is_all || found.len() >= page {
            return found;
        }
    }
}

/// The places of the live tasks that are wanted and come after this one: so many at most, the youngest first.
fn youngest(inner: &Inner, wanted: &Wanted<'_>, after: Option<Place>, most: usize) -> Vec<Place> {
    // The first is the first to go.
    let mut best: BinaryHeap<Reverse<Place>> = BinaryHeap::new();
    each(inner, wanted, |ledger, cell| {
        let place = (inner.shared.submitted_us(cell), cell.id, 0);
        let first = best.peek().filter(|_| best.len() >= most);
        if after.is_some_and(|after| place >= after)
            || first.is_some_and(|Reverse(first)| place <= *first)
            || !wanted.lives(ledger, cell, &inner.shared.name)
        {
            return;
        }
        best.push(Reverse(place));
        if best.len() > most {
            best.pop();
        }
    });
    let best = best.into_sorted_vec().into_iter();
    best.map(|Reverse(place)| place).collect()
}

/// Looks at each live task that may be wanted.
fn each(inner: &Inner, wanted: &Wanted<'_>, mut look: impl FnMut(&Ledger, &TaskCell)) {
    let job = wanted.job.whole().map(DriverId::from_bytes);
    let Some(job) = job.filter(|_| wanted.id == IdPrefix::ANY) else {
        return each_cell(inner, wanted.id, |ledger, cell| look(ledger, cell));
    };
    let ids = inner.shared.ask(|ledger| ledger.of_job(job));
    for ids in ids.chunks(AT_A_TIME) {
        inner.shared.ask(|ledger| {
            let cells = ids.iter().filter_map(|id| ledger.cell(id));
            cells.for_each(|cell| look(ledger, &cell));
        });
    }
}

/// Looks at each live task whose id begins so and that is there all along.
pub(super) fn each_cell(
    inner: &Inner,
    id: IdPrefix,
    mut look: impl FnMut(&Ledger, &Arc<TaskCell>),
) {
    if id.whole::<16>().is_some() {
        return inner.shared.ask(|ledger| {
            let one = ledger.cells_with(id);
            one.for_each(|cell| look(ledger, cell));
        });
    }
    let slots = inner.shared.ask(|ledger| ledger.slots());
    for from in (0..slots).step_by(AT_A_TIME) {
        inner.shared.ask(|ledger| {
            let cells = ledger.cells_in(from..from + AT_A_TIME);
            let begun = cells.filter(|cell| id.begins(&cell.id));
            begun.for_each(|cell| look(ledger, cell));
        });
    }
}

/// The rows of those that live by now.
pub(super) fn live_rows(inner: &Inner, ids: impl Iterator<Item = TaskId>) -> Vec<TaskRow> {
    inner.shared.ask(|ledger| {
        let cells = ids.filter_map(|id| ledger.cell(&id));
        cells.map(|cell| live_row(inner, ledger, &cell)).collect()
    })
}

/// The state of a live task, as rows have it.
pub(super) fn state(ledger: &Ledger, cell: &TaskCell) -> &'static str {
    ledger.phase(&cell.id).map_or("ended", Phase::name)
}

pub(super) fn live_row(inner: &Inner, ledger: &Ledger, cell: &TaskCell) -> TaskRow {
    let phase = ledger.phase(&cell.id);
    let attempt = ledger.scheduler().task(&cell.id);
    let attempt = attempt.map_or(0, |it| it.attempt.number());
    let has_begun = matches!(
        phase,
        Some(Phase::Dispatching | Phase::Running | Phase::Blocked)
    );
    let (given, parent) = (ledger.given(&cell.id), ledger.parent(&cell.id));
    TaskRow {
        id: cell.id,
        name: cell.work.name().into_owned(),
        state: state(ledger, cell).to_owned(),
        tenant: cell.work.terms().tenant.clone(),
        job: cell.driver.job(),
        parent: parent.map(|it| it.task),
        parent_attempt: parent.map_or(0, |it| it.attempt),
        actor: cell.work.actor(),
        trace: given.and_then(|it| it.trace.clone()),
        array_index: given.and_then(|it| it.array_index),
        attempt: match has_begun {
            true => attempt,
            false => attempt.saturating_sub(1),
        },
        is_detached: cell.driver.is_detached(),
        submitted_us: inner.shared.submitted_us(cell),
        age_ms: ms(cell.submitted.elapsed()),
        node: inner.name(),
        inputs: given.map_or_else(Vec::new, |it| it.inputs.clone()),
        held: ledger.holds(&cell.id).iter().map(held).collect(),
        run: None,
        error: None,
    }
}

/// What is held, as rows have it.
pub(super) fn held(held: &wasmrun_engine::HeldResource) -> Held {
    Held {
        name: held.name.clone(),
        steps: held.amount,
        units: held.units.clone(),
    }
}
