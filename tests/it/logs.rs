//! What nodes log: which events, in which form, and never a secret.

use serde_json::Value as Json;
use wasmrun_tests::{Stream, Wasmrun, assert_says, guest, scratch};

use crate::cluster::Member;

/// The lines of a log that is JSON.
#[track_caller]
fn lines(log: &str) -> Vec<Json> {
    let lines = log.lines();
    let parsed = lines.map(|line| {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}\n{log}"))
    });
    parsed.collect()
}

/// The one line with this message, and this text in its fields.
#[track_caller]
fn said<'a>(lines: &'a [Json], message: &str, field: &str) -> &'a Json {
    let mut found = lines
        .iter()
        .filter(|it| it["message"] == message && it["fields"].to_string().contains(field));
    let one = found.next();
    assert!(
        one.is_some() && found.next().is_none(),
        "{message}: {lines:#?}"
    );
    one.expect("it is there")
}

#[test]
fn a_node_tells_who_comes_and_goes() {
    let mut a = Member::new("a");
    let json = ["--log-format", "json"];
    a.start(&[&["--head", "--listen", "127.0.0.1:0"], &json[..]].concat());
    let token = a.token(&[]);
    let mut b = Member::new("b");
    b.start(&[&["--join", &token], &json[..]].concat());
    a.wait_for_incarnation("b", 1);
    a.command(&["node", "drain", "b"]).ok();
    b.wait_for("b", "draining");
    let log = b.stop();
    let b_said = lines(&log.stderr);
    a.wait_for("b", "dead");
    let log = a.stop();
    let a_said = lines(&log.stderr);
    for (node, lines) in [("a", &a_said), ("b", &b_said)] {
        let started = said(lines, "the node has started", "unix:");
        assert_eq!(started["level"], "info", "{started}");
        assert_eq!(started["node"], node, "{started}");
        assert_eq!(started["target"], "wasmrun::daemon", "{started}");
        said(lines, "the node has stopped", "");
        let is_quiet = lines.iter().all(|line| line["level"] == "info");
        assert!(is_quiet, "nothing was wrong: {lines:#?}");
    }
    let joined = said(&a_said, "a node has joined", "\"b\"");
    assert_eq!(joined["fields"]["incarnation"], 1, "{joined}");
    said(&a_said, "a node has left or is lost", "\"b\"");
    said(&b_said, "this node is drained: it takes no new work", "");
}

#[test]
fn levels_choose_what_is_said() {
    let dir = scratch();
    let address = format!("unix:{}/own/node.sock", dir.path().display());
    let wasmrun = |args: &[&str]| Wasmrun::new(args).env("WASMRUN_ADDRESS", &address);
    let log = |args: &[&str], level: Option<&str>| {
        let start = wasmrun(&["node", "start", "--node-name", "n", "--node-cpus", "1"]).args(args);
        let start = level
            .into_iter()
            .fold(start, |it, level| it.env("WASMRUN_LOG", level));
        let mut running = start.start();
        running.wait_for(Stream::Out, "listens at unix:");
        let submit = wasmrun(&["submit", "--tenant", "red"]).arg(guest("graph"));
        assert_eq!(submit.args(["--invoke", "add(1, 2)"]).ok(), "3\n");
        wasmrun(&["node", "stop"]).ok();
        running.end().stderr
    };
    let plain = log(&[], None);
    assert_says(
        &plain,
        &[" INFO n wasmrun::daemon: the node has started id=0"],
    );
    assert!(!plain.contains("a task has finished"), "{plain}");
    let task = "a task has finished task=";
    for more in [
        log(&["--log", "debug"], None),
        log(&[], Some("wasmrun_node=debug")),
        log(&["-v"], None),
    ] {
        assert_says(&more, &["DEBUG n wasmrun_node", task, " tenant=red"]);
    }
    for less in [
        log(&["--log", "warn"], Some("debug")),
        log(&["--log", "off"], None),
        log(&["-q"], None),
    ] {
        assert!(!less.contains("wasmrun"), "{less}");
    }
    wasmrun(&["node", "start", "--log", "loud"])
        .fails_saying(2, &["'loud' must be a level", "wasmrun_net=debug"]);
}

#[test]
fn clients_say_nothing_unless_they_are_asked_to() {
    let quiet = Wasmrun::call("noop()").env("WASMRUN_LOG", "trace").run();
    assert_eq!((quiet.code, &*quiet.stderr), (Some(0), ""), "{quiet}");
}

#[test]
fn no_secret_is_ever_said() {
    let everything = [
        "--log",
        "trace,quinn=trace,rustls=trace,quinn_proto=trace,redb=trace",
    ];
    let mut a = Member::new("a");
    a.start(&[&["--head", "--listen", "127.0.0.1:0"], &everything[..]].concat());
    let (token, many) = (a.token(&[]), a.token(&["--many"]));
    let mut b = Member::new("b");
    b.start(&[&["--join", &token], &everything[..]].concat());
    a.wait_for_incarnation("b", 1);
    let mut late = Member::new("c");
    // One that is refused.
    let refused = late.refused(&[&["--join", &token], &everything[..]].concat());
    late.start(&[&["--join", &many], &everything[..]].concat());
    let key = std::fs::read_to_string(b.state().join("identity.pem")).expect("it has one");
    let lines = key
        .lines()
        .filter(|line| !line.starts_with('-') && line.len() > 16);
    let private = key.split("PRIVATE KEY").nth(1).expect("a key is in it");
    let private = lines.filter(|line| private.contains(line));
    let mut secrets: Vec<String> = private.map(str::to_owned).collect();
    assert!(!secrets.is_empty());
    for token in [&token, &many] {
        secrets.extend(secret_forms(token));
    }
    for (whose, log) in [
        ("b", b.stop().stderr),
        ("c", late.stop().stderr),
        ("a", a.stop().stderr),
        ("c before", refused),
    ] {
        for secret in &secrets {
            assert!(!log.contains(secret), "{whose} says {secret}:\n{log}");
        }
        assert!(log.contains("wasmrun") || whose == "c before", "{log}");
    }
}

/// The forms in which a token's secret might be shown: as it is in the token, as hex, as a list of numbers.
fn secret_forms(token: &str) -> Vec<String> {
    let word = token.rsplit('-').next().expect("the last part");
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let bits = word.bytes().flat_map(|byte| {
        let value = ALPHABET.iter().position(|it| *it == byte).expect("base 32");
        (0..5).rev().map(move |bit| value >> bit & 1)
    });
    let bits: Vec<usize> = bits.collect();
    let bytes = bits.chunks_exact(8);
    let bytes: Vec<u8> = bytes
        .map(|bits| bits.iter().fold(0, |byte, bit| byte << 1 | *bit as u8))
        .collect();
    // Its 16 bytes are followed by the kind (1 byte), the end (5 bytes in this century) and a checksum (4).
    let end = bytes.len() - 10;
    let secret = &bytes[end - 16..end];
    let hex = |separator: &str| {
        let bytes = secret.iter().map(|byte| format!("{byte:02x}"));
        bytes.collect::<Vec<_>>().join(separator)
    };
    let numbers = secret.iter().map(ToString::to_string);
    let numbers = numbers.collect::<Vec<_>>().join(", ");
    let shown = word[word.len() - 40..].to_owned();
    vec![shown, hex(""), hex(":"), hex(", "), numbers]
}
