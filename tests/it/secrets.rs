//! Secrets: who gets a value and how, and that nobody else does.

use std::fs;
use std::path::Path;

use serde_json::Value as Json;
use wasmrun_tests::{Wasmrun, assert_says, guest, scratch};

use crate::cluster::Member;
use crate::faults::eventually;
use crate::node::Node;

/// No test has it anywhere else.
const VALUE: &str = "s3cr3t-q7Vx-4711";

/// Runs the program that prints what it is given.
fn prints<const N: usize>(submit: Wasmrun, options: &[&str], program: [&str; N]) -> Wasmrun {
    let submit = submit.arg("-q").arg(guest("prog")).args(options);
    submit.program(program)
}

/// Whether a value is in any file below a folder.
fn is_below(folder: &Path, value: &[u8]) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_in = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => is_below(&entry.path(), value),
        Ok(kind) if kind.is_file() => {
            let bytes = fs::read(entry.path()).unwrap_or_default();
            bytes.windows(value.len()).any(|it| it == value)
        }
        _ => false,
    };
    entries.into_iter().any(is_in)
}

#[test]
fn a_task_is_given_what_was_set_and_a_list_shows_names_alone() {
    let node = Node::start();
    let set = node.wasmrun(["secret", "set", "KEY"]);
    // The newline is the pipe's.
    let said = set.stdin(format!("{VALUE}\n")).run();
    assert_eq!((said.code, said.stdout_text()), (Some(0), String::new()));
    assert_says(&said.stderr, &["secret KEY of tenant default is set"]);
    let submit = || node.wasmrun(["submit"]);
    assert_eq!(
        prints(submit(), &["--secret", "KEY"], ["env"]).ok(),
        format!("KEY={VALUE}\n")
    );
    // In place of a variable that is granted, and as a file of a module of the older kind, too.
    let other = ["--env", "TOKEN=x", "--secret", "TOKEN=KEY"];
    assert_eq!(
        prints(submit(), &other, ["env"]).ok(),
        format!("TOKEN={VALUE}\n")
    );
    let file = ["--secret", "/run/secrets/key=KEY"];
    for module in ["prog", "prog-p1"] {
        let run = submit().arg("-q").arg(guest(module)).args(file);
        assert_eq!(run.program(["read", "/run/secrets/key"]).ok(), VALUE);
    }
    let component = submit().arg(guest("fixture")).args(file);
    let component = component.args(["--invoke", "read-file(\"/run/secrets/key\")"]);
    assert_eq!(component.ok(), format!("ok(\"{VALUE}\")\n"));
    prints(submit(), &file, ["write", "/run/secrets/key", "x"]).fails(1);
    prints(submit(), &file, ["write", "/run/secrets/new", "x"]).fails(1);
    // Without being asked for it is not there.
    assert_eq!(prints(submit(), &[], ["env"]).ok(), "");
    prints(submit(), &[], ["read", "/run/secrets/key"]).fails(1);

    let listed = node.wasmrun(["secret", "list"]).json(0);
    let [row] = &listed["secrets"].as_array().expect("a list")[..] else {
        panic!("{listed}")
    };
    assert_eq!(
        (&row["name"], &row["tenant"], &row["bytes"]),
        (&"KEY".into(), &"default".into(), &VALUE.len().into())
    );
    assert!(!listed.to_string().contains(VALUE), "{listed}");
    let table = node.wasmrun(["secret", "list"]).ok();
    assert_says(&table, &["name", "tenant", "bytes", "set", "by", "KEY"]);

    // Of another tenant there is none.
    for args in [
        &["submit", "-q", "--tenant", "red", "--secret", "KEY"][..],
        &["secret", "remove", "KEY", "--tenant", "red"],
    ] {
        let command = Wasmrun::new(args).env(
            "WASMRUN_ADDRESS",
            format!("unix:{}", node.socket().display()),
        );
        let command = match args[0] {
            "submit" => command.arg(guest("prog")).program(["env"]),
            _ => command,
        };
        command.fails_saying(2, &["there is no secret KEY for tenant 'red'"]);
    }
    let listed = node.wasmrun(["secret", "list", "--tenant", "red"]).json(0);
    assert_eq!(listed["secrets"], Json::Array(Vec::new()));

    node.wasmrun(["secret", "remove", "KEY"]).ok();
    let said = prints(submit(), &["--secret", "KEY"], ["env"]).fails(2);
    assert_says(&said, &["there is no secret KEY", "wasmrun secret set KEY"]);
    let said = node.wasmrun(["secret", "remove", "KEY"]).fails(2);
    assert_says(
        &said,
        &["there is no secret KEY", "shows those that there are"],
    );
    assert!(!said.contains("secret set"), "{said}");
}

