//! Tasks and actors that end badly, and what is left of them.
//!
//! What each function does is said in `wit/graph.wit`; here they are in the same order.

use std::cell::RefCell;
use std::hint::black_box;

use crate::bindings::exports::wasmrun::graph::trouble::{Guest, GuestBusy};
use crate::bindings::wasmrun::runtime::actors::{self, Actor, Options as ActorOptions};
use crate::bindings::wasmrun::runtime::context;
use crate::bindings::wasmrun::runtime::objects::{self, Error, Form, Number, Object};
use crate::bindings::wasmrun::runtime::tasks::{self, Argument, Options};
use crate::{
    Graph, Window, add, get, get_ok, new_counter, number, pattern, put, restarting, say, spawn,
    varint,
};

/// A `string` as postcard has it; a `list<u8>` is the same.
fn text(text: impl AsRef<[u8]>) -> Argument<'static> {
    let text = text.as_ref();
    let mut bytes = varint(text.len() as u64);
    bytes.extend(text);
    Argument::Value(bytes)
}

fn actor(actor: &Actor) -> Argument<'static> {
    Argument::Value(actor.name())
}

/// What a call or task that returns a string returned, or its error.
fn get_text(object: &Object) -> String {
    match object.get(None) {
        // Its length comes first; only the last byte of that has no 8th bit.
        Ok(value) => {
            let start = value.bytes.iter().take_while(|byte| **byte >= 0x80);
            let start = start.count() + 1;
            String::from_utf8_lossy(&value.bytes[start..]).into_owned()
        }
        Err(error) => say(error),
    }
}

/// What became of something that returns a number.
fn outcome(object: &Object) -> String {
    get(object).map_or_else(say, |n| n.to_string())
}

/// What became of something that returns nothing.
fn end(object: &Object) -> String {
    let value = object.get(None);
    value.map_or_else(say, |_| "returned".to_owned())
}

/// Waits until the actor has counted to `n`.
fn until(signal: &Actor, n: u64) -> Result<(), Error> {
    while get(&add(signal, 0))? < n {}
    Ok(())
}

fn signal(signal: &Actor) {
    get(&add(signal, 1)).expect("it counts");
}

fn spin() -> ! {
    loop {
        black_box(0);
    }
}

fn plain_options() -> Options {
    Options {
        resources: Vec::new(),
        retries: None,
        retry_on_error: None,
        time_limit_ms: None,
        priority: None,
        label_selector: None,
        strategy: None,
    }
}

/// More than any task or actor of this module may have.
fn exhaust_memory() {
    black_box(vec![1_u8; 1 << 30]);
}

