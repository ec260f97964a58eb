//! What operators hear while the head, and with it the control store, is away.

use rustix::process::Signal;
use wasmrun_tests::{assert_says, guest};

use crate::cluster::{Member, wait_for_rest};

/// All that writes to the control store or reads it for somebody who waits.
const ASKED: [&[&str]; 9] = [
    &["tenant", "set", "red", "--weight", "2"],
    &["tenant", "remove", "red"],
    &["node", "token", "create"],
    &["node", "token", "create", "--client", "--name", "ci"],
    &["node", "token", "list"],
    &["node", "token", "revoke", "ab"],
    &["node", "drain", "n2"],
    &["client", "list"],
    &["client", "revoke", "ci"],
];

/// Asks for all of it at once: each waits for as long.
fn ask_all(at: &Member) {
    let asking = ASKED.map(|args| (args, at.command(args).start()));
    let create = at.command(&["actor", "create"]).arg(guest("graph"));
    let create = create.args(["counter", "1", "--name", "total"]).start();
    for (args, running) in asking {
        let ended = running.end();
        assert_eq!(ended.code, Some(5), "{args:?}: {ended}");
        let (who, what) = ("node n1, has not answered for 5s", "wasmrun node list");
        assert_says(&ended.stderr, &["the control store", who, what]);
    }
    let ended = create.end();
    assert_eq!(ended.code, Some(5), "{ended}");
    assert_says(&ended.stderr, &["total", "is not known"]);
}

#[test]
fn operators_hear_soon_that_the_head_does_not_answer() {
    let (mut head, token) = Member::head("n1");
    let other = Member::joined("n2", &token);
    let seen = other.wait_for("n1", "alive");
    let address = seen["address"].as_str().expect("an address");
    head.signal(Signal::STOP);
    ask_all(&other);
    head.kill();
    ask_all(&other);
    // All was refused, so nothing is left of it, also once it could be done.
    head.start(&["--head", "--listen", address]);
    other.wait_for_incarnation("n1", 2);
    wait_for_rest([&head, &other]);
}
