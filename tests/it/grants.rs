//! What a guest can reach: nothing, unless it is granted, and then no more than that.

use std::fs;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::node::Node;
use wasmrun_tests::{Wasmrun, assert_says, guest, scratch};

/// Reads a file as the component does, and as the two programs do. What was read, or what was
/// said instead.
fn read_everywhere(grant: &[String], path: &str) -> [Result<String, String>; 3] {
    let component = Wasmrun::call(&format!("read-file(\"{path}\")"));
    let program = |guest| Wasmrun::submit(guest).program(["read", path]);
    [component, program("prog"), program("prog-p1")].map(|run| {
        let ended = run.args(grant).args(["--time-limit", "20s"]).run();
        match ended.code {
            Some(0) => Ok(ended.stdout_text()),
            Some(1 | 5) => Err(ended.stderr),
            _ => panic!("{ended}"),
        }
    })
}

fn dir_grant(host: &Path, rest: &str) -> Vec<String> {
    vec!["--dir".into(), format!("{}{rest}", host.display())]
}

#[test]
fn no_files_by_default() {
    let dir = scratch();
    let file = dir.path().join("file");
    fs::write(&file, "secret").unwrap();
    for path in [
        file.to_str().unwrap(),
        "/etc/passwd",
        "/proc/self/environ",
        "Cargo.toml",
        ".",
    ] {
        for read in read_everywhere(&[], path) {
            let stderr = read.expect_err("nothing is granted");
            assert!(!stderr.contains("secret"), "{stderr}");
        }
    }
    for guest in ["prog", "prog-p1"] {
        for dir in ["/", ".", "/tmp"] {
            let ended = Wasmrun::submit(guest).program(["ls", dir]).run();
            assert_eq!((ended.code, ended.stdout.len()), (Some(1), 0), "{ended}");
        }
    }
}

#[test]
fn no_environment_by_default() {
    for guest in ["prog", "prog-p1"] {
        let run = Wasmrun::submit(guest).env("SECRET", "x").program(["env"]);
        assert_eq!(run.ok(), "");
    }
    let run = Wasmrun::call("env(\"SECRET\")").env("SECRET", "x");
    assert_eq!(run.ok(), "none\n");
}

#[test]
fn environment_as_granted() {
    for guest in ["prog", "prog-p1"] {
        let run = Wasmrun::submit(guest)
            .env("OURS", "from outside")
            .env("OTHER", "not passed on")
            .args(["--env", "A=b=c", "--env", "EMPTY=", "--env", "OURS"])
            .program(["env"]);
        assert_eq!(run.ok(), "A=b=c\nEMPTY=\nOURS=from outside\n");
    }
    let run = Wasmrun::call("env(\"A\")").args(["--env", "A=ä \"quoted\""]);
    assert_eq!(run.ok(), "some(\"ä \\\"quoted\\\"\")\n");
    let stderr = Wasmrun::call("noop()").args(["--env", "MISSING"]).fails(2);
    assert_says(
        &stderr,
        &["there is no variable MISSING to pass on; use MISSING=VALUE"],
    );
    Wasmrun::call("noop()")
        .args(["--env", "=x"])
        .fails_saying(2, &["'=x' must be K=V"]);
}

#[test]
fn a_variable_given_twice_has_the_last_value() {
    for guest in ["prog", "prog-p1"] {
        let run = Wasmrun::submit(guest)
            .args(["--env", "A=1", "--env", "A=2"])
            .program(["env"]);
        assert_eq!(run.ok(), "A=2\n");
    }
}

#[test]
fn a_directory_as_granted() {
    let dir = scratch();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("file"), "content").unwrap();
    fs::write(dir.path().join("sub/deep"), "deep content").unwrap();
    let grant = dir_grant(dir.path(), "::/data");
    let [component, program, core] = read_everywhere(&grant, "/data/file");
    assert_eq!(component.unwrap(), "ok(\"content\")\n");
    assert_eq!(program.unwrap(), "content");
    assert_eq!(core.unwrap(), "content");
    for read in read_everywhere(&grant, "/data/sub/../sub/deep") {
        assert!(read.unwrap().contains("deep content"));
    }
    // By no other name than the guest's own.
    for path in ["/file", "file", dir.path().join("file").to_str().unwrap()] {
        for read in read_everywhere(&grant, path) {
            read.expect_err("it is granted as /data");
        }
    }
    for guest in ["prog", "prog-p1"] {
        let ls = Wasmrun::submit(guest).args(&grant).program(["ls", "/data"]);
        assert_eq!(ls.ok(), "file\nsub\n");
        let write = Wasmrun::submit(guest).args(&grant);
        write.program(["write", "/data/sub/new", guest]).ok();
        assert_eq!(
            fs::read_to_string(dir.path().join("sub/new")).unwrap(),
            guest
        );
    }
}

