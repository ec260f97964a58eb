//! Tasks that start tasks, objects and actors, by hand from the WIT: no SDK, no fast lane.
//!
//! What each function does is said in `wit/graph.wit`; here they are in the same order. Values are
//! encoded by hand too (`docs/values.md` has the table), which is what a language without an SDK does.
//! `trouble` has what ends badly.

#![allow(
    clippy::unnecessary_mut_passed,
    reason = "the host writes to a window, whatever its WIT type says"
)]

#[allow(missing_docs, reason = "documented in wit/graph.wit")]
mod bindings {
    wit_bindgen::generate!({
        world: "wasmrun:graph/graph",
        path: ["../../../wit", "wit"],
        generate_all,
    });
}

mod trouble;

use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::hint::black_box;

use bindings::exports::wasmrun::graph::tests::{Guest, GuestCounter};
use bindings::wasmrun::runtime::actors::{self, Actor, Options as ActorOptions};
use bindings::wasmrun::runtime::objects::{self, Error, Form, Number, Object};
use bindings::wasmrun::runtime::tasks::{self, Argument, Options};

wasmrun_guest::manifest!(
    r#"{
        "version": 1,
        "functions": {
            "*":   {"resources": {"CPU": "1", "memory": "16MiB"}},
            "fib": {"resources": {"CPU": "1", "memory": "4MiB"}},
            "put-and-get": {"resources": {"CPU": "1", "memory": "512MiB"}},
            "put-and-map": {"resources": {"CPU": "1", "memory": "512MiB"}},
            "dirt": {"resources": {"CPU": "1", "memory": "512MiB"}},
            "range": {"resources": {"CPU": "1", "memory": "512MiB"}},
            "sum": {"resources": {"CPU": "1", "memory": "512MiB"}},
            "sum-copied": {"resources": {"CPU": "1", "memory": "512MiB"}},
            "sum-mapped": {"resources": {"CPU": "1", "memory": "512MiB"}},
            "sum-through": {"resources": {"CPU": "1", "memory": "512MiB"}}
        },
        "actors": {
            "counter": {"resources": {"memory": "4MiB"}},
            "busy": {"resources": {"memory": "8MiB"}}
        }
    }"#
);

struct Graph;

/// A `u64` as postcard has it.
fn number(n: u64) -> Argument<'static> {
    Argument::Value(varint(n))
}

fn varint(mut n: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while n >= 0x80 {
        bytes.push(n as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
    bytes
}

fn read_varint(bytes: &[u8]) -> u64 {
    let groups = bytes.iter().enumerate();
    groups.fold(0, |n, (at, byte)| n | u64::from(byte & 0x7f) << (7 * at))
}

fn spawn(function: &str, arguments: &[Argument<'_>]) -> Object {
    tasks::spawn(function, arguments, None).expect("it can be started")
}

fn get(object: &Object) -> Result<u64, Error> {
    object.get(None).map(|value| read_varint(&value.bytes))
}

/// The number in a `result<u64, string>`, whose object is only there when all went well.
fn get_ok(object: &Object) -> Result<u64, Error> {
    object.get(None).map(|value| {
        assert_eq!(value.bytes[0], 0, "it went well");
        read_varint(&value.bytes[1..])
    })
}

fn say(error: Error) -> String {
    match error {
        Error::Failed(failure) => format!("failed ({:?}): {}", failure.kind, failure.message),
        Error::TimedOut => "timed out".into(),
        Error::Deadlock(why) => format!("deadlock: {why}"),
        Error::Refused(why) => format!("refused: {why}"),
    }
}

fn new_counter(start: u64, options: Option<&ActorOptions>) -> Actor {
    actors::create("counter", &[number(start)], options).expect("it can be created")
}

fn add(counter: &Actor, n: u64) -> Object {
    counter.call("add", &[number(n)]).expect("it can be called")
}

fn restarting(restarts: u32) -> ActorOptions {
    ActorOptions {
        resources: Vec::new(),
        name: None,
        restarts: Some(restarts),
        call_retries: None,
        label_selector: None,
        strategy: None,
        time_limit_ms: None,
    }
}

const PAGE: usize = 64 << 10;

/// A part of memory that objects can be mapped to.
struct Window {
    at: *mut u8,
    layout: Layout,
}

impl Window {
    fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes.next_multiple_of(PAGE), PAGE).expect("small");
        // SAFETY: the layout is not empty.
        let at = unsafe { alloc(layout) };
        assert!(!at.is_null(), "there is memory for a window");
        Self { at, layout }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: it was allocated with this layout, and is zeros or what was mapped.
        unsafe { std::slice::from_raw_parts(self.at, self.layout.size()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.layout.size()) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(self.at, self.layout) }
    }
}

/// What a guest may say that it has.
fn no_memory(at: usize, len: usize) -> &'static mut [u8] {
    // SAFETY: there is no memory there, and nobody looks: the host is to find out.
    unsafe { core::slice::from_raw_parts_mut(at as *mut u8, len) }
}

fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    let rest: u64 = words.remainder().iter().map(|byte| u64::from(*byte)).sum();
    words.fold(rest, |sum, word| {
        sum + word.iter().map(|byte| u64::from(*byte)).sum::<u64>()
    })
}

fn pattern(count: u32) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8).collect()
}

fn put(bytes: &[u8]) -> Object {
    objects::put(Form::Buffer(Number::U8), bytes).expect("there is room")
}

impl Guest for Graph {
    type Counter = Counter;

    fn noop() {}

    fn add(a: u64, b: u64) -> u64 {
        a + b
    }

    fn double_even(n: u64) -> Result<u64, String> {
        match n % 2 {
            0 => Ok(n * 2),
            _ => Err(format!("{n} is odd")),
        }
    }

    fn range(from: u32, count: u32) -> Vec<u32> {
        (from..from + count).collect()
    }

    fn sum(numbers: Vec<u32>) -> u64 {
        numbers.into_iter().map(u64::from).sum()
    }

    fn crash() {
        panic!("as it was told to");
    }

    fn spin() {
        loop {
            black_box(0);
        }
    }

    fn fib(n: u32) -> u64 {
        if n < 2 {
            return n.into();
        }
        let parts = [n - 1, n - 2].map(|n| spawn("fib", &[number(n.into())]));
        parts
            .iter()
            .map(|part| get(part).expect("it is there"))
            .sum()
    }

    fn chain(n: u32) -> u64 {
        let mut last = spawn("add", &[number(0), number(0)]);
        for _ in 0..n {
            last = spawn("add", &[Argument::Object(&last), number(1)]);
        }
        get(&last).expect("it is there")
    }

    fn spawn_many(n: u32) -> u32 {
        let tasks: Vec<Object> = (0..n).map(|_| spawn("noop", &[])).collect();
        let borrowed: Vec<&Object> = tasks.iter().collect();
        let ready = objects::wait(&borrowed, n, None).expect("they end");
        ready.len() as u32
    }

    fn waves(n: u32, times: u32) -> u32 {
        (0..times).map(|_| Self::spawn_many(n)).sum()
    }

    fn wait_often(n: u32, times: u32) -> u32 {
        let tasks: Vec<Object> = (0..n).map(|_| spawn("noop", &[])).collect();
        let borrowed: Vec<&Object> = tasks.iter().collect();
        let waits = (0..times).map(|_| objects::wait(&borrowed, n, None).expect("they end"));
        waits.map(|ready| ready.len() as u32).sum()
    }

    fn wait_for_one() -> u32 {
        let tasks = [spawn("spin", &[]), spawn("noop", &[])];
        let ready = objects::wait(&[&tasks[0], &tasks[1]], 1, None).expect("one ends");
        tasks[0].cancel();
        assert_eq!(ready, [1]);
        ready.len() as u32
    }

