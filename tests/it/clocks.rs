//! Machines whose clocks differ: what is made on one and looked at on another does not go by either's.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use wasmrun_tests::{Wasmrun, assert_says, scratch};

use crate::cluster::Member;
use crate::spread::call;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// What a process is started with so that its clock is so far from that of others.
const PRELOAD: &str = "LD_PRELOAD";

/// Answers for the system where a process asks what time it is.
const SHIFTED: &str = r"
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, clock, at);
    if (!failed && clock == CLOCK_REALTIME) at->tv_sec += SHIFT;
    return failed;
}
";

/// Clocks that are wrong, each in a library of its own. Whoever can build wasmrun has the compiler for that.
struct Clocks(TempDir);

impl Clocks {
    fn new() -> Self {
        Self(scratch())
    }

    /// One that is so many seconds ahead, or behind.
    fn ahead(&self, seconds: i64) -> String {
        let [source, library] = ["c", "so"].map(|it| self.file(seconds, it));
        std::fs::write(&source, SHIFTED).expect("the folder can be written");
        let mut compiler = Command::new("cc");
        let shift = format!("-DSHIFT={seconds}");
        let compile = compiler.args(["-shared", "-fPIC", &shift, "-o"]);
        let ended = compile.arg(&library).arg(&source).status();
        assert!(ended.expect("there is a compiler").success());
        library.to_str().expect("it is ASCII").to_owned()
    }

    fn file(&self, seconds: i64, kind: &str) -> PathBuf {
        let folder: &Path = self.0.path();
        folder.join(format!("clock{seconds}.{kind}"))
    }
}

fn joined(name: &'static str, token: &str, clock: &str) -> Member {
    let mut member = Member::new(name);
    member.start_with_env(&["--join", token], (PRELOAD, clock));
    member
}

/// How long the tokens that a node lists serve, in milliseconds, the shortest first. All of them do.
#[track_caller]
fn left_ms(at: &Member) -> Vec<u64> {
    let listed = at.command(&["node", "token", "list"]).json(0);
    let tokens = listed["tokens"].as_array().expect("a list").iter();
    let left = tokens.map(|token| {
        assert_eq!(token["state"], "valid", "{token}");
        token["left_ms"].as_u64().expect("a time")
    });
    let mut left: Vec<u64> = left.collect();
    left.sort_unstable();
    left
}

#[test]
fn nodes_whose_clocks_are_wrong_are_members_like_others() {
    let clocks = Clocks::new();
    let (late, early) = (clocks.ahead(-20 * HOUR), clocks.ahead(3 * DAY));
    let (head, token) = Member::head("a");
    let b = joined("b", &token, &late);
    let c = joined("c", &token, &early);
    // What each of them gives away opens, also at a node whose clock is the other one; and nobody forgets a token
    // because it would have ended long ago by its own clock.
    let hour = ["--many", "--lifetime", "1h"];
    let of_b = b.token(&hour);
    let of_c = c.token(&hour);
    let d = joined("d", &of_b, &early);
    let e = joined("e", &of_c, &late);
    let all = [&head, &b, &c, &d, &e];
    for at in all {
        for other in ["a", "b", "c", "d", "e"] {
            at.wait_for_incarnation(other, 1);
        }
        // Those of the others, that which the head printed, and that which they came with.
        let left_ms = left_ms(at);
        let most_h = [1, 1, 1, 24];
        assert_eq!(left_ms.len(), most_h.len(), "{left_ms:?}");
        let is_right = |(left, most_h): (&u64, u64)| *left <= most_h * 60 * 60 * 1000;
        assert!(left_ms.iter().zip(most_h).all(is_right), "{left_ms:?}");
    }
    for (at, on) in [(&head, "b"), (&b, "c"), (&c, "d"), (&d, "e"), (&e, "a")] {
        let place = call(at, "place()").args(["--strategy", &format!("node:{on}")]);
        assert_eq!(place.ok(), format!("\"{on}\"\n"));
    }
    // A client, let in by a token of one, whose certificate another looks at.
    let folder = scratch();
    let client = |args: &[&str]| Wasmrun::new(args).env("WASMRUN_IDENTITY", folder.path());
    let login = b.token(&["--client", "--name", "ci", "--lifetime", "1h"]);
    client(&["login", &login]).ok();
    for at in all {
        let clients = at.command(&["client", "list"]).json(0);
        let ci = &clients["clients"][0];
        assert_eq!((&ci["name"], &ci["state"]), (&"ci".into(), &"valid".into()));
        let age_ms = ci["age_ms"].as_u64().expect("a time");
        assert!(age_ms < 60 * 60 * 1000, "{ci}");
        let row = at.wait_for(at.name(), "alive");
        let address = row["address"].as_str().expect("it listens");
        client(&["--address", address, "status"]).ok();
    }
    c.command(&["client", "revoke", "ci"]).ok();
    let clients = b.command(&["client", "list"]).json(0);
    assert_eq!(clients["clients"][0]["state"], "revoked");
}

#[test]
fn a_clock_that_is_days_behind_is_said_to_be() {
    let clocks = Clocks::new();
    let late = clocks.ahead(-3 * DAY);
    let (head, token) = Member::head("a");
    let says = [
        "certificate not valid yet",
        "compare the clocks of both machines",
    ];
    let b = Member::new("b");
    let said = b.unreached_with_env(&["--join", &token], (PRELOAD, &late));
    assert_says(&said, &says);
    let folder = scratch();
    let client = |args: &[&str]| Wasmrun::new(args).env("WASMRUN_IDENTITY", folder.path());
    let login = head.token(&["--client"]);
    let said = client(&["login", &login]).env(PRELOAD, &late).fails(4);
    assert_says(&said, &says);
    // The token was not used up by that.
    client(&["login", &login]).ok();
    let row = head.wait_for("a", "alive");
    let address = row["address"].as_str().expect("it listens");
    let status = ["--address", address, "status"];
    assert_says(&client(&status).env(PRELOAD, &late).fails(4), &says);
    client(&status).ok();
    // A node that counts as a member since its clock was right, and that says so of the other's.
    let mut b = Member::joined("b", &token);
    b.stop();
    let said = b.unreached_with_env(&["--join"], (PRELOAD, &late));
    assert_says(&said, &says);
    b.start(&["--join"]);
}