#[test]
fn a_directory_under_its_own_name_or_as_the_working_directory() {
    let dir = scratch();
    fs::write(dir.path().join("file"), "content").unwrap();
    let own = dir.path().join("file").display().to_string();
    for read in read_everywhere(&dir_grant(dir.path(), ""), &own) {
        assert!(read.unwrap().contains("content"));
    }
    for path in ["file", "./file"] {
        for read in read_everywhere(&dir_grant(dir.path(), "::."), path) {
            assert!(read.unwrap().contains("content"));
        }
    }
}

#[test]
fn a_directory_to_read_only() {
    let dir = scratch();
    fs::write(dir.path().join("file"), "content").unwrap();
    let grant = dir_grant(dir.path(), "::/data:ro");
    for read in read_everywhere(&grant, "/data/file") {
        assert!(read.unwrap().contains("content"));
    }
    let call = "write-file(\"/data/file\", \"changed\")";
    Wasmrun::call(call).args(&grant).fails(5);
    for guest in ["prog", "prog-p1"] {
        for path in ["/data/file", "/data/new"] {
            let run = Wasmrun::submit(guest).args(&grant);
            run.program(["write", path, "changed"])
                .fails_saying(1, &["prog: /data/"]);
        }
    }
    assert_eq!(
        fs::read_to_string(dir.path().join("file")).unwrap(),
        "content"
    );
    assert!(!dir.path().join("new").exists());
}

#[test]
fn several_directories() {
    let (one, two) = (scratch(), scratch());
    fs::write(one.path().join("in"), "content").unwrap();
    let grants = [
        dir_grant(one.path(), "::/one:ro"),
        dir_grant(two.path(), "::/two"),
    ]
    .concat();
    for read in read_everywhere(&grants, "/one/in") {
        assert!(read.unwrap().contains("content"));
    }
    for read in read_everywhere(&grants, "/two/in") {
        read.expect_err("it is in the other directory");
    }
    let write = |path: &str| Wasmrun::call(&format!("write-file(\"{path}\", \"x\")"));
    write("/two/out").args(&grants).ok();
    assert!(two.path().join("out").exists());
    write("/one/out").args(&grants).fails(5);
}

#[test]
fn no_way_out_of_a_directory() {
    let outer = scratch();
    let secret = outer.path().join("secret");
    fs::write(&secret, "the secret").unwrap();
    let dir = outer.path().join("granted");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("inside"), "inside").unwrap();
    symlink("../secret", dir.join("relative")).unwrap();
    symlink(&secret, dir.join("absolute")).unwrap();
    symlink("..", dir.join("up")).unwrap();
    symlink("/", dir.join("root")).unwrap();
    symlink("loop", dir.join("loop")).unwrap();
    symlink("inside", dir.join("harmless")).unwrap();
    symlink("/proc/self/root", dir.join("magic")).unwrap();
    let grant = dir_grant(&dir, "::/data");
    for path in [
        "/data/../secret",
        "/data/./../secret",
        "/data/inside/../../secret",
        "/data/relative",
        "/data/absolute",
        "/data/up/secret",
        "/data/root/etc/passwd",
        "/data/magic/etc/passwd",
        "/data/loop",
        "/data//etc/passwd",
        "/data/../../../../../../../../etc/passwd",
    ] {
        for read in read_everywhere(&grant, path) {
            let stderr = read.expect_err(path);
            assert!(!stderr.contains("the secret"), "{path}: {stderr}");
        }
        let call = format!("write-file(\"{path}\", \"changed\")");
        Wasmrun::call(&call).args(&grant).fails(5);
        for guest in ["prog", "prog-p1"] {
            let run = Wasmrun::submit(guest).args(&grant);
            run.program(["write", path, "changed"]).fails(1);
        }
    }
    assert_eq!(fs::read_to_string(&secret).unwrap(), "the secret");
    // Links within it are fine.
    for read in read_everywhere(&grant, "/data/harmless") {
        assert!(read.unwrap().contains("inside"));
    }
}

