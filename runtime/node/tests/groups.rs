//! Placement groups of the sessions of one node: limits, ends, and who finds them.

mod common;

use std::time::Duration;

use wasmrun_client::blocking::Client;
use wasmrun_client::wire::{List, RefusalKind, Rows, What};
use wasmrun_client::{CreateActor, CreateGroup, Error, GetError, Group, GroupError, Submit};
use wasmrun_model::failure::TaskError;
use wasmrun_model::group::{GroupKind, GroupSpec};
use wasmrun_model::resource::{Amount, Request, ResourceName, ResourceSet};
use wasmrun_model::value::codec::encode;
use wasmrun_model::value::{Value, ValueType};
use wasmrun_node::NodeConfig;

use crate::common::Served;

fn serve() -> Served {
    Served::start(NodeConfig {
        cpus: Some(Amount::units(2)),
        // It is promised, and nobody touches it.
        memory: Some(units(200 * MEMORY)),
        ..NodeConfig::default()
    })
}

fn units(units: u64) -> Amount {
    Amount::from_units(units).unwrap()
}

/// A group whose bundles have so many CPUs, and some memory.
fn group(bundles: &[u64]) -> CreateGroup {
    let bundle = |cpus: &u64| {
        let amounts = [
            (ResourceName::CPU, units(*cpus)),
            (ResourceName::MEMORY, units(MEMORY * cpus.max(&1))),
        ];
        Request::new(ResourceSet::from_iter(amounts)).unwrap()
    };
    let bundles = bundles.iter().map(bundle).collect();
    CreateGroup::new(GroupSpec::new(GroupKind::Pack, bundles).unwrap())
}

/// What a task gets that says nothing.
const MEMORY: u64 = 256 << 20;

