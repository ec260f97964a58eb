//! Compiled code on disk: kept, believed only when it is whole, bounded, and never in the way.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use wasmrun_tests::{Wasmrun, assert_says, guest, scratch};

/// Runs a small program with this folder as the cache. Whether its code came from there.
fn from_cache(dir: &Path) -> bool {
    from_cache_with(dir, "prog-p1", &[])
}

fn from_cache_with(dir: &Path, guest: &str, options: &[&str]) -> bool {
    let run = Wasmrun::submit(guest).cache(dir).arg("-v").args(options);
    let ended = run.program(["args", "hello"]).run();
    assert_eq!(
        (ended.code, &ended.stdout[..]),
        (Some(0), &b"hello\n"[..]),
        "{ended}"
    );
    match (
        ended.stderr.contains(": from the cache in "),
        ended.stderr.contains(": compiled in "),
    ) {
        (true, false) => true,
        (false, true) => false,
        _ => panic!("it should say one of the two: {ended}"),
    }
}

/// The files of compiled code in a folder.
fn code_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|e| e == "code"))
        .collect();
    files.sort();
    files
}

/// A cache with one program in it, and its file.
fn filled() -> (tempfile::TempDir, PathBuf) {
    let dir = scratch();
    assert!(!from_cache(dir.path()), "the folder was empty");
    let files = code_files(dir.path());
    let [file] = &files[..] else {
        panic!("one module, one file: {files:?}")
    };
    let file = file.clone();
    (dir, file)
}

#[test]
fn the_second_run_is_served_from_the_cache() {
    let (dir, _) = filled();
    assert!(from_cache(dir.path()));
    // For every kind of module.
    for guest in ["prog", "fixture", "fixture-p1"] {
        let run = || {
            let run = Wasmrun::submit(guest).cache(dir.path()).arg("-v");
            match guest {
                "prog" => run.program(["args"]).run(),
                _ => run.args(["--invoke", "noop()"]).run(),
            }
        };
        assert_says(&run().stderr, &[": compiled in "]);
        assert_says(&run().stderr, &[": from the cache in "]);
    }
}

#[test]
fn inspect_and_submit_share_it() {
    let dir = scratch();
    let ended = Wasmrun::new(["inspect", "-v"])
        .arg(guest("prog-p1"))
        .cache(dir.path())
        .run();
    assert_says(&ended.stderr, &[": compiled in "]);
    assert!(from_cache(dir.path()));
}

#[test]
fn the_folder_is_ours_alone() {
    let outer = scratch();
    let dir = outer.path().join("made/on/the/way");
    assert!(!from_cache(&dir));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for entry in fs::read_dir(&dir).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
    assert!(from_cache(&dir));
}

#[test]
fn damaged_code_is_compiled_anew() {
    let (dir, file) = filled();
    let whole = fs::read(&file).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        bytes
    };
    let n = whole.len();
    let damaged = [
        ("empty", Vec::new()),
        ("one byte", whole[..1].to_vec()),
        ("the first half", whole[..n / 2].to_vec()),
        ("all but the last byte", whole[..n - 1].to_vec()),
        ("without its seal", whole[..n - 32].to_vec()),
        ("one byte more", [&whole[..], &[0]].concat()),
        ("the first byte flipped", flipped(0)),
        ("a byte in the middle flipped", flipped(n / 2)),
        ("a byte of the lengths flipped", flipped(n - 50)),
        ("the last byte flipped", flipped(n - 1)),
        ("zeros", vec![0; n]),
        ("garbage", (0..n).map(|i| ((i * 7919) >> 3) as u8).collect()),
        ("some program", fs::read("/proc/self/exe").unwrap()),
        ("text", b"not code at all".to_vec()),
    ];
    for (what, bytes) in damaged {
        fs::write(&file, bytes).unwrap();
        assert!(!from_cache(dir.path()), "{what}");
        assert!(from_cache(dir.path()), "{what}: it was not replaced");
    }
}

#[test]
fn code_of_another_module_is_not_believed() {
    let (dir, file) = filled();
    let other = guest("code-stats-p1");
    let run = || {
        Wasmrun::submit_file(&other)
            .cache(dir.path())
            .stdin("two words")
            .run()
            .stdout_text()
    };
    let right = run();
    let others: Vec<_> = code_files(dir.path())
        .into_iter()
        .filter(|path| *path != file)
        .collect();
    fs::copy(&file, &others[0]).unwrap();
    assert_eq!(run(), right, "the code of one module ran for another");
}

#[test]
fn code_sealed_elsewhere_is_not_believed() {
    let ((ours, file), (_theirs, foreign)) = (filled(), filled());
    assert_eq!(file.file_name(), foreign.file_name());
    fs::copy(foreign, file).unwrap();
    assert!(!from_cache(ours.path()));
    assert!(from_cache(ours.path()));
}

#[test]
fn a_damaged_key_costs_a_compilation() {
    let (dir, _) = filled();
    let key = dir.path().join("seal.key");
    let whole = fs::read(&key).unwrap();
    for bytes in [
        Vec::new(),
        whole[1..].to_vec(),
        vec![0; 32],
        vec![0; 4096],
        [&whole[..], &whole[..]].concat(),
    ] {
        fs::write(&key, &bytes).unwrap();
        assert!(!from_cache(dir.path()), "{bytes:?}");
        assert!(from_cache(dir.path()), "{bytes:?}");
    }
    fs::remove_file(&key).unwrap();
    assert!(!from_cache(dir.path()));
    assert!(from_cache(dir.path()));
}

