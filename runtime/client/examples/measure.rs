//! What a client of a running node costs: tasks through the socket, and large values.
//!
//! ```console
//! $ wasmrun node start &
//! $ cargo run --release -p wasmrun-client --example measure -- target/guests/bench.wasm
//! ```
//!
//! Prints the median of five runs of each, after one that does not count. Names after the module pick some.

use std::time::{Duration, Instant};

use wasmrun_client::Submit;
use wasmrun_client::blocking::Client;
use wasmrun_client::wire::Module;
use wasmrun_model::value::{Encoded, NumberKind};

/// How many tasks are under way at once in `tasks_async`.
const TASKS: usize = 100_000;
/// How many detached tasks a run of `detached_N` submits, N of them at a time.
const DETACHED: usize = 5_000;
/// How many calls `tasks_sync` makes in a run.
const CALLS: usize = 2_000;
const RUNS: usize = 5;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let path = args
        .next()
        .ok_or("name a module that has a function noop")?;
    let wanted: Vec<String> = args.collect();
    let client = Client::connect(&wasmrun_client::default_address()?, Default::default())?;
    let module = client.wait(client.load(&std::fs::read(path)?))?;
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|it| it == name);
    if is_wanted("tasks_async") {
        let run = median(|| tasks_async(&client, &module))?;
        println!("tasks_async  {:>10.0} /s", TASKS as f64 / run.as_secs_f64());
    }
    if is_wanted("tasks_sync") {
        let (p50, p99) = tasks_sync(&client, &module)?;
        println!("tasks_sync   {p50:>10.1?} p50, {p99:.1?} p99");
    }
    for at_once in [1, 16, 256] {
        let name = format!("detached_{at_once}");
        if is_wanted(&name) {
            let run = median(|| detached(&client, &module, at_once))?;
            let rate = DETACHED as f64 / run.as_secs_f64();
            println!("{name:12} {rate:>10.0} /s");
        }
    }
    for (name, len) in [("1m", 1 << 20), ("100m", 100 << 20), ("1g", 1 << 30)] {
        if is_wanted(&format!("put_{name}")) || is_wanted(&format!("get_{name}")) {
            values(&client, name, len)?;
        }
    }
    Ok(())
}

/// The median of some runs.
fn median(mut run: impl FnMut() -> Outcome<Duration>) -> Outcome<Duration> {
    run()?;
    let mut times = (0..RUNS).map(|_| run()).collect::<Outcome<Vec<_>>>()?;
    times.sort();
    Ok(times[RUNS / 2])
}

fn noop(module: &Module) -> Submit {
    Submit::function(module, "noop")
}

/// Submits all, then takes all results.
fn tasks_async(client: &Client, module: &Module) -> Outcome<Duration> {
    let started = Instant::now();
    client.wait(async {
        let calls = (0..TASKS).map(|_| Vec::new());
        let futures = client.submit_all(&noop(module), calls).await?;
        for value in client.get_all(&futures, None).await? {
            value?;
        }
        Outcome::Ok(())
    })?;
    Ok(started.elapsed())
}

/// Submits detached tasks, so many at a time, until all are answered: in a cluster, until all are durable.
fn detached(client: &Client, module: &Module, at_once: usize) -> Outcome<Duration> {
    let started = Instant::now();
    client.wait(async {
        let mut submitting = tokio::task::JoinSet::new();
        for _ in 0..DETACHED {
            if submitting.len() >= at_once
                && let Some(submitted) = submitting.join_next().await
            {
                submitted??;
            }
            let (session, task) = ((**client).clone(), noop(module).detached());
            submitting.spawn(async move {
                match session.submit(task).await?.why_not_durable() {
                    Some(why) => Err(wasmrun_client::Error::Unexpected(why.to_owned())),
                    None => Ok(()),
                }
            });
        }
        while let Some(submitted) = submitting.join_next().await {
            submitted??;
        }
        Outcome::Ok(())
    })?;
    Ok(started.elapsed())
}

/// One after the other: submitted, and its result taken.
fn tasks_sync(client: &Client, module: &Module) -> Outcome<(Duration, Duration)> {
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let started = Instant::now();
        client.wait(async {
            let task = client.submit(noop(module)).await?;
            task.future().get(None).await?;
            Outcome::Ok(())
        })?;
        times.push(started.elapsed());
    }
    times.sort();
    Ok((times[CALLS / 2], times[CALLS * 99 / 100]))
}

/// Stores a value and gets it, again and again: the memory is warm after the first.
fn values(client: &Client, name: &str, len: usize) -> Outcome<()> {
    let value = Encoded::Buffer {
        kind: NumberKind::U8,
        bytes: vec![7; len],
    };
    let started = Instant::now();
    let stored = client.wait(client.put(&value))?;
    let first = started.elapsed();
    let get = median(|| {
        let started = Instant::now();
        let got = client.wait(stored.get(None))?;
        let took = started.elapsed();
        assert!(got.is_mapped() && got.len() == len);
        Ok(took)
    })?;
    drop(stored);
    let put = median(|| {
        let started = Instant::now();
        client.wait(client.put(&value))?;
        Ok(started.elapsed())
    })?;
    let speed = |took: Duration| len as f64 / took.as_secs_f64() / 1e9;
    println!(
        "put_{name:<8} {:>10.2} GB/s, {:.2} the first",
        speed(put),
        speed(first)
    );
    println!("get_{name:<8} {get:>10.1?}");
    Ok(())
}
