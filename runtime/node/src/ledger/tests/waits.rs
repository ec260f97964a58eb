//! Attempts that wait for others: whose the CPU is meanwhile, and how they go on.

use super::*;

/// One CPU, which a task has that is about to wait, and others in line for it.
fn one_waits(in_line: &[&str]) -> Desk {
    let mut desk = Desk::new(1, 0, "4GiB");
    assert_eq!(desk.submit("waits", of("t", 0)), ["waits"]);
    for name in in_line {
        assert!(desk.submit(name, of("t", 0)).is_empty());
    }
    desk
}

#[test]
fn who_waits_goes_on_with_the_cpu_of_what_it_waited_for() {
    let mut desk = one_waits(&["a", "b", "c", "next"]);
    let (_watch, starts) = desk.block("waits", &["a", "b", "c"], 2);
    assert_eq!(starts, ["a"]);
    assert_eq!(desk.end("a", Ok(())), ["b"]);
    // Nobody else starts before its thread has heard of it.
    assert!(desk.end("b", Ok(())).is_empty());
    assert!(desk.resume("waits"));
    assert_eq!(desk.end("waits", Ok(())), ["c"]);
    desk.clear();
}

#[test]
fn who_waits_for_what_another_has_ended_waits_for_a_cpu_before_others() {
    let mut desk = Desk::new(2, 0, "4GiB");
    desk.submit("first", of("t", 0));
    desk.submit("second", of("t", 0));
    desk.submit("it", of("t", 0));
    desk.submit("next", of("t", 0));
    let (_one, starts) = desk.block("first", &["it"], 1);
    assert_eq!(starts, ["it"]);
    let (_two, starts) = desk.block("second", &["it"], 1);
    assert_eq!(starts, ["next"]);
    desk.submit("last", of("t", 0));
    // One CPU for the two of them.
    assert!(desk.end("it", Ok(())).is_empty());
    assert_eq!([desk.resume("first"), desk.resume("second")], [true, false]);
    assert!(desk.end("next", Ok(())).is_empty());
    assert_eq!(desk.end("first", Ok(())), ["last"]);
    desk.clear();
}

#[test]
fn an_attempt_that_is_tried_again_ends_no_wait() {
    let mut desk = Desk::new(1, 0, "4GiB");
    desk.submit("waits", of("t", 0));
    let again = Overrides {
        retries: Some(1),
        ..of("t", 0)
    };
    desk.submit("it", again);
    desk.submit("next", of("t", 0));
    let (_watch, starts) = desk.block("waits", &["it"], 1);
    assert_eq!(starts, ["it"]);
    assert_eq!(desk.end("it", Err(trap())), ["next"]);
    assert_eq!(desk.end("next", Ok(())), ["it"]);
    assert!(
        desk.end("it", Err(trap())).is_empty(),
        "a failure is an end"
    );
    assert!(desk.resume("waits"));
    desk.clear();
}

#[test]
fn what_has_ended_before_the_wait_begins_leaves_the_cpu_where_it_is() {
    let mut desk = Desk::new(2, 0, "4GiB");
    desk.submit("waits", of("t", 0));
    desk.submit("it", of("t", 0));
    desk.submit("next", of("t", 0));
    let countdown = Countdown::of(1, Some((desk.cell("waits").id, desk.attempt("waits"))));
    assert!(!desk.cell("it").watch(&countdown));
    assert_eq!(desk.end("it", Ok(())), ["next"]);
    desk.submit("last", of("t", 0));
    assert!(desk.block_for("waits", &countdown).is_empty());
    assert!(desk.resume("waits"));
    assert_eq!(desk.end("waits", Ok(())), ["last"]);
    desk.clear();
}

#[test]
fn who_has_waited_long_enough_goes_on_and_gets_a_cpu_when_one_is_free() {
    let mut desk = one_waits(&["it", "next", "last"]);
    let (_watch, starts) = desk.block("waits", &["it"], 1);
    assert_eq!(starts, ["it"]);
    desk.go_ahead("waits");
    // It is first in line, and has the CPU from then on.
    assert!(desk.end("it", Ok(())).is_empty());
    let (_watch, starts) = desk.block("waits", &["last"], 1);
    assert_eq!(starts, ["next"], "it had one to give back");
    desk.go_ahead("waits");
    // Without one it waits again, and there is nothing to give back.
    let (_watch, starts) = desk.block("waits", &["last"], 1);
    assert!(starts.is_empty());
    assert_eq!(
        desk.end("next", Ok(())),
        ["last"],
        "nobody keeps one for it"
    );
    assert!(desk.end("last", Ok(())).is_empty());
    assert!(desk.resume("waits"));
    assert!(desk.end("waits", Ok(())).is_empty());
    desk.assert_idle();
}

#[test]
fn what_ends_when_the_time_is_up_gives_its_cpu_to_who_waited() {
    let mut desk = one_waits(&["it", "next"]);
    let (_watch, starts) = desk.block("waits", &["it"], 1);
    assert_eq!(starts, ["it"]);
    // The thread has not heard of that, and its time is up.
    assert!(desk.end("it", Ok(())).is_empty());
    desk.go_ahead("waits");
    assert_eq!(desk.end("waits", Ok(())), ["next"]);
    desk.clear();
}

#[test]
fn who_runs_without_a_cpu_and_waits_for_what_is_there_waits_for_a_cpu() {
    let mut desk = one_waits(&["it", "next"]);
    let (_watch, starts) = desk.block("waits", &["it"], 1);
    assert_eq!(starts, ["it"]);
    desk.go_ahead("waits");
    let over = Countdown::of(1, None);
    over.decide();
    assert!(desk.block_for("waits", &over).is_empty());
    assert!(!desk.resume("waits"), "the other has it");
    assert!(desk.end("it", Ok(())).is_empty(), "it is first in line");
    assert_eq!(desk.end("waits", Ok(())), ["next"]);
    desk.clear();
}

#[test]
fn who_ends_without_its_cpu_leaves_nothing() {
    let mut desk = Desk::new(1, 0, "4GiB");
    desk.submit("waits", retrying(1));
    desk.submit("it", of("t", 0));
    let (_watch, starts) = desk.block("waits", &["it"], 1);
    assert_eq!(starts, ["it"]);
    desk.go_ahead("waits");
    // Its next attempt is like any other.
    assert!(desk.end("waits", Err(trap())).is_empty());
    assert_eq!(desk.end("it", Ok(())), ["waits"]);
    desk.submit("next", of("t", 0));
    let over = Countdown::of(1, None);
    over.decide();
    assert!(desk.block_for("waits", &over).is_empty());
    assert!(desk.resume("waits"));
    assert_eq!(desk.end("waits", Ok(())), ["next"]);
    desk.clear();
}
