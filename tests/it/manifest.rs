//! What a module declares: written by `annotate`, shown by `inspect`, used by `submit`.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use wasmrun_tests::{Wasmrun, assert_says, guest, scratch};

fn annotate(module: &Path, out: &Path) -> Wasmrun {
    Wasmrun::new(["annotate"]).arg(module).arg("--out").arg(out)
}

fn inspect(module: &Path) -> Json {
    Wasmrun::new(["inspect"]).arg(module).json(0)
}

/// A copy of a guest with this manifest, right or wrong, in the place of its own.
fn with_manifest(dir: &Path, name: &str, manifest: &str) -> PathBuf {
    let section = b"\x10wasmrun:manifest";
    let mut body = section.to_vec();
    body.extend(manifest.as_bytes());
    let mut bytes = fs::read(guest(name)).unwrap();
    bytes.push(0);
    let mut length = body.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(body);
    let path = dir.join("module.wasm");
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn annotated_inspected_submitted() {
    let dir = scratch();
    let out = dir.path().join("out.wasm");
    let ended = annotate(&guest("bench"), &out)
        .args(["--function", "noop", "--cpus", "0.25", "--memory", "2MiB"])
        .args([
            "--time-limit",
            "1m",
            "--retries",
            "3",
            "--resource",
            "tpu=1",
        ])
        .run();
    assert_eq!((ended.code, ended.stdout.len()), (Some(0), 0), "{ended}");
    assert_says(
        &ended.stderr,
        &["out.wasm: {\"version\":1,\"functions\":{\"noop\":"],
    );
    let expected = json!({
        "version": 1,
        "functions": {"noop": {
            "resources": {"CPU": "0.25", "memory": "2MiB", "tpu": "1"},
            "retries": 3,
            "time_limit": "60000ms",
        }},
    });
    assert_eq!(inspect(&out)["manifest"], expected);
    let text = Wasmrun::new(["inspect"]).arg(&out).ok();
    assert_says(
        &text,
        &["\n  noop: func()\n      needs CPU 0.25, memory 2MiB, tpu 1, at most 1m, 3 retries\n"],
    );

    let noop = |args: &[&str]| {
        Wasmrun::submit_file(&out)
            .args(["--invoke", "noop()", "-v"])
            .args(args)
            .run()
    };
    assert_says(&noop(&[]).stderr, &["tpu: needs 1, node has none"]);
    let tpu = ["--node-resource", "tpu=1"];
    assert_says(
        &noop(&tpu).stderr,
        &["held CPU 0.25 (0), memory 2MiB, tpu 1 (0), "],
    );
    // Other functions have the defaults.
    let other = Wasmrun::submit_file(&out)
        .args(["--invoke", "sum([])", "-v"])
        .run();
    assert_says(&other.stderr, &["held CPU 1 (0), memory 256MiB, "]);
    // Flags come before the manifest.
    let ended = noop(&["--cpus", "0.5", "--memory", "3MiB", "--resource", "tpu=0"]);
    assert_says(
        &ended.stderr,
        &["held CPU 0.5 (0), memory 3MiB, memory at most "],
    );
}

#[test]
fn annotating_again_adds_to_what_is_there() {
    let dir = scratch();
    let out = dir.path().join("out.wasm");
    annotate(&guest("bench"), &out).args(["--cpus", "0.5"]).ok();
    let size = fs::metadata(&out).unwrap().len();
    annotate(&out, &out)
        .args(["-f", "noop", "--memory", "2MiB"])
        .ok();
    annotate(&out, &out)
        .args(["-f", "noop", "--cpus", "0.1"])
        .ok();
    annotate(&out, &out)
        .args(["-f", "noop", "--cpus", "0.2"])
        .ok();
    assert_eq!(
        inspect(&out)["manifest"]["functions"],
        json!({"*": {"resources": {"CPU": "0.5"}}, "noop": {"resources": {"CPU": "0.2", "memory": "2MiB"}}})
    );
    let grown = fs::metadata(&out).unwrap().len() - size;
    assert!(
        grown < 100,
        "the section is replaced, not added to: {grown} bytes more"
    );
    let names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["out.wasm"], "nothing temporary is left");
}

