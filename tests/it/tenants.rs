//! What an operator says tenants are due: that tasks are placed by it, and that all nodes know it for as long as the
//! cluster lives.

use rustix::process::Signal;
use serde_json::{Value as Json, json};
use wasmrun_tests::{Wasmrun, assert_says, guest};

use crate::cluster::{Member, wait_for_rest};
use crate::faults::eventually;
use crate::node::Node;

/// Tasks that never end, of a tenant, each of one CPU. Their ids.
fn endless(submit: Wasmrun, tenant: &str, count: usize) -> Vec<String> {
    let call = [
        "--invoke",
        "sleep-forever()",
        "--detach",
        "--tenant",
        tenant,
    ];
    let submit = submit.arg("-q").arg(guest("fixture")).args(call);
    let ids = submit.args(["--array", &format!("1-{count}")]).ok();
    ids.lines().map(ToOwned::to_owned).collect()
}

/// What a tenant is due and has, as somebody is told.
fn share(list: Wasmrun, tenant: &str) -> Json {
    let listed = list.json(0);
    let tenants = listed["tenants"].as_array().expect("a list");
    let found = tenants.iter().find(|it| it["name"] == tenant);
    found.cloned().unwrap_or_default()
}

/// What a member knows of a tenant.
fn known(at: &Member, tenant: &str) -> Json {
    share(at.command(&["tenant", "list"]), tenant)
}

/// How many CPUs a tenant has in the cluster, as a member knows it.
fn cpus(at: &Member, tenant: &str) -> u64 {
    let used = known(at, tenant)["used"]["CPU"].clone();
    used.as_str()
        .map_or(0, |text| text.parse().expect("a number"))
}

/// Waits until all of these know this weight and minimum of a tenant.
#[track_caller]
fn wait_until_known(at: &[&Member], tenant: &str, weight: &str, min: &Json) {
    for member in at {
        let what = format!("did {} know what {tenant} is due", member.name());
        eventually(&what, || match known(member, tenant) {
            seen if seen["weight"] == weight && seen["min"] == *min => Ok(()),
            seen => Err(seen),
        });
    }
}

#[test]
fn weights_hold_over_all_nodes() {
    let mut a = Member::with_cpus("a", "4");
    a.start(&["--head", "--listen", "127.0.0.1:0"]);
    let mut b = Member::with_cpus("b", "4");
    b.start(&["--join", &a.token(&["--many"])]);
    a.wait_for_incarnation("b", 1);
    b.wait_for_incarnation("a", 1);
    // At one node for both.
    let said = b.command(&["tenant", "set", "red", "--weight", "3"]).ok();
    assert_eq!(said, "tenant red: weight 3, no minimum\n");
    wait_until_known(&[&a, &b], "red", "3", &json!({}));

    let fillers = endless(a.command(&["submit"]), "filler", 8);
    eventually("was all taken", || match cpus(&a, "filler") {
        8 => Ok(()),
        cpus => Err(cpus),
    });
    for tenant in ["red", "blue"] {
        endless(a.command(&["submit"]), tenant, 16);
    }
    // One after the other, so that each is given away by what both nodes know.
    for (done, filler) in (1..).zip(&fillers) {
        a.command(&["cancel", filler, "--tenant", "filler"]).ok();
        for member in [&a, &b] {
            eventually("was it given to the next", || {
                let all = ["filler", "red", "blue"].map(|it| cpus(member, it));
                match all {
                    [left, red, blue] if left == 8 - done && red + blue == done => Ok(()),
                    all => Err(format!("{all:?}")),
                }
            });
        }
    }
    for member in [&a, &b] {
        assert_eq!(["red", "blue"].map(|it| cpus(member, it)), [6, 2]);
    }
    assert_eq!(known(&b, "red")["share"], "0.7500");
}

