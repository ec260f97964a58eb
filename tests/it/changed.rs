//! Bytes that change in the memory of the node that has them, as those of a machine that is broken may: whoever reads them
//! from there notices, counts it, and gets what was made from another node.

use std::fs::{self, OpenOptions};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;

use rustix::process::Pid;
use wasmrun_tests::assert_says;

use crate::cluster::{Member, wait_for_rest};
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

/// Three nodes: a has the control store, and b has made many numbers for it, which lie there only.
struct Made {
    members: [Member; 3],
    /// Where a and c are measured.
    measured: [SocketAddr; 2],
    id: String,
}

impl Made {
    fn new() -> Self {
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
                one.wait_for_incarnation(other, 1);
            }
        }
        let made = call(&a, &format!("ramp({COUNT})")).args(["--detach", "--strategy", "node:b"]);
        let id = made.ok().trim().to_owned();
        eventually("it was made", || {
            let task = a.command(&["get", &id]).json(0);
            (task["state"] == "finished").then_some(()).ok_or(task)
        });
        Self {
            members: [a, b, c],
            measured: [a_at, c_at],
            id,
        }
    }

    /// What a member reads.
    fn read(&self, at: usize) -> String {
        self.members[at].command(&["object", "get", &self.id]).ok()
    }

    /// Changes one bit in the memory of b.
    #[track_caller]
    fn change(&self) {
        let numbers: Vec<u8> = (1000..1100)
            .flat_map(|it| f64::from(it).to_le_bytes())
            .collect();
        change(self.members[1].process(), &numbers);
    }

    /// How often a and c have read what has changed.
    fn changed(&self) -> [f64; 2] {
        let changed = |at| Scrape::new(at).value("wasmrun_transfer_changed_total");
        self.measured.map(changed)
    }
}

#[test]
fn bytes_that_changed_where_they_lay_are_counted_and_come_from_another_node() {
    let mut made = Made::new();
    // It is a's, which keeps what it brings; b knows what it has sent.
    let before = made.read(0);
    assert_eq!(before.matches(',').count() + 1, COUNT);
    made.change();
    assert_eq!(made.changed(), [0.0, 0.0]);
    // It is told to bring it from the one that made it first.
    assert!(made.read(2) == before, "it is other numbers now");
    assert_eq!(made.changed(), [0.0, 1.0]);
    let delete = ["object", "delete", &made.id];
    made.members[0].command(&delete).ok();
    wait_for_rest(&made.members);
    let said = made.members[2].stop().stderr;
    assert_says(
        &said,
        &["WARN", "bytes came that have changed since they were made"],
    );
}

#[test]
fn what_changed_where_its_only_copy_lay_is_made_again_there() {
    let mut made = Made::new();
    // What b sends is known from now on, and whom it was sent to is gone.
    let before = made.read(2);
    let [a, _, c] = &mut made.members;
    c.kill();
    a.wait_for("c", "dead");
    made.change();
    // It may be made at b only, whose store has the one that has changed under its name.
    assert!(made.read(0) == before, "it is other numbers now");
    let changed = Scrape::new(made.measured[0]).value("wasmrun_transfer_changed_total");
    assert!(changed >= 1.0, "it was not read from there");
    let [a, b, _] = &mut made.members;
    a.command(&["object", "delete", &made.id]).ok();
    wait_for_rest([&*a, &*b]);
    let said = b.stop().stderr;
    assert_says(
        &said,
        &[
            "WARN",
            "its bytes have changed since they were made",
            &made.id,
        ],
    );
}
