//! Jobs, tasks and attempts that have ended: `job`, `timeline`, `logs -f`, and lists.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};
use wasmrun_tests::{Stream, Wasmrun, assert_says, guest};

use crate::node::Node;

/// The id of the job that a detached submission is.
fn job_of(submitted: &Json) -> String {
    submitted["job"].as_str().expect("an id").to_owned()
}

/// Leaves a program to the node: a command that submits it.
fn program(node: &Node, args: &[&str]) -> Wasmrun {
    let submit = node.wasmrun(["submit", "--detach"]).arg(guest("prog-p1"));
    submit.program(args)
}

/// The newest job.
fn newest(node: &Node) -> Json {
    let jobs = node.wasmrun(["job", "list"]).json(0);
    jobs["jobs"][0].clone()
}

#[test]
fn a_detached_array_is_a_job_with_results_in_order() {
    let node = Node::start();
    let submit = node.submit("add($i, 1)").args(["--array", "3,1,2"]);
    let submitted = submit.args(["--name", "sums", "--detach"]).run();
    assert_eq!(submitted.code, Some(0), "{submitted}");
    assert_eq!(submitted.stdout_text().lines().count(), 3, "{submitted}");
    assert_says(&submitted.stderr, &["job ", ": wasmrun job show "]);
    // By its name, and by the beginning of its id.
    node.wasmrun(["job", "wait", "sums"]).ok();
    let job = newest(&node);
    assert_eq!(
        (&job["name"], &job["state"]),
        (&"sums".into(), &"finished".into())
    );
    assert_eq!(
        (&job["states"]["finished"], &job["states"]["expected"]),
        (&3.into(), &3.into())
    );
    let id = job["id"].as_str().expect("an id");
    assert_says(&submitted.stderr, &[&id[..8]]);
    let shown = node.wasmrun(["job", "show", &id[..8]]).ok();
    assert_says(
        &shown,
        &["name      sums", "3 of 3 have ended", "sums  finished"],
    );
    let listed = node.wasmrun(["job", "list"]).ok();
    assert_says(&listed, &["tasks", id, "finished", "3/3", "sums"]);
    let results = node.wasmrun(["job", "results", "sums"]).ok();
    assert_eq!(results, "[1] 2\n[2] 3\n[3] 4\n");
    let json = node.wasmrun(["job", "results", id]).json(0);
    assert_eq!(
        (
            &json["tasks"][2]["array_index"],
            &json["tasks"][2]["result"]
        ),
        (&3.into(), &4.into())
    );
    // Into files: a folder, or names.
    let folder = node.dir.path().join("results");
    std::fs::create_dir(&folder).unwrap();
    node.wasmrun(["job", "results", id, "-O"]).arg(&folder).ok();
    assert_eq!(std::fs::read_to_string(folder.join("2")).unwrap(), "3\n");
    let pattern = folder.join("sum-$i.txt");
    node.wasmrun(["job", "results", id, "-O"])
        .arg(&pattern)
        .ok();
    assert_eq!(
        std::fs::read_to_string(folder.join("sum-1.txt")).unwrap(),
        "2\n"
    );
    let one = node.wasmrun(["job", "results", id, "-O"]);
    one.arg(folder.join("all"))
        .fails_saying(2, &["all results would go to", "$i"]);
    // What is gone is named.
    let tasks = json["tasks"].as_array().expect("a list");
    let second = tasks[1]["task_id"].as_str().expect("an id");
    node.wasmrun(["object", "delete", second]).ok();
    let gone = node.wasmrun(["job", "results", id]).run();
    assert_eq!(gone.code, Some(2), "{gone}");
    assert_eq!(gone.stdout_text(), "[1] 2\n[3] 4\n");
    assert_says(&gone.stderr, &["no result is kept of [2]: "]);
}

#[test]
fn a_function_that_returns_nothing_has_no_file_of_its_result() {
    let node = Node::start();
    let submit = node.wasmrun(["submit", "--detach", "--invoke", "noop()"]);
    let job = job_of(&submit.arg(guest("fixture")).json(0));
    node.wasmrun(["job", "wait", &job]).ok();
    let file = node.dir.path().join("nothing");
    let results = node.wasmrun(["job", "results", &job, "-O"]).arg(&file);
    assert_eq!(results.ok(), "");
    assert!(!file.exists());
}

