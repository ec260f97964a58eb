//! What lies between a guest and the outside: room for its output, which it asks for and may leave, and reads and
//! writes that fail, which are neither ends nor lost.

use std::path::{Path, PathBuf};

use wasmrun_tests::{Stream, Wasmrun, assemble, assert_says, scratch};

use crate::node::Node;

/// Functions around handles of standard output. 64 KiB of `.` are at 131072; handles are kept from 4096 on.
pub const TEXT: &str = r#"(component
    (import "wasi:io/error@0.2.0" (instance $err (export "error" (type (sub resource)))))
    (alias export $err "error" (type $error))
    (import "wasi:io/streams@0.2.0" (instance $streams
        (export "output-stream" (type $os (sub resource)))
        (export "input-stream" (type $is (sub resource)))
        (alias outer 1 $error (type $e)) (export "error" (type $e2 (eq $e)))
        (type $se (variant (case "last-operation-failed" (own $e2)) (case "closed")))
        (export "stream-error" (type $se2 (eq $se)))
        (export "[method]output-stream.check-write"
            (func (param "self" (borrow $os)) (result (result u64 (error $se2)))))
        (export "[method]output-stream.write"
            (func (param "self" (borrow $os)) (param "contents" (list u8)) (result (result (error $se2)))))
        (export "[method]output-stream.write-zeroes"
            (func (param "self" (borrow $os)) (param "len" u64) (result (result (error $se2)))))
        (export "[method]output-stream.splice" (func (param "self" (borrow $os))
            (param "src" (borrow $is)) (param "len" u64) (result (result u64 (error $se2)))))
        (export "[method]input-stream.blocking-read"
            (func (param "self" (borrow $is)) (param "len" u64) (result (result (list u8) (error $se2)))))
        (export "[method]output-stream.blocking-write-and-flush"
            (func (param "self" (borrow $os)) (param "contents" (list u8)) (result (result (error $se2)))))))
    (alias export $streams "output-stream" (type $ostream))
    (alias export $streams "input-stream" (type $istream))
    (import "wasi:cli/stdout@0.2.0" (instance $stdout
        (alias outer 1 $ostream (type $o)) (export "output-stream" (type $o2 (eq $o)))
        (export "get-stdout" (func (result (own $o2))))))
    (import "wasi:cli/stdin@0.2.0" (instance $stdin
        (alias outer 1 $istream (type $o)) (export "input-stream" (type $o2 (eq $o)))
        (export "get-stdin" (func (result (own $o2))))))
    (core module $libc (memory (export "memory") 4)
        (data (i32.const 64) "written\n")
        (global $top (mut i32) (i32.const 65536))
        (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 65536))
        (func $dots (memory.fill (i32.const 131072) (i32.const 46) (i32.const 65537)))
        (start $dots))
    (core instance $libc (instantiate $libc))
    (alias core export $libc "memory" (core memory $mem))
    (core func $out (canon lower (func $stdout "get-stdout")))
    (core func $in (canon lower (func $stdin "get-stdin")))
    (core func $drop (canon resource.drop $ostream))
    (core func $check (canon lower (func $streams "[method]output-stream.check-write") (memory $mem)))
    (core func $write (canon lower (func $streams "[method]output-stream.write") (memory $mem)))
    (core func $zeroes (canon lower (func $streams "[method]output-stream.write-zeroes") (memory $mem)))
    (core func $splice (canon lower (func $streams "[method]output-stream.splice") (memory $mem)))
    (core func $read (canon lower (func $streams "[method]input-stream.blocking-read")
        (memory $mem) (realloc (core func $libc "realloc"))))
    (core func $print (canon lower (func $streams "[method]output-stream.blocking-write-and-flush") (memory $mem)))
    (core module $m
        (import "l" "memory" (memory 4))
        (import "i" "out" (func $out (result i32)))
        (import "i" "in" (func $in (result i32)))
        (import "i" "drop" (func $drop (param i32)))
        (import "i" "check" (func $check (param i32 i32)))
        (import "i" "write" (func $write (param i32 i32 i32 i32)))
        (import "i" "zeroes" (func $zeroes (param i32 i64 i32)))
        (import "i" "splice" (func $splice (param i32 i32 i64 i32)))
        (import "i" "read" (func $read (param i32 i64 i32)))
        (import "i" "print" (func $print (param i32 i32 i32 i32)))
        ;; A new handle that was asked for room, and has some.
        (func $asked (result i32) (local $h i32)
            (local.set $h (call $out))
            (call $check (local.get $h) (i32.const 0))
            (if (i64.ne (i64.load (i32.const 8)) (i64.const 65536)) (then unreachable))
            (local.get $h))
        (func $line (param $h i32) (call $write (local.get $h) (i32.const 64) (i32.const 8) (i32.const 16)))
        (func (export "asks") (param $n i32) (param $spins i32)
            (block (loop
                (br_if 1 (i32.eqz (local.get $n)))
                (drop (call $asked))
                (local.set $n (i32.sub (local.get $n) (i32.const 1)))
                (br 0)))
            (if (local.get $spins) (then (loop (br 0))))
            (call $print (call $out) (i32.const 64) (i32.const 8) (i32.const 0)))
        (func (export "asks-or-says") (param $i i32)
            (if (local.get $i) (then
                (local.set $i (i32.const 100))
                (loop
                    (drop (call $asked))
                    (local.set $i (i32.sub (local.get $i) (i32.const 1)))
                    (br_if 0 (local.get $i)))
                (call $print (call $out) (i32.const 64) (i32.const 8) (i32.const 0))
                (loop (br 0))))
            ;; It waits for the other's.
            (call $read (call $in) (i64.const 1) (i32.const 16))
            (call $print (call $out) (i32.const 64) (i32.const 8) (i32.const 0)))
        (func (export "permitted") (param $n i32) (local $at i32)
            (local.set $at (i32.const 0))
            (loop
                (i32.store (i32.add (i32.const 4096) (i32.shl (local.get $at) (i32.const 2))) (call $asked))
                (local.set $at (i32.add (local.get $at) (i32.const 1)))
                (br_if 0 (i32.lt_u (local.get $at) (local.get $n))))
            (loop
                (local.set $at (i32.sub (local.get $at) (i32.const 1)))
                (call $write
                    (i32.load (i32.add (i32.const 4096) (i32.shl (local.get $at) (i32.const 2))))
                    (i32.const 131072) (i32.const 65536) (i32.const 16))
                (if (i32.load8_u (i32.const 16)) (then unreachable))
                (br_if 0 (local.get $at))))
        (func (export "unasked") (call $line (call $out)))
        (func (export "beyond")
            (call $write (call $asked) (i32.const 131072) (i32.const 65537) (i32.const 16)))
        (func (export "twice") (local $h i32)
            (local.set $h (call $asked))
            (call $line (local.get $h))
            (call $line (local.get $h)))
        (func (export "zeroes") (param $n i64)
            (call $zeroes (call $asked) (local.get $n) (i32.const 16)))
        (func (export "dropped") (local $h i32)
            (local.set $h (call $asked))
            (call $drop (local.get $h))
            (call $line (local.get $h)))
        (func (export "splice") (local $h i32) (local $in i32)
            (local.set $h (call $out))
            (local.set $in (call $in))
            (loop
                (call $check (local.get $h) (i32.const 0))
                (call $splice (local.get $h) (local.get $in) (i64.const 65536) (i32.const 16))
                (br_if 0 (i32.eqz (i32.load8_u (i32.const 16)))))
            ;; It ends with the input.
            (if (i32.ne (i32.load8_u (i32.const 24)) (i32.const 1)) (then unreachable))))
    (core instance $i (instantiate $m (with "l" (instance $libc)) (with "i" (instance
        (export "out" (func $out)) (export "in" (func $in)) (export "drop" (func $drop))
        (export "check" (func $check)) (export "write" (func $write)) (export "zeroes" (func $zeroes))
        (export "splice" (func $splice)) (export "read" (func $read)) (export "print" (func $print))))))
    (func (export "asks") (param "n" u32) (param "spins" bool) (canon lift (core func $i "asks")))
    (func (export "asks-or-says") (param "i" u32) (canon lift (core func $i "asks-or-says")))
    (func (export "permitted") (param "n" u32) (canon lift (core func $i "permitted")))
    (func (export "unasked") (canon lift (core func $i "unasked")))
    (func (export "beyond") (canon lift (core func $i "beyond")))
    (func (export "twice") (canon lift (core func $i "twice")))
    (func (export "zeroes") (param "n" u64) (canon lift (core func $i "zeroes")))
    (func (export "dropped") (canon lift (core func $i "dropped")))
    (func (export "splice") (canon lift (core func $i "splice"))))"#;