#[test]
fn any_bytes_are_a_file_and_text_alone_is_a_variable() {
    let node = Node::start();
    let dir = scratch();
    let path = dir.path().join("value");
    let set = |name: &str| {
        node.wasmrun(["secret", "set", name, "--from-file"])
            .arg(&path)
    };
    for value in [&b"\0\xff\n\n"[..], b"no utf-8: \xff", b"line\nline\n"] {
        fs::write(&path, value).expect("there is room");
        set("RAW").ok();
        let file = ["--secret", "/run/secrets/raw=RAW"];
        let read = prints(
            node.wasmrun(["submit"]),
            &file,
            ["read", "/run/secrets/raw"],
        );
        assert_eq!(read.run().stdout, value);
        let env = prints(
            node.wasmrun(["submit"]),
            &["--secret", "RAW"],
            ["env", "RAW"],
        );
        match std::str::from_utf8(value).is_ok_and(|it| !it.contains('\0')) {
            true => assert_eq!(env.ok(), "line\nline\n\n"),
            false => env.fails_saying(
                5,
                &[
                    "secret RAW of tenant 'default' is not text",
                    "--secret /run/secrets/RAW=RAW",
                ],
            ),
        }
    }
    for (bytes, code) in [(0, 2), ((64 << 10) + 1, 2), (64 << 10, 0)] {
        fs::write(&path, vec![b'x'; bytes]).expect("there is room");
        let ended = set("LARGE").run();
        assert_eq!(ended.code, Some(code), "{ended}");
    }
    for name in ["a-b", "1A", "A=B"] {
        set(name).fails_saying(2, &["is not the name of a secret"]);
    }
    for given in ["A=", "/tmp/a=RAW", "/run/secrets/../a=RAW"] {
        prints(node.wasmrun(["submit"]), &["--secret", given], ["env"]).fails(2);
    }
    let twice = ["--secret", "A=RAW", "--secret", "A=LARGE"];
    prints(node.wasmrun(["submit"]), &twice, ["env"])
        .fails_saying(2, &["two secrets are to be given in A"]);
}

#[test]
fn the_node_inside_a_command_has_none() {
    let run = Wasmrun::submit("prog").args(["--secret", "KEY"]);
    run.program(["env"])
        .fails_saying(2, &["there is no secret KEY", "wasmrun node start"]);
}

/// Waits until a node knows of no secret.
fn wait_for_none(member: &Member) {
    eventually("is it gone", || {
        let listed = member.command(&["secret", "list"]).json(0);
        match listed["secrets"].as_array().map(Vec::len) {
            Some(0) => Ok(()),
            _ => Err(listed),
        }
    });
}

#[test]
fn all_nodes_give_a_value_and_none_writes_it_down() {
    let mut a = Member::new("a");
    let history = a.state().with_file_name("history");
    let history = ["--history-dir", history.to_str().expect("a plain path")];
    a.start(&[&["--head", "--listen", "127.0.0.1:0"][..], &history].concat());
    let token = a.token(&["--many"]);
    let mut b = Member::joined("b", &token);
    a.wait_for_incarnation("b", 1);
    b.wait_for_incarnation("a", 1);
    // The other node has to get the key to seal, and then to open.
    let set = b.command(&["secret", "set", "KEY"]).stdin(VALUE);
    set.ok();
    let at = |at: &Member, node: &str, options: &[&str]| {
        let strategy = format!("node:{node}");
        let options = [&["--strategy", &strategy, "--secret"][..], options].concat();
        prints(at.command(&["submit"]), &options, ["env", "KEY"]).ok()
    };
    for (from, node) in [(&a, "a"), (&a, "b"), (&b, "a"), (&b, "b")] {
        assert_eq!(at(from, node, &["KEY"]), format!("{VALUE}\n"));
    }
    let file = ["--strategy", "node:b", "--secret", "/run/secrets/key=KEY"];
    let read = prints(a.command(&["submit"]), &file, ["read", "/run/secrets/key"]);
    assert_eq!(read.ok(), VALUE);
    // What is kept of a detached task has the name alone, and does again.
    let detached = ["--detach", "--name", "gives", "--secret", "KEY"];
    let id = prints(a.command(&["submit"]), &detached, ["args", "done"]).ok();
    let id = id.trim();
    let finished = |id: &str| {
        eventually(
            "has it ended",
            || match a.command(&["get", id]).json(0)["state"].clone() {
                state if state == "finished" => Ok(()),
                state => Err(state),
            },
        );
    };
    finished(id);
    let again = a.command(&["job", "rerun", "gives"]).json(0);
    finished(again["tasks"][0]["task_id"].as_str().expect("an id"));
    for shown in [
        &["get", id][..],
        &["explain", id],
        &["logs", id],
        &["list", "tasks"],
        &["secret", "list"],
        &["job", "list"],
    ] {
        let shown = a.command(shown).ok();
        assert!(!shown.contains(VALUE), "{shown}");
    }

    // It is there when the nodes are back, and the other one has kept the key.
    let address = b.wait_for("a", "alive")["address"].clone();
    let address = address.as_str().expect("it listens");
    let mut logs = Vec::new();
    for stopped in [b.stop(), a.stop()] {
        logs.push(stopped.stderr);
    }
    for member in [&a, &b] {
        let state = member.state();
        assert!(state.join("secrets.key").exists());
        let folder = state.parent().expect("a folder of the test's");
        assert!(!is_below(folder, VALUE.as_bytes()), "{}", member.name());
    }
    a.start(&["--head", "--listen", address]);
    b.start(&["--join"]);
    b.wait_for("a", "alive");
    assert_eq!(at(&b, "b", &["KEY"]), format!("{VALUE}\n"));

    // What is removed is gone for what begins later, everywhere.
    a.command(&["secret", "remove", "KEY"]).ok();
    for member in [&a, &b] {
        wait_for_none(member);
        let submit = member.command(&["submit"]);
        prints(submit, &["--secret", "KEY"], ["env", "KEY"])
            .fails_saying(2, &["there is no secret KEY"]);
    }
    logs.extend([b.stop(), a.stop()].map(|it| it.stderr));
    assert!(logs.iter().all(|it| !it.contains(VALUE)), "{logs:?}");
}

