//! Resources: what a task asks for, gets and sees, and what no node can serve.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};
use wasmrun_tests::{Wasmrun, assert_says, guest};

use crate::cluster::Member;
use crate::node::Node;

#[test]
fn a_fraction_above_one_is_refused_with_the_rule() {
    for (args, name, asked) in [
        (&["--cpus", "1.5"][..], "CPU", "1.5"),
        (&["--gpus", "2.5"], "GPU", "2.5"),
        (&["--gpus", "1.5", "--node-gpus", "4"], "GPU", "1.5"),
    ] {
        let stderr = Wasmrun::call("noop()").args(args).fails(2);
        assert_says(
            &stderr,
            &[
                &format!(
                    "error: {name}: {asked} is not possible: a resource with ids is asked for in whole units"
                ),
                "as a share below 1 of one unit; ask for ",
            ],
        );
    }
    // As declared by the module itself, too: nothing else about the task matters.
    Wasmrun::call("noop()").args(["--cpus", "0.5"]).ok();
    Wasmrun::call("noop()")
        .args(["--cpus", "2", "--node-cpus", "2"])
        .ok();
}

#[test]
fn amounts_that_are_none() {
    for (flag, value, says) in [
        ("--cpus", "many", "'many'"),
        ("--cpus", "-1", "-1"),
        ("--cpus", "0.00001", "0.00001"),
        ("--cpus", "1e3", "1e3"),
        ("--cpus", "", "''"),
        ("--cpus", "99999999999999999999", "99999999999999999999"),
        ("--memory", "lots", "lots"),
        ("--memory", "64Mib ", "64Mib"),
        ("--resource", "tpu", "must be NAME=AMOUNT, such as tpu=1"),
        ("--resource", "=1", "a resource needs a name"),
        ("--resource", "tpu=x", "'x'"),
        ("--node-cpus", "1.5", "1.5"),
        ("--node-resource", "tpu", "'tpu' must be NAME=COUNT"),
        ("--node-resource", "tpu=1.5", "declare it as tpu=sum:1.5"),
        ("--node-resource", "bw=sum:", "bw"),
        ("--node-resource", "CPU=4", "CPU"),
    ] {
        let stderr = Wasmrun::call("noop()")
            .arg(format!("{flag}={value}"))
            .fails(2);
        assert_says(&stderr, &["error: ", says]);
    }
}

#[test]
fn a_cause_of_no_start_is_said_once() {
    let stderr = Wasmrun::call("noop()")
        .args(["--object-memory", "0"])
        .fails(2);
    let says = "an object store of 0 bytes is too small";
    assert_eq!(stderr.matches(says).count(), 1, "{stderr}");
}

#[test]
fn what_no_node_has_cannot_be_scheduled() {
    for (args, why) in [
        (&["--gpus", "1"][..], "GPU: needs 1, node has 0 in total"),
        (&["--gpus", "0.5"], "GPU: needs 0.5, node has 0 in total"),
        (
            &["--gpus", "3", "--node-gpus", "2"],
            "GPU: needs 3, node has 2 in total",
        ),
        (
            &["--cpus", "3", "--node-cpus", "2"],
            "CPU: needs 3, node has 2 in total",
        ),
        (&["--resource", "tpu=1"], "tpu: needs 1, node has none"),
        (
            &["--memory", "2GiB", "--node-memory", "1GiB"],
            "memory: needs 2GiB, node has 1GiB in total",
        ),
        (
            &["--resource", "bw=3", "--node-resource", "bw=sum:2.5"],
            "bw: needs 3, node has 2.5 in total",
        ),
    ] {
        let stderr = Wasmrun::call("noop()")
            .args(args)
            .args(
                ["--node-gpus", "0"]
                    .into_iter()
                    .filter(|_| !args.contains(&"--node-gpus")),
            )
            .fails(3);
        assert_says(
            &stderr,
            &[
                &format!("error: no node can ever run this task: {why} (node "),
                "; ask for less, or add a node that has it\n",
            ],
        );
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

/// What the context import says that a task holds of a resource: the amount, and each unit's.
fn held<'a>(context: &'a Json, name: &str) -> Option<&'a Json> {
    let resources = context["resources"].as_array().unwrap();
    resources.iter().find(|held| held["name"] == name)
}

#[test]
fn half_a_gpu_is_the_same_everywhere() {
    let args = ["--node-gpus", "2", "--gpus", "0.5"];
    let env = |name: &str| {
        Wasmrun::call(&format!("env(\"{name}\")"))
            .args(args)
            .json(0)
    };
    for name in ["WASMRUN_GPU_IDS", "CUDA_VISIBLE_DEVICES"] {
        let json = env(name);
        assert_eq!(json["resource_ids"]["GPU"], json!([[0, "0.5"]]), "{json:#}");
        assert_eq!(json["result"], "0", "{json:#}");
    }
    let json = Wasmrun::call("context-info()").args(args).json(0);
    let gpu = held(&json["result"], "GPU").unwrap();
    assert_eq!(
        *gpu,
        json!({"name": "GPU", "amount": 5000, "units": [[0, 5000]]})
    );
    assert_eq!(json["result"]["task-id"], json["task_id"]);
    assert_eq!(json["result"]["node"], json["node"]);
    assert_eq!(json["result"]["attempt"], 0);
}

