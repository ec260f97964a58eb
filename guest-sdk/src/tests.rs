//! A module of tasks and actors in this process: futures, waiting, and what waits for what.

use std::time::Duration;

use crate::future::noting_names;
use crate::value::Encoded;
use crate::{Error, FailureKind, Future, get, get_all, get_all_timeout, put, wait};

use self::app::*;

#[crate::module(package = "test:guest", interface = "other-name")]
mod app {
    #![allow(clippy::ptr_arg)]

    use crate::prelude::*;

    #[task]
    pub fn double(n: u64) -> u64 {
        2 * n
    }

    #[task]
    pub fn total(numbers: Vec<u32>) -> u32 {
        numbers.iter().sum()
    }

    #[task]
    pub fn fail() -> Result<u64, String> {
        Err("as asked".to_owned())
    }

    /// Passes on how another task failed, over as many tasks.
    #[task]
    pub fn pass(depth: u32) -> Result<u64, Error> {
        match depth {
            0 => fail::remote().get(),
            _ => pass::remote(depth - 1).get(),
        }
    }

    #[task]
    pub fn panic() {
        panic!("as asked");
    }

    #[task]
    pub fn own_id() -> String {
        context::task_id()
    }

    /// Names that the generated code must not trip over.
    #[task]
    pub fn arguments(function: u8, arguments: u8, result: u8, r#type: u8) -> u8 {
        function + arguments + result + r#type
    }

    #[derive(Clone, Debug, PartialEq)]
    pub struct Linked {
        pub n: u8,
        pub next: Option<Future<Linked>>,
    }

    #[task]
    pub fn length(list: Linked) -> Result<u32, Error> {
        match list.next {
            Some(next) => Ok(1 + length(next.get()?)?),
            None => Ok(1),
        }
    }

    /// Calls itself through a handle.
    #[actor]
    pub struct Recursive {
        n: u64,
    }

    #[actor]
    impl Recursive {
        pub fn new(start: u64) -> Self {
            assert!(start < 1000, "too large to start with");
            Recursive { n: start }
        }

        pub fn incr(&mut self, by: u64) -> u64 {
            self.n += by;
            self.n
        }

        /// Calls that run when this one is done, and what depends on them.
        pub fn later(&mut self, me: RecursiveHandle) -> Vec<Future<u64>> {
            let first = me.incr(1);
            let second = me.incr(&first);
            vec![double::remote(&second), first, second]
        }

        /// A call that can only run when this one is done.
        pub fn wait_for_itself(&mut self, me: RecursiveHandle) -> Result<u64, Error> {
            me.incr(1).get()
        }

        /// What waits, but not for ever.
        pub fn patience(&mut self, me: RecursiveHandle) -> Result<bool, Error> {
            let (ready, rest) = wait([me.incr(1)], 1, Some(Duration::from_millis(1)))?;
            Ok(ready.is_empty() && rest.len() == 1)
        }

        pub fn kill(&mut self, me: RecursiveHandle) -> u64 {
            // The class's own `kill` comes before that of every handle.
            ActorHandle::kill(&me);
            self.n
        }
    }
}

