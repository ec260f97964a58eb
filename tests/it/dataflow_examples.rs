//! The examples that start tasks and actors of their own do their work.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;

use wasmrun_tests::{Wasmrun, scratch};

#[test]
fn words_are_counted_by_tasks_of_tasks() {
    let dir = scratch();
    for (name, text) in [
        ("a.txt", "one two two three three three"),
        ("b.md", "three four"),
    ] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let run = Wasmrun::submit("word-count")
        .args(["--dir", &format!("{}::/text:ro", dir.path().display())])
        .args(["--invoke", "top(\"/text\", 2, 3)"]);
    let json = run.json(0);
    let shown = json["result"].to_string();
    assert!(
        shown.contains("\"three\"") && shown.contains("\"two\""),
        "{shown}"
    );
    assert!(!shown.contains("\"four\""), "{shown}");
}

/// So many lines of words that are not equally frequent: the same each time.
fn text(seed: u64, lines: usize) -> String {
    const WORDS: [&str; 12] = [
        "a", "Node", "task", "object", "future", "actor", "Straße", "lease", "owner", "TENANT",
        "of", "weiß",
    ];
    let mut state = seed;
    let mut word = || {
        // Knuth's MMIX generator. The smaller of two is more often a small one.
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % WORDS.len()
        };
        WORDS[next().min(next())]
    };
    let mut text = String::new();
    for line in 0..lines {
        for _ in 0..line % 9 {
            text.push_str(word());
            text.push_str(if line % 3 == 0 { ", " } else { " " });
        }
        text.push('\n');
    }
    text
}

#[test]
fn words_are_counted_as_they_are_in_one_go() {
    let dir = scratch();
    fs::create_dir_all(dir.path().join("below/far")).unwrap();
    let files = [
        ("a.txt", 20_000),
        ("below/b.md", 3_000),
        ("below/far/c", 11),
        ("below/far/empty", 0),
    ];
    let texts: Vec<String> = (1..)
        .zip(files)
        .map(|(seed, (name, lines))| {
            let text = text(seed, lines);
            fs::write(dir.path().join(name), &text).unwrap();
            text
        })
        .collect();
    // Larger than what one task counts, and none of these is a text that is there.
    assert!(texts[0].len() > 256 << 10, "{}", texts[0].len());
    fs::write(dir.path().join("data"), b"no\0text").unwrap();
    fs::write(dir.path().join(".hidden"), "hidden").unwrap();

    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for word in texts.iter().flat_map(|text| text.split([' ', ',', '\n'])) {
        if word.chars().count() >= 4 {
            *counts.entry(word.to_lowercase()).or_default() += 1;
        }
    }
    let mut top: Vec<(&String, &u64)> = counts.iter().collect();
    top.sort_by_key(|(word, count)| (Reverse(**count), *word));
    let run = Wasmrun::submit("word-count")
        .args(["--dir", &format!("{}::/text:ro", dir.path().display())])
        .args(["--invoke", "top(\"/text\", 5, 4)"]);
    let json = run.json(0);
    let bytes: usize = texts.iter().map(String::len).sum();
    // An empty file has no piece.
    let want = serde_json::json!({
        "files": files.len() - 1,
        "bytes": bytes,
        "words": counts.values().sum::<u64>(),
        "different": counts.len(),
        "top": top[..5],
    });
    assert_eq!(json["result"]["ok"], want, "{json:#}");
}

#[test]
fn a_policy_learns_from_actors() {
    let run = Wasmrun::submit("reinforce").args(["--invoke", "train(6, 4, 100)"]);
    let json = run.json(0);
    let learned = &json["result"]["ok"];
    let last = learned["last-steps"].as_f64();
    assert!(last.is_some_and(|steps| steps > 200.0), "{json:#}");
    // update   7:  22.7 steps, 2 late ██
    let said = json["stderr"].as_str().expect("a text");
    let late = said.lines().filter_map(|line| {
        let (before, _) = line.strip_prefix("update ")?.split_once(" late")?;
        before.rsplit(' ').next()?.parse::<u32>().ok()
    });
    let late: Vec<u32> = late.collect();
    assert_eq!(learned["updates"], late.len(), "{json:#}");
    // Updates take the fastest, and what comes after them counts in a later one. Who waits for all has none late,
    // ever; in some update of so many somebody is, on any machine.
    assert!(late.iter().sum::<u32>() > 0, "{json:#}");
}

#[test]
fn a_parameter_server_lowers_the_loss() {
    let run = Wasmrun::submit("parameter-server").args(["--invoke", "train(2, 8)"]);
    let json = run.json(0);
    let right = json["result"]["ok"]["right-percent"].as_f64();
    assert!(right.is_some_and(|percent| percent > 50.0), "{json:#}");
}

