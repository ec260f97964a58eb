//! What nobody waits for while nodes cannot hear each other: work and names of either side are asked for meanwhile, on
//! both, and all nodes say the same when they can.

use std::thread;
use std::time::{Duration, Instant};

use wasmrun_tests::{Wasmrun, assert_says};

use super::detached::{Detached, Named, answers, ask, create};
use super::links::{Hosts, NAMES, PARTED, PARTED_LONG};
use super::world::{Node, Three};

/// Who owns large results, and who has them.
const LARGE: [(&str, &str); 8] = [
    ("a", "b"),
    ("a", "c"),
    ("b", "a"),
    ("b", "b"),
    ("b", "c"),
    ("c", "a"),
    ("c", "b"),
    ("c", "c"),
];

/// Whoever is asked says that it cannot know.
fn fail_saying<const N: usize>(asked: [Wasmrun; N], why: &str) {
    let asked = asked.map(Wasmrun::start);
    for ended in asked.map(wasmrun_tests::Running::end) {
        assert_ne!(ended.code, Some(0), "{ended}");
        assert_says(&ended.stderr, &["is not known", why]);
    }
}

/// All is as it was to be, and somebody had each result all the time.
#[track_caller]
fn ends_well(detached: Detached, mut three: Three) {
    detached.ends_well(&three);
    for name in NAMES {
        let wrote = three.node_mut(name).kill();
        assert!(
            !wrote.stderr.contains("is lost, and reconstructed"),
            "{wrote}"
        );
    }
}

/// Creates an actor that lives once.
fn created(at: &Node, name: &str) -> Named {
    let id = create(at, name).ok().trim().to_owned();
    Named {
        name: name.to_owned(),
        id,
    }
}

/// Nodes that are parted for a while.
struct Parting<'h> {
    hosts: &'h Hosts,
    between: &'static [(&'static str, &'static str)],
    is_unplugged: bool,
    since: Instant,
}

impl<'h> Parting<'h> {
    fn begin(
        hosts: &'h Hosts,
        between: &'static [(&'static str, &'static str)],
        is_unplugged: bool,
    ) -> Self {
        for (one, other) in between {
            hosts.part(one, other, is_unplugged);
        }
        Self {
            hosts,
            between,
            is_unplugged,
            since: Instant::now(),
        }
    }

    /// It lasts so long at least.
    fn end(self, time: Duration) {
        // How long a fault lasts is what these tests are about; nothing is waited for so.
        thread::sleep(time.saturating_sub(self.since.elapsed()));
        for (one, other) in self.between {
            self.hosts.heal(one, other, self.is_unplugged);
        }
    }
}

#[test]
fn what_is_detached_when_a_worker_and_the_head_cannot_hear_each_other() {
    let Some(hosts) = Hosts::new() else { return };
    let three = hosts.three();
    let mut detached = Detached::begin(&three, &LARGE);
    let Three { a, b, c } = &three;
    // Nobody else has it than its name: it ends with that if another takes it.
    created(b, "once");
    let again = created(b, "again");
    let parting = Parting::begin(&hosts, &[("a", "b")], false);
    a.wait_for("b", "dead");
    // Who can ask the store finds who lives on, and takes what is free.
    for node in [a, c] {
        for name in ["of-a", "of-b", "of-c"] {
            answers(node, name);
        }
    }
    let taken = created(c, "once");
    answers(a, "once");
    detached.submit_anyhow(a, false);
    detached.submit_anyhow(c, false);
    b.wait_for("b", "unconfirmed");
    // Who cannot says so, also of what it could reach.
    let asked = [ask(b, "of-a"), ask(b, "of-c"), create(b, "new")];
    fail_saying(asked, "control store");
    detached.submit_anyhow(b, true);
    let new = created(c, "new");
    parting.end(PARTED);
    a.wait_for_incarnation("b", 2);
    three.meet();
    for actor in [taken, new, again] {
        detached.add_actor(actor);
    }
    ends_well(detached, three);
}

#[test]
fn what_is_detached_when_two_workers_cannot_hear_each_other() {
    let Some(hosts) = Hosts::new() else { return };
    // Nobody is to die, on a busy machine either.
    let nodes = NAMES.map(|name| hosts.node(name).with(&["--lease-time", "20s"]));
    let three = Three::with(nodes);
    let mut detached = Detached::begin(&three, &LARGE);
    let Three { a, b, c } = &three;
    let parting = Parting::begin(&hosts, &[("b", "c")], true);
    for (name, owner) in [("of-b", c), ("of-c", b)] {
        answers(a, name);
        let asked = [ask(owner, name), create(owner, name)];
        fail_saying(asked, "which has it, does not answer");
    }
    for node in three.all() {
        answers(node, &format!("of-{}", node.name));
        detached.submit_anyhow(node, false);
    }
    let new = ["b", "c"].map(|node| created(three.node(node), &format!("new-{node}")));
    parting.end(PARTED_LONG);
    three.meet();
    for name in ["b", "c"] {
        let incarnation = a.sees(name).expect("it lives")["incarnation"].clone();
        assert_eq!(incarnation, 1, "nobody was dead");
    }
    new.into_iter().for_each(|actor| detached.add_actor(actor));
    ends_well(detached, three);
}

#[test]
fn what_is_detached_when_a_head_is_alone() {
    let Some(hosts) = Hosts::new() else { return };
    let three = hosts.three();
    let mut detached = Detached::begin(&three, &LARGE);
    let Three { a, b, c } = &three;
    for node in [b, c] {
        created(node, &format!("once-{}", node.name));
    }
    let parting = Parting::begin(&hosts, &[("a", "b"), ("a", "c")], true);
    for node in [b, c] {
        a.wait_for(&node.name, "dead");
        node.wait_for(&node.name, "unconfirmed");
    }
    for name in ["of-a", "of-b", "of-c"] {
        answers(a, name);
    }
    let taken = ["once-b", "once-c", "new"].map(|name| created(a, name));
    detached.submit_anyhow(a, false);
    // They hear each other, and nobody who knows.
    let asked = [
        ask(b, "of-c"),
        ask(c, "of-b"),
        create(b, "new"),
        create(c, "new"),
    ];
    fail_saying(asked, "control store");
    for node in [b, c] {
        detached.submit_anyhow(node, true);
    }
    parting.end(PARTED_LONG);
    for node in [b, c] {
        a.wait_for_incarnation(&node.name, 2);
    }
    three.meet();
    taken
        .into_iter()
        .for_each(|actor| detached.add_actor(actor));
    ends_well(detached, three);
}