#[test]
fn a_guest_cannot_make_itself_a_way_out() {
    // Through a link to a directory that it may write to, and from one grant into the other.
    let outer = scratch();
    let [one, two] = ["one", "two"].map(|name| outer.path().join(name));
    fs::create_dir(&one).unwrap();
    fs::create_dir(&two).unwrap();
    symlink("../two", one.join("link")).unwrap();
    fs::write(two.join("file"), "content").unwrap();
    let grants = [dir_grant(&one, "::/one"), dir_grant(&two, "::/two:ro")].concat();
    for read in read_everywhere(&grants, "/one/link/file") {
        read.expect_err("the link leaves /one");
    }
    let call = "write-file(\"/one/link/file\", \"changed\")";
    Wasmrun::call(call).args(&grants).fails(5);
    assert_eq!(fs::read_to_string(two.join("file")).unwrap(), "content");
}

/// A FIFO in a folder, which is called `fifo`.
fn make_fifo(dir: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, dir.join("fifo"), FileType::Fifo, mode, 0).unwrap();
}

#[test]
fn files_that_block_are_refused_to_components() {
    let dir = scratch();
    make_fifo(dir.path());
    symlink("fifo", dir.path().join("link")).unwrap();
    let inside = dir_grant(dir.path(), "::/data");
    let devices = dir_grant(Path::new("/dev"), "::/dev");
    for (grant, path) in [
        (&inside, "/data/fifo"),
        (&inside, "/data/link"),
        (&devices, "/dev/zero"),
        (&devices, "/dev/tty"),
        (&devices, "/dev/urandom"),
    ] {
        let component = Wasmrun::call(&format!("read-file(\"{path}\")")).args(grant);
        component.fails_saying(5, &["Operation not permitted"]);
        let program = Wasmrun::submit("prog").args(grant);
        program
            .program(["read", path])
            .fails_saying(1, &["Operation not permitted"]);
    }
}

#[test]
fn files_that_block_do_not_hold_up_a_core_program_for_ever() {
    let dir = scratch();
    make_fifo(dir.path());
    for (grant, path) in [
        (dir_grant(dir.path(), "::/data"), "/data/fifo"),
        (dir_grant(Path::new("/dev"), "::/dev"), "/dev/zero"),
    ] {
        let ended = Wasmrun::submit("prog-p1")
            .args(&grant)
            .args(["--time-limit", "500ms", "--memory", "1GiB"])
            .program(["read", path])
            .run();
        assert!(matches!(ended.code, Some(1 | 5 | 6)), "{ended}");
    }
}

#[test]
fn directories_that_cannot_be_granted() {
    let dir = scratch();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    for (grant, says) in [
        (
            "/no/such/dir",
            "error: cannot give /no/such/dir to the guest (--dir)\n  because: No such file or directory",
        ),
        ("/no/such/dir::/data", "/no/such/dir"),
        (
            file.to_str().unwrap(),
            "is not a directory: --dir gives whole directories",
        ),
        (
            "::/data",
            "'::/data' must be HOST::GUEST, such as ./data::/data",
        ),
        ("data::", "'data::' must be HOST::GUEST"),
        (
            "/tmp::/d:reado",
            "ends with 'reado': end it with ':ro' to read only",
        ),
    ] {
        Wasmrun::call("noop()")
            .args(["--dir", grant])
            .fails_saying(2, &[says]);
    }
}

#[test]
fn two_directories_of_one_name_are_refused() {
    let dir = scratch();
    for other in ["::/d", "::/d/", "::d", "::/x/../d"] {
        let grants = [
            dir_grant(dir.path(), "::/d:RO"),
            dir_grant(dir.path(), other),
        ]
        .concat();
        Wasmrun::call("noop()").args(&grants).fails_saying(
            2,
            &["(--dir)", "two directories are called", "a name of its own"],
        );
    }
}

#[test]
fn an_actor_is_given_only_what_is_there() {
    let node = Node::start();
    let create = || {
        let create = node.wasmrun(["actor", "create"]).arg(guest("graph"));
        create.args(["counter", "10", "--name", "total"])
    };
    create()
        .args(["--dir", "/nowhere/at/all"])
        .fails_saying(2, &["cannot give /nowhere/at/all to the guest (--dir)"]);
    create()
        .args(["--cpus", "1", "--resource", "CPU=2"])
        .fails_saying(2, &["CPU is given twice, as 1 and as 2: give it once"]);
}