/// Links stay links, pipes get the bytes, and files keep their mode.
#[test]
fn what_is_behind_a_name_is_written_to() {
    let dir = scratch();
    let path = |name: &str| dir.path().join(name);
    let module = guest("bench");
    fs::write(path("target"), "old").unwrap();
    std::os::unix::fs::symlink("target", path("link")).unwrap();
    std::os::unix::fs::symlink("not-there-yet", path("dangling")).unwrap();
    std::os::unix::fs::symlink("/proc/self/fd/1", path("stdout")).unwrap();
    for link in ["link", "dangling"] {
        annotate(&module, &path(link)).args(["--cpus", "1"]).ok();
        assert!(path(link).is_symlink(), "{link}");
        inspect(&path(link));
    }
    let through = annotate(&module, &path("stdout")).args(["--cpus", "1"]);
    let ended = through.run();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_eq!(ended.stdout, fs::read(path("target")).unwrap());
    assert!(path("stdout").is_symlink());

    let private = path("private.wasm");
    fs::copy(&module, &private).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
    annotate(&private, &private).args(["--cpus", "1"]).ok();
    let mode = fs::metadata(&private).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let left = fs::read_dir(dir.path()).unwrap();
    let left = left.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with('.')
    });
    assert_eq!(left.count(), 0, "temporary files stay");
}

#[test]
fn a_program_is_annotated_as_run() {
    let dir = scratch();
    for name in ["prog", "prog-p1"] {
        let out = dir.path().join("out.wasm");
        annotate(&guest(name), &out)
            .args(["-f", "run", "--memory", "4MiB"])
            .ok();
        let run = |args: &[&str]| {
            Wasmrun::submit_file(&out)
                .args(args)
                .program(["alloc", "10"])
        };
        assert_says(&run(&[]).fails(1), &["out of memory"]);
        assert_eq!(run(&["--memory", "20MiB"]).ok(), "10\n");
        // It is still the module that it was.
        assert_eq!(
            Wasmrun::submit_file(&out).program(["args", "x"]).ok(),
            "x\n"
        );
    }
}

#[test]
fn a_time_limit_of_the_modules() {
    let dir = scratch();
    let out = dir.path().join("out.wasm");
    annotate(&guest("prog-p1"), &out)
        .args(["--time-limit", "150ms"])
        .ok();
    let run = |args: &[&str]| Wasmrun::submit_file(&out).args(args).program(["spin"]);
    assert_says(
        &run(&[]).fails(6),
        &[
            "time limit of 150ms reached",
            "--time-limit 300ms or the module's manifest",
        ],
    );
    assert_says(
        &run(&["--time-limit", "200ms"]).fails(6),
        &["time limit of 200ms reached"],
    );
}

#[test]
fn a_function_of_an_interface_by_any_of_its_names() {
    let dir = scratch();
    let out = dir.path().join("out.wasm");
    for name in ["only-here", "named#only-here"] {
        annotate(&guest("fixture"), &out)
            .args(["-f", name, "--memory", "7MiB"])
            .ok();
        let functions = &inspect(&out)["manifest"]["functions"];
        assert_eq!(
            functions["wasmrun:fixture/named@0.1.0#only-here"]["resources"],
            json!({"memory": "7MiB"}),
            "{functions:#}"
        );
        let ended = Wasmrun::submit_file(&out)
            .args(["--invoke", "only-here()", "-v"])
            .run();
        assert_says(&ended.stderr, &["held CPU 1 (0), memory 7MiB,"]);
    }
}

