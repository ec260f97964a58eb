//! Who is a client of the cluster: listed, named, and let in no more.

use serde_json::Value as Json;
use wasmrun_tests::assert_says;

use crate::cluster::{Member, wait_for_rest};
use crate::elsewhere::{Client, Cluster};

/// The clients that a node lists, with this value in this field.
#[track_caller]
fn listed(at: &Member, filter: &str) -> Vec<Json> {
    let list = at.command(&["client", "list", "-f", filter]).json(0);
    list["clients"].as_array().expect("a list").clone()
}

/// One who logs in with a token for this name, and who that is.
fn named(cluster: &Cluster, name: &str) -> (Client, String) {
    let client = Client::new(&cluster.address);
    let token = cluster.head.token(&["--client", "--name", name]);
    let said = client.command(&["login", &token]).json(0);
    (client, said["client"].as_str().expect("an id").to_owned())
}

#[test]
fn who_is_revoked_is_let_in_at_no_node_and_others_are() {
    let mut cluster = Cluster::new();
    let token = cluster.head.token(&["--many"]);
    let other = Member::joined("n2", &token);
    let there = other.wait_for("n2", "alive");
    let there = there["address"].as_str().expect("it listens").to_owned();
    let (ci, id) = named(&cluster, "ci");
    let (friend, _) = named(&cluster, "friend");
    let unnamed = cluster.client();
    let rows = listed(&other, "name=ci");
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(
        (&row["id"], &row["state"]),
        (&id.clone().into(), &"valid".into())
    );
    assert!(row["age_ms"].is_u64() && row["left_ms"].is_u64(), "{row}");
    assert_eq!(listed(&cluster.head, "state=valid").len(), 3);
    // Only operators may know and do this.
    for args in [&["client", "list"][..], &["client", "revoke", "friend"]] {
        ci.command(args).fails_saying(2, &["the role operator"]);
    }
    // One session at the head, and one at the other node, through which it is revoked.
    let spins = ci.submit("spin()").start();
    let elsewhere = ci.submit("spin()").env("WASMRUN_ADDRESS", &there).start();
    let kept = ci.submit("add(1, 2)").arg("--detach").ok();
    while cluster.running() < 2 {}
    other.command(&["client", "revoke", "ci"]).ok();
    for session in [spins, elsewhere] {
        let ended = session.end();
        assert_eq!(ended.code, Some(4), "{ended}");
        assert_says(&ended.stderr, &["ended the session", "it was revoked"]);
    }
    while cluster.running() > 0 {}
    let is_refused = |cluster: &Cluster| {
        for at in [&cluster.address, &there] {
            for _ in 0..5 {
                let command = ci.command(&["status"]).env("WASMRUN_ADDRESS", at);
                command.fails_saying(4, &["it was revoked", "wasmrun login"]);
            }
        }
        ci.command(&["login", "--renew"])
            .fails_saying(4, &["it was revoked"]);
        for client in [&friend, &unnamed] {
            assert_eq!(client.submit("add(1, 2)").ok(), "3\n");
        }
        friend.command(&["login", "--renew"]).ok();
    };
    is_refused(&cluster);
    // What was detached is there; and it stays so when the head comes back.
    let kept = kept.trim();
    while cluster.head.command(&["get", kept]).json(0)["state"] != "finished" {}
    cluster.head.kill();
    cluster
        .head
        .start(&["--head", "--listen", &cluster.address]);
    cluster.head.wait_for("n2", "alive");
    is_refused(&cluster);
    assert_eq!(listed(&other, "state=revoked")[0]["id"], id.as_str());
    // Whoever logs in anew is another.
    let (_, again) = named(&cluster, "ci");
    assert_ne!(again, id);
    assert_eq!(listed(&other, "name=ci").len(), 2);
    wait_for_rest([&cluster.head, &other]);
}

#[test]
fn who_is_meant_and_who_is_not_known() {
    let cluster = Cluster::new();
    let head = &cluster.head;
    let (_, one) = named(&cluster, "one");
    head.command(&["client", "revoke", "two"])
        .fails_saying(2, &["no client 'two'", "wasmrun client list"]);
    head.command(&["client", "revoke", &one[..20]]).ok();
    // Said twice it is as good.
    head.command(&["client", "revoke", &one]).ok();
    assert_eq!(listed(head, "name=one")[0]["state"], "revoked");
    // One from before this was recorded is known by its id alone.
    let unknown = "ab".repeat(16);
    let revoked = head.command(&["client", "revoke", &unknown]).json(0);
    assert_eq!(revoked["client"], unknown.as_str());
    assert_eq!(listed(head, "state=revoked").len(), 2);
    for name in ["a b", &unknown, &"x".repeat(65)] {
        let create = ["node", "token", "create", "--client", "--name", name];
        assert_says(&head.command(&create).fails(2), &["no name for a client"]);
    }
    let create = ["node", "token", "create", "--name", "node"];
    assert_says(&head.command(&create).fails(2), &["--client"]);
}
