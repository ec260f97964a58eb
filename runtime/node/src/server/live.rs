//! Rows of tasks that live.
//!
//! Owns the walk over them: the ledger is locked for some at a time, and of those that are wanted only a page is copied. Must
//! not: change anything but what lists know of [ages](crate::ledger::ages): by that a page looks only where its tasks may be,
//! and where others have come since the one before. A look takes some ten nanoseconds, and no row is made for it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use wasmrun_model::id::{DriverId, IdPrefix, TaskId};
use wasmrun_model::task::Phase;
use wasmrun_model::units::ms;
use wasmrun_model::wire::{HeldResource, TaskRow};

use super::Inner;
use super::rows::Wanted;
use crate::history::Place;
use crate::ledger::Ledger;
use crate::ledger::ages::{self, Span};
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
    let mut best = Youngest {
        after,
        most,
        places: BinaryHeap::new(),
    };
    let look = |best: &mut Youngest, ledger: &Ledger, cell: &TaskCell| {
        let place = (inner.shared.submitted_us(cell), cell.id, 0);
        if best.has_room_for(place) && wanted.lives(ledger, cell, &inner.shared.name) {
            best.add(place);
        }
    };
    let job = wanted.job.whole().map(DriverId::from_bytes);
    if wanted.id != IdPrefix::ANY {
        each_cell(inner, wanted.id, |ledger, cell| {
            look(&mut best, ledger, cell);
        });
    } else if let Some(job) = job {
        let ids = inner.shared.ask(|ledger| ledger.of_job(job));
        for ids in ids.chunks(AT_A_TIME) {
            inner.shared.ask(|ledger| {
                let cells = ids.iter().filter_map(|id| ledger.cell(id));
                cells.for_each(|cell| look(&mut best, ledger, &cell));
            });
        }
    } else {
        for block in inner.shared.ask(|ledger| ledger.blocks()) {
            inner.shared.ask(|ledger| {
                if let Some(span) = ledger.ages.span(block)
                    && !best.may_be_in(span)
                {
                    return;
                }
                let mut span = ages::NONE;
                for cell in ledger.cells_in(ages::slots_of(block)) {
                    let us = inner.shared.submitted_us(cell);
                    span = (span.0.min(us), span.1.max(us));
                    look(&mut best, ledger, cell);
                }
                ledger.ages.saw(block, span);
            });
        }
    }
    best.into_places()
}

/// The places of the youngest tasks that were looked at, behind a place.
struct Youngest {
    after: Option<Place>,
    most: usize,
    /// The first is the first to go.
    places: BinaryHeap<Reverse<Place>>,
}

impl Youngest {
    /// The one that the next takes the place of, if there is one.
    fn first_to_go(&self) -> Option<Place> {
        let first = self
            .places
            .peek()
            .filter(|_| self.places.len() >= self.most);
        first.map(|Reverse(place)| *place)
    }

    fn has_room_for(&self, place: Place) -> bool {
        self.after.is_none_or(|after| place < after)
            && self.first_to_go().is_none_or(|first| place > first)
    }

    /// Whether there may be room for one that was submitted within this span.
    fn may_be_in(&self, (first, last): Span) -> bool {
        first <= last
            && self.after.is_none_or(|after| first <= after.0)
            && self.first_to_go().is_none_or(|it| last >= it.0)
    }

    fn add(&mut self, place: Place) {
        self.places.push(Reverse(place));
        if self.places.len() > self.most {
            self.places.pop();
        }
    }

    fn into_places(self) -> Vec<Place> {
        let places = self.places.into_sorted_vec().into_iter();
        places.map(|Reverse(place)| place).collect()
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
    let (given, parent) = (ledger.input_summary(&cell.id), ledger.parent(&cell.id));
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
        held: ledger.holds(&cell.id).iter().map(held_resource).collect(),
        run: None,
        error: None,
    }
}

/// What is held, as rows have it.
pub(super) fn held_resource(held: &wasmrun_engine::HeldResource) -> HeldResource {
    HeldResource {
        name: held.name.clone(),
        steps: held.amount,
        units: held.units.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_looks_only_where_its_tasks_may_be() {
        let job = DriverId::from_bytes([1; 16]);
        let place = |us: u64| (us, job.task(us), 0);
        // A hundred blocks, each with ten tasks, the youngest first.
        let blocks = || (0..100).rev().map(|block| (block * 10, block * 10 + 9));
        for (after, expected) in [(None, 990..1000), (Some(place(500)), 490..500)] {
            let mut page = Youngest {
                after,
                most: 10,
                places: BinaryHeap::new(),
            };
            let mut looks = 0;
            for (first, last) in blocks() {
                if !page.may_be_in((first, last)) {
                    continue;
                }
                looks += 1;
                for place in (first..=last).map(place) {
                    if page.has_room_for(place) {
                        page.add(place);
                    }
                }
            }
            // Behind a place its own block is looked at, too.
            assert_eq!(looks, if after.is_some() { 2 } else { 1 });
            let found: Vec<u64> = page.into_places().into_iter().map(|it| it.0).collect();
            assert_eq!(found, expected.rev().collect::<Vec<u64>>());
        }
        let none = Youngest {
            after: None,
            most: 10,
            places: BinaryHeap::new(),
        };
        assert!(!none.may_be_in(ages::NONE));
    }
}
