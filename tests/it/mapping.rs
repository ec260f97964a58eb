//! Objects in a guest's memory: that they are not copied, that there are many, and that bad windows harm
//! nobody.

use std::fs;

use serde_json::Value as Json;
use wasmrun_tests::{Wasmrun, assert_says, guest, scratch};

use crate::node::Node;

fn graph(call: &str) -> Wasmrun {
    Wasmrun::submit("graph").args(["--invoke", call])
}

/// A mapping of files that may be written to without changing them, as a process has it.
#[derive(Debug, Default)]
struct Private {
    resident_bytes: u64,
    /// What was copied because somebody wrote to it.
    copied_bytes: u64,
}

/// All such mappings of at least so many bytes, and all memory of the process that shows no file.
fn mappings(process: u64, least: u64) -> (Vec<Private>, u64) {
    let smaps = fs::read_to_string(format!("/proc/{process}/smaps")).expect("it is our process");
    let (mut found, mut anonymous, mut is_one) = (Vec::new(), 0, false);
    for line in smaps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let bytes = || words[1].parse::<u64>().expect("a number") * 1024;
        match words[0] {
            "Rss:" if is_one => found.push(Private {
                resident_bytes: bytes(),
                ..Private::default()
            }),
            "Anonymous:" => {
                anonymous += bytes();
                if let Some(last) = found.last_mut().filter(|_| is_one) {
                    last.copied_bytes = bytes();
                }
            }
            // START-END rw-p OFFSET DEVICE INODE PATH
            range if range.contains('-') && words.len() >= 5 => {
                let ends = range.split('-').map(|end| u64::from_str_radix(end, 16));
                let ends: Vec<u64> = ends.map(|end| end.expect("an address")).collect();
                is_one = words[1] == "rw-p" && words[4] != "0" && ends[1] - ends[0] >= least;
            }
            _ => {}
        }
    }
    (found, anonymous)
}

/// Asserts that a detached task of the node that maps an object of so many bytes, reads all, says `mapped` and goes
/// on, has no copy of it: by what the kernel says of the memory of the node's process.
fn assert_not_copied(bytes: u64, submit: impl Fn(&Node) -> Wasmrun) {
    let mut node = Node::new();
    node.start_with(&["--object-memory", "512MiB"]);
    let status = || node.wasmrun(["status"]).json(0);
    let pinned = |status: &Json| status["store"]["pinned_bytes"].as_u64().expect("a number");
    let process = status()["process"].as_u64().expect("a number");
    // So that the engine, the guest's code and the first pages of the pool are there.
    node.submit("noop()").ok();
    let (_, before) = mappings(process, bytes);
    let spin = submit(&node).args(["--memory", "400MiB", "--detach"]).ok();
    // When it has it mapped and read, it says so.
    let logs = || node.wasmrun(["logs", spin.trim()]).run().stderr;
    while !logs().contains("mapped ") {
        assert_eq!(node.count("failed"), 0, "{}", logs());
    }
    assert!(pinned(&status()) >= bytes, "{}", status());
    let (mapped, after) = mappings(process, bytes);
    assert_eq!(mapped.len(), 1, "{mapped:?}");
    assert!(
        mapped[0].resident_bytes >= bytes,
        "it has read all: {mapped:?}"
    );
    assert_eq!(mapped[0].copied_bytes, 0);
    let grown = after.saturating_sub(before);
    assert!(grown < bytes / 2, "{grown} bytes more than before");
    node.wasmrun(["cancel", spin.trim()]).ok();
    while pinned(&status()) > 0 {}
    // A mapping that is kept for the next guest is nobody's memory either.
    let (kept, after) = mappings(process, bytes);
    assert!(kept.iter().all(|it| it.copied_bytes == 0), "{kept:?}");
    assert!(after.saturating_sub(before) < bytes / 2);
}

#[test]
fn a_mapped_object_is_not_copied() {
    const BYTES: u64 = 100_000_000;
    assert_not_copied(BYTES, |node| {
        let spin = node.submit(&format!("map-and-spin({BYTES})"));
        spin.args(["--max-result", "200MiB"])
    });
}