#[test]
fn waiting_ends_as_an_attached_submit_would() {
    let node = Node::start();
    // What it says, and the exit code.
    let waited = |submit: Wasmrun, code: i32| {
        let job = job_of(&submit.json(0));
        node.wasmrun(["job", "wait", &job]).fails(code)
    };
    waited(node.submit("add(1, 2)").arg("--detach"), 0);
    let said = waited(node.submit("crash()").arg("--detach"), 5);
    assert_says(
        &said,
        &["crash: the guest trapped", "    in task ", " at node "],
    );
    assert_eq!(said.matches("as it was told to").count(), 1, "{said}");
    waited(program(&node, &["exit", "3"]), 3);
    // A program's own code says nothing about the whole array.
    let array = program(&node, &["exit", "$i"]).args_before_last("--array=0,7");
    let said = waited(array, 5);
    assert_says(&said, &["1 of 2 tasks of job ", "`wasmrun job show "]);
    // Nor do the tasks count that those of the array have started.
    let nested = node.submit("futures($i, 2)").args(["--array", "1-2"]);
    let said = waited(nested.arg("--detach"), 5);
    assert_says(&said, &["1 of 2 tasks of job "]);
    let limited = node.submit("spin()").args(["--time-limit", "50ms"]);
    waited(limited.arg("--detach"), 6);
    let spin = job_of(&node.submit("spin()").arg("--detach").json(0));
    node.wasmrun(["job", "wait", &spin, "--timeout", "1ms"])
        .fails_saying(6, &["has not ended in time", "it goes on"]);
    // Of several the first that was named and has failed decides.
    let failed = job_of(&program(&node, &["exit", "4"]).json(0));
    node.wasmrun(["job", "cancel", &spin[..10]]).ok();
    node.wasmrun(["job", "wait", &failed, &spin]).fails(4);
    node.wasmrun(["job", "wait", &spin, &failed]).fails(130);
    let jobs = node.wasmrun(["job", "list", "-f", "state=cancelled"]);
    let jobs = jobs.json(0);
    assert_eq!(jobs["jobs"][0]["id"], *spin, "{jobs}");
    let unknown = node.wasmrun(["job", "wait", "nobody"]).fails(2);
    assert_says(
        &unknown,
        &["there is no job 'nobody' of tenant 'default'; `wasmrun job list` shows"],
    );
}

#[test]
fn several_jobs_are_cancelled_together() {
    let node = Node::start();
    let job = || job_of(&node.submit("spin()").arg("--detach").json(0));
    let (one, two, three) = (job(), job(), job());
    let said = node.wasmrun(["job", "cancel", &one, "nobody"]).fails(2);
    assert_says(&said, &["there is no job 'nobody'"]);
    let cancelled = || {
        let jobs = node.wasmrun(["job", "list", "-f", "state=cancelled"]);
        let jobs = jobs.json(0);
        jobs["jobs"].as_array().map(Vec::len)
    };
    assert_eq!(cancelled(), Some(0));
    let said = node.wasmrun(["job", "cancel", &one, &two, &one]).json(0);
    assert_eq!(said["jobs"], json!([one, two]), "{said}");
    node.wasmrun(["job", "wait", &one, &two]).fails(130);
    assert_eq!(cancelled(), Some(2));
    // One that has ended does not keep the others.
    let both = node.wasmrun(["job", "cancel", &one, &three]).run();
    assert_eq!(both.code, Some(2), "{both}");
    assert_says(
        &both.stderr,
        &[
            &format!("all tasks of job {three} that had not ended are cancelled"),
            "there is nothing to cancel",
        ],
    );
}