    fn futures(a: u64, b: u64) -> Result<u64, String> {
        let sum = spawn("add", &[number(a), number(b)]);
        let double = spawn("double-even", &[Argument::Object(&sum)]);
        // Of type result<u64, string>, for a parameter of type u64.
        let again = spawn("add", &[Argument::Object(&double), number(1)]);
        get(&again).map_err(say)
    }

    fn error_of(what: String) -> String {
        let error = match &what[..] {
            "trap" => get(&spawn("crash", &[])),
            "error" => get_ok(&spawn("double-even", &[number(3)])),
            "cancelled" => {
                let task = spawn("spin", &[]);
                task.cancel();
                get(&task)
            }
            "dependency" => {
                let odd = spawn("double-even", &[number(3)]);
                get(&spawn("add", &[Argument::Object(&odd), number(1)]))
            }
            "timeout" => {
                let task = spawn("spin", &[]);
                let value = task.get(Some(10));
                task.cancel();
                value.map(|_| 0)
            }
            "type" => tasks::spawn("add", &[Argument::Value(vec![0x80])], None).map(|_| 0),
            "bytes" => {
                tasks::spawn("add", &[Argument::Value(vec![0x80]), number(1)], None).map(|_| 0)
            }
            "more" => {
                tasks::spawn("add", &[number(1), Argument::Value(vec![1, 2])], None).map(|_| 0)
            }
            "unknown" => tasks::spawn("ad", &[], None).map(|_| 0),
            "object" => {
                let range = spawn("range", &[number(0), number(1)]);
                tasks::spawn("add", &[Argument::Object(&range), number(1)], None).map(|_| 0)
            }
            "resources" => {
                let options = Options {
                    resources: vec![("CPU".into(), "100000".into())],
                    retries: None,
                    retry_on_error: None,
                    time_limit_ms: None,
                    priority: None,
                    label_selector: None,
                    strategy: None,
                };
                tasks::spawn("noop", &[], Some(&options)).map(|_| 0)
            }
            other => panic!("there is no error '{other}'"),
        };
        error.map_or_else(say, |value| format!("no error: {value}"))
    }

    fn sum_of_range(count: u32) -> u64 {
        let range = spawn("range", &[number(0), number(count.into())]);
        get(&spawn("sum", &[Argument::Object(&range)])).expect("it is there")
    }

    fn put_and_get(count: u32) -> u32 {
        let bytes = pattern(count);
        let value = put(&bytes).get(None).expect("it is there");
        assert!(matches!(value.form, Form::Buffer(Number::U8)));
        let same = bytes.iter().zip(&value.bytes).filter(|(a, b)| a == b);
        same.count() as u32
    }

    fn put_and_map(count: u32) -> (u64, u64) {
        let stored = put(&pattern(count));
        let mut window = Window::new(count as usize);
        let size = stored
            .map(window.bytes_mut(), None)
            .expect("it can be mapped");
        assert_eq!(size, u64::from(count));
        window.bytes_mut()[0] = 200;
        let sums = (
            sum(window.bytes()),
            sum(&stored.get(None).expect("it is there").bytes),
        );
        objects::unmap(window.bytes_mut()).expect("it was mapped");
        assert_eq!(sum(window.bytes()), 0, "memory like any other");
        sums
    }

    fn dirt(count: u32) -> u32 {
        let window = Window::new(count as usize);
        let dirty = window.bytes().iter().filter(|byte| **byte != 0);
        dirty.count() as u32
    }

    fn sum_copied(data: Vec<u8>) -> u64 {
        sum(&data)
    }

    fn sum_mapped(data: Object) -> u64 {
        let size = data.size(None).expect("it is there") as usize;
        let mut window = Window::new(size);
        data.map(window.bytes_mut(), None)
            .expect("it can be mapped");
        // Not taken out again: that is the host's business when the task ends.
        let sum = sum(&window.bytes()[..size]);
        std::mem::forget(window);
        sum
    }

    fn sum_through(count: u32, mapped: bool) -> u64 {
        let stored = put(&pattern(count));
        let function = if mapped { "sum-mapped" } else { "sum-copied" };
        get(&spawn(function, &[Argument::Object(&stored)])).expect("it is there")
    }