#[test]
fn what_the_sdk_maps_is_not_copied() {
    const BYTES: u64 = 100_000_000;
    assert_not_copied(BYTES, |node| {
        let detached = |call: &str| {
            let submit = node.wasmrun(["submit", "--invoke", call]).arg(guest("sdk"));
            submit.args(["--max-result", "200MiB"])
        };
        let ramp = detached(&format!("ramp({})", BYTES / 8));
        let numbers = ramp.args(["--memory", "400MiB", "--detach"]).ok();
        detached(&format!("hold-mapped(\"{}\")", numbers.trim()))
    });
}

#[test]
fn bands_of_a_picture_are_mapped() {
    const WIDTH: u64 = 1024;
    let mut node = Node::new();
    node.start_with(&["--object-memory", "512MiB"]);
    let status = node.wasmrun(["status"]).json(0);
    let process = status["process"].as_u64().expect("a number");
    let dir = scratch();
    let [pixels, out] = ["pixels", "out"].map(|name| dir.path().join(name));
    // The steps of the pipeline, and how many bands each is given. Each of them is larger than those of the step
    // before, whose mappings may still be there.
    for (step, bands, rows) in [("blur", 3, 2048), ("ink", 3, 2304), ("shrink", 1, 2560)] {
        let bytes = 3 * WIDTH * rows;
        fs::write(&pixels, vec![7; bytes as usize]).expect("there is room");
        let band = node.wasmrun(["put"]).arg(&pixels).ok();
        let band = band.trim();
        // A parameter that is not mapped takes no object's id.
        let given = vec![format!("\"{band}\""); bands].join(", ");
        let call = format!("{step}({given}, {WIDTH})");
        let submit = node.wasmrun(["submit", "--invoke", &call]);
        let submit = submit.arg(guest("image-pipeline")).arg("-O").arg(&out);
        submit.ok();
        assert!(fs::metadata(&out).expect("it was made").len() > 0);
        // What the guest has left is kept with the object, and nobody has written to it.
        let (kept, _) = mappings(process, bytes);
        let is_whole = |it: &Private| it.resident_bytes >= bytes;
        assert!(kept.iter().any(is_whole), "{step} has read all: {kept:?}");
        assert!(kept.iter().all(|it| it.copied_bytes == 0), "{kept:?}");
    }
}

#[test]
fn more_windows_than_may_be_mapped_are_copies() {
    for count in [1, 256, 257, 300] {
        let said = graph(&format!("many-windows({count})")).args(["--memory", "128MiB"]);
        assert_eq!(said.ok(), format!("({count}, {count})\n"));
    }
}

#[test]
fn a_window_keeps_its_object_when_no_handle_does() {
    let dir = scratch();
    // Six of the eight MiB are in the window, and ten more are stored: most of them go to disk, and what was there
    // first cannot.
    let store = [
        "--object-memory",
        "8MiB",
        "--memory",
        "64MiB",
        "--spill-dir",
    ];
    let said = graph("keep-window(6144, 10)").args(store).arg(dir.path());
    assert_eq!(said.ok(), format!("ok({})\n", 6144 << 10));
}

#[test]
fn windows_in_the_way_of_others_are_refused() {
    for (what, why) in [
        ("overlapping", "overlaps one that an object is mapped to"),
        ("part", "another one than an object was mapped to"),
    ] {
        let said = graph(&format!("bad-window(\"{what}\")")).ok();
        assert_says(&said, &["\"refused: the window ", why]);
    }
}

#[test]
fn windows_outside_of_memory_end_the_task_and_nothing_else() {
    let node = Node::start();
    for what in ["beyond", "after", "overflow"] {
        let call = format!("bad-window(\"{what}\")");
        node.submit(&call)
            .fails_saying(5, &["out of bounds of memory"]);
    }
    let status = node.wasmrun(["status"]).json(0);
    assert_eq!(status["store"]["pinned_bytes"], 0, "{status}");
    assert_eq!(
        node.submit("sum-through(3000000, true)").ok(),
        "374995128\n"
    );
}
