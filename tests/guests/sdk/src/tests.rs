//! The module, natively: what a guest's author sees of `cargo test`.

use wasmrun_guest::prelude::*;

use crate::app::*;
use crate::shapes::Shape;

#[test]
fn values_come_back_as_they_were() {
    let everything = Everything {
        flag: true,
        letter: 'ß',
        text: "text".to_owned(),
        small: -1,
        wide: i64::MIN,
        real: 0.5,
        maybe: Some(Part {
            seed: 1,
            samples: 2,
        }),
        outcome: Err("no".to_owned()),
        nothing: Ok(()),
        pair: (7, vec!["a".to_owned(), String::new()]),
        numbers: vec![1.5, -2.5],
        bytes: vec![0, 1, 255],
        shapes: vec![
            Shape::Dot,
            Shape::Circle(1.0),
            Shape::Rect(2.0, 3.0),
            Shape::Star {
                points: 5,
                radius: 1.0,
            },
        ],
        trust: Trust::High,
        r#type: 12,
    };
    assert_eq!(echo::remote(&everything).get().unwrap(), everything);
    assert_eq!(echo_bytes::remote(vec![1, 2]).get().unwrap(), [1, 2]);
    let numbers = vec![1.0, 2.0];
    assert_eq!(
        echo_result::remote(Ok(numbers.clone())).get().unwrap(),
        numbers
    );
    let error = echo_result::remote(Err("no".to_owned())).get().unwrap_err();
    assert_eq!(error.payload::<String>().as_deref(), Some("no"));
    // The ok case of a result becomes a list again.
    assert_eq!(
        sum::remote(echo_result::remote(Ok(numbers))).get().unwrap(),
        3.0
    );
    let shapes = [Shape::Rect(2.0, 3.0), Shape::Dot];
    assert_eq!(area::remote(&shapes).get().unwrap(), 6.0);
    assert_eq!(area::remote(&shapes[..]).get().unwrap(), 6.0);
    assert_eq!(area::remote(shapes).get().unwrap(), 6.0);
}

#[test]
fn tasks_start_tasks() {
    let about_pi = pi::remote(4, 10_000).get().unwrap();
    assert!((3.0..3.3).contains(&about_pi), "{about_pi}");
    assert_eq!(fib::remote(10).get().unwrap(), 55);
    assert_eq!(chain::remote(10).get().unwrap(), 1024);
    assert!(pi_plus::remote(1, 1.0).get().unwrap() > 3.0);
    assert_eq!(add::remote(1, double::remote(2)).get().unwrap(), 5);
    let held = with_options::remote().get().unwrap();
    assert_eq!(held[..5], ["nothing"; 5]);
}

#[test]
fn objects_are_handed_around() {
    let expected = [6.0, 6.0, 3.0, 6.0, 32.0, 24.0, 7.0];
    assert_eq!(objects::remote(4).get().unwrap(), expected);
    assert_eq!(sum_mapped::remote(Vec::new()).get().unwrap(), 0.0);
    assert_eq!(churn::remote(4, 1).get().unwrap(), 6);
    assert_eq!(lend::remote(4).get().unwrap(), (6.0, 4));
    assert_eq!(spread_out::remote(3).get().unwrap(), 3);
    let said = use_stored::remote(8, "local").get().unwrap();
    assert_eq!(said, [15, 20, 20, 17]);
}

#[test]
fn failures_say_what_happened() {
    assert_eq!(check::remote(7).get().unwrap(), 7);
    let refusal = read_payload::remote(11).get().unwrap();
    assert_eq!(refusal, Refusal::TooLarge { most: 10 });
    assert_eq!(read_payload::remote(0).get().unwrap(), Refusal::Empty);

    let error = pi::remote(0, 1).get().unwrap_err();
    assert_eq!(
        error.payload::<String>().as_deref(),
        Some("pi needs at least one part")
    );
    assert_eq!(error.kind(), Some(FailureKind::Guest));
    assert!(
        error.to_string().contains("pi needs at least one part"),
        "{error}"
    );

    let panicked = read_panic::remote("ouch").get().unwrap();
    assert!(
        panicked.starts_with("Some(Trap)") && panicked.contains("ouch"),
        "{panicked}"
    );
    let dependency = read_dependency::remote("ouch").get().unwrap();
    assert!(
        dependency.starts_with("Some(Dependency)") && dependency.contains("ouch"),
        "{dependency}"
    );
    let early = retrying::remote().get().unwrap_err();
    assert!(
        early.to_string().contains("too early"),
        "nothing is tried again here: {early}"
    );
    // Through the ok case of a result, too.
    let error = plus::remote(pi::remote(0, 1), 1.0).get().unwrap_err();
    assert_eq!(error.kind(), Some(FailureKind::Dependency));
}

#[test]
fn actors_keep_their_state() {
    assert_eq!(count::remote(5).get().unwrap(), 5);
    assert_eq!(share_counter::remote().get().unwrap(), 35 + 41);
    let counter = Counter::create(double::remote(4)).unwrap();
    assert_eq!(counter.decr(3).get().unwrap(), 5);
    assert_eq!(counter.value().get().unwrap(), 5);
}

#[test]
fn actors_are_found_by_name() {
    let said = named::remote("one").get().unwrap();
    assert_eq!(said[0], "2");
    assert!(
        said[1].contains("there is an actor named 'one' already"),
        "{said:?}"
    );
    assert!(
        said[2].contains("no actor is named 'one-unknown'"),
        "{said:?}"
    );
    assert!(Counter::find("one").is_err(), "it was killed");
}

#[test]
fn actors_die_of_a_panic() {
    let said = dying::remote().get().unwrap();
    assert_eq!(said[0], "1 is less than 2");
    assert!(
        said[1].starts_with("Some(Trap)") && said[1].contains("on purpose"),
        "{said:?}"
    );
    assert!(
        said[2].starts_with("Some(ActorDied)") && said[2].contains("on purpose"),
        "{said:?}"
    );
}

#[test]
fn circles_are_found() {
    assert_eq!(circle::remote(1).get().unwrap(), 1);
    let error = circle::remote(2).get().unwrap_err();
    assert!(matches!(error, Error::Failed(_)), "{error:?}");
    assert!(
        error.to_string().contains("neither would ever go on"),
        "{error}"
    );
}

#[test]
fn tasks_know_who_they_are() {
    let (id, attempt, node) = whoami::remote().get().unwrap();
    assert!(id.starts_with("local-"), "{id}");
    assert_eq!((attempt, node.as_str()), (0, "local"));
}
