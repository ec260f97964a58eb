//! Nodes that cannot confirm that they live.

use rustix::process::Signal;
use wasmrun_tests::{assert_says, guest};

use super::world::{Three, eventually, wait_for_rest};

/// Its owner may take it for dead and have the actor live elsewhere: so it does nothing until that is settled.
#[test]
fn a_node_that_cannot_confirm_its_lease_pauses_its_actors() {
    let mut three = Three::new();
    let create = three.b.command(&["actor", "create"]).arg(guest("spread"));
    let create = create.args(["tally", "0", "--name", "t", "--cpus", "0"]);
    create.args(["--strategy", "node:c"]).ok();
    let place = three.b.command(&["actor", "call", "t", "place()"]);
    assert_eq!(place.ok(), "\"c\"\n");
    let next = || three.b.command(&["actor", "call", "t", "next()"]);
    assert_eq!(next().ok(), "1\n");
    three.a.running().signal(Signal::STOP);
    three.c.wait_for("c", "unconfirmed");
    let mut call = next().start();
    let task = eventually("with the host of the actor", || {
        let list = three.c.command(&["list", "tasks"]).json(0);
        let tasks = list["tasks"].as_array().expect("a list");
        let is_it = |name: &str| name.contains("next");
        let found = tasks
            .iter()
            .find(|it| it["name"].as_str().is_some_and(is_it) && it["state"] == "running");
        let id = found.and_then(|it| it["id"].as_str());
        id.map(ToOwned::to_owned).ok_or(list.to_string())
    });
    // Said at the node where it is, and at the one where it was made.
    for at in [&three.c, &three.b] {
        let why = at.command(&["explain", &task]).ok();
        assert_says(&why, &["does not confirm that this node lives"]);
    }
    assert!(call.is_running());
    three.a.running().signal(Signal::CONT);
    let ended = call.end();
    assert_eq!(ended.stdout_text(), "2\n", "{ended}");
    // Once.
    assert_eq!(next().ok(), "3\n");
    let kill = three.b.command(&["actor", "kill", "t"]);
    kill.ok();
    wait_for_rest(three.all());
}

/// A node that finds that it was declared dead takes all others for dead, until it sees them again.
#[test]
fn what_waits_for_another_node_s_group_waits_on_when_its_own_node_was_cut_off() {
    let mut three = Three::new();
    // Both groups need all CPUs there are, so the second has to wait.
    let groups = [(); 2].map(|()| {
        let create = three.a.command(&["group", "create", "--detach"]);
        let create = create.args(["--kind", "strict_spread"]);
        let create = (0..3).fold(create, |create, _| create.args(["--bundle", "cpus=1"]));
        create.ok().trim().to_owned()
    });
    let [first, second] = &groups;
    three.b.command(&["group", "ready", first]).ok();
    // Not detached: another node would take it over.
    let submit = three.b.command(&["submit", "-q"]).arg(guest("spread"));
    let submit = submit.args(["--invoke", "sum([1, 2])"]);
    let submit = submit.args(["--strategy", &format!("group:{second}:1")]);
    let submitted = submit.start();
    eventually("waiting for the group", || {
        let list = three.b.command(&["list", "tasks"]).json(0);
        let id = list["tasks"][0]["id"].as_str().map(ToOwned::to_owned);
        let why = three
            .b
            .command(&["explain", &id.ok_or(list.to_string())?])
            .run();
        let waits = why.stdout_text().contains("it waits for placement group");
        waits.then_some(()).ok_or(why.to_string())
    });
    three.b.running().signal(Signal::STOP);
    three.a.wait_for("b", "dead");
    three.b.running().signal(Signal::CONT);
    three.a.wait_for_incarnation("b", 2);
    three.meet();
    three.c.command(&["group", "remove", first]).ok();
    let ended = submitted.end();
    assert_eq!(ended.stdout_text(), "3\n", "{ended}");
    three.a.command(&["group", "remove", second]).ok();
    wait_for_rest(three.all());
}