#[test]
fn to_ask_for_room_takes_none() {
    let dir = scratch();
    let module = assemble(dir.path(), "streams", TEXT);
    for handles in [63, 64, 65, 10_000] {
        let call = format!("asks({handles}, false)");
        let ended = Wasmrun::submit_file(&module)
            .args(["--invoke", &call])
            .run();
        assert_eq!(
            (ended.code, &*ended.stderr),
            (Some(0), "written\n"),
            "{ended}"
        );
    }
    // One task asks and goes on, and the others write.
    let call = ["--array", "0-3", "--node-cpus", "4", "--invoke"];
    let array = Wasmrun::submit_file(&module).args(call);
    let mut array = array.arg("asks-or-says($i)").start();
    for index in 0..4 {
        array.wait_for(Stream::Err, &format!("[{index}] written\n"));
    }
    array.signal(rustix::process::Signal::INT);
    assert_eq!(array.end().code, Some(130));
}

#[test]
fn what_was_permitted_is_written_even_if_the_room_has_gone_to_others() {
    let dir = scratch();
    let module = assemble(dir.path(), "streams", TEXT);
    let call = ["--invoke", "permitted(300)"];
    let ended = Wasmrun::submit_file(&module).args(call).run();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr.len());
    assert_eq!(ended.stderr.len(), 300 << 16);
    let zeroes = Wasmrun::submit_file(&module).args(["--invoke", "zeroes(65536)"]);
    assert_eq!(zeroes.run().stderr, "\0".repeat(1 << 16));
}

