//! What one tenant can name of another's: nothing, and nothing of another's is in the way of its own.

mod common;

use wasmrun_client::blocking::Client;
use wasmrun_client::wire::{self, RefusalKind, Terms};
use wasmrun_client::{CreateActor, Error, Submit, Task};
use wasmrun_model::value::codec::encode;
use wasmrun_model::value::{Value, ValueType};

use crate::common::Served;

fn spin(client: &Client, module: &wire::Module) -> Task {
    let spin = Submit::function(module, "spin").detached();
    client.wait(client.submit(spin)).unwrap()
}

/// An actor that outlives its session. Its id.
fn create(client: &Client, module: &wire::Module, name: &str) -> String {
    let start = encode(&ValueType::U64, &Value::U64(1)).unwrap();
    let create = CreateActor::new(module, "counter", vec![start.into()]);
    let create = create.named(name).detached();
    let actor = client.wait(client.create_actor(create)).unwrap();
    actor.id().to_string()
}

#[track_caller]
fn assert_not_found<T: std::fmt::Debug>(result: Result<T, Error>) {
    match result {
        Err(Error::Refused(why)) => {
            assert_eq!(why.kind, RefusalKind::NotFound);
            assert!(why.message.contains("of tenant 'blue'"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn anothers_tasks_and_actors_are_not_found() {
    let served = Served::with_cpus(2);
    let ((red, module), (blue, _)) = (served.client_of("red"), served.client_of("blue"));
    let task = spin(&red, &module).id().to_string();
    let actor = create(&red, &module, "total");
    for id in [&task, &actor] {
        assert_not_found(blue.wait(blue.logs(id)));
        assert_not_found(blue.wait(blue.cancel(id)));
        assert_not_found(blue.wait(blue.explain(id)));
        assert_not_found(blue.wait(blue.describe(id)));
        assert_not_found(blue.wait(blue.kill(id)));
    }
    assert_not_found(blue.wait(blue.find_actor(&actor)));
    assert_not_found(blue.wait(blue.kill("total")));
    assert_not_found(blue.wait(blue.logs("total")));
    // Whose they are can do all that.
    let why = red.wait(red.explain(&task[..20])).unwrap();
    assert!(why.contains("running"), "{why}");
    red.wait(red.logs(&task)).unwrap();
    red.wait(red.logs(&actor[..20])).unwrap();
    red.wait(red.find_actor(&actor)).unwrap();
    red.wait(red.kill(&actor)).unwrap();
    red.wait(red.cancel(&task)).unwrap();
}

#[test]
fn anothers_ids_make_no_prefix_ambiguous() {
    let served = Served::with_cpus(2);
    let (red, module) = served.client_of("red");
    // The id of its own job must not begin so.
    let (blue, same, own) = loop {
        let (blue, same) = served.client_of("blue");
        let own = spin(&blue, &same).id().to_string();
        if blue.wait(blue.describe(&own[..1])).is_ok() {
            break (blue, same, own);
        }
    };
    let first = &own[..1];
    // Until there is one that begins in the same way.
    while !spin(&red, &module).id().to_string().starts_with(first) {}
    let row = blue.wait(blue.describe(first)).unwrap().task().unwrap().row;
    assert_eq!(row.id.to_string(), own);
    blue.wait(blue.logs(first)).unwrap();
    blue.wait(blue.explain(first)).unwrap();
    blue.wait(blue.cancel(first)).unwrap();
    let actor = create(&blue, &same, "own");
    let mut names = (0..).map(|n| format!("actor-{n}"));
    while !create(&red, &module, &names.next().unwrap()).starts_with(&actor[..1]) {}
    blue.wait(blue.kill(&actor[..1])).unwrap();
}

#[test]
fn a_session_can_name_what_it_submitted_for_another_tenant() {
    let served = Served::with_cpus(2);
    let (blue, module) = served.client_of("blue");
    let terms = Terms {
        tenant: Some("red".parse().unwrap()),
        ..Terms::default()
    };
    let spin = Submit::function(&module, "spin").terms(terms);
    let task = blue.wait(blue.submit(spin)).unwrap();
    let id = task.id().to_string();
    let row = blue.wait(blue.describe(&id)).unwrap().task().unwrap().row;
    assert_eq!(row.tenant.to_string(), "red");
    blue.wait(blue.cancel(&id)).unwrap();
}
