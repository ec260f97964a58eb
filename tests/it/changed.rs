//! Bytes that change in the memory of the node that has them, as those of a machine that is broken may: whoever reads them
//! from there notices, counts it, and gets what was made from another node.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use rustix::process::Pid;
use wasmrun_tests::assert_says;

use crate::cluster::Member;
use crate::faults::eventually;
use crate::metrics::{self, Scrape};
use crate::spread::call;

/// How much is looked through at a time.
const PIECE_BYTES: usize = 1 << 20;

/// How many numbers make an object so large that its owner says who sends it.
const COUNT: usize = 700_000;

/// Changes one bit where a process has these bytes, in memory that is shared, as that of stores is.
#[track_caller]
fn change(process: Pid, bytes: &[u8]) {
    let process = process.as_raw_nonzero();
    let memory = OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/{process}/mem"))
        .expect("it is a child of ours");
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).expect("it runs");
    for line in maps.lines().filter(|line| line.contains(" rw-s ")) {
        let range = line.split(' ').next().expect("a range");
        let (from, to) = range.split_once('-').expect("a range");
        let [from, to] = [from, to].map(|it| u64::from_str_radix(it, 16).expect("a number"));
        let mut piece = vec![0; PIECE_BYTES + bytes.len()];
        for at in (from..to).step_by(PIECE_BYTES) {
            let len = piece.len().min((to - at) as usize);
            if memory.read_exact_at(&mut piece[..len], at).is_err() {
                continue;
            }
            let found = piece[..len].windows(bytes.len()).position(|it| it == bytes);
            if let Some(found) = found {
                let changed = [bytes[0] ^ 1];
                let at = at + found as u64;
                return memory.write_all_at(&changed, at).expect("it is writable");
            }
        }
    }
    panic!("it does not have them:\n{maps}");
}

#[test]
fn bytes_that_changed_where_they_lay_are_counted_and_come_from_another_node() {
    let metrics = "--metrics=127.0.0.1:0";
    let mut a = Member::new("a");
    let start = ["--head", "--listen", "127.0.0.1:0", metrics];
    let a_at = a.watched(&start, metrics::address);
    let token = a.token(&["--many"]);
    let b = Member::joined("b", &token);
    let mut c = Member::new("c");
    let c_at = c.watched(&["--join", &token, metrics], metrics::address);
    for one in [&a, &b, &c] {
        for other in ["a", "b", "c"] {
            one.wait_for_life(other, 1);
        }
    }
    let made = call(&a, &format!("ramp({COUNT})")).args(["--detach", "--strategy", "node:b"]);
    let id = made.ok().trim().to_owned();
    eventually("it was made", || {
        let task = a.command(&["get", &id]).json(0);
        (task["state"] == "finished").then_some(()).ok_or(task)
    });
    let read = |at: &Member| at.command(&["object", "get", &id]).ok();
    // It is a's, which keeps what it brings; b knows what it has sent.
    let before = read(&a);
    assert_eq!(before.matches(',').count() + 1, COUNT);
    let numbers: Vec<u8> = (1000..1100)
        .flat_map(|it| f64::from(it).to_le_bytes())
        .collect();
    change(b.process(), &numbers);
    let changed = |at| Scrape::new(at).value("wasmrun_transfer_changed_total");
    assert_eq!([a_at, c_at].map(changed), [0.0, 0.0]);
    // It is told to bring it from the one that made it first.
    assert!(read(&c) == before, "it is other numbers now");
    assert_eq!([a_at, c_at].map(changed), [0.0, 1.0]);
    a.command(&["object", "delete", &id]).ok();
    for member in [&a, &b, &c] {
        member.wait_for_rest();
    }
    let said = c.stop().stderr;
    assert_says(
        &said,
        &["WARN", "bytes came that have changed since they were made"],
    );
}