#[test]
fn what_was_not_permitted_is_the_guests_fault() {
    let dir = scratch();
    let module = assemble(dir.path(), "streams", TEXT);
    let permitted = "to its standard output where `check-write` had permitted";
    for (call, said) in [
        (
            "unasked()",
            format!("it wrote 8 bytes {permitted} 0\n    at line\n"),
        ),
        (
            "twice()",
            format!("it wrote 8 bytes {permitted} 0\n    at line\n"),
        ),
        (
            "beyond()",
            "it wrote 65537 bytes to an output stream where `check-write` permits 65536 at most\n    at "
                .into(),
        ),
        (
            "zeroes(18446744073709551615)",
            format!("it wrote 65537 bytes {permitted} 65536\n    at "),
        ),
        ("dropped()", "unknown handle index".into()),
    ] {
        Wasmrun::submit_file(&module)
            .args(["--invoke", call])
            .fails_saying(5, &[": the guest trapped: ", &said]);
    }
}

#[test]
fn a_splice_writes_what_it_has_read() {
    let dir = scratch();
    let module = assemble(dir.path(), "streams", TEXT);
    let input = dir.path().join("input");
    let bytes: Vec<u8> = (b'a'..=b'z').cycle().take(3 << 20).collect();
    std::fs::write(&input, &bytes).unwrap();
    let ended = Wasmrun::submit_file(&module)
        .args(["--invoke", "splice()", "--stdin"])
        .arg(&input)
        .run();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr.len());
    assert!(ended.stderr.into_bytes() == bytes);
}