#[test]
fn another_key_seals_what_was_set_before_and_all_nodes_open_it() {
    let (mut a, token) = Member::head("a");
    let b = Member::joined("b", &token);
    b.wait_for_incarnation("a", 1);
    for (name, tenant) in [("KEY", "default"), ("OTHER", "org/team")] {
        let set = ["secret", "set", name, "--tenant", tenant];
        b.command(&set).stdin(VALUE).ok();
    }
    let opened = |at: &Member| {
        let node = format!("node:{}", at.name());
        let options = ["--strategy", &node, "--secret", "KEY"];
        let printed = prints(at.command(&["submit"]), &options, ["env", "KEY"]).ok();
        assert_eq!(printed, format!("{VALUE}\n"));
    };
    let key = |at: &Member| fs::read(at.state().join("secrets.key")).expect("a key");
    opened(&b);
    let before = key(&a);
    assert_eq!(key(&b), before);
    b.command(&["secret", "rotate"])
        .fails_saying(2, &["at the head, node a", "wasmrun secret rotate"]);

    let rotated = a.command(&["secret", "rotate"]).run();
    assert_eq!(rotated.code, Some(0), "{rotated}");
    assert_says(
        &rotated.stderr,
        &["2 secrets and private keys of services are sealed with another key"],
    );
    assert_ne!(key(&a), before);
    opened(&a);
    opened(&b);
    // Who has come with the old key has the new one by now.
    eventually("has it the new key", || {
        opened(&b);
        match key(&b) == key(&a) {
            true => Ok(()),
            false => Err("the old one"),
        }
    });
    let address = b.wait_for("a", "alive")["address"].clone();
    a.kill();
    a.start(&["--head", "--listen", address.as_str().expect("it listens")]);
    opened(&a);
    let again = a.command(&["secret", "rotate"]).json(0);
    assert_eq!(again["state"], "rotated", "{again}");
    opened(&a);
}

#[test]
fn files_end_with_the_sandbox_and_what_was_left_with_the_next_node() {
    let node = Node::start();
    node.wasmrun(["secret", "set", "KEY"]).stdin(VALUE).ok();
    let file = ["--secret", "/run/secrets/key=KEY"];
    let ls = prints(node.wasmrun(["submit"]), &file, ["ls", "/run/secrets"]);
    assert_eq!(ls.ok(), "key\n");
    // A task that goes on while the node is killed.
    let held = [&file[..], &["--detach"]].concat();
    prints(node.wasmrun(["submit"]), &held, ["sleep"]).ok();
    node.wait_for("running", 1);
    let process = node.running.as_ref().expect("it runs").process();
    let prefix = format!("wasmrun-secrets-{}-", process.as_raw_nonzero());
    // Commands of tests have no folder of their own in memory.
    let left = || {
        let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let names = entries.map(|it| it.file_name());
        let ours = names.filter(|it| it.to_string_lossy().starts_with(&prefix));
        ours.count()
    };
    eventually("is its file there", || match left() {
        1 => Ok(()),
        count => Err(count),
    });
    let running = node.running.as_ref().expect("it runs");
    running.signal(rustix::process::Signal::KILL);
    eventually("has the next node swept", || {
        let _next = Node::start();
        match left() {
            0 => Ok(()),
            count => Err(count),
        }
    });
}