#[test]
fn a_nested_task_that_failed_is_found() {
    let node = Node::start();
    // It starts `crash`, and ends well.
    node.submit("error-of(\"trap\")").ok();
    let job = newest(&node);
    assert_eq!(job["name"], "error-of", "{job}");
    let id = job["id"].as_str().expect("an id");
    let filter = format!("job={id}");
    let list = ["list", "tasks", "-f", &filter, "-f", "state=failed"];
    let failed = node.wasmrun(list).json(0);
    let failed = failed["tasks"].as_array().expect("a list");
    assert_eq!(failed.len(), 1, "{failed:?}");
    let crash = &failed[0];
    assert_says(crash["name"].as_str().expect("text"), &["crash"]);
    assert_says(
        crash["error"].as_str().expect("text"),
        &["the guest trapped"],
    );
    let parent = crash["parent"].as_str().expect("it was started by another");
    let filter = format!("parent={parent}");
    let children = node.wasmrun(["list", "tasks", "-f", &filter]).json(0);
    assert_eq!(children["tasks"][0]["id"], crash["id"], "{children}");
    let task = node
        .wasmrun(["get", crash["id"].as_str().expect("an id")])
        .json(0);
    assert_eq!(
        (&task["state"], &task["job"]),
        (&"failed".into(), &job["id"])
    );
    assert_eq!(task["error"]["kind"], "trap", "{task}");
    let made = node.wasmrun(["object", "get", crash["id"].as_str().expect("an id")]);
    made.fails_saying(5, &["the guest trapped"]);
    assert!(task["duration_us"].as_u64() > Some(0), "{task}");
    assert_says(
        &node.wasmrun(["job", "show", id]).ok(),
        &["failed first:", "crash", "the guest trapped"],
    );
    let text = node.wasmrun(["get", parent]).ok();
    assert_says(&text, &["state     finished", "job       ", "ran       "]);
    // The client that has waited for it had its output, and no other.
    node.wasmrun(["job", "logs", id])
        .fails_saying(2, &["nothing is kept of what job ", "--detach"]);
}

#[test]
fn the_graph_has_who_started_whom_and_what_they_gave_each_other() {
    let node = Node::start();
    assert_eq!(node.submit("chain(3)").ok(), "3\n");
    let job = newest(&node)["id"].as_str().expect("an id").to_owned();
    let graph = node.wasmrun(["job", "graph", &job]).json(0);
    let edges = graph["edges"].as_array().expect("a list").iter();
    let kinds: BTreeSet<&str> = edges.filter_map(|it| it["kind"].as_str()).collect();
    assert_eq!(kinds, BTreeSet::from(["control", "data"]), "{graph}");
    let dot = node.wasmrun(["job", "graph", &job, "--dot"]).ok();
    assert!(dot.starts_with("digraph ") && dot.ends_with("}\n"), "{dot}");
    assert!(dot.contains("chain") && dot.contains(" -> "), "{dot}");
    let tree = node.wasmrun(["job", "graph", &job]).ok();
    assert!(tree.lines().count() > 3, "{tree}");
    assert!(
        tree.lines().skip(1).all(|line| line.starts_with("  ")),
        "{tree}"
    );
}

