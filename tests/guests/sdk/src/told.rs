//! What callers are told of tasks and actors that end before they should, or are not found: what several of the tasks
//! in `lib.rs` do.

use std::time::Duration;

use wasmrun_guest::prelude::*;

use crate::app::{Caller, Counter, slow, spin, spin_task};

/// Cancels a task that would never end, and once more when it has ended: what comes of that, and what kind of
/// failure its future has then.
pub fn cancel_spin() -> Result<String, String> {
    let future = spin::remote();
    let first = cancel(&future);
    match future.get() {
        Ok(_) => Err("it ended".to_owned()),
        Err(error) => Ok(format!(
            "{first:?}, {:?}, {:?}",
            error.kind(),
            cancel(&future)
        )),
    }
}

/// Does not wait for a slow task: whether time was up, both for `get` and for `wait`.
pub fn impatient(task_ms: u64, patience_ms: u64) -> Result<(bool, bool), Error> {
    let patience = Duration::from_millis(patience_ms);
    let future = slow::remote(task_ms);
    let (ready, rest) = wait([future], 1, Some(patience))?;
    let was_late = ready.is_empty();
    let is_late = match rest.first().or(ready.first()) {
        Some(future) => future.get_timeout(patience) == Err(Error::TimedOut),
        None => false,
    };
    Ok((was_late, is_late))
}

/// Finds an actor by its name, and what is said when its name is taken or unknown.
pub fn named(name: &str) -> Result<Vec<String>, Error> {
    let first = Counter::options().name(name).create(1)?;
    let found = Counter::find(name)?;
    found.incr(1).get()?;
    let again = Counter::options().name(name).create(5);
    let unknown = Counter::find(&format!("{name}-unknown"));
    let said = vec![
        first.value().get()?.to_string(),
        again.map_or_else(|error| error.to_string(), |_| "created".to_owned()),
        unknown.map_or_else(|error| error.to_string(), |_| "found".to_owned()),
    ];
    first.kill();
    Ok(said)
}

/// What the caller sees of an actor that fails, then dies: the payload, the panic, and the call after.
pub fn dying() -> Result<Vec<String>, String> {
    let counter = Counter::options().restarts(0).create(1)?;
    let refused = counter.decr(2).get();
    let payload = refused.as_ref().err().and_then(Error::payload::<String>);
    let panicked = counter.panic("on purpose").get().map(|()| 0);
    let after = counter.incr(1).get();
    Ok(vec![
        payload.unwrap_or_default(),
        said(panicked),
        said(after),
    ])
}

/// What is said of a call and of a constructor that take longer than they may, and the sum afterwards.
pub fn overdue(limit_ms: u64) -> Result<Vec<String>, String> {
    let limit = Duration::from_millis(limit_ms);
    let counter = Counter::create(1)?;
    counter.incr(1).get()?;
    let spun = said(counter.with_time_limit(limit).spin().get());
    // The handle itself has no limit.
    let sum = said(counter.incr(1).get());
    let never = Counter::options().restarts(0).time_limit(limit);
    let born = never.create(u64::MAX)?.value().get();
    Ok(vec![spun, sum, said(born)])
}

/// Stops a task that takes longer than it may.
pub fn limited(limit_ms: u64) -> Result<u64, Error> {
    let limit = Duration::from_millis(limit_ms);
    spin_task::options().time_limit(limit).remote().get()
}

/// Panics an actor that is started again: the sum afterwards.
pub fn reviving(start: u64) -> Result<u64, Error> {
    let counter = Counter::options().restarts(1).create(start)?;
    counter.incr(1).get()?;
    let _ = counter.panic("on purpose").get();
    counter.value().get()
}

/// Two actors that wait for each other.
pub fn circle(depth: u32) -> Result<u32, Error> {
    let (a, b) = (Caller::create()?, Caller::create()?);
    a.meet(&b).get()?;
    b.meet(&a).get()?;
    a.ask(depth).get()
}

/// The number, or the kind of its failure and what is said of it.
fn said(result: Result<u64, Error>) -> String {
    match result {
        Ok(n) => n.to_string(),
        Err(error) => format!("{:?}: {error}", error.kind()),
    }
}
