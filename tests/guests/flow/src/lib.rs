//! The second guest of `wasmrun bench`: tasks, objects and actors of a guest's own, and the times they take.

#[allow(missing_docs, reason = "documented in wit/flow.wit")]
mod bindings {
    wit_bindgen::generate!({
        world: "wasmrun:flow/flow",
        path: ["../../../wit", "wit"],
        generate_all,
    });
}

use std::alloc::{Layout, alloc};
use std::time::Instant;

use bindings::exports::wasmrun::flow::living::{Guest as Living, GuestIdler};
use bindings::wasmrun::runtime::actors::{self, Actor, Options};
use bindings::wasmrun::runtime::objects::{self, Form, Number, Object};
use bindings::wasmrun::runtime::tasks::{self, Argument};

// Small, so that many run at a time; but for what sums 100 MiB.
wasmrun_guest::manifest!(
    r#"{
        "version": 1,
        "functions": {
            "sum-copied": {"resources": {"CPU": "1", "memory": "256MiB"}},
            "sum-attached": {"resources": {"CPU": "1", "memory": "256MiB"}},
            "sum-stored": {"resources": {"CPU": "1", "memory": "512MiB"}}
        },
        "actors": {"idler": {"resources": {"memory": "2MiB"}}}
    }"#
);

struct Flow;

impl bindings::Guest for Flow {
    fn noop() {}

    fn spawn_many(n: u32) {
        let tasks: Vec<Object> = (0..n).map(|_| spawn("noop", &[])).collect();
        wait_for_all(&tasks);
    }

    fn wait_often(n: u32, times: u32) -> u64 {
        let tasks: Vec<Object> = (0..n).map(|_| spawn("noop", &[])).collect();
        wait_for_all(&tasks);
        let started = Instant::now();
        for _ in 0..times {
            wait_for_all(&tasks);
        }
        nanoseconds(started)
    }

    fn actor_create(n: u32) -> Vec<u64> {
        let create = |_| {
            let started = Instant::now();
            let actor = create(None);
            wait_for(&call(&actor));
            nanoseconds(started)
        };
        (0..n).map(create).collect()
    }

    fn actor_sync(n: u32) -> Vec<u64> {
        let actor = create(None);
        wait_for(&call(&actor));
        let call = |_| {
            let started = Instant::now();
            wait_for(&call(&actor));
            nanoseconds(started)
        };
        (0..n).map(call).collect()
    }

    fn actor_async(n: u32) -> u64 {
        let actor = create(None);
        wait_for(&call(&actor));
        let started = Instant::now();
        let calls: Vec<Object> = (0..n).map(|_| call(&actor)).collect();
        wait_for_all(&calls);
        nanoseconds(started)
    }

    fn populate(n: u32) {
        let actors: Vec<Actor> = (0..n)
            .map(|at| create(Some(format!("idler-{at}"))))
            .collect();
        let calls: Vec<Object> = actors.iter().map(call).collect();
        wait_for_all(&calls);
    }

    fn sum_copied(numbers: Vec<f64>) -> f64 {
        sum(&numbers)
    }

    fn sum_attached(numbers: Object) -> f64 {
        let bytes = numbers.size(None).expect("it is there") as usize;
        // A window that starts at a huge page can have huge pages.
        let layout = Layout::from_size_align(bytes.next_multiple_of(PAGE), HUGE_PAGE);
        let layout = layout.expect("small");
        // SAFETY: the layout is not empty, and what is made of it is never given back: the task ends.
        let window = unsafe {
            let at = alloc(layout);
            assert!(!at.is_null(), "there is memory for a window");
            std::slice::from_raw_parts_mut(at, layout.size())
        };
        numbers.map(window, None).expect("it can be mapped");
        // SAFETY: any bytes are numbers, and the window starts at a multiple of 64 KiB.
        let (_, numbers, _) = unsafe { window[..bytes].align_to::<f64>() };
        sum(numbers)
    }

    fn sum_stored(count: u32, attached: bool, times: u32) -> Vec<u64> {
        let numbers: Vec<u8> = (0..count)
            .flat_map(|n| f64::from(n).to_le_bytes())
            .collect();
        let stored = objects::put(Form::Buffer(Number::F64), &numbers).expect("there is room");
        drop(numbers);
        let function = if attached {
            "sum-attached"
        } else {
            "sum-copied"
        };
        let sum = |_| {
            let started = Instant::now();
            wait_for(&spawn(function, &[Argument::Object(&stored)]));
            nanoseconds(started)
        };
        (0..times).map(sum).collect()
    }
}

const PAGE: usize = 64 << 10;
const HUGE_PAGE: usize = 2 << 20;

/// With eight sums side by side, as a compiler that may reorder would do it, two to a register.
#[cfg_attr(target_family = "wasm", target_feature(enable = "simd128"))]
fn sum(numbers: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let chunks = numbers.chunks_exact(8);
    let rest: f64 = chunks.remainder().iter().sum();
    for chunk in chunks {
        for (sum, number) in sums.iter_mut().zip(chunk) {
            *sum += number;
        }
    }
    sums.iter().sum::<f64>() + rest
}

fn spawn(function: &str, arguments: &[Argument<'_>]) -> Object {
    tasks::spawn(function, arguments, None).expect("it can be started")
}

fn create(name: Option<String>) -> Actor {
    let options = name.map(|name| Options {
        resources: Vec::new(),
        name: Some(name),
        restarts: None,
        call_retries: None,
        label_selector: None,
        strategy: None,
        time_limit_ms: None,
    });
    actors::create("idler", &[], options.as_ref()).expect("it can be created")
}

fn call(actor: &Actor) -> Object {
    actor.call("noop", &[]).expect("it can be called")
}

fn wait_for(object: &Object) {
    object.get(None).expect("it ends");
}

fn wait_for_all(objects: &[Object]) {
    let borrowed: Vec<&Object> = objects.iter().collect();
    let ready = objects::wait(&borrowed, u32::MAX, None).expect("they end");
    assert_eq!(ready.len(), objects.len());
}

fn nanoseconds(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}

struct Idler;

impl GuestIdler for Idler {
    fn new() -> Self {
        Self
    }

    fn noop(&self) {}
}

impl Living for Flow {
    type Idler = Idler;
}

bindings::export!(Flow with_types_in bindings);