#[test]
fn a_timeline_has_all_attempts_of_a_job() {
    let node = Node::start();
    let empty = node.wasmrun(["timeline", "--out", "-"]).run();
    assert_says(&empty.stderr, &["warning: the trace is empty"]);
    assert_eq!(node.submit("fib(4)").ok(), "3\n");
    let job = newest(&node)["id"].as_str().expect("an id").to_owned();
    let filter = format!("job={job}");
    let tasks = node
        .wasmrun(["list", "tasks", "--all", "-f", &filter])
        .json(0);
    let tasks = tasks["tasks"].as_array().expect("a list").iter();
    let ids: BTreeSet<&str> = tasks.filter_map(|it| it["id"].as_str()).collect();
    let file = node.dir.path().join("trace.json");
    let write = node.wasmrun(["timeline", &job, "--out"]).arg(&file);
    assert_says(&write.run().stderr, &["attempts at 1 node,", "perfetto"]);
    let trace = std::fs::read_to_string(&file).unwrap();
    let trace: Json = serde_json::from_str(&trace).expect("it is JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    let whole = events.iter().filter(|it| it["ph"] == "X");
    let found: BTreeSet<&str> = whole.filter_map(|it| it["args"]["id"].as_str()).collect();
    assert_eq!(found, ids);
    let arrows = events.iter().filter(|it| it["ph"] == "s").count();
    assert_eq!(arrows, ids.len() - 1, "from each parent to each child");
    // All that is remembered, to standard output.
    let all = node.wasmrun(["timeline", "--out", "-"]).ok();
    let all: Json = serde_json::from_str(&all).expect("it is JSON");
    assert!(all["traceEvents"].as_array().map(Vec::len) >= Some(events.len()));
    let attempts = node.wasmrun(["list", "attempts", "--limit", "2"]).json(0);
    assert_eq!(attempts["attempts"].as_array().map(Vec::len), Some(2));
}

#[test]
fn following_a_log_ends_with_what_writes_it() {
    let node = Node::start();
    let hold = node.wasmrun(["submit", "--detach"]).arg(guest("spread"));
    let hold = hold.args(["--invoke", "hold()"]).json(0);
    let id = hold["task_id"].as_str().expect("an id").to_owned();
    let mut logs = node.wasmrun(["logs", "-f", &id]).start();
    logs.wait_for(Stream::Out, "holds\n");
    assert!(logs.is_running());
    node.wasmrun(["cancel", &id]).ok();
    let ended = logs.end();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.stdout_text().ends_with("holds\n"), "{ended}");
    // Where several speak, lines say who does.
    let array = program(&node, &["args", "one $i", "two $i"]).args_before_last("--array=1-3");
    let job = job_of(&array.json(0));
    let lines = |args: &[&str]| {
        let logs = node.wasmrun(["job", "logs", &job]).args(args).ok();
        let mut lines: Vec<String> = logs.lines().map(ToOwned::to_owned).collect();
        lines.sort();
        lines
    };
    let expected = [
        "[1] one 1",
        "[1] two 1",
        "[2] one 2",
        "[2] two 2",
        "[3] one 3",
        "[3] two 3",
    ];
    assert_eq!(lines(&["-f"]), expected);
    assert_eq!(lines(&["--grep", "two 2"]), ["[2] two 2"]);
}

#[test]
fn lines_of_a_retried_attempt_say_so() {
    let node = Node::start();
    let array = || {
        let submit = node.wasmrun(["submit"]).arg(guest("fixture"));
        let call = ["--invoke", "succeed-at(9, trap, \"\", [])"];
        submit.args(call).args(["--array", "3", "--retries", "1"])
    };
    let said = ["[3] attempt 0 fails\n", "[3 attempt 2] attempt 1 fails\n"];
    // Where the report of the task stands among them is not said.
    assert_says(&array().fails(5), &said);
    let submitted = array().arg("--detach").json(0);
    let job = job_of(&submitted);
    node.wasmrun(["job", "wait", &job]).fails(5);
    let logs = node.wasmrun(["job", "logs", &job]).run();
    assert_eq!(logs.stderr, said.concat(), "{logs}");
    let task = submitted["tasks"][0]["task_id"].as_str().expect("an id");
    let logs = node.wasmrun(["logs", task]).json(0);
    let second = &logs["attempts"][1];
    assert_eq!(
        (&second["attempt"], &second["stderr"]),
        (&2.into(), &"attempt 1 fails\n".into()),
        "{logs}"
    );
}

#[test]
fn a_job_is_submitted_again_as_it_was() {
    let node = Node::start();
    let submit = node.submit("add($i, 1)").args(["--array", "3,1,2"]);
    let first = submit.args([
        "--name", "sums", "--cpus", "0.5", "--detach", "--tenant", "red",
    ]);
    let first = first.json(0);
    let job = job_of(&first);
    let red = ["--tenant", "red"];
    node.wasmrun(["job", "wait", &job]).args(red).ok();
    let again = node.wasmrun(["job", "rerun", "sums"]).args(red).json(0);
    assert_eq!(again["rerun_of"], *job, "{again}");
    let tasks = again["tasks"].as_array().expect("a list");
    let indices: Vec<_> = tasks.iter().map(|it| it["array_index"].as_u64()).collect();
    assert_eq!(indices, [Some(1), Some(2), Some(3)]);
    let again = job_of(&again);
    assert_ne!(again, job);
    node.wasmrun(["job", "wait", &again]).args(red).ok();
    let results = node.wasmrun(["job", "results", &again]).args(red).ok();
    assert_eq!(results, "[1] 2\n[2] 3\n[3] 4\n");
    let newest = newest(&node);
    assert_eq!(
        (&newest["id"], &newest["name"], &newest["tenant"]),
        (&again.into(), &"sums".into(), &"red".into())
    );
    assert_eq!(newest["states"]["expected"], 3, "{newest}");
    let task = tasks[0]["task_id"].as_str().expect("an id");
    let shown = node.wasmrun(["get", task]).args(red).ok();
    assert_says(
        &shown,
        &["tenant    red", "index     1", "held      CPU 0.5"],
    );
}