/// The streams of WASI 0.3. `says` writes `len` bytes to each of `n`, `reads` reads all of standard input; both return 0,
/// or 1 and the number of the error with which the last stream ended.
const ASYNC: &str = r#"(component
  (import "wasi:cli/types@0.3.0" (instance $types
    (type $codes (enum "io" "illegal-byte-sequence" "pipe")) (export "error-code" (type (eq $codes)))))
  (alias export $types "error-code" (type $code))
  (type $bytes (stream u8))
  (type $ended (future (result (error $code))))
  (import "wasi:cli/stdout@0.3.0" (instance $stdout
    (alias outer 1 $code (type $c)) (export "error-code" (type $c2 (eq $c)))
    (export "write-via-stream" (func (param "data" (stream u8)) (result (future (result (error $c2))))))))
  (import "wasi:cli/stdin@0.3.0" (instance $stdin
    (alias outer 1 $code (type $c)) (export "error-code" (type $c2 (eq $c)))
    (export "read-via-stream" (func (result (tuple (stream u8) (future (result (error $c2)))))))))
  (core module $libc (memory (export "memory") 2) (data (i32.const 64) "written\n")
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable))
  (core instance $libc (instantiate $libc))
  (alias core export $libc "memory" (core memory $mem))
  (core func $out (canon lower (func $stdout "write-via-stream")))
  (core func $in (canon lower (func $stdin "read-via-stream") (memory $mem)))
  (core func $new (canon stream.new $bytes))
  (core func $write (canon stream.write $bytes async (memory $mem)))
  (core func $read (canon stream.read $bytes async (memory $mem)))
  (core func $close (canon stream.drop-writable $bytes))
  (core func $how (canon future.read $ended async (memory $mem)))
  (core func $set (canon waitable-set.new))
  (core func $wait (canon waitable-set.wait (memory $mem)))
  (core func $join (canon waitable.join))
  (core func $return (canon task.return (result u32)))
  (core module $m
    (import "l" "memory" (memory 2))
    (import "i" "out" (func $out (param i32) (result i32)))
    (import "i" "in" (func $in (param i32)))
    (import "i" "new" (func $new (result i64)))
    (import "i" "write" (func $write (param i32 i32 i32) (result i32)))
    (import "i" "read" (func $read (param i32 i32 i32) (result i32)))
    (import "i" "close" (func $close (param i32)))
    (import "i" "how" (func $how (param i32 i32) (result i32)))
    (import "i" "return" (func $return (param i32)))
    (import "i" "set" (func $newset (result i32)))
    (import "i" "wait" (func $wait (param i32 i32) (result i32)))
    (import "i" "join" (func $join (param i32 i32)))
    (func $then (param $h i32) (param $r i32) (result i32) (local $set i32)
      (if (i32.ne (local.get $r) (i32.const -1)) (then (return (local.get $r))))
      (local.set $set (call $newset))
      (call $join (local.get $h) (local.get $set))
      (drop (call $wait (local.get $set) (i32.const 32)))
      (call $join (local.get $h) (i32.const 0))
      (i32.load (i32.const 36)))
    ;; n streams, and len bytes to each; the result of the last is 0, or 1 + its error
    (func (export "says") (param $n i32) (param $len i32) (result i32) (local $s i64) (local $f i32)
      (loop
        (local.set $s (call $new))
        (local.set $f (call $out (i32.wrap_i64 (local.get $s))))
        (drop (call $then (i32.wrap_i64 (i64.shr_u (local.get $s) (i64.const 32))) (call $write (i32.wrap_i64 (i64.shr_u (local.get $s) (i64.const 32))) (i32.const 64) (local.get $len))))
        (local.set $n (i32.sub (local.get $n) (i32.const 1)))
        (br_if 0 (local.get $n)))
      (call $close (i32.wrap_i64 (i64.shr_u (local.get $s) (i64.const 32))))
      (drop (call $then (local.get $f) (call $how (local.get $f) (i32.const 0))))
      (call $return (i32.add (i32.load8_u (i32.const 0)) (i32.load8_u (i32.const 1))))
      (i32.const 0))
    ;; reads all: 0 at the end, 1 + error
    (func (export "reads") (result i32)
      (call $in (i32.const 0))
      (loop
        (br_if 0 (i32.eqz (i32.and (i32.const 15) (call $then (i32.load (i32.const 0)) (call $read (i32.load (i32.const 0)) (i32.const 1024) (i32.const 4096)))))))
      (drop (call $then (i32.load (i32.const 4)) (call $how (i32.load (i32.const 4)) (i32.const 16))))
      (call $return (i32.add (i32.load8_u (i32.const 16)) (i32.load8_u (i32.const 17))))
      (i32.const 0))
    (func (export "wrong") (result i32) (drop (call $write (i32.const 99) (i32.const 64) (i32.const 1))) (i32.const 0))
    (func (export "nothing") (result i32) (i32.const 0))
    (func (export "callback") (param i32 i32 i32) (result i32) unreachable))
  (core instance $i (instantiate $m (with "l" (instance $libc)) (with "i" (instance
    (export "out" (func $out)) (export "in" (func $in)) (export "new" (func $new)) (export "write" (func $write)) (export "read" (func $read))
    (export "close" (func $close)) (export "how" (func $how)) (export "return" (func $return)) (export "set" (func $set)) (export "wait" (func $wait)) (export "join" (func $join))))))
  (func (export "says") async (param "n" u32) (param "len" u32) (result u32) (canon lift (core func $i "says") async (callback (core func $i "callback"))))
  (func (export "reads") async (result u32) (canon lift (core func $i "reads") async (callback (core func $i "callback"))))
  (func (export "wrong") async (result u32) (canon lift (core func $i "wrong") async (callback (core func $i "callback"))))
  (func (export "nothing") async (result u32) (canon lift (core func $i "nothing") async (callback (core func $i "callback")))))"#;