#[test]
fn a_whole_manifest_from_a_file() {
    let dir = scratch();
    let (file, out) = (
        dir.path().join("manifest.json"),
        dir.path().join("out.wasm"),
    );
    let manifest = json!({
        "version": 1,
        "functions": {"*": {"resources": {"CPU": "1", "memory": "64MiB"}},
                      "noop": {"resources": {"GPU": "0.25"}, "alternatives": [{"CPU": "4"}]}},
        "actors": {"counter": {"resources": {"CPU": "0"}, "restarts": 2, "call_retries": 0}},
        "capabilities": {
            "env": ["HOME"],
            "dirs": ["/data"],
            "net": ["127.0.0.1:80"],
        },
    });
    fs::write(&file, manifest.to_string()).unwrap();
    annotate(&guest("fixture"), &out)
        .arg("--manifest")
        .arg(&file)
        .ok();
    assert_eq!(inspect(&out)["manifest"], manifest);

    for (text, says) in WRONG {
        fs::write(&file, text).unwrap();
        annotate(&guest("fixture"), &out)
            .arg("--manifest")
            .arg(&file)
            .fails_saying(
                2,
                &[
                    "error: ",
                    "manifest.json is not a manifest\n  because: ",
                    says,
                ],
            );
    }
    annotate(&guest("fixture"), &out)
        .args(["--manifest", "/no/such/file"])
        .fails_saying(
            2,
            &["error: cannot read /no/such/file\n  because: No such file"],
        );
    let both = annotate(&guest("fixture"), &out)
        .arg("--manifest")
        .arg(&file);
    both.args(["--cpus", "1"])
        .fails_saying(2, &["cannot be used with"]);
}

#[test]
fn what_a_manifest_wishes_for_is_not_granted() {
    let dir = scratch();
    let file = dir.path().join("file");
    fs::write(&file, "secret").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let wishes = json!({"env": ["HOME"], "dirs": [dir.path()], "net": [address]});
    let manifest = json!({"version": 1, "capabilities": wishes}).to_string();
    let module = with_manifest(dir.path(), "fixture", &manifest);
    assert_eq!(inspect(&module)["manifest"]["capabilities"], wishes);

    let env = "env(\"HOME\")".to_owned();
    let read = format!("read-file(\"{}\")", file.display());
    let connect = format!("connect-tcp(\"{address}\")");
    let call = |call: &str| Wasmrun::submit_file(&module).args(["--invoke", call]);
    assert_eq!(call(&env).ok(), "none\n");
    let why = "the function returned an error";
    assert_says(&call(&read).fails(5), &[why]);
    assert_says(&call(&connect).fails(5), &["Permission denied"]);
    // The guest has ended: a connection that it made is in the listener's queue by now.
    assert!(listener.accept().is_err(), "it has connected");

    // Nothing else was in the way: granted, all of it works.
    assert_eq!(
        call(&env).args(["--env", "HOME=here"]).ok(),
        "some(\"here\")\n"
    );
    let grant = format!("{}:ro", dir.path().display());
    assert_says(&call(&read).args(["--dir", &grant]).ok(), &["secret"]);
    call(&connect).arg(format!("--net={address}")).ok();
    assert!(listener.accept().is_ok(), "it has not connected");
}

/// Manifests that are none, and what is said about them.
const WRONG: &[(&str, &str)] = &[
    ("not json", "it is not JSON: "),
    ("", "it is not JSON: "),
    ("{\"version\":1", "it is not JSON: "),
    ("\u{fffd}", "it is not JSON: "),
    ("[]", "expected"),
    ("{}", "missing field `version`"),
    (
        "{\"version\":2}",
        "it has version 2, and this wasmrun reads version 1; use a newer wasmrun",
    ),
    (
        "{\"version\":0}",
        "it has version 0, and this wasmrun reads version 1; write it anew with `wasmrun annotate`",
    ),
    ("{\"version\":\"1\"}", "invalid type: string \"1\""),
    (
        "{\"version\":1,\"function\":{}}",
        "unknown field `function`",
    ),
    (
        "{\"version\":1,\"functions\":{\"f\":{\"cpus\":1}}}",
        "unknown field `cpus`",
    ),
    (
        "{\"version\":1,\"functions\":{\"f\":{\"resources\":{\"CPU\":\"x\"}}}}",
        "CPU",
    ),
    (
        "{\"version\":1,\"functions\":{\"f\":{\"resources\":{\"CPU\":0.5}}}}",
        "write text such as \"0.5\"",
    ),
    (
        "{\"version\":1,\"functions\":{\"f\":{\"time_limit\":\"soon\"}}}",
        "'soon' is not a duration",
    ),
    (
        "{\"version\":1,\"functions\":{\"f\":{\"retries\":-1}}}",
        "-1",
    ),
];