#[test]
fn what_is_no_text_is_named() {
    let bad = std::ffi::OsStr::from_bytes(b"\xff");
    let passed = Wasmrun::call("noop()")
        .args(["--env", "ODD"])
        .env("ODD", bad);
    passed.fails_saying(2, &["the variable ODD is not UTF-8"]);
    let named = Wasmrun::call("noop()").env("WASMRUN_ADDRESS", bad);
    named.fails_saying(2, &["the variable WASMRUN_ADDRESS is not UTF-8"]);
    let argument = Wasmrun::call("noop()").arg("--name").arg(bad);
    // A variable that may be anything is not to blame.
    let argument = argument.env("WASMRUN_IDENTITY", bad);
    argument.fails_saying(2, &["error: the argument \"\\xFF\" is not UTF-8"]);
    // A value is looked for where it is.
    let wrong = Wasmrun::call("noop()").env("WASMRUN_ADDRESS", "somewhere");
    let why = [
        "the variable WASMRUN_ADDRESS has the value 'somewhere': ",
        "unset it",
    ];
    assert_says(&wrong.fails(2), &why);
    let wrong = Wasmrun::call("noop()").env("WASMRUN_CACHE_SIZE", "4XB");
    let why = ["the variable WASMRUN_CACHE_SIZE has the value '4XB': "];
    assert_says(&wrong.fails(2), &why);
    let wrong = Wasmrun::call("noop()").args(["--address", "here"]);
    let why = ["invalid value 'here' for '--address <ADDRESS>'"];
    assert_says(&wrong.env("WASMRUN_ADDRESS", "somewhere").fails(2), &why);
    // One that is empty is as one that is not set.
    for variable in ["WASMRUN_ADDRESS", "WASMRUN_IDENTITY", "WASMRUN_CACHE_SIZE"] {
        Wasmrun::call("noop()").env(variable, "").ok();
    }
    // A folder that is too deep for a socket is as none.
    let deep = format!("/tmp/{}", "x".repeat(120));
    Wasmrun::call("noop()").env("XDG_RUNTIME_DIR", deep).ok();
}

/// Connects from inside the guest. Whether the listener saw it.
fn connect(args: &[&str], listener: &TcpListener) -> (wasmrun_tests::Ended, bool) {
    let call = format!("connect-tcp(\"{}\")", listener.local_addr().unwrap());
    let ended = Wasmrun::call(&call).args(args).run();
    // The guest has ended: a connection that it made is in the listener's queue by now.
    listener.set_nonblocking(true).unwrap();
    let seen = listener.accept().is_ok();
    (ended, seen)
}

#[test]
fn no_network_by_default() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (ended, seen) = connect(&[], &listener);
    assert_eq!((ended.code, seen), (Some(5), false), "{ended}");
    assert_says(&ended.stderr, &["Permission denied"]);
    // Not even names are looked up.
    let stderr = Wasmrun::call("connect-tcp(\"localhost:1\")").fails(5);
    assert_says(&stderr, &["the function returned an error"]);
}

#[test]
fn network_as_granted() {
    for loopback in ["127.0.0.1", "[::1]"] {
        let Ok(listener) = TcpListener::bind(format!("{loopback}:0")) else {
            assert_ne!(loopback, "127.0.0.1", "every machine has that");
            continue;
        };
        let address = listener.local_addr().unwrap();
        let other = TcpListener::bind(format!("{loopback}:0")).unwrap();
        let other_address = other.local_addr().unwrap();
        let only = |address: &str| format!("--net={address}");
        for (grant, allowed) in [
            ("--net".to_owned(), true),
            (only(&address.to_string()), true),
            (only(&format!("{loopback}:0")), true),
            (only(&format!("10.0.0.1:80,{address}")), true),
            (only(&other_address.to_string()), false),
            (only(&format!("10.0.0.1:{}", address.port())), false),
        ] {
            let (ended, seen) = connect(&[&grant], &listener);
            assert_eq!(seen, allowed, "{grant}: {ended}");
            match allowed {
                true => assert_eq!(ended.code, Some(0), "{grant}: {ended}"),
                false => assert_says(&ended.stderr, &["Permission denied"]),
            }
        }
    }
}

#[test]
fn networks_that_cannot_be_granted() {
    for grant in [
        "example.com:80",
        "10.0.0.1",
        "10.0.0.1:99999",
        "all,10.0.0.1:1",
        "",
    ] {
        let stderr = Wasmrun::call("noop()")
            .arg(format!("--net={grant}"))
            .fails(2);
        assert_says(&stderr, &["error: "]);
    }
    Wasmrun::call("noop()")
        .arg("--net=example.com:80")
        .fails_saying(
            2,
            &["'example.com:80' must be an IP address and a port, such as 10.0.0.1:80 or [::1]:0"],
        );
}

#[test]
fn randomness_and_clocks_need_no_grant() {
    let random = || Wasmrun::call("random()").ok();
    assert_ne!(random(), random());
    Wasmrun::call("monotonic-ns()")
        .ok()
        .trim()
        .parse::<u64>()
        .unwrap();
}
