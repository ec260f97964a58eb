//! What operators choose while nodes run: how tenants share, and the numbers of the strategies.

use wasmrun_tests::{assert_says, guest};

use crate::cluster::Member;
use crate::faults::eventually;
use crate::node::Node;

/// Tasks of a tenant that never end and ask for this. Their ids.
fn endless(node: &Node, tenant: &str, count: u32, asks: &[&str]) -> Vec<String> {
    let submit = node.wasmrun(["submit", "-q", "--detach", "--tenant", tenant]);
    let submit = submit.args(["--invoke", "sleep-forever()"]).args(asks);
    let array = format!("1-{count}");
    let ids = submit.args(["--array", &array]).arg(guest("fixture")).ok();
    ids.lines().map(ToOwned::to_owned).collect()
}

/// How many of these units of a resource each of these tenants has, as soon as it is so many in all.
fn held<const N: usize>(
    node: &Node,
    tenants: [&str; N],
    (resource, unit): (&str, u64),
    count: u64,
) -> [u64; N] {
    eventually("was all taken that can be", || {
        let listed = node.wasmrun(["list", "tenants"]).json(0);
        let rows = listed["tenants"].as_array().expect("a list");
        let of = |tenant| {
            let row = rows.iter().find(|row| row["name"] == tenant)?;
            let used: u64 = row["used"][resource].as_str()?.parse().ok()?;
            Some(used / unit)
        };
        match tenants.map(|tenant| of(tenant).unwrap_or_default()) {
            each if each.iter().sum::<u64>() == count => Ok(each),
            each => Err(format!("{each:?}: {listed}")),
        }
    })
}

/// How many tasks of one unit of memory each of four tenants gets that ask for so many, with these weights, by `fair`.
fn max_min(capacity: u32, demands: [u32; 4], weights: Option<[&str; 4]>) -> [u64; 4] {
    const TENANTS: [&str; 4] = ["a", "b", "c", "d"];
    const UNIT_MIB: u32 = 4;
    let all = format!("{}MiB", capacity * UNIT_MIB);
    let unit = format!("{UNIT_MIB}MiB");
    let mut node = Node::new();
    node.start_with(&["--node-memory", &all]);
    let said = node.wasmrun(["scheduling", "set", "policy=fair"]).run();
    assert_says(&said.stdout_text(), &["policy", "fair"]);
    assert_says(&said.stderr, &["is in no cluster"]);
    let filler = endless(&node, "filler", 1, &["--cpus", "0.001", "--memory", &all]);
    let units = ("memory", u64::from(UNIT_MIB) << 20);
    held(&node, ["filler"], units, capacity.into());
    let weights = weights.into_iter().flatten();
    for (tenant, weight) in std::iter::zip(TENANTS, weights) {
        let set = ["tenant", "set", tenant, "--weight", weight];
        node.wasmrun(set).ok();
    }
    for (tenant, demand) in std::iter::zip(TENANTS, demands) {
        let asks = ["--cpus", "0.001", "--memory", &unit];
        endless(&node, tenant, demand, &asks);
    }
    let cancel = ["cancel", &filler[0], "--tenant", "filler"];
    node.wasmrun(cancel).ok();
    held(&node, TENANTS, units, capacity.into())
}

#[test]
fn fair_is_max_min_of_memory() {
    // In tenths: 2, 2.6, 4 and 5 of 10.
    assert_eq!(max_min(100, [20, 26, 40, 50], None), [20, 26, 27, 27]);
    let weights = ["2.5", "4", "0.5", "1"];
    assert_eq!(max_min(16, [4, 2, 10, 4], Some(weights)), [4, 2, 6, 4]);
}

#[test]
fn the_policy_changes_while_tasks_wait() {
    let node = Node::start();
    let set = |setting| node.wasmrun(["scheduling", "set", setting]).ok();
    let mut first = endless(&node, "filler", 2, &[]);
    held(&node, ["filler"], ("CPU", 1), 2);
    endless(&node, "red", 3, &[]);
    endless(&node, "blue", 2, &[]);
    let mut next = |ends: [u64; 2]| {
        let id = first.pop().expect("there is one left");
        node.wasmrun(["cancel", &id, "--tenant", "filler"]).ok();
        assert_eq!(
            held(&node, ["red", "blue"], ("CPU", 1), ends.iter().sum()),
            ends
        );
    };
    set("policy=fifo");
    next([1, 0]);
    set("policy=drf");
    next([1, 1]);
    for (wrong, says) in [
        ("policy=none", "use drf, fair or fifo"),
        ("top-share=2", "from 0 to 1"),
        ("colour=red", "there is no 'colour'"),
    ] {
        node.wasmrun(["scheduling", "set", wrong])
            .fails_saying(2, &[says]);
    }
    let twice = ["scheduling", "set", "policy=fifo", "policy=drf"];
    let refused = node.wasmrun(twice).fails(2);
    assert_says(&refused, &["policy is given twice: give one value of it"]);
}