#[test]
fn a_minimum_goes_first_and_who_waits_is_told_of_whom() {
    let node = Node::start();
    let submit = || node.wasmrun(["submit"]);
    let explain = |id: &str, tenant| node.wasmrun(["explain", id, "--tenant", tenant]).ok();
    let set = node
        .wasmrun(["tenant", "set", "red", "--weight", "3"])
        .run();
    assert_eq!(set.stdout_text(), "tenant red: weight 3, no minimum\n");
    // Nobody else knows it.
    assert_says(&set.stderr, &["is in no cluster", "until it stops"]);
    let first = ["red", "blue"].map(|tenant| endless(submit(), tenant, 1).remove(0));
    node.wait_for("running", 2);
    let [red, blue] = ["red", "blue"].map(|tenant| endless(submit(), tenant, 1).remove(0));
    let told = explain(&blue, "blue");
    assert_says(&told, &["tenant red is ahead: share ÷ weight 0.16 < 0.50"]);

    let set = node.wasmrun(["tenant", "set", "blue", "--min", "CPU=2"]);
    assert_eq!(set.ok(), "tenant blue: weight 1, minimum CPU 2\n");
    let told = explain(&red, "red");
    assert_says(&told, &["tenant blue is below its guaranteed CPU: 1 of 2"]);
    // Without the minimum it would be red's turn.
    node.wasmrun(["cancel", &first[0], "--tenant", "red"]).ok();
    eventually("did it run", || {
        match &share(node.wasmrun(["tenant", "list"]), "blue") {
            row if row["used"]["CPU"] == "2" && row["share"] == "1.0000" => Ok(()),
            row => Err(row.clone()),
        }
    });
    let status = node.wasmrun(["status"]).ok();
    assert_says(&status, &["weight", "min", "CPU 2"]);
    let rows = node.wasmrun(["list", "tenants", "-f", "name=red"]).json(0);
    assert_eq!(rows["tenants"][0]["weight"], "3");

    let rows = node.wasmrun(["tenant", "list", "-f", "weight=3"]).json(0);
    assert_eq!(rows["tenants"].as_array().map(Vec::len), Some(1), "{rows}");

    // Taken away, it is as if it had never been.
    node.wasmrun(["tenant", "remove", "blue"]).ok();
    node.wasmrun(["tenant", "remove", "red"]).ok();
    let status = node.wasmrun(["status"]).ok();
    assert!(!status.contains("weight"), "{status}");
    node.wasmrun(["tenant", "remove", "red"])
        .fails_saying(2, &["nothing is set for tenant 'red'"]);
}

#[test]
fn detached_tasks_that_have_not_ended_are_bounded() {
    let node = Node::start();
    let set = ["tenant", "set", "org", "--max-detached", "2"];
    let said = node.wasmrun(set).run().stdout_text();
    assert_says(&said, &["quota 2 detached tasks at a node"]);
    let first = endless(node.wasmrun(["submit"]), "org", 1).remove(0);
    endless(node.wasmrun(["submit"]), "org/x", 1);
    let more = |tenant: &str| {
        let submit = node.wasmrun(["submit", "--detach", "--tenant", tenant]);
        submit
            .arg(guest("fixture"))
            .args(["--invoke", "noop()"])
            .run()
    };
    let refused = more("org/y");
    assert_ne!(refused.code, Some(0), "{refused}");
    let says = ["tenant org has as many detached tasks", "--max-detached"];
    assert_says(&refused.stderr, &says);
    assert_eq!(more("other").code, Some(0));
    node.wasmrun(["cancel", &first, "--tenant", "org"]).ok();
    eventually("was there room again", || match more("org/y") {
        ended if ended.code == Some(0) => Ok(()),
        ended => Err(ended.stderr),
    });
}

#[test]
fn what_is_set_outlives_the_head_and_reaches_who_comes_later() {
    let (mut a, token) = Member::head("a");
    let b = Member::joined("b", &token);
    b.wait_for_incarnation("a", 1);
    let set = b
        .command(&["tenant", "set", "red", "--weight", "2.5"])
        .json(0);
    let expected = json!({"version": 1, "tenant": "red", "weight": "2.5", "min": {}, "notes": []});
    assert_eq!(set, expected);
    // What is not named stays.
    a.command(&["tenant", "set", "red", "--min", "CPU=1,memory=64MiB"])
        .ok();
    let min = json!({"CPU": "1", "memory": "67108864"});
    wait_until_known(&[&a, &b], "red", "2.5", &min);
    let mut c = Member::joined("c", &token);
    // From its first moment.
    assert_eq!(known(&c, "red")["weight"], "2.5");

    let address = b.wait_for("a", "alive")["address"].clone();
    let address = address.as_str().expect("an address");
    a.kill();
    // Nobody can say what comes of it, so nothing does; what is known counts.
    b.command(&["tenant", "set", "red", "--weight", "7"])
        .fails_saying(
            5,
            &["the control store cannot be reached", "nothing was changed"],
        );
    b.command(&["tenant", "remove", "red"])
        .fails_saying(5, &["the control store cannot be reached"]);
    wait_until_known(&[&b, &c], "red", "2.5", &min);
    a.start(&["--head", "--listen", address]);
    wait_until_known(&[&a, &b, &c], "red", "2.5", &min);

    // A node that missed a change, because it stood still or was away.
    c.stop();
    b.signal(Signal::STOP);
    a.command(&["tenant", "set", "red", "--weight", "4", "--min", "none"])
        .ok();
    a.command(&["tenant", "set", "blue", "--weight", "5"]).ok();
    b.signal(Signal::CONT);
    c.start(&["--join"]);
    for (tenant, weight) in [("red", "4"), ("blue", "5")] {
        wait_until_known(&[&a, &b, &c], tenant, weight, &json!({}));
    }
    c.command(&["tenant", "remove", "red"]).ok();
    wait_until_known(&[&a, &b, &c], "red", "1", &json!({}));
    wait_for_rest([&a, &b, &c]);
}