#[test]
fn whole_gpus_have_all_their_ids() {
    let args = ["--node-gpus", "4", "--gpus", "3"];
    for guest in ["prog", "prog-p1"] {
        let out = Wasmrun::submit(guest).args(args).program(["env"]).ok();
        assert_eq!(out, "CUDA_VISIBLE_DEVICES=0,1,2\nWASMRUN_GPU_IDS=0,1,2\n");
        // Without any, nothing is said.
        let out = Wasmrun::submit(guest)
            .args(["--node-gpus", "4"])
            .program(["env"])
            .ok();
        assert_eq!(out, "");
    }
    let json = Wasmrun::call("context-info()").args(args).json(0);
    assert_eq!(
        json["resource_ids"]["GPU"],
        json!([[0, "1"], [1, "1"], [2, "1"]])
    );
}

#[test]
fn the_environment_cannot_be_talked_into_other_gpus() {
    for guest in ["prog", "prog-p1"] {
        let out = Wasmrun::submit(guest)
            .args(["--node-gpus", "2", "--gpus", "1"])
            .args([
                "--env",
                "WASMRUN_GPU_IDS=7",
                "--env",
                "CUDA_VISIBLE_DEVICES=7",
            ])
            .program(["env"])
            .ok();
        assert_eq!(out, "CUDA_VISIBLE_DEVICES=0\nWASMRUN_GPU_IDS=0\n");
    }
}