#[test]
fn a_wrong_manifest_in_a_module_is_refused() {
    let dir = scratch();
    for (text, says) in WRONG {
        let module = with_manifest(dir.path(), "prog-p1", text);
        Wasmrun::submit_file(&module).program(["args"]).fails_saying(2, &[
                "\n  because: the module's manifest (custom section wasmrun:manifest) is wrong: ",
                says,
            ]);
        // Advice that leads somewhere: a new manifest mends it.
        let new = dir.path().join("new.json");
        fs::write(&new, "{\"version\":1}").unwrap();
        annotate(&module, &module).arg("--manifest").arg(&new).ok();
        assert_eq!(
            Wasmrun::submit_file(&module).program(["args", "x"]).ok(),
            "x\n"
        );
    }
}

#[test]
fn amounts_of_a_manifest_that_cannot_be_served() {
    let dir = scratch();
    let manifest = |cpu: &str| {
        format!(
            "{{\"version\":1,\"functions\":{{\"run\":{{\"resources\":{{\"CPU\":\"{cpu}\"}}}}}}}}"
        )
    };
    let module = with_manifest(dir.path(), "prog-p1", &manifest("1.5"));
    Wasmrun::submit_file(&module)
        .program(["args"])
        .fails_saying(2, &["CPU: 1.5 is not possible"]);
    Wasmrun::submit_file(&module)
        .args(["--cpus", "1"])
        .program(["args"])
        .ok();
    let module = with_manifest(dir.path(), "prog-p1", &manifest("100000"));
    Wasmrun::submit_file(&module)
        .program(["args"])
        .fails_saying(3, &["CPU: needs 100000, node has "]);
}

#[test]
fn a_manifest_too_large_is_refused() {
    let dir = scratch();
    let text = format!("{{\"version\":1,\"x\":\"{}\"}}", "x".repeat(2 << 20));
    let module = with_manifest(dir.path(), "prog-p1", &text);
    Wasmrun::submit_file(&module)
        .program(["args"])
        .fails_saying(2, &["more than the 1048576 that are read"]);
}

#[test]
fn annotations_that_make_no_sense() {
    let dir = scratch();
    let out = dir.path().join("out.wasm");
    let bench = guest("bench");
    for (run, says) in [
        (
            annotate(&bench, &out),
            "there is nothing to write: give --cpus",
        ),
        (
            annotate(&bench, &out).args(["-f", "nope", "--cpus", "1"]),
            "no function 'nope'; it exports busy-iterations, echo, make, noop, sum, word-counts",
        ),
        (
            annotate(&bench, &out).args(["--cpus", "1.5"]),
            "CPU: 1.5 is not possible",
        ),
        (
            annotate(&bench, Path::new("/no/such/dir/out")).args(["--cpus", "1"]),
            "cannot write to /no/such/dir/out: there is no folder /no/such/dir",
        ),
        (
            annotate(Path::new("/no/such/file"), &out).args(["--cpus", "1"]),
            "cannot read the module /no/such/file",
        ),
        (
            annotate(Path::new("/bin/sh"), &out).args(["--cpus", "1"]),
            "this is not a wasm module",
        ),
    ] {
        run.fails_saying(2, &["error: ", says]);
    }
    assert!(!out.exists());
    Wasmrun::new(["annotate"])
        .arg(&bench)
        .args(["--cpus", "1"])
        .fails_saying(2, &["--out"]);
}

#[test]
fn the_manifest_that_the_guests_own_code_carries() {
    let manifest = &inspect(&guest("fixture"))["manifest"];
    assert_eq!(manifest["functions"]["spin"]["time_limit"], "5000ms");
    assert_eq!(inspect(&guest("fixture-p1"))["manifest"], *manifest);
    let json = Wasmrun::submit("fixture-p1")
        .args(["--invoke", "allocate(1)"])
        .json(0);
    assert_eq!(json["resource_ids"]["CPU"], json!([[0, "0.5"]]));
}