#[test]
fn things_that_are_no_files_are_in_nobodys_way() {
    let (dir, file) = filled();
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(!from_cache(dir.path()));
    fs::remove_dir(&file).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
    assert!(!from_cache(dir.path()));
    let _ = fs::remove_file(&file);
    std::os::unix::fs::symlink("/no/such/file", &file).unwrap();
    assert!(!from_cache(dir.path()));
    assert!(from_cache(dir.path()), "a link in the way is replaced");
    for n in 0..20 {
        fs::write(dir.path().join(format!("garbage-{n}.code")), vec![n; 1000]).unwrap();
        fs::write(dir.path().join(format!("{n}.tmp")), "x").unwrap();
    }
    assert!(from_cache(dir.path()));
}

#[test]
fn a_folder_that_cannot_be_used_costs_a_warning() {
    let dir = scratch();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let open = dir.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    for (cache, reason) in [
        (
            Path::new("/proc/nowhere"),
            "cannot make the cache folder /proc/nowhere",
        ),
        (Path::new("/proc"), "cache folder /proc"),
        (&file, "cannot make the cache folder"),
        (
            &open,
            "can be written by others, who could put code into it; chmod go-w it",
        ),
    ] {
        let run = || {
            Wasmrun::submit("prog-p1")
                .cache(cache)
                .program(["args", "hello"])
        };
        for _ in 0..2 {
            let ended = run().run();
            assert_eq!(
                (ended.code, &ended.stdout[..]),
                (Some(0), &b"hello\n"[..]),
                "{ended}"
            );
            assert_says(
                &ended.stderr,
                &[
                    "warning: modules are compiled anew each time: ",
                    reason,
                    "name another folder with --cache-dir or WASMRUN_CACHE_DIR",
                ],
            );
            assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
        }
        let ended = run().arg("-q").run();
        assert_eq!((ended.code, &ended.stderr[..]), (Some(0), ""), "{ended}");
    }
    assert_eq!(
        fs::read_dir(&open).unwrap().count(),
        0,
        "nothing is put there"
    );
}

#[test]
fn no_cache_where_none_is_wanted() {
    let dir = scratch();
    for _ in 0..2 {
        assert!(!from_cache_with(
            dir.path(),
            "prog-p1",
            &["--cache-dir", "none"]
        ));
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_users_folder_is_the_default() {
    let home = scratch();
    let ended = |variable: &str, value: &Path| {
        let run = Wasmrun::submit("prog-p1").without_env("WASMRUN_CACHE_DIR");
        let run = run.env(variable, value).program(["args"]);
        let ended = run.run();
        assert_eq!((ended.code, &ended.stderr[..]), (Some(0), ""), "{ended}");
    };
    ended("HOME", home.path());
    assert_eq!(code_files(&home.path().join(".cache/wasmrun")).len(), 1);
    let xdg = scratch();
    ended("XDG_CACHE_HOME", xdg.path());
    assert_eq!(code_files(&xdg.path().join("wasmrun")).len(), 1);
}

#[test]
fn processes_that_start_at_once_on_an_empty_cache() {
    let outer = scratch();
    let dir = outer.path().join("cache");
    let start = || {
        let run = Wasmrun::submit("prog-p1").cache(&dir);
        run.program(["args", "hello"]).start()
    };
    let running: Vec<_> = (0..6).map(|_| start()).collect();
    for process in running {
        let ended = process.end();
        assert_eq!(
            (ended.code, &ended.stdout[..]),
            (Some(0), &b"hello\n"[..]),
            "{ended}"
        );
        assert_eq!(ended.stderr, "", "{ended}");
    }
    let left: Vec<_> = fs::read_dir(&dir).unwrap().collect();
    assert_eq!(
        left.len(),
        2,
        "the code and the key, and nothing temporary: {left:?}"
    );
    assert!(from_cache(&dir));
}

#[test]
fn it_stays_within_its_bound() {
    let size = |dir: &Path| -> u64 {
        code_files(dir)
            .iter()
            .map(|file| file.metadata().unwrap().len())
            .sum()
    };
    let (dir, file) = filled();
    let one = file.metadata().unwrap().len();
    // Room for this one and half of another.
    let limit = one * 3 / 2;
    let option = format!("--cache-size={limit}");
    assert!(from_cache_with(dir.path(), "prog-p1", &[&option]));
    assert!(!from_cache_with(dir.path(), "prog", &[&option]));
    assert!(size(dir.path()) <= limit, "{} of {limit}", size(dir.path()));
    assert!(!from_cache_with(dir.path(), "prog-p1", &[&option]));
    assert!(size(dir.path()) <= limit, "{} of {limit}", size(dir.path()));
    // What does not fit at all is not kept, and still runs.
    let small = scratch();
    for _ in 0..2 {
        assert!(!from_cache_with(
            small.path(),
            "prog-p1",
            &["--cache-size=1000"]
        ));
        assert_eq!(code_files(small.path()).len(), 0);
    }
}