#[test]
fn a_tenant_may_weigh_more_for_one_resource() {
    let mut node = Node::new();
    node.start_with(&["--node-gpus", "5"]);
    let gpu = ["--cpus", "0", "--gpus", "1"];
    let set = ["tenant", "set", "red", "--resource-weights", "GPU=4"];
    let said = node.wasmrun(set).ok();
    assert_says(&said, &["weight 1, no minimum", "weights of GPU 4"]);
    let shown = node.wasmrun(["scheduling"]).ok();
    assert_says(&shown, &["policy", "drf", "tenant red: weights of GPU 4"]);
    let fillers = endless(&node, "filler", 5, &gpu);
    held(&node, ["filler"], ("GPU", 1), 5);
    endless(&node, "red", 5, &gpu);
    endless(&node, "blue", 5, &gpu);
    for id in fillers {
        node.wasmrun(["cancel", &id, "--tenant", "filler"]).ok();
    }
    assert_eq!(held(&node, ["red", "blue"], ("GPU", 1), 5), [4, 1]);
    let state = node.wasmrun(["status", "--scheduler"]).ok();
    assert_says(
        &state,
        &[
            "live tasks",
            "patience 30s, preemption on\n",
            "free CPU ",
            "tenant red: dominant share 0.8000, uses GPU 4",
            "5 ready",
        ],
    );
    let none = ["tenant", "set", "red", "--resource-weights", "none"];
    assert_says(&node.wasmrun(none).ok(), &["no weights of single"]);
}

/// Where tasks are that never end, each of one CPU: how many at each of these.
fn at(head: &Member, nodes: [&str; 2], count: u64) -> [u64; 2] {
    eventually("did all run", || {
        let listed = head.command(&["list", "nodes"]).json(0);
        let rows = listed["nodes"].as_array().expect("a list");
        let used = |name: &str| -> Option<u64> {
            let row = rows.iter().find(|row| row["name"] == name)?;
            let of = |field: &str| {
                row[field]["CPU"]
                    .as_str()
                    .map_or(0, |it| it.parse().unwrap())
            };
            Some(of("total") - of("available"))
        };
        match nodes.map(|name| used(name).unwrap_or_default()) {
            each if each.iter().sum::<u64>() == count => Ok(each),
            each => Err(format!("{each:?}: {listed}")),
        }
    })
}

#[test]
fn the_numbers_of_the_strategies_hold_at_all_nodes() {
    let mut a = Member::with_cpus("a", "4");
    a.start(&["--head", "--listen", "127.0.0.1:0"]);
    let token = a.token(&["--many"]);
    let mut b = Member::with_cpus("b", "4");
    b.start(&["--join", &token]);
    a.wait_for_incarnation("b", 1);
    b.wait_for_incarnation("a", 1);
    let submit = |count: &str| {
        let submit = a.command(&["submit", "-q", "--detach", "--invoke", "sleep-forever()"]);
        let ids = submit.args(["--array", count]).arg(guest("fixture")).ok();
        ids.lines().map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    // What fits where it was submitted stays there.
    let ids = submit("1-4");
    assert_eq!(at(&a, ["a", "b"], 4), [4, 0]);
    for id in ids {
        a.command(&["cancel", &id]).ok();
    }
    at(&a, ["a", "b"], 0);
    // Said at one node, it holds at the other; and what is in use counts as fuller at once.
    b.command(&["scheduling", "set", "local-queue=0", "spread-threshold=0"])
        .ok();
    eventually("did the other hear of it", || {
        match a.command(&["scheduling"]).json(0) {
            it if it["local_queue"] == 0 && it["spread_threshold"] == "0" => Ok(()),
            it => Err(it),
        }
    });
    submit("1-4");
    assert_eq!(at(&a, ["a", "b"], 4), [2, 2]);
    // Who comes later goes by it from the beginning.
    let mut c = Member::with_cpus("c", "1");
    c.start(&["--join", &token]);
    c.wait_for_incarnation("a", 1);
    let it = c.command(&["scheduling"]).json(0);
    assert_eq!(
        (&it["local_queue"], &it["top_nodes"]),
        (&0.into(), &1.into())
    );
    let defaults = [
        "scheduling",
        "set",
        "local-queue=default",
        "spread-threshold=default",
    ];
    let it = c.command(&defaults).json(0);
    assert_eq!(
        (&it["local_queue"], &it["spread_threshold"]),
        (&64.into(), &"0.5".into())
    );
    // All nodes say what their schedulers have.
    let state = c.command(&["status", "--scheduler"]).ok();
    for node in ["node a: ", "node b: ", "node c: "] {
        assert_says(&state, &[node]);
    }
}
