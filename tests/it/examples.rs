//! The examples do what their README says.

use std::fs;

use wasmrun_tests::{Stream, Wasmrun, assert_says, guest, scratch};

#[test]
fn code_stats_counts_a_directory() {
    let dir = scratch();
    fs::create_dir(dir.path().join("src")).unwrap();
    fs::write(
        dir.path().join("src/main.rs"),
        "// A comment.\n\nfn main() {}\n",
    )
    .unwrap();
    fs::write(
        dir.path().join("run.py"),
        "# A comment.\nprint(1)\nprint(2)\n",
    )
    .unwrap();
    for guest in ["code-stats", "code-stats-p1"] {
        let run = Wasmrun::submit(guest)
            .arg("--dir")
            .arg(format!("{}::/src:ro", dir.path().display()));
        let out = run.program(["/src"]).ok();
        let row = |language: &str| -> Vec<u32> {
            let line = out.lines().find(|line| line.starts_with(language));
            let line = line.unwrap_or_else(|| panic!("no {language} in:\n{out}"));
            line.split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect()
        };
        // Files, then lines of code, comments and nothing, in some order.
        let sorted = |mut row: Vec<u32>| {
            row.sort_unstable();
            row
        };
        assert_eq!(row("Rust")[0], 1, "{out}");
        assert!(sorted(row("Rust")).starts_with(&[1, 1, 1]), "{out}");
        assert!(row("Python").contains(&2), "{out}");
        // Without the grant it sees nothing.
        let ended = Wasmrun::submit(guest).program(["/src"]).run();
        assert_ne!(ended.code, Some(0), "{ended}");
    }
}

#[test]
fn code_stats_counts_words_of_its_input() {
    let text = "hello world\nhello again, world of words\n";
    let outs = ["code-stats", "code-stats-p1"].map(|guest| Wasmrun::submit(guest).stdin(text).ok());
    let words: Vec<&str> = outs[0].lines().map(str::trim).collect();
    let count = |name: &str| {
        let line = words.iter().find(|line| line.starts_with(name));
        let last = line.and_then(|line| line.split_whitespace().last());
        last.and_then(|count| count.parse().ok())
    };
    let of_text = |word: &str| {
        text.split([' ', ',', '\n'])
            .filter(|it| *it == word)
            .count()
    };
    for (name, want) in [
        ("lines", text.lines().count()),
        ("words", text.split_whitespace().count()),
        ("characters", text.chars().count()),
        ("bytes", text.len()),
        ("hello", of_text("hello")),
        ("world", of_text("world")),
        ("again", of_text("again")),
    ] {
        assert_eq!(count(name), Some(want), "{name}: {}", outs[0]);
    }
    assert_eq!(
        outs[0], outs[1],
        "a component and a core module of one source"
    );
}

#[test]
fn render_makes_a_band() {
    let dir = scratch();
    let out = dir.path().join("band");
    let render = |call: &str| {
        Wasmrun::submit("render")
            .args(["--invoke", call])
            .arg("-O")
            .arg(&out)
            .ok();
        fs::read(&out).unwrap()
    };
    // Rows 4 to 8 of 16.
    let band = render("band(1, 4, 32, 16, 1)");
    assert_eq!(band.len(), 32 * 4 * 3);
    // The same picture however it is cut.
    let whole = render("band(0, 1, 32, 16, 1)");
    assert_eq!(whole.len(), 32 * 16 * 3);
    assert!(whole[4 * 32 * 3..8 * 32 * 3] == band);
}

#[test]
fn render_and_assemble_make_a_png() {
    let dir = scratch();
    let parts = dir.path().join("parts");
    fs::create_dir(&parts).unwrap();
    let (width, height) = (48, 32);
    Wasmrun::submit("render")
        .args(["--array", "0-7", "--invoke"])
        .arg(format!("band($i, 8, {width}, {height}, 1)"))
        .arg("-O")
        .arg(parts.join("band-$i.bin"))
        .ok();
    let assemble = || {
        Wasmrun::submit("assemble")
            .arg("--dir")
            .arg(format!("{}::/demo", dir.path().display()))
            .program([
                "--width",
                "48",
                "--height",
                "32",
                "/demo/parts",
                "/demo/image.png",
            ])
    };
    assemble().ok();
    let png = fs::read(dir.path().join("image.png")).unwrap();
    assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
    assert_eq!(
        (&png[8..12], &png[12..16]),
        (&[0, 0, 0, 13][..], &b"IHDR"[..])
    );
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    assert_eq!((number(16), number(20)), (width, height));
    // Eight bits of red, green and blue.
    assert_eq!(png[24..26], [8, 2]);
    assert_eq!(png[png.len() - 8..png.len() - 4], *b"IEND");
    // A band that is missing is noticed.
    fs::remove_file(parts.join("band-3.bin")).unwrap();
    assemble().fails_saying(1, &["assemble: ", "band-3"]);
}