fn spawn_without_cpu(function: &str, arguments: &[Argument<'_>]) -> Object {
    let options = Options {
        resources: vec![("CPU".into(), "0".into())],
        ..plain_options()
    };
    tasks::spawn(function, arguments, Some(&options)).expect("it can be started")
}

/// Starts `end-by`, and lets it come to its end.
fn end_by(how: &str, data: &Object, signal: &Actor) -> Result<(), Error> {
    let told = if matches!(how, "time" | "cancelled") {
        "spin"
    } else {
        how
    };
    let options = Options {
        time_limit_ms: (how == "time").then_some(300),
        ..plain_options()
    };
    let before = get(&add(signal, 0)).expect("it counts");
    let arguments = [text(told), Argument::Object(data), actor(signal)];
    let task = tasks::spawn("end-by", &arguments, Some(&options)).expect("it can be started");
    if how == "cancelled" {
        until(signal, before + 1).expect("it counts");
        task.cancel();
    }
    task.get(None).map(|_| ())
}

fn map(data: &Object) -> Window {
    let size = data.size(None).expect("it is there") as usize;
    let mut window = Window::new(size);
    data.map(window.bytes_mut(), None)
        .expect("it can be mapped");
    window
}

/// What is put into the store as number `at`.
fn numbered(at: u32, kib: u32) -> Vec<u8> {
    let mut bytes = pattern(kib << 10);
    bytes[..4].copy_from_slice(&at.to_le_bytes());
    bytes
}

/// So many objects of so many KiB.
fn store(count: u32, kib: u32) -> Result<Vec<Object>, Error> {
    let form = Form::Buffer(Number::U8);
    (0..count)
        .map(|at| objects::put(form, &numbered(at, kib)))
        .collect()
}

impl Guest for Graph {
    type Busy = Busy;

    fn number(how: String) -> u64 {
        assert_eq!(how, "return", "as it was told to");
        7
    }

    fn argument(when: String) -> Vec<String> {
        let fails = when.starts_with("fail");
        let how = if fails { "trap" } else { "return" };
        let plain = spawn("number", &[text(how)]);
        let of_result = spawn("double-even", &[number(if fails { 3 } else { 4 })]);
        if matches!(&when[..], "there" | "failed") {
            assert_eq!(get(&plain).is_err(), fails);
            assert_eq!(get_ok(&of_result).is_err(), fails);
        }
        let sums = [(plain, 1), (of_result, 0)].map(|(argument, more)| {
            let sum = spawn("add", &[Argument::Object(&argument), number(more)]);
            // Only the task that needs it holds it from here on.
            drop(argument);
            sum
        });
        sums.iter().map(outcome).collect()
    }

    fn odd_waits() -> Vec<Vec<u32>> {
        let (a, b) = (spawn("noop", &[]), spawn("noop", &[]));
        let failed = spawn("crash", &[]);
        let never = spawn("spin", &[]);
        let wait = |objects: &[&Object], count, timeout| {
            objects::wait(objects, count, timeout).expect("it ends")
        };
        wait(&[&a, &b], 2, None);
        let said = vec![
            wait(&[], 0, None),
            wait(&[&a, &b], 0, None),
            wait(&[&a, &b], 5, None),
            wait(&[&failed], 1, None),
            wait(&[&never], 1, Some(0)),
            // All that are there, not only as many as were asked for; the same one twice.
            wait(&[&never, &a, &b, &a], 1, None),
        ];
        never.cancel();
        said
    }

    fn end_by(how: String, data: Object, signaller: Actor) {
        let mut window = map(&data);
        window
            .bytes_mut()
            .iter_mut()
            .step_by(4096)
            .for_each(|byte| *byte = 0xff);
        signal(&signaller);
        match &how[..] {
            "return" => {}
            "trap" => panic!("as it was told to"),
            "memory" => exhaust_memory(),
            "spin" => spin(),
            other => panic!("there is no end '{other}'"),
        }
        // It stays mapped.
        std::mem::forget(window);
    }

    fn ended_by(how: String) -> String {
        let (data, signal) = (put(&[1]), new_counter(0, None));
        let ended = end_by(&how, &data, &signal);
        ended.map_or_else(say, |()| "returned".to_owned())
    }

    fn origins() -> Vec<bool> {
        let first = spawn("number", &[text("trap")]);
        let second = spawn("add", &[Argument::Object(&first), number(1)]);
        let third = spawn("add", &[Argument::Object(&second), number(1)]);
        // The id of a task's object starts with that of the task.
        let is_first = |object| match get(object) {
            Err(Error::Failed(failure)) => first.id().starts_with(&failure.origin),
            other => panic!("it should have failed: {other:?}"),
        };
        [&first, &second, &third].map(is_first).to_vec()
    }

    fn dirt_after(how: String, count: u32, rounds: u32) -> u32 {
        let data = put(&vec![0xaa; count as usize]);
        let signal = new_counter(0, None);
        let mut dirt = 0;
        for _ in 0..rounds {
            if how == "killed" {
                let busy = actors::create("busy", &[], None).expect("it can be created");
                let attached = busy.call("attach", &[Argument::Object(&data)]);
                end(&attached.expect("it can be called"));
                busy.kill();
            } else {
                let ended = end_by(&how, &data, &signal);
                assert_eq!(ended.is_ok(), how == "return", "{ended:?}");
            }
            // More than was mapped, as it need not lie at the same place.
            let found = spawn("dirt", &[number(u64::from(2 * count))]);
            dirt += get(&found).expect("it is there") as u32;
        }
        dirt
    }

    fn signal_and_spin(signaller: Actor) {
        signal(&signaller);
        spin()
    }

    fn brood(signal: Actor) {
        end(&spawn("signal-and-spin", &[actor(&signal)]));
    }

    fn cancel_brood() -> Vec<String> {
        let signal = new_counter(0, None);
        let brood = spawn("brood", &[actor(&signal)]);
        until(&signal, 1).expect("it counts");
        brood.cancel();
        // Both of the node's: nobody else may run.
        let options = Options {
            resources: vec![("CPU".into(), "2".into())],
            ..plain_options()
        };
        let alone = tasks::spawn("noop", &[], Some(&options)).expect("it can be started");
        vec![end(&brood), end(&alone)]
    }

    fn brood_for_ever() {
        let signal = new_counter(0, None);
        let child = spawn("signal-and-spin", &[actor(&signal)]);
        until(&signal, 1).expect("it counts");
        println!("the child runs");
        end(&child);
    }

    fn leave_behind(what: String) -> String {
        let signal = new_counter(0, None);
        match &what[..] {
            "task" => {
                drop(spawn("signal-and-spin", &[actor(&signal)]));
                until(&signal, 1).expect("it counts");
            }
            "busy" => {
                let busy = actors::create("busy", &[], None).expect("it can be created");
                let _ = busy.call("spin", &[actor(&signal)]);
                until(&signal, 1).expect("it counts");
            }
            "name" => {
                let options = ActorOptions {
                    name: Some("leftover".into()),
                    ..restarting(3)
                };
                get(&add(&new_counter(0, Some(&options)), 1)).expect("it counts");
            }
            other => panic!("there is no leaving behind '{other}'"),
        }
        what
    }

    fn name_children(until: u32) {
        let task = spawn("add", &[number(1), number(2)]);
        let stored = put(&pattern(100_000));
        let counter = new_counter(0, None);
        let call = add(&counter, 1);
        for id in [task.id(), stored.id(), counter.id(), call.id()] {
            eprintln!("child {id}");
        }
        let got = (get(&task), get(&call), stored.size(None));
        assert!(matches!(got, (Ok(3), Ok(1), Ok(100_000))), "{got:?}");
        assert!(context::attempt() >= until, "as it was told to");
    }

    fn map_and_spin(count: u32) {
        // Another task makes them: then they are in no memory of this one's.
        let stored = spawn("range", &[number(0), number(u64::from(count / 4))]);
        let window = map(&stored);
        let sum: u64 = window.bytes().iter().map(|byte| u64::from(*byte)).sum();
        eprintln!("mapped {sum}");
        spin();
    }

    fn smuggle() -> String {
        let stored = put(&[1, 2, 3]);
        get_text(&spawn("open-name", &[text(stored.name())]))
    }

    fn open_name(name: Vec<u8>) -> String {
        Object::named(&name).map_or_else(say, |object| outcome(&object))
    }

    fn hoard(count: u32, kib: u32) -> Result<u32, String> {
        let stored = store(count, kib).map_err(say)?;
        let mut right = 0;
        for (at, object) in (0..).zip(&stored) {
            let value = object.get(None).map_err(say)?;
            right += u32::from(value.bytes == numbered(at, kib));
        }
        Ok(right)
    }

    fn keep_window(kib: u32, others: u32) -> Result<u32, String> {
        let bytes = pattern(kib << 10);
        let window = map(&put(&bytes));
        let _stored = store(others, 1024).map_err(say)?;
        let same = bytes.iter().zip(window.bytes()).filter(|(a, b)| a == b);
        Ok(same.count() as u32)
    }

    fn many_handles(count: u32) -> u32 {
        let object = put(&[1]);
        (0..count).for_each(|_| std::mem::forget(object.duplicate()));
        count
    }

    fn hoard_and_spin(count: u32, kib: u32) {
        let _stored = store(count, kib).expect("there is room");
        println!("all is stored");
        spin()
    }

    fn actor_error(what: String) -> String {
        let counter = || new_counter(0, None);
        let error = match &what[..] {
            "class" => actors::create("countr", &[], None).map(drop),
            "constructor" => actors::create("counter", &[text("a"), number(1)], None).map(drop),
            "method" => counter().call("ad", &[number(1)]).map(drop),
            "call" => counter().call("add", &[]).map(drop),
            "name" => Actor::named(&[7; 32]).map(drop),
            "find" => actors::find("nobody").map(drop),
            other => panic!("there is no error '{other}'"),
        };
        error.map_or_else(say, |()| "no error".to_owned())
    }

    fn born_of() -> Vec<String> {
        let [good, bad] = ["return", "trap"].map(|how| spawn("number", &[text(how)]));
        let create = |start: &Object| {
            let made = actors::create("counter", &[Argument::Object(start)], None);
            made.expect("it can be created")
        };
        let (alive, dead) = (create(&good), create(&bad));
        let refused = alive.call("add", &[Argument::Object(&bad)]);
        let calls = [
            add(&alive, 1),
            add(&dead, 1),
            refused.expect("it can be called"),
        ];
        let mut said: Vec<String> = calls.iter().map(outcome).collect();
        // The actor has not seen the call that failed.
        said.push(outcome(&add(&alive, 1)));
        said
    }

    fn in_order(n: u32) -> bool {
        let counter = new_counter(0, None);
        let other = spawn("in-order-for", &[actor(&counter), number(n.into())]);
        let ours = Self::in_order_for(counter.duplicate(), n);
        // A bool is a byte.
        let others = get(&other).expect("it is there") == 1;
        ours && others && get(&add(&counter, 0)).expect("it is there") == 2 * u64::from(n)
    }

    fn in_order_for(counter: Actor, n: u32) -> bool {
        let calls: Vec<Object> = (0..n).map(|_| add(&counter, 1)).collect();
        let counts = calls.iter().map(|call| get(call).expect("it is there"));
        counts.is_sorted_by(|a, b| a < b)
    }

    fn taken(limit_ms: u64) -> Vec<String> {
        let options = Options {
            time_limit_ms: Some(limit_ms),
            ..plain_options()
        };
        let busy = tasks::spawn("spin", &[], Some(&options)).expect("it can be started");
        let said = busy.get(Some(20)).map_or_else(say, |_| "returned".into());
        let over = objects::wait(&[&busy], 1, Some(0)).expect("it can be asked");
        busy.cancel();
        vec![said, format!("over: {}", over.len())]
    }

    fn ahead() -> Vec<String> {
        let options = Options {
            time_limit_ms: Some(300),
            ..plain_options()
        };
        let busy = tasks::spawn("spin", &[], Some(&options)).expect("it can be started");
        let behind = spawn("spin", &[]);
        let said = busy.get(Some(20)).map_or_else(say, |_| "returned".into());
        vec![said, format!("{:?}", behind.cancel())]
    }

    fn go_on(n: u32) -> u32 {
        let short: Vec<Object> = (0..n).map(|_| spawn("noop", &[])).collect();
        let behind = spawn("spin", &[]);
        let waits: Vec<&Object> = short.iter().collect();
        let ended = objects::wait(&waits, n, None).expect("they end");
        behind.cancel();
        u32::try_from(ended.len()).expect("few")
    }

    fn let_go(rounds: u32) -> u64 {
        (0..rounds)
            .map(|_| {
                let counter = new_counter(1, None);
                get(&add(&counter, 1)).expect("it is there")
            })
            .sum()
    }

    fn kill_busy() -> Vec<String> {
        let signal = new_counter(0, None);
        let busy = actors::create("busy", &[], Some(&restarting(3))).expect("it can be created");
        let running = busy.call("spin", &[actor(&signal)]);
        let waiting = busy.call("hold", &[number(0)]);
        until(&signal, 1).expect("it counts");
        busy.kill();
        let calls = [running, waiting, busy.call("hold", &[number(0)])];
        calls
            .into_iter()
            .map(|call| call.map_or_else(say, |call| outcome(&call)))
            .collect()
    }

    fn cancel_calls() -> Vec<String> {
        let signal = new_counter(0, None);
        let busy = actors::create("busy", &[], None).expect("it can be created");
        let call = |method: &str, arguments: &[Argument<'_>]| {
            busy.call(method, arguments).expect("it can be called")
        };
        let running = call("linger", &[actor(&signal), number(2)]);
        let waiting = call("hold", &[number(1000)]);
        until(&signal, 1).expect("it counts");
        let waited = waiting.cancel();
        let first = outcome(&waiting);
        let ran = running.cancel();
        add(&signal, 1);
        let last = end(&running);
        vec![
            format!("{waited:?}: {first}"),
            format!("{ran:?}: {last}"),
            format!("{:?}", running.cancel()),
            outcome(&call("hold", &[number(1)])),
        ]
    }

    fn hold(mib: u32, times: u32) -> Vec<String> {
        let busy = actors::create("busy", &[], None).expect("it can be created");
        let hold = || busy.call("hold", &[number(u64::from(mib << 20))]);
        (0..times)
            .map(|_| outcome(&hold().expect("it can be called")))
            .collect()
    }

    fn crowd(how: String, count: u32) -> u64 {
        let options = |number: u32| ActorOptions {
            resources: vec![("CPU".into(), "1".into())],
            name: (how == "named").then(|| format!("holder-{number}")),
            ..restarting(0)
        };
        let got = || {
            let made = spawn_without_cpu("holder", &[]);
            let name = made.get(None).expect("it is there").bytes;
            Actor::named(&name).expect("it was given to this task")
        };
        let counters = (0..count).map(|number| match &how[..] {
            "got" => got(),
            _ => new_counter(0, Some(&options(number))),
        });
        let counters: Vec<Actor> = counters.collect();
        let calls: Vec<Object> = counters.iter().map(|counter| add(counter, 1)).collect();
        let sum: Result<u64, Error> = calls.iter().map(get).sum();
        let sum = sum.unwrap_or_else(|error| panic!("{}", say(error)));
        if how == "passed" {
            let mut names = varint(counters.len() as u64);
            names.extend(counters.iter().flat_map(Actor::name));
            let task = spawn_without_cpu("crowd-for", &[Argument::Value(names)]);
            return sum + get(&task).unwrap_or_else(|error| panic!("{}", say(error)));
        }
        sum + Self::crowd_for(counters)
    }

    fn crowd_for(counters: Vec<Actor>) -> u64 {
        let task = spawn("add", &[number(1), number(1)]);
        let sum = get(&task).unwrap_or_else(|error| panic!("{}", say(error)));
        drop(counters);
        sum
    }

    fn holder() -> Actor {
        let options = ActorOptions {
            resources: vec![("CPU".into(), "1".into())],
            ..restarting(0)
        };
        new_counter(0, Some(&options))
    }

    fn call_again(at: u32, restarts: u32, retries: u32) -> Vec<String> {
        let options = ActorOptions {
            call_retries: Some(retries),
            ..restarting(restarts)
        };
        let busy = actors::create("busy", &[], Some(&options)).expect("it can be created");
        let calls = [("hold", 100), ("crash-before", u64::from(at)), ("hold", 1)];
        let calls = calls.map(|(method, n)| busy.call(method, &[number(n)]));
        calls
            .iter()
            .map(|call| outcome(call.as_ref().expect("it can be called")))
            .collect()
    }
}

/// See `wit/graph.wit`.
pub(crate) struct Busy(RefCell<Vec<u8>>);

impl GuestBusy for Busy {
    fn new() -> Self {
        Self(RefCell::default())
    }

    fn hold(&self, bytes: u32) -> u32 {
        let mut held = self.0.borrow_mut();
        held.reserve_exact(bytes as usize);
        let length = held.len() + bytes as usize;
        held.resize(length, 1);
        length as u32
    }

    fn attach(&self, data: Object) {
        std::mem::forget(map(&data));
    }

    fn linger(&self, signaller: Actor, count: u64) {
        signal(&signaller);
        // Its own calls are cancelled with it.
        let _ = until(&signaller, count);
    }

    fn spin(&self, signaller: Actor) {
        signal(&signaller);
        spin()
    }

    fn crash_before(&self, until: u32) -> u32 {
        assert!(context::attempt() >= until, "as it was told to");
        context::attempt()
    }
}