    fn bad_window(what: String) -> String {
        let stored = put(&pattern(2 * PAGE as u32));
        let mut window = Window::new(4 * PAGE);
        let bytes = window.bytes_mut();
        let said = match &what[..] {
            "unaligned" => stored.map(&mut bytes[8..2 * PAGE + 8], None),
            "short" => stored.map(&mut bytes[..PAGE], None),
            "long" => stored.map(&mut bytes[..3 * PAGE], None),
            "twice" => {
                stored
                    .map(&mut bytes[..2 * PAGE], None)
                    .expect("it can be mapped");
                stored.map(&mut bytes[..2 * PAGE], None)
            }
            "overlapping" => {
                stored
                    .map(&mut bytes[..2 * PAGE], None)
                    .expect("it can be mapped");
                stored.map(&mut bytes[PAGE..3 * PAGE], None)
            }
            "part" => {
                stored
                    .map(&mut bytes[..2 * PAGE], None)
                    .expect("it can be mapped");
                objects::unmap(&mut bytes[..PAGE]).map(|()| 0)
            }
            "beyond" => {
                // It begins in memory and ends after it.
                let last = memory_pages() * PAGE - PAGE;
                stored.map(no_memory(last, 2 * PAGE), None)
            }
            "after" => stored.map(no_memory(0x7000_0000, 2 * PAGE), None),
            "overflow" => stored.map(no_memory(0xffff_0000, 2 * PAGE), None),
            other => panic!("there is no window '{other}'"),
        };
        let said = said.map_or_else(say, |size| format!("no error: {size}"));
        // What was mapped before is still whole.
        let is_mapped = matches!(&what[..], "twice" | "overlapping" | "part");
        let whole = sum(&pattern(2 * PAGE as u32));
        assert!(!is_mapped || sum(&window.bytes()[..2 * PAGE]) == whole);
        said
    }

    fn many_windows(count: u32) -> (u32, u32) {
        let size = 2 * PAGE;
        let stored = put(&pattern(size as u32));
        let mut windows: Vec<Window> = (0..count).map(|_| Window::new(size)).collect();
        for (at, window) in (0..).zip(&mut windows) {
            stored
                .map(window.bytes_mut(), None)
                .expect("it can be mapped or copied");
            window.bytes_mut()[..4].copy_from_slice(&u32::to_le_bytes(at));
        }
        let rest = sum(&pattern(size as u32)[4..]);
        let is_right = |(at, window): &(u32, &Window)| {
            let (first, others) = window.bytes().split_at(4);
            first == at.to_le_bytes() && sum(others) == rest
        };
        let right = (0..).zip(&windows).filter(is_right).count();
        for window in &mut windows {
            objects::unmap(window.bytes_mut()).expect("it can be taken out");
        }
        let zeros = windows.iter().filter(|it| sum(it.bytes()) == 0).count();
        (right as u32, zeros as u32)
    }

    fn pass_on(it: Object) -> Object {
        it
    }

    fn handles(n: u64) -> u64 {
        let value = spawn("add", &[number(n), number(0)]);
        let passed = spawn("pass-on", &[Argument::Object(&value)]);
        drop(value);
        let name = passed.get(None).expect("it is there").bytes;
        drop(passed);
        let again = Object::named(&name).expect("it was given to this task");
        get(&again).expect("it is there")
    }

    fn forge() -> String {
        Object::named(&[7; 36]).map_or_else(say, |object| object.id())
    }

    fn count(n: u32) -> u64 {
        let counter = new_counter(0, None);
        let calls: Vec<Object> = (0..n).map(|_| add(&counter, 1)).collect();
        // In order, so the last one is the highest.
        get(calls.last().expect("at least one")).expect("it is there")
    }