/// The order of the README, delivered to this country.
fn order(country: &str, currency: &str) -> String {
    format!(
        r#"price({{
            id: "A-17", currency: {currency}, tier: member,
            items: [{{sku: "mug", quantity: 3, unit-price: 1250, weight: some(400)}}],
            care: {{fragile}}, delivery: parcel("{country}"), coupon: none
        }}, [one-free(("mug", 3)), tax(1900)])"#
    )
}

#[test]
fn orders_are_priced() {
    let order = order("DE", "eur");
    let out = Wasmrun::submit("orders").args(["--invoke", &order]).ok();
    assert_says(
        &out,
        &[
            "ok({order-id: \"A-17\", currency: eur, subtotal: 3750, discounts: [{",
            "amount: 1250}]",
        ],
    );
    let json = Wasmrun::submit("orders").args(["--invoke", &order]).json(0);
    let invoice = &json["result"]["ok"];
    let number = |name: &str| invoice[name].as_u64().unwrap();
    assert_eq!(number("subtotal"), 3750);
    let net = number("subtotal") - 1250 + number("delivery");
    assert_eq!(number("total"), net + number("tax"), "{invoice:#}");
    assert_eq!(number("tax"), (net * 1900 + 5000) / 10_000, "{invoice:#}");
}

#[test]
fn orders_that_cannot_be_priced() {
    let price = |order: &str| Wasmrun::submit("orders").args(["--invoke", order]);
    assert_says(
        &price(&order("XX", "eur")).fails(5),
        &["error: price: the function returned an error: cannot-deliver("],
    );
    let json = price(&order("XX", "eur")).json(5);
    assert!(
        json["result"]["err"]["cannot-deliver"].is_string(),
        "{json:#}"
    );
    assert_says(
        &price(&order("DE", "yen")).fails(2),
        &["args[0].currency: there is no case \"yen\"; choose from eur, usd, gbp"],
    );
    let empty = order("DE", "eur").replace(
        "{sku: \"mug\", quantity: 3, unit-price: 1250, weight: some(400)}",
        "",
    );
    assert_says(
        &price(&empty).fails(5),
        &["the function returned an error: empty\n"],
    );
}

/// As `cargo xtask demo` shows it, with a smaller picture.
#[test]
fn three_nodes_of_one_machine_share_a_picture() {
    const BANDS: usize = 32;
    let dir = scratch();
    let address = format!("unix:{}/own/node.sock", dir.path().display());
    let wasmrun = |args: &[&str]| Wasmrun::new(args).env("WASMRUN_ADDRESS", &address);
    let start = ["node", "start", "--local", "3", "--node-cpus", "1"];
    let mut nodes = wasmrun(&start).start();
    nodes.wait_for(Stream::Out, "3 nodes are there");
    let (parts, whole) = (dir.path().join("parts"), dir.path().join("whole"));
    fs::create_dir(&parts).expect("a folder");
    let submit = || wasmrun(&["submit"]).arg(guest("render"));
    let spread = submit().args(["--strategy", "spread"]);
    let spread = spread.args(["--array", &format!("0-{}", BANDS - 1), "--invoke"]);
    let spread = spread.arg(format!("band($i, {BANDS}, 48, 64, 1)"));
    spread.arg("-O").arg(parts.join("band-$i.bin")).ok();
    // Each node has its part in it.
    let listed = wasmrun(&["list", "tasks"]).json(0);
    let tasks = listed["tasks"].as_array().expect("a list");
    assert_eq!(tasks.len(), BANDS, "{listed}");
    for node in ["n1", "n2", "n3"] {
        let made = tasks.iter().filter(|it| it["node"] == node);
        assert!(made.count() > 0, "no band was made on {node}: {listed}");
    }
    let all = submit().args(["--invoke", "band(0, 1, 48, 64, 1)"]);
    all.arg("-O").arg(&whole).ok();
    let bands = (0..BANDS).map(|index| fs::read(parts.join(format!("band-{index}.bin"))));
    let bands: Vec<Vec<u8>> = bands.map(|band| band.expect("a band")).collect();
    let whole = fs::read(whole).expect("the picture");
    assert_eq!(whole.len(), 48 * 64 * 3);
    assert!(bands.concat() == whole, "the same picture, whoever made it");
    wasmrun(&["node", "stop"]).ok();
    let ended = nodes.end();
    assert_eq!(ended.code, Some(0), "{ended}");
}
