//! What a node has of a resource, changed while it runs.
//!
//! Owns what may be changed, and the words for what has come of it. The rules for what is in use are the scheduler's
//! ([`wasmrun_model::resource`]). Must not: take from a task what it holds.

use wasmrun_model::resource::{Amount, CapacityError, Pool, PoolKind, ResourceName};
use wasmrun_model::wire::{Refusal, RefusalKind, Response, SetResource};

use super::Inner;
use super::cluster::living;
use super::session::{Session, refusal};
use crate::ledger::{Ledger, Todo};
use crate::peers::ask::{Answer, Question};

impl Session {
    /// Changes what a node has, which may be another one.
    pub(super) async fn set_resource(&self, set: SetResource) -> Result<Response, Refusal> {
        let shared = &self.inner.shared;
        let node = match (&set.node, self.inner.cluster()) {
            (None, _) => shared.home.node,
            (Some(name), None) if **name == *shared.name => shared.home.node,
            (Some(name), None) => {
                let shown: String = name.chars().take(80).collect();
                let why = format_args!(
                    "there is no node '{shown}': node '{}' is alone",
                    shared.name
                );
                return Err(refusal(RefusalKind::NotFound, why));
            }
            (Some(name), Some(cluster)) => living(cluster, name)?,
        };
        let asked = self.asked(Question::SetResource {
            name: set.name,
            amount: set.amount,
            is_kept: set.is_kept,
        });
        match self.ask(node, &asked).await {
            Ok(Answer::Text(text)) => Ok(Response::Text(text)),
            Ok(Answer::Refused(why)) => Err(why),
            Ok(_) => Err(refusal(
                RefusalKind::Full,
                "the node has answered with something else",
            )),
            Err(why) => {
                let name = set.node.as_deref().unwrap_or("that is asked");
                let why = format_args!(
                    "node {name} has not said whether it has done it: {why}; to say it again does no harm"
                );
                Err(refusal(RefusalKind::Full, why))
            }
        }
    }
}

/// What a change of a resource has come to, for people; `after`: none if there is no such resource any more.
fn changed(node: &str, name: &ResourceName, before: Standing, after: Option<Standing>) -> String {
    let shown = |amount: Amount| amount.display_for(name).to_string();
    let had = shown(before.total);
    let (text, owed) = match after {
        Some(after) => {
            let (has, free) = (shown(after.total), shown(after.free));
            let text =
                format!("node {node} has {name} {has} now, and had {had}; {free} of it is free");
            (text, after.owed)
        }
        None => {
            // Allocated: all that is not free, and what was owed.
            let all = before.total.steps() + before.owed.steps();
            let owed = Amount::from_steps(all.saturating_sub(before.free.steps()));
            let text = format!("node {node} has no {name} any more, and had {had}");
            (text, owed)
        }
    };
    match owed.is_zero() {
        true => text,
        false => {
            let owed = shown(owed);
            format!("{text}; tasks keep {owed} more than there is, until they end")
        }
    }
}

/// This node has so much of a resource from now on; none of it if not given. What has come of it, for people.
pub(super) fn set(
    inner: &Inner,
    name: &ResourceName,
    amount: Option<Amount>,
    is_kept: bool,
) -> Result<String, Refusal> {
    let shared = &inner.shared;
    let usage = |why: std::fmt::Arguments<'_>| Err(refusal(RefusalKind::Usage, why));
    if amount.is_none() && (*name == ResourceName::CPU || name.is_memory()) {
        return usage(format_args!(
            "every task is given {name}, so a node always has it: say {name}=0 for none"
        ));
    }
    if is_kept && inner.cluster().is_none() {
        return usage(format_args!(
            "node '{}' is in no cluster and keeps nothing from one incarnation to the next: leave out --persist, \
             and start it with --node-resource next time",
            shared.name
        ));
    }
    // What holds now, and what the file says, are one after the other's.
    let _one_at_a_time = is_kept.then(|| inner.lasting.lock());
    let standing = |ledger: &Ledger| {
        let own = ledger.own_resources();
        own.map(|own| Standing {
            pool: own.pools().get(name).map(Pool::kind),
            total: own.total().get(name),
            free: own.available().get(name),
            owed: own.backlog().get(name),
        })
    };
    let (before, after) = shared.tell_and(|ledger| {
        let Some(before) = standing(ledger) else {
            let ending = refusal(RefusalKind::Stopping, "the node is ending");
            return (Todo::default(), Err(ending));
        };
        // It may be persisted only.
        if amount.is_none() && before.pool.is_none() && !is_kept {
            let why = format_args!(
                "node '{}' has no {name}: `wasmrun node list` shows what each has",
                shared.name
            );
            return (Todo::default(), Err(refusal(RefusalKind::NotFound, why)));
        }
        let todo = ledger.set_resource(name.clone(), amount);
        let after = standing(ledger).unwrap_or(before);
        (todo, Ok((before, after)))
    })?;
    let shown = |amount: Amount| amount.display_for(name).to_string();
    if let Some(amount) = amount.filter(|it| after.pool.is_none() || *it != after.total) {
        let why = Pool::for_name(name, amount).err();
        let why = why.map_or_else(
            || "it has as many resources as a node may have, with those that tasks hold still: delete one first".to_owned(),
            |why| cannot_have(name, &why),
        );
        return usage(format_args!(
            "node '{}' cannot have {name} {}: {why}",
            shared.name,
            shown(amount)
        ));
    }
    tracing::info!(%name, before = shown(before.total), after = amount.map(shown), is_kept, "a resource was changed");
    let text = changed(&shared.name, name, before, amount.map(|_| after));
    if let Some(cluster) = inner.cluster().filter(|_| is_kept) {
        let kept = cluster.keep_resource(name, amount.map(|amount| after.as_pool(name, amount)));
        kept.map_err(|why| {
            let why = format_args!("{text}; but not when it is started again: {why}");
            refusal(RefusalKind::Full, why)
        })?;
    }
    Ok(text)
}

/// Why a node that runs cannot have so much of a resource. Of which kind one is, is said when the node is started.
fn cannot_have(name: &ResourceName, why: &CapacityError) -> String {
    let is_of_kind = matches!(
        why,
        CapacityError::NotWhole { .. } | CapacityError::TooManyIds { .. }
    );
    match is_of_kind && name.is_user() {
        true => format!("{why}, with --node-resource when the node is started"),
        false => why.to_string(),
    }
}

/// How it stands with a resource of the node.
#[derive(Clone, Copy)]
struct Standing {
    /// Of which kind it is, if it is there.
    pool: Option<PoolKind>,
    total: Amount,
    free: Amount,
    /// What is held above the total.
    owed: Amount,
}

impl Standing {
    /// So much of it, of the same kind.
    fn as_pool(&self, name: &ResourceName, amount: Amount) -> Pool {
        match (self.pool, Pool::for_name(name, amount)) {
            (Some(PoolKind::Indexed), Ok(pool)) => pool,
            _ => Pool::sum(amount),
        }
    }
}