fn create(client: &Client, create: CreateGroup) -> Result<Group, Error> {
    client.wait(client.create_group(create))
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> (RefusalKind, String) {
    match result {
        Err(Error::Refused(why)) => (why.kind, why.message),
        other => panic!("{other:?}"),
    }
}

/// Waits until nothing of the node is taken and there are no groups.
fn wait_for_rest(client: &Client) {
    loop {
        let status = client.wait(client.status()).unwrap();
        let listed = client.wait(client.list(List::of(What::Groups))).unwrap();
        let is_over = matches!(&listed.rows, Rows::Groups(rows) if rows.is_empty());
        if status.available == status.total && is_over {
            return;
        }
    }
}

#[test]
fn a_tenant_has_so_many_groups_and_no_more() {
    let served = serve();
    let (red, _) = served.client_of("red");
    let (blue, _) = served.client_of("blue");
    for _ in 0..100 {
        create(&red, group(&[0])).unwrap();
    }
    let (kind, why) = refused(create(&red, group(&[0])));
    assert_eq!(kind, RefusalKind::Full);
    assert!(
        why.starts_with("tenant 'red' has 100 placement groups at this node"),
        "{why}"
    );
    // That is nobody else's affair.
    create(&blue, group(&[0])).unwrap();
    // They end with their sessions.
    drop((red, blue));
    let (red, _) = served.client_of("red");
    wait_for_rest(&red);
    create(&red, group(&[0])).unwrap();
}

#[test]
fn a_detached_group_stays_and_is_its_tenant_s() {
    let served = serve();
    let (red, _) = served.client_of("red");
    let kept = create(&red, group(&[1]).named("kept").detached()).unwrap();
    let id = kept.id().to_string();
    drop((kept, red));
    let (blue, module) = served.client_of("blue");
    for name in ["kept", &id] {
        let (kind, _) = refused(blue.wait(blue.remove_group(name)));
        assert_eq!(kind, RefusalKind::NotFound);
        assert_eq!(
            refused(blue.wait(blue.explain(name))).0,
            RefusalKind::NotFound
        );
    }
    let spin = Submit::function(&module, "spin").group(&blue.group(id.parse().unwrap()), None);
    let (kind, why) = refused(blue.wait(blue.submit(spin)));
    assert_eq!(kind, RefusalKind::Unschedulable);
    assert!(why.contains("the tenant has no placement group"), "{why}");
    let (red, _) = served.client_of("red");
    red.wait(red.group_ready(&id[..8], None)).unwrap();
    let said = red.wait(red.explain("kept")).unwrap();
    assert!(said.contains("(pack) has been ready for "), "{said}");
    red.wait(red.remove_group("kept")).unwrap();
    wait_for_rest(&red);
}

#[test]
fn what_lives_in_a_group_ends_with_it() {
    let served = serve();
    let (client, module) = served.client_of("red");
    let both = create(&client, group(&[1, 1])).unwrap();
    client.wait(both.ready(None)).unwrap();
    let spin = Submit::function(&module, "spin").group(&both, Some(0));
    let spin = client.wait(client.submit(spin)).unwrap();
    let start = encode(&ValueType::U64, &Value::U64(1)).unwrap();
    let counter = CreateActor::new(&module, "counter", vec![start.into()]).group(&both, Some(1));
    let counter = client.wait(client.create_actor(counter)).unwrap();
    // Another one waits for what these have.
    let other = create(&client, group(&[1])).unwrap();
    match client.wait(other.ready(Some(Duration::from_millis(1)))) {
        Err(GroupError::TimedOut(why)) => assert!(why.contains("no node has room for it"), "{why}"),
        other => panic!("{other:?}"),
    }
    client.wait(both.remove()).unwrap();
    match client.wait(spin.future().get(None)) {
        Err(GetError::Failed {
            error: TaskError::Unschedulable(why),
            ..
        }) => assert!(why.contains("was removed"), "{why}"),
        other => panic!("{other:?}"),
    }
    client.wait(other.ready(None)).unwrap();
    let one = encode(&ValueType::U64, &Value::U64(1)).unwrap();
    let call = client
        .wait(counter.call("count", vec![one.into()]))
        .unwrap();
    match client.wait(call.get(None)) {
        Err(GetError::Failed { error, .. }) => {
            let why = error.to_string();
            assert!(
                why.contains("has died") && why.contains("was removed"),
                "{why}"
            );
        }
        other => panic!("{other:?}"),
    }
    client.wait(other.remove()).unwrap();
    wait_for_rest(&client);
}

#[test]
fn two_groups_of_one_name_are_told_apart_by_their_ids() {
    let served = serve();
    let (red, _) = served.client_of("red");
    let [one, _two] = [0, 0].map(|cpus| create(&red, group(&[cpus]).named("same")).unwrap());
    let ambiguous = [
        refused(red.wait(red.remove_group("same"))),
        refused(red.wait(red.explain("same"))),
    ];
    for (kind, why) in ambiguous {
        assert_eq!(kind, RefusalKind::Ambiguous, "{why}");
        let says = "more than one placement group is called 'same'";
        assert!(why.contains(says), "{why}");
    }
    let id = one.id().to_string();
    red.wait(red.remove_group(&id)).unwrap();
    let said = red.wait(red.explain("same"));
    assert!(said.is_ok(), "{said:?}");
}

#[test]
fn a_call_that_runs_says_that_its_actor_s_group_was_removed() {
    let served = serve();
    let (client, module) = served.client_of("red");
    let group = create(&client, group(&[1])).unwrap();
    client.wait(group.ready(None)).unwrap();
    let start = encode(&ValueType::U64, &Value::U64(1)).unwrap();
    let counter = CreateActor::new(&module, "counter", vec![start.into()]).group(&group, None);
    let counter = client.wait(client.create_actor(counter)).unwrap();
    let hangs = client.wait(counter.call("hang", Vec::new())).unwrap();
    let task = hangs.id().task().to_string();
    let state = || {
        client
            .wait(client.describe(&task))
            .unwrap()
            .task()
            .unwrap()
            .row
            .state
    };
    while state() != "running" {}
    client.wait(group.remove()).unwrap();
    match client.wait(hangs.get(None)) {
        Err(GetError::Failed {
            error: error @ TaskError::ActorDied { .. },
            ..
        }) => assert!(error.to_string().contains("was removed"), "{error}"),
        other => panic!("{other:?}"),
    }
    wait_for_rest(&client);
}
