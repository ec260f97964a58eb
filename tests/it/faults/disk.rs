//! A disk without room under the control store: what was answered is there for ever, the rest is refused with
//! words, and work goes on.
//!
//! The disk is a small tmpfs. Who may not mount one skips this, unless `WASMRUN_REQUIRE_NETNS` says that whoever
//! runs it may do all that root may.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use wasmrun_tests::{assert_says, scratch, skipped};

use super::links::REQUIRED;
use super::world::{Node, Three, Tree, wait_for_rest};

/// A disk of a few MiB.
struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    fn new() -> Option<Self> {
        let folder = scratch();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=6m,mode=700", "wasmrun-test"])
            .arg(folder.path())
            .output();
        let failed = match mount {
            Ok(output) if output.status.success() => return Some(Self { folder }),
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        skipped(REQUIRED, &format!("nothing can be mounted here: {failed}"));
        None
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Takes all room that is left.
    fn fill(&self) {
        let mut file = File::options();
        let file = file.create(true).append(true).open(self.filler());
        let mut file = file.expect("a file");
        for size in [64 << 10, 4 << 10, 1 << 10] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.filler()).expect("it is there");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Also where a node that is about to end still has files open.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// The ids of the tokens that a node knows.
fn tokens(node: &Node) -> BTreeSet<String> {
    let list = node.command(&["node", "token", "list"]).json(0);
    let tokens = list["tokens"].as_array().expect("a list");
    let ids = tokens
        .iter()
        .map(|it| it["id"].as_str().expect("an id").to_owned());
    ids.collect()
}

#[test]
fn a_full_disk_under_the_control_store_costs_what_cannot_be_kept_only() {
    let Some(disk) = SmallDisk::new() else { return };
    let head = Node::new("a").with_state(&disk.path().join("state"));
    let mut three = Three::with([head, Node::new("b"), Node::new("c")]);
    let before = tokens(&three.a);
    // Work that has begun before, and goes on.
    let tree = Tree::start(&three.b);
    disk.fill();
    // There may be room in the file itself.
    let mut refused = None;
    for _ in 0..500 {
        let create = three.b.command(&["node", "token", "create"]).run();
        if create.code != Some(0) {
            refused = Some(create);
            break;
        }
        disk.fill();
    }
    let refused = refused.expect("the disk is full");
    assert_says(&refused.stderr, &["disk", "room"]);
    let answered = tokens(&three.a);
    assert!(before.is_subset(&answered));
    tree.ends_well();
    Tree::start(&three.c).ends_well();
    // It crashes, and cannot begin again before there is room.
    three.a.kill();
    three
        .a
        .starting(&["--head"])
        .fails_saying(2, &["check", "that the disk has room"]);
    disk.make_room();
    three.a.start(&["--head"]);
    three.meet();
    assert_eq!(
        tokens(&three.a).intersection(&answered).count(),
        answered.len()
    );
    let token = three.c.token(&[]);
    let mut d = Node::new("d");
    d.start(&["--join", &token]);
    three.b.wait_for("d", "alive");
    wait_for_rest(three.all());
    for name in ["b", "c"] {
        assert_eq!(three.a.sees(name).expect("it lives")["incarnation"], 1);
    }
}

#[test]
fn a_disk_that_is_full_for_a_while_needs_no_restart() {
    let Some(disk) = SmallDisk::new() else { return };
    let mut head = Node::new("a").with_state(&disk.path().join("state"));
    head.start(&["--head"]);
    let token = head.token(&["--many"]);
    disk.fill();
    let mut count = 0;
    while head.command(&["node", "token", "create"]).run().code == Some(0) {
        disk.fill();
        count += 1;
        assert!(count < 500, "the disk is full");
    }
    Node::new("b")
        .starting(&["--join", &token])
        .fails_saying(4, &["cannot"]);
    disk.make_room();
    let mut b = Node::new("b");
    b.start(&["--join", &token]);
    head.wait_for("b", "alive");
    head.token(&[]);
    wait_for_rest([&head, &b]);
}