#[test]
fn the_same_with_streams_of_wasi_0_3() {
    let dir = scratch();
    let module = assemble(dir.path(), "async-streams", ASYNC);
    let submit = |call: &str| Wasmrun::submit_file(&module).args(["--invoke", call]);
    let ended = submit("says(300, 8)").run();
    assert_eq!(
        (ended.code, ended.stdout_text().as_str()),
        (Some(0), "0\n"),
        "{ended}"
    );
    assert_eq!(ended.stderr, "written\n".repeat(300));
    submit("says(3, 8)")
        .args(["--max-output", "20"])
        .fails_saying(5, &["output limit of 20 bytes reached"]);
    assert_eq!(submit("reads()").ok(), "0\n");
    assert_eq!(submit("reads()").args(["--stdin", "/"]).ok(), "1\n");
    submit("wrong()").fails_saying(5, &["the guest trapped: unknown handle index 99\n    at "]);
    submit("nothing()").fails_saying(5, &["the guest trapped: "]);
}

/// Reads standard input to its end and exits with 0, or with the error number of a read that fails.
const READER: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (func (export "_start") (local $error i32)
        (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 4096))
        (loop
            (local.set $error (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
            (if (local.get $error) (then (call $exit (local.get $error))))
            (br_if 0 (i32.load (i32.const 8))))))"#;

/// As WASI numbers errors.
const ERRNO_BADF: i32 = 8;
const ERRNO_IO: i32 = 29;
const ERRNO_ISDIR: i32 = 31;

fn reader(dir: &Path) -> PathBuf {
    assemble(dir, "reader", READER)
}