    fn count_with(actors: u32) -> u64 {
        let actors: Vec<Actor> = (0..actors).map(|_| new_counter(1, None)).collect();
        let calls: Vec<Object> = actors.iter().map(|actor| add(actor, 1)).collect();
        calls
            .iter()
            .map(|call| get(call).expect("it is there"))
            .sum()
    }

    fn count_together(n: u32) -> u64 {
        let counter = new_counter(0, None);
        let tasks = [(); 2].map(|()| {
            let handle = Argument::Value(counter.name());
            spawn("count-for", &[handle, number(n.into())])
        });
        for task in &tasks {
            get(task).expect("it ends");
        }
        get(&add(&counter, 0)).expect("it is there")
    }

    fn count_for(counter: Actor, n: u32) {
        for _ in 0..n {
            add(&counter, 1);
        }
        get(&add(&counter, 0)).expect("it is there");
    }

    fn survive(restarts: u32) -> Vec<String> {
        let counter = new_counter(10, Some(&restarting(restarts)));
        let calls = [
            add(&counter, 1),
            counter.call("crash", &[]).expect("it can be called"),
            add(&counter, 1),
        ];
        let said = calls
            .iter()
            .map(|call| get(call).map_or_else(say, |n| n.to_string()));
        said.collect()
    }

    fn call_the_dead() -> String {
        let counter = new_counter(0, None);
        get(&add(&counter, 1)).expect("it is there");
        counter.kill();
        get(&add(&counter, 1)).map_or_else(say, |n| n.to_string())
    }

    fn circle() -> String {
        let (one, other) = (new_counter(1, None), new_counter(2, None));
        // One calls other, which is told to call one.
        let mut some_one = vec![1];
        some_one.extend(one.name());
        let call = one
            .call(
                "relay",
                &[Argument::Value(other.name()), Argument::Value(some_one)],
            )
            .expect("it can be called");
        get_ok(&call).map_or_else(say, |n| n.to_string())
    }

    fn by_name(name: String) -> u64 {
        let options = ActorOptions {
            name: Some(name.clone()),
            ..restarting(0)
        };
        drop(new_counter(40, Some(&options)));
        let again = actors::create("counter", &[number(0)], Some(&options));
        assert!(matches!(again, Err(Error::Refused(_))), "the name is taken");
        let found = actors::find(&name).expect("it is there");
        let value = get(&add(&found, 2)).expect("it is there");
        found.kill();
        assert!(actors::find(&name).is_err(), "nobody has the name now");
        value
    }
}

/// See `wit/graph.wit`.
struct Counter(Cell<u64>);

impl GuestCounter for Counter {
    fn new(start: u64) -> Self {
        Self(Cell::new(start))
    }

    fn add(&self, n: u64) -> u64 {
        self.0.set(self.0.get() + n);
        self.0.get()
    }

    fn crash(&self) {
        panic!("as it was told to");
    }

    fn relay(&self, other: Actor, third: Option<Actor>) -> Result<u64, String> {
        let call = match third {
            None => add(&other, 1),
            Some(third) => {
                let nobody = Argument::Value(vec![0]);
                other
                    .call("relay", &[Argument::Value(third.name()), nobody])
                    .expect("it can be called")
            }
        };
        let got = call.get(None).map_err(say)?;
        Ok(got.bytes.len() as u64)
    }

    fn checkpoint(&self) -> Vec<u8> {
        self.0.get().to_le_bytes().to_vec()
    }

    fn restore(state: Vec<u8>) -> bindings::exports::wasmrun::graph::tests::Counter {
        let state = state.try_into().expect("eight bytes");
        let counter = Self(Cell::new(u64::from_le_bytes(state)));
        bindings::exports::wasmrun::graph::tests::Counter::new(counter)
    }
}

bindings::export!(Graph with_types_in bindings);

/// How long the guest's memory is. Elsewhere than in a guest there is none.
fn memory_pages() -> usize {
    #[cfg(target_arch = "wasm32")]
    return core::arch::wasm32::memory_size(0);
    #[cfg(not(target_arch = "wasm32"))]
    return 1;
}