#[test]
fn without_an_sdk_all_can_be_done_too() {
    let survey = |call: &str| Wasmrun::submit("by-hand").args(["--invoke", call]).json(0);
    // Also with more parts than measurements.
    for (count, parts) in [(200_000_u32, 7), (1_001, 2), (2, 5), (1, 1)] {
        let measured = || (0..count).map(|n| n.wrapping_mul(37) % 1000);
        let json = survey(&format!("survey({count}, {parts})"));
        let summary = &json["result"]["ok"];
        let want = serde_json::json!({
            "count": count,
            "sum": f64::from(measured().sum::<u32>()),
            "least": f64::from(measured().min().unwrap()),
            "most": f64::from(measured().max().unwrap()),
        });
        for field in ["count", "sum", "least", "most"] {
            assert_eq!(summary[field], want[field], "{field}: {json:#}");
        }
    }
    // None at all.
    let none = Wasmrun::submit("by-hand")
        .args(["--invoke", "survey(0, 1)"])
        .fails(5);
    assert!(none.contains("there must be a measurement"), "{none}");
}

#[test]
fn without_an_sdk_each_chapter_sees_what_it_should() {
    let limit = "limit: time limit of 50ms reached: the task was stopped; to allow more, use --time-limit 100ms \
                 or the module's manifest";
    let chapters: [(&str, &[&str]); 6] = [
        (
            "values",
            &[
                "stored [1, 0, 2, 0, 3, 0] as 6 bytes",
                "its duplicate is the same: true",
                "8 + 9 + 10 + 5 = 32",
                "the stored list: 32",
                "a forged name is refused: true",
                "nor kept by what is stored: true",
                "what is no name is refused: true",
            ],
        ),
        (
            "options",
            &[
                "CPU 5000 of 1 units",
                "memory 167772160000 of 0 units",
                "went well in attempt 2",
                limit,
                "too many CPUs are refused: true",
            ],
        ),
        (
            "failures",
            &[
                "at most 1000",
                "dependency, begun in the same task: true",
                "guest: the function returned an error: odd",
                "trap",
                "an unknown function is refused: true",
                "a wrong argument is refused: true",
            ],
        ),
        (
            "waiting",
            &["first [1], in time [1]", "timed out, timed out", "deadlock"],
        ),
        (
            "cancelling",
            &[
                "a task: cancelled, then cancelled, then over",
                "a call that waits: cancelled, one that runs: runs on",
                "the actor is at 5",
            ],
        ),
        (
            "counters",
            &[
                "in order [11, 13, 16]",
                "the name is taken: true",
                "all handles are the same actor: true",
                "a task counted to 20",
                "in generation 1 it is at 20",
                "limit, then actor-died",
                "killed: actor-died",
                "nobody has the name: true",
            ],
        ),
    ];
    for (chapter, lines) in chapters {
        let call = format!("{chapter}()");
        let json = Wasmrun::submit("by-hand").args(["--invoke", &call]).json(0);
        assert_eq!(json["result"]["ok"], serde_json::json!(lines), "{chapter}");
    }
    let who = Wasmrun::submit("by-hand").args(["--array", "7-7", "--invoke", "who()"]);
    let who = who.ok();
    assert!(
        who.contains("attempt: 0") && who.contains("array-index: some(7)"),
        "{who}"
    );
}

/// What `sketch` makes of a fractal of 96 times 600 pixels: also in examples/image-pipeline/src/lib.rs.
const SKETCH: u64 = 0x4847_3b6e_2b06_c0cc;
const SMALL: u64 = 0x0912_1802_f4de_6fa1;

/// FNV-1a: whether bytes are the same, not whether somebody means ill.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[test]
fn a_picture_goes_through_tasks_that_map_it() {
    let dir = scratch();
    let run = Wasmrun::submit("image-pipeline")
        .args(["--dir", &format!("{}::/out", dir.path().display())])
        .args([
            "--invoke",
            "sketch(fractal({width: 96, height: 600}), \"/out\")",
        ]);
    let json = run.json(0);
    assert_eq!(json["result"]["ok"]["bands"], 3, "{json:#}");
    // All bytes are those of the example's own tests, which compare every pixel with the picture in one piece.
    for (name, bytes) in [("sketch", SKETCH), ("small", SMALL)] {
        let png = fs::read(dir.path().join(name).with_extension("png")).unwrap();
        assert_eq!(digest(&png), bytes, "{name}");
    }
}