#[test]
fn a_read_that_fails_is_not_the_end() {
    let dir = scratch();
    let module = reader(dir.path());
    for (redirections, code) in [
        ("< /", ERRNO_ISDIR),
        ("<&-", ERRNO_BADF),
        ("0> /dev/null", ERRNO_BADF),
        ("< /dev/null", 0),
    ] {
        let submit = Wasmrun::submit_file(&module).redirected(redirections);
        let ended = submit.run();
        assert_eq!(ended.code, Some(code), "{redirections}: {ended}");
        // All of it is needed for another try: the command fails before the first.
        let submit = Wasmrun::submit_file(&module).redirected(redirections);
        let ended = submit.args(["--retries", "1"]).run();
        assert_eq!(
            ended.code,
            Some(if code == 0 { 0 } else { 2 }),
            "{redirections}: {ended}"
        );
    }
    for (path, code) in [("/", ERRNO_ISDIR), ("/proc/self/mem", ERRNO_IO)] {
        let submit = || Wasmrun::submit_file(&module).args(["--stdin", path]);
        assert_eq!(submit().run().code, Some(code), "{path}");
        submit()
            .args(["--retries", "1"])
            .fails_saying(2, &["cannot read ", path]);
        submit()
            .args(["--array", "0-1"])
            .fails_saying(2, &["cannot read ", path]);
    }
    let whole = Wasmrun::submit_file(&module).stdin(vec![b'x'; 1 << 20]);
    assert_eq!(whole.run().code, Some(0));
}

#[test]
fn a_read_that_fails_at_a_client_fails_at_the_node() {
    let dir = scratch();
    let module = reader(dir.path());
    let node = Node::start();
    let submit = || node.wasmrun(["submit"]).arg(&module);
    for (redirections, code) in [("< /", ERRNO_ISDIR), ("<&-", ERRNO_BADF)] {
        let ended = submit().redirected(redirections).run();
        assert_eq!(ended.code, Some(code), "{ended}");
    }
    let ended = submit().args(["--stdin", "/proc/self/mem"]).run();
    assert_eq!(ended.code, Some(ERRNO_IO), "{ended}");
    assert_eq!(submit().stdin(vec![b'x'; 3 << 20]).run().code, Some(0));
    assert_eq!(submit().stdin(Vec::new()).run().code, Some(0));
}

#[test]
fn a_write_that_fails_is_not_lost() {
    let full = "No space left on device";
    let closed = "Bad file descriptor";
    for (redirections, said) in [
        ("> /dev/full", full),
        (">&-", closed),
        ("1< /dev/null", closed),
    ] {
        let because = ["error: cannot write ", said];
        for command in [
            Wasmrun::submit("prog").program(["args", "a"]),
            Wasmrun::submit("prog-p1").program(["args", "a"]),
            Wasmrun::submit("prog").program(["args", "a"]).args([
                "--array",
                "0-1",
                "--node-cpus",
                "2",
            ]),
            Wasmrun::submit("prog")
                .program(["args", "a"])
                .args(["-o", "json"]),
            Wasmrun::call("echo-u8(7)"),
            Wasmrun::call("echo-u8(7)").args(["--array", "0-1"]),
            Wasmrun::new(["bench", "--list"]),
        ] {
            let stderr = command.redirected(redirections).fails(2);
            assert_says(&stderr, &because);
        }
    }
    let help = Wasmrun::new(["--help"]).redirected("> /dev/full");
    assert_eq!(help.run().code, Some(2));
    let stderr = Wasmrun::submit("prog").program(["stderr", "x"]);
    assert_eq!(stderr.redirected("2> /dev/full").run().code, Some(2));
    let quiet = Wasmrun::call("echo-u8(7)").args(["-o", "quiet"]);
    assert_eq!(quiet.redirected("> /dev/full").run().code, Some(0));
}