impl PartialEq for Future<Linked> {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

fn fail_later() -> Future<u64> {
    double::remote(fail::remote())
}

#[test]
fn futures_are_arguments() {
    let four = double::remote(put(2_u64).unwrap());
    assert_eq!(double::remote(&four).get(), Ok(8));
    assert_eq!(get(&four), Ok(4));
    assert_eq!(get_all([&four, &four]), Ok(vec![4, 4]));
    assert_eq!(total::remote(&[1, 2][..]).get(), Ok(3));
    assert_eq!(total::remote([1, 2]).get(), Ok(3));
    assert_eq!(arguments::remote(1, 2, 3, 4).get(), Ok(10));
    assert_eq!(double(4), 8);
}

#[test]
fn types_may_hold_futures_of_themselves() {
    let last = put(Linked { n: 2, next: None }).unwrap();
    let first = Linked {
        n: 1,
        next: Some(last),
    };
    assert_eq!(length::remote(put(first).unwrap()).get(), Ok(2));
}

#[test]
fn what_is_stored_tells_which_handles_are_in_it() {
    let last = put(Linked { n: 2, next: None }).unwrap();
    let name = last.shared().unwrap().name().to_vec();
    let names = |value: Vec<Option<Future<Linked>>>| {
        let (encoded, names) = noting_names(|| Encoded::of(value));
        assert!(encoded.is_ok());
        names
    };
    let twice = vec![None, Some(last.clone()), Some(last.clone())];
    assert_eq!(names(twice), [name.clone(), name]);
    // What is encoded without being stored leaves nothing behind.
    let _ = length::remote(last.get().unwrap());
    assert_eq!(names(vec![None]), Vec::<Vec<u8>>::new());
}

#[test]
fn failures_reach_what_depends_on_them() {
    let failed = fail::remote();
    let dependent = double::remote(&failed);
    let error = double::remote(&dependent).get().unwrap_err();
    assert_eq!(error.kind(), Some(FailureKind::Dependency));
    assert!(error.to_string().contains("as asked"), "{error}");
    let origin = failed.get().unwrap_err().failure().unwrap().origin.clone();
    assert_eq!(error.failure().unwrap().origin, origin);
    assert_eq!(
        panic::remote().get().unwrap_err().kind(),
        Some(FailureKind::Trap)
    );
}

#[test]
fn a_failure_that_is_passed_on_stays_the_same() {
    for depth in [0, 1, 9] {
        let passed = pass::remote(depth).get().unwrap_err();
        let failure = passed.failure().unwrap();
        let says = format!("{} (`fail`) returned an error: as asked", failure.origin);
        assert_eq!(failure.message, says);
        assert_eq!(passed.payload::<String>().as_deref(), Some("as asked"));
    }
}

#[test]
fn waiting_tells_ready_from_rest() {
    let futures = [double::remote(1), double::remote(2)];
    let (ready, rest) = wait(futures, 9, None).unwrap();
    assert_eq!((ready.len(), rest.len()), (2, 0));
    let (ready, _) = wait([fail::remote()], 1, None).unwrap();
    assert_eq!(ready.len(), 1, "what failed is ready");
    assert!(wait(Vec::<Future<u8>>::new(), 1, None).is_ok());
}

#[test]
fn calls_wait_for_their_turn() {
    let actor = Recursive::create(5).unwrap();
    let futures = actor.later(&actor).get().unwrap();
    // 5 + 1, and 6 + 6.
    assert_eq!(get_all(futures).unwrap(), [24, 6, 12]);
}

#[test]
fn who_waits_for_itself_is_told() {
    let actor = Recursive::create(0).unwrap();
    let error = actor.wait_for_itself(&actor).get().unwrap_err();
    assert!(
        matches!(error.payload::<Error>(), Some(Error::Deadlock(_))),
        "{error:?}"
    );
    assert_eq!(actor.patience(&actor).get(), Ok(true));
    assert_eq!(
        actor.incr(1).get(),
        Ok(3),
        "both calls were made in the end"
    );
}

#[test]
fn dead_actors_say_why() {
    let unborn = Recursive::create(5000).unwrap();
    let error = unborn.incr(1).get().unwrap_err();
    assert_eq!(error.kind(), Some(FailureKind::ActorDied));
    assert!(
        error.to_string().contains("too large to start with"),
        "{error}"
    );

    let orphan = Recursive::create(fail::remote()).unwrap();
    assert!(
        orphan
            .incr(1)
            .get()
            .unwrap_err()
            .to_string()
            .contains("as asked")
    );

    let killed = Recursive::create(1).unwrap();
    assert_eq!(
        killed.kill(&killed).get().unwrap_err().kind(),
        Some(FailureKind::ActorDied)
    );
    assert_eq!(
        killed.incr(1).get().unwrap_err().kind(),
        Some(FailureKind::ActorDied)
    );
}

#[test]
fn lists_are_mapped() {
    let numbers = put(vec![1_u32, 2, 3]).unwrap();
    let mapped = numbers.map().unwrap();
    assert_eq!(&*mapped, [1, 2, 3]);
    assert_eq!(mapped.future().size_bytes(), Ok(12));
    let empty = put(Vec::<f32>::new()).unwrap();
    assert!(empty.map().unwrap().is_empty());
}

#[test]
fn tasks_have_ids_of_their_own() {
    let (a, b) = (
        own_id::remote().get().unwrap(),
        own_id::remote().get().unwrap(),
    );
    assert_ne!(a, b);
    assert_eq!(crate::context::task_id(), "local");
}

#[test]
fn timeouts_of_what_is_there_do_nothing() {
    assert_eq!(double::remote(1).get_timeout(Duration::ZERO), Ok(2));
    for timeout in [Duration::ZERO, Duration::MAX] {
        let two = [double::remote(1), double::remote(2)];
        assert_eq!(get_all_timeout(&two, timeout), Ok(vec![2, 4]));
        let failed = get_all_timeout([double::remote(1), fail_later()], timeout);
        assert_eq!(failed.unwrap_err().kind(), Some(FailureKind::Dependency));
    }
    let done = double::remote(1);
    done.cancel();
    assert_eq!(done.get(), Ok(2));
}