#[test]
fn a_quota_bounds_a_tenant_with_all_that_are_part_of_it() {
    let node = Node::start();
    let submit = || node.wasmrun(["submit"]);
    let quota = ["--max", "CPU=1", "--max-waiting", "1"];
    let set = node.wasmrun(["tenant", "set", "org"]).args(quota);
    assert_eq!(
        set.ok(),
        "tenant org: weight 1, no minimum, quota CPU 1, 1 tasks waiting at a node\n"
    );
    let running = endless(submit(), "org/a", 1).remove(0);
    node.wait_for("running", 1);
    let call = |tenant, cpus| {
        let call = [
            "--invoke",
            "sleep-forever()",
            "--detach",
            "--tenant",
            tenant,
        ];
        let submit = submit().arg("-q").arg(guest("fixture")).args(call);
        submit.args(["--cpus", cpus])
    };
    call("org/c", "2").fails_saying(3, &["the quota of tenant org is CPU 1 at once"]);
    let waiting = endless(submit(), "org/b", 1).remove(0);
    let told = node
        .wasmrun(["explain", &waiting, "--tenant", "org/b"])
        .ok();
    assert_says(&told, &["tenant org is at its quota: CPU 1 of 1"]);
    call("org/c", "1").fails_saying(5, &["tenant org has as many tasks waiting"]);
    // Nobody else is held up.
    endless(submit(), "web", 1);
    node.wait_for("running", 2);
    let org = share(node.wasmrun(["tenant", "list"]), "org");
    assert_eq!(
        (&org["used"]["CPU"], &org["max"]["CPU"], &org["waiting"]),
        (&json!("1"), &json!("1"), &json!(1)),
        "{org}"
    );
    node.wasmrun(["cancel", &running, "--tenant", "org/a"]).ok();
    eventually("did the next start", || {
        match &share(node.wasmrun(["tenant", "list"]), "org/b") {
            row if row["used"]["CPU"] == "1" => Ok(()),
            row => Err(row.clone()),
        }
    });
    let set = node.wasmrun(["tenant", "set", "org", "--max", "none"]);
    let says = "tenant org: weight 1, no minimum, quota 1 tasks waiting at a node\n";
    assert_eq!(set.ok(), says);
}

#[test]
fn what_makes_no_sense_is_refused_with_words() {
    let node = Node::start();
    let set = |args: &[&str]| node.wasmrun(["tenant", "set"]).args(args);
    for (args, says) in [
        (&["red", "--weight", "0"][..], "would never get anything"),
        (&["red", "--weight", "-1"], "'-1' is negative"),
        (&["red", "--weight", "NaN"], "is not an amount"),
        (
            &["red", "--weight", "1000001"],
            "is too large: use at most 1000000",
        ),
        (&["red", "--weight", "0.00001"], "0.00001"),
        (&["red"], "--weight <WEIGHT>|--min <AMOUNTS>"),
        (&["a b", "--weight", "1"], "is not a tenant name"),
        (&["", "--weight", "1"], "a tenant needs a name"),
        (&["red", "--min", "CPU"], "must be RESOURCE=AMOUNT"),
        (&["red", "--min", "CPU=-1"], "-1"),
        (&["red", "--min", "CPU=0"], "guarantees nothing"),
        (&["red", "--max", "CPU"], "must be RESOURCE=AMOUNT"),
        (&["red", "--max-tasks", "-1"], "must be a whole number"),
        (
            &["a/b/c/d/e", "--weight", "1"],
            "has 5 parts, and 4 are the most",
        ),
        (&["a//b", "--weight", "1"], "nothing before or behind"),
    ] {
        set(args).fails_saying(2, &[says]);
    }
    assert_eq!(share(node.wasmrun(["tenant", "list"]), "red"), Json::Null);
    // What nobody can keep now may be kept later.
    let ended = set(&["red", "--min", "CPU=20,tpu=1"]).run();
    assert_eq!(
        ended.stdout_text(),
        "tenant red: weight 1, minimum CPU 20, tpu 1\n"
    );
    let notes = [
        "CPU 20 is more than all nodes have now, 2",
        "no node has tpu now",
    ];
    assert_says(&ended.stderr, &notes);
    set(&["red", "--min", "CPU=1"]).ok();
    let ended = set(&["blue", "--min", "CPU=2"]).run();
    assert_says(
        &ended.stderr,
        &["all tenants together are guaranteed CPU 3"],
    );
    let ended = set(&["red/a", "--min", "CPU=2"]).run();
    let note =
        "all that are part of tenant red are guaranteed CPU 2, and it is guaranteed 1 itself";
    assert_says(&ended.stderr, &[note]);
}