#[test]
fn what_has_failed_of_a_job_is_submitted_again_or_it_is_said_why_not() {
    let node = Node::start();
    let array = program(&node, &["exit", "$i"]).args_before_last("--array=0,7,9");
    let job = job_of(&array.json(0));
    node.wasmrun(["job", "wait", &job]).fails(5);
    let again = node.wasmrun(["job", "rerun", "--failed", &job]).run();
    assert_eq!(again.code, Some(0), "{again}");
    assert_says(&again.stderr, &["job ", ": wasmrun job show "]);
    let tasks = again.stdout_text();
    let tasks: Vec<&str> = tasks.lines().collect();
    assert_eq!(tasks.len(), 2, "{again}");
    let newest = newest(&node)["id"].as_str().expect("an id").to_owned();
    node.wasmrun(["job", "wait", &newest]).fails(5);
    let shown = node.wasmrun(["get", tasks[0]]).ok();
    assert_says(&shown, &["index     7", "exited with code 7"]);
    // An attached one is not kept.
    node.submit("crash()").fails(5);
    let attached = self::newest(&node)["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let rerun = |args: &[&str]| node.wasmrun(["job", "rerun"]).args(args).fails(2);
    let said = rerun(&[&attached, "--failed"]);
    assert_says(
        &said,
        &[
            "1 of 1 tasks of job ",
            "so none was",
            "--detach",
            "submit it as it was",
        ],
    );
    // Nor what was deleted.
    node.wasmrun(["object", "delete", tasks[1]]).ok();
    let said = rerun(&[&newest]);
    assert_says(&said, &["1 of 2 tasks of job ", tasks[1], "was deleted"]);
    let spin = job_of(&node.submit("spin()").arg("--detach").json(0));
    assert_says(&rerun(&[&spin]), &["has not ended", "--failed"]);
    assert_says(
        &rerun(&[&spin, "--failed"]),
        &["no task of job ", "has failed"],
    );
}

#[test]
fn what_needs_a_terminal_says_what_does_not() {
    let node = Node::start();
    node.wasmrun(["top"])
        .fails_saying(2, &["`wasmrun status`", "`wasmrun list"]);
    node.wasmrun(["status", "--watch"])
        .fails_saying(2, &["--watch is for a terminal"]);
}

#[test]
fn a_wrong_job_or_file_is_named() {
    let node = Node::start();
    let spin = || node.submit("spin()").args(["--detach", "--name", "twice"]);
    let jobs = [job_of(&spin().json(0)), job_of(&spin().json(0))];
    let said = node.wasmrun(["job", "wait", "twice"]).fails(2);
    assert_says(
        &said,
        &["'twice' is the name of more than one: ", "give an id"],
    );
    for job in &jobs {
        assert_says(&said, &[job.as_str()]);
    }
    let live = node.wasmrun(["job", "results", &jobs[0]]).run();
    assert_eq!((live.code, &*live.stdout_text()), (Some(6), ""), "{live}");
    assert_says(
        &live.stderr,
        &["1 task of job ", "has not ended", "`wasmrun job wait "],
    );
    let missing = node.dir.path().join("none/trace.json");
    node.wasmrun(["timeline", "--out"])
        .arg(missing)
        .fails_saying(2, &["error: cannot write to ", "there is no folder "]);
    node.wasmrun(["logs", "-f", "nobody"])
        .fails_saying(2, &["there is no task, actor or job 'nobody'"]);
}