#[test]
fn tasks_that_run_together_hold_different_units() {
    // Neither ends before its time is up, so both run at once.
    let json = Wasmrun::call("sleep-forever()")
        .args([
            "--node-gpus",
            "2",
            "--gpus",
            "1",
            "--node-cpus",
            "2",
            "--array",
            "0-1",
        ])
        .args(["--time-limit", "1s"])
        .json(6);
    let ids: BTreeSet<u64> = json["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["resource_ids"]["GPU"][0][0].as_u64().unwrap())
        .collect();
    assert_eq!(ids, BTreeSet::from([0, 1]));
    // One GPU: one after the other, so each of many gets it.
    let json = Wasmrun::call("env(\"WASMRUN_GPU_IDS\")")
        .args(["--node-gpus", "1", "--gpus", "1", "--array", "0-19"])
        .json(0);
    for task in json["tasks"].as_array().unwrap() {
        assert_eq!(task["result"], "0", "{task:#}");
    }
}

#[test]
fn resources_of_the_operators() {
    let json = Wasmrun::call("context-info()")
        .args(["--node-resource", "tpu=4", "--resource", "tpu=2"])
        .args(["--node-resource", "bw=sum:2.5", "--resource", "bw=1.5"])
        .json(0);
    let tpu = held(&json["result"], "tpu").unwrap();
    assert_eq!(
        *tpu,
        json!({"name": "tpu", "amount": 20000, "units": [[0, 10000], [1, 10000]]})
    );
    let bw = held(&json["result"], "bw").unwrap();
    assert_eq!(*bw, json!({"name": "bw", "amount": 15000, "units": []}));
    assert_eq!(json["resource_ids"]["tpu"], json!([[0, "1"], [1, "1"]]));
    assert_eq!(json["resource_ids"].get("bw"), None);
}

#[test]
fn what_is_held_is_in_order_of_name() {
    let json = Wasmrun::call("context-info()")
        .args(["--node-resource", "bw=1", "--resource", "bw=1"])
        .args([
            "--node-resource",
            "zz=1",
            "--resource",
            "zz=1",
            "--node-gpus",
            "1",
            "--gpus",
            "1",
        ])
        .json(0);
    let resources = json["result"]["resources"].as_array().unwrap();
    let names: Vec<_> = resources
        .iter()
        .map(|held| held["name"].as_str().unwrap())
        .collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(names, sorted);
}

#[test]
fn memory_is_what_was_asked_for() {
    let json = Wasmrun::call("context-info()")
        .args(["--memory", "100MiB"])
        .json(0);
    let memory = held(&json["result"], "memory").unwrap();
    assert_eq!(memory["amount"], json!((100_u64 << 20) * 10_000));
    // From the module's manifest, and by default.
    let json = Wasmrun::call("context-info()").json(0);
    assert_eq!(
        held(&json["result"], "memory").unwrap()["amount"],
        json!((64_u64 << 20) * 10_000)
    );
    let ended = Wasmrun::submit("prog-p1").arg("-v").program(["args"]).run();
    assert_says(
        &ended.stderr,
        &["held CPU 1 (0), memory 256MiB, memory at most "],
    );
}

#[test]
fn no_cpu_at_all_is_possible() {
    let json = Wasmrun::call("context-info()")
        .args(["--cpus", "0"])
        .json(0);
    assert_eq!(held(&json["result"], "CPU"), None);
    assert_eq!(json["resource_ids"], json!({}));
}

#[test]
fn more_tasks_than_resources_wait_their_turn() {
    let ended = Wasmrun::call("sleep(1)")
        .args(["--cpus", "1", "--node-cpus", "1", "--array", "0-49"])
        .run();
    assert_eq!(ended.code, Some(0), "{ended}");
    let ended = Wasmrun::call("sleep(1)")
        .args([
            "--cpus",
            "0",
            "--memory",
            "1MiB",
            "--array",
            "0-99",
            "--max-sandboxes",
            "2",
        ])
        .run();
    assert_eq!(ended.code, Some(5), "1 MiB is too little: {ended}");
    let ended = Wasmrun::call("sleep(1)")
        .args(["--cpus", "0", "--array", "0-99", "--max-sandboxes", "2"])
        .run();
    assert_eq!(ended.code, Some(0), "{ended}");
}

#[test]
fn what_a_node_has_is_changed_while_it_runs() {
    let node = Node::start();
    let set = |resource: &str| node.wasmrun(["node", "resource", "set", resource]);
    let said = |run: Wasmrun| {
        let ended = run.run();
        assert_eq!(ended.code, Some(0), "{ended}");
        ended.stderr
    };
    // What waits for it begins.
    let want = |amount: &str| {
        let task = node.wasmrun(["submit", "--detach", "--cpus", "0", "--invoke", "spin()"]);
        let id = task.arg("--resource").arg(amount).arg(guest("spread")).ok();
        id.trim().to_owned()
    };
    assert_says(&said(set("fpga=1")), &["has fpga 1 now, and had 0"]);
    let [first, second] = [want("fpga=1"), want("fpga=1")];
    node.wait_for("running", 1);
    let json = set("fpga=1").json(0);
    assert_says(json["message"].as_str().unwrap(), &["has fpga 1 now"]);
    let more = said(set("fpga=3"));
    assert_says(&more, &["has fpga 3 now, and had 1; 1 of it is free"]);
    node.wait_for("running", 2);
    // Less than is held: whoever has it keeps it, and it is owed.
    let less = said(set("fpga=1"));
    assert_says(&less, &["0 of it is free; tasks keep 1 more than there is"]);
    let third = want("fpga=1");
    node.wasmrun(["cancel", &first]).ok();
    node.wait_for("cancelled", 1);
    let why = node.wasmrun(["explain", &third]).ok();
    assert_says(&why, &["fpga"]);
    assert_eq!((node.count("running"), node.count("ready")), (1, 1));
    node.wasmrun(["cancel", &second]).ok();
    node.wait_for("cancelled", 2);
    node.wait_for("running", 1);
    let delete = |name| node.wasmrun(["node", "resource", "delete", name]);
    let deleted = said(delete("fpga"));
    assert_says(&deleted, &["has no fpga any more, and had 1; tasks keep 1"]);
    for (wrong, says) in [
        (delete("fpga"), "has no fpga"),
        (delete("CPU"), "say CPU=0 for none"),
        (set("fpga=1.5"), "cannot have fpga 1.5: "),
        (
            set("fpga=1.5"),
            "fpga=sum:1.5 if its units need no ids, with --node-resource when the node is started",
        ),
        (set("fpga"), "must be NAME=AMOUNT"),
        (set("fpga=-1"), "fpga=-1"),
        (
            set("fpga=1").args(["--node", "nobody"]),
            "there is no node 'nobody'",
        ),
        (set("fpga=1").arg("--persist"), "--node-resource next time"),
    ] {
        wrong.fails_saying(2, &[says]);
    }
}

#[test]
fn what_another_node_has_is_changed_for_good() {
    let (head, token) = Member::head("n1");
    let mut other = Member::joined("n2", &token);
    let set = ["node", "resource", "set", "fpga=2", "--node", "n2"];
    head.command(&set).arg("--persist").ok();
    let runs_at = |what: &str| {
        let submit = head.command(&["submit", "--invoke", "place()", "--resource", what]);
        submit.arg(guest("spread")).ok()
    };
    assert_eq!(runs_at("fpga=1"), "\"n2\"\n");
    while head.wait_for("n2", "alive")["total"]["fpga"] != "2" {}
    // Another incarnation of it has the same, whatever it is started with.
    other.stop();
    other.start(&["--join"]);
    head.wait_for_incarnation("n2", 2);
    assert_eq!(runs_at("fpga=2"), "\"n2\"\n");
    head.command(&["node", "resource", "delete", "fpga", "--node", "n2"])
        .ok();
    while !head.wait_for("n2", "alive")["total"]["fpga"].is_null() {}
}
