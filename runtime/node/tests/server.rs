//! A node's socket and the clients behind it, in one process.

mod common;

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use wasmrun_client::blocking::Client;
use wasmrun_client::wire::{self, List, RefusalKind, Request, Rows, What};
use wasmrun_client::{
    Argument, CallOptions, ConnectError, CreateActor, Error, Future, GetError, PutOptions, Submit,
};
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::resource::Amount;
use wasmrun_model::value::codec::{decode, encode};
use wasmrun_model::value::{DecodeLimits, Encoded, NumberKind, Value, ValueType};
use wasmrun_model::version::Version;
use wasmrun_node::ServeError;

use crate::common::{Raw, Served, hello, load};

fn number(n: u64) -> Argument {
    encode(&ValueType::U64, &Value::U64(n)).unwrap().into()
}

fn get(client: &Client, future: &Future) -> u64 {
    let value = client.wait(future.get(None)).unwrap();
    match decode(&ValueType::U64, &value, DecodeLimits::default()) {
        Ok(Value::U64(n)) => n,
        other => panic!("{other:?}"),
    }
}

fn failure(client: &Client, future: &Future) -> TaskError {
    match client.wait(future.get(None)) {
        Err(GetError::Failed { error, .. }) => error,
        other => panic!("{other:?}"),
    }
}

/// Waits until the tasks in this state are so many, and says after a minute which there are instead.
fn wait_for_tasks(client: &Client, state: &str, count: usize) {
    let begun = Instant::now();
    loop {
        let list = List::of(What::Tasks).with("state", state);
        let Rows::Tasks(rows) = client.wait(client.list(list)).unwrap().rows else {
            panic!("no list of tasks");
        };
        if rows.len() == count {
            return;
        }
        let is_late = begun.elapsed() > Duration::from_secs(60);
        assert!(
            !is_late,
            "{} {state} and not {count}: {rows:#?}",
            rows.len()
        );
        thread::yield_now();
    }
}

#[test]
fn tasks_take_values_and_futures() {
    let served = Served::with_cpus(2);
    let client = served.client();
    let module = load(&client);
    assert!(module.functions.iter().any(|(name, _)| name == "add"));
    let add = Submit::function(&module, "add");
    let three = client
        .wait(client.submit(add.clone().values([number(1), number(2)])))
        .unwrap();
    let both = [three.future().into(), three.future().into()];
    let six = client.wait(client.submit(add.values(both))).unwrap();
    assert_eq!(get(&client, &six.future()), 6);
    let crashed = client.wait(client.submit(Submit::function(&module, "crash").watched()));
    let mut crashed = crashed.unwrap();
    let report = client.wait(crashed.report()).unwrap();
    let error = TaskError::from(report.result.unwrap_err());
    assert!(matches!(error, TaskError::Trap { .. }), "{error}");
    let needs_it = Submit::function(&module, "add").values([crashed.future().into(), number(1)]);
    let needs_it = client.wait(client.submit(needs_it)).unwrap();
    let error = failure(&client, &needs_it.future());
    assert!(matches!(error, TaskError::Dependency { .. }), "{error}");
}

#[test]
fn many_tasks_take_few_messages() {
    let served = Served::with_cpus(2);
    let client = served.client();
    let module = load(&client);
    let add = Submit::function(&module, "add");
    let calls = (0..1000).map(|n| vec![number(n), number(1)]);
    let mut futures = client.wait(client.submit_all(&add, calls)).unwrap();
    let crash = Submit::function(&module, "crash");
    futures.extend(
        client
            .wait(client.submit_all(&crash, [Vec::new()]))
            .unwrap(),
    );
    let large = Encoded::Postcard(vec![7; 100_000]);
    futures.push(client.wait(client.put(&large)).unwrap());
    let values = client.wait(client.get_all(&futures, None)).unwrap();
    assert_eq!(values.len(), 1002);
    for (n, value) in (0..1000).zip(&values) {
        let value = value.as_ref().unwrap();
        let sum = decode(&ValueType::U64, value, DecodeLimits::default());
        assert_eq!(sum.unwrap(), Value::U64(n + 1));
    }
    assert!(matches!(values[1000], Err(GetError::Failed { .. })));
    assert!(values[1001].as_ref().is_ok_and(|value| *value == large));
    // All of them are known to lists, as if they had come one by one.
    wait_for_tasks(&client, "finished", 1000);
    wait_for_tasks(&client, "failed", 1);
    // One that does not fit: none is submitted.
    let calls = [vec![number(1), number(2)], vec![number(1)]];
    let refused = client.wait(client.submit_all(&add, calls));
    assert!(matches!(refused, Err(Error::Refused(why)) if why.kind == RefusalKind::Usage));
    wait_for_tasks(&client, "finished", 1000);
    let spin = Submit::function(&module, "spin");
    let spin = client.wait(client.submit_all(&spin, [Vec::new()])).unwrap();
    let soon = client.wait(client.get_all(&spin, Some(Duration::from_millis(1))));
    assert!(matches!(soon, Err(GetError::TimedOut)), "{soon:?}");
    let watched = client.wait(client.submit_all(&add.watched(), [Vec::new()]));
    assert!(matches!(watched, Err(Error::Refused(_))));
}

#[test]
fn a_call_that_takes_too_long_is_stopped() {
    let served = Served::with_cpus(2);
    let client = served.client();
    let module = load(&client);
    let create = CreateActor::new(&module, "counter", vec![number(10)]);
    let actor = client.wait(client.create_actor(create)).unwrap();
    let short = CallOptions {
        time_limit: Some(Duration::from_millis(20)),
        ..CallOptions::default()
    };
    let hanging = client.wait(actor.start("hang", Vec::new(), short)).unwrap();
    let error = failure(&client, &hanging.future());
    assert!(matches!(error, TaskError::Limit { .. }), "{error}");
    // It was stopped in the middle of something.
    let next = client.wait(actor.call("count", vec![number(1)])).unwrap();
    let error = failure(&client, &next);
    assert!(matches!(error, TaskError::ActorDied { .. }), "{error}");
    assert!(
        client
            .wait(client.logs(&actor.id().to_string()))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn values_of_all_sizes_come_back() {
    let served = Served::with_cpus(2);
    let client = served.client();
    let module = load(&client);
    for len in [0, 1, 64 << 10, (64 << 10) + 1, 3 << 20] {
        let bytes: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
        let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
        let value = Encoded::Buffer {
            kind: NumberKind::U8,
            bytes,
        };
        let stored = client.wait(client.put(&value)).unwrap();
        assert_eq!(client.wait(stored.get(None)).unwrap(), value);
        // As a value it is too large for a message, and is stored on the way.
        for argument in [stored.into(), Argument::Value(value)] {
            let task = Submit::function(&module, "sum").values([argument]);
            let task = client.wait(client.submit(task)).unwrap();
            assert_eq!(get(&client, &task.future()), sum);
        }
    }
}

#[test]
fn what_is_dropped_is_given_back() {
    let served = Served::with_cpus(2);
    let client = served.client();
    let value = Encoded::Postcard(vec![7; 1 << 20]);
    drop(client.wait(client.put(&value)).unwrap());
    while client.wait(client.status()).unwrap().store.objects > 0 {}
    let keep = PutOptions {
        is_kept: true,
        ..PutOptions::default()
    };
    let kept = client.wait(client.put_from(wire::Form::Postcard, 3, keep, &[1, 2, 3][..]));
    let kept = kept.unwrap().id().to_string();
    drop(client);
    let client = served.client();
    let value = client.wait(async {
        client
            .get_kept(&kept[..30], None)
            .await?
            .value()
            .await
            .map_err(GetError::from)
    });
    assert_eq!(value.unwrap(), Encoded::Postcard(vec![1, 2, 3]));
    client.wait(client.delete(&kept)).unwrap();
    let gone = client.wait(client.get_kept(&kept, None));
    assert!(
        matches!(gone, Err(GetError::Request(Error::Refused(why))) if why.kind == RefusalKind::NotFound)
    );
}

#[test]
fn a_session_takes_its_work_with_it_but_for_what_is_detached() {
    let served = Served::with_cpus(2);
    let (driver, other) = (served.client(), served.client());
    let module = load(&driver);
    let spin = Submit::function(&module, "spin");
    let _mine = driver.wait(driver.submit(spin.clone())).unwrap();
    let stays = driver.wait(driver.submit(spin.detached())).unwrap();
    let create = CreateActor::new(&module, "counter", vec![number(10)]);
    let named = driver.wait(driver.create_actor(create.clone().named("total").detached()));
    let named = named.unwrap();
    let mine = driver
        .wait(driver.create_actor(create.named("mine")))
        .unwrap();
    let stays = stays.id();
    wait_for_tasks(&other, "running", 4);
    assert_eq!(
        get(
            &driver,
            &driver.wait(named.call("count", vec![number(5)])).unwrap()
        ),
        15
    );
    drop((mine, named, driver, _mine));
    wait_for_tasks(&other, "running", 2);
    let found = other.wait(other.find_actor("total")).unwrap();
    assert_eq!(
        get(
            &other,
            &other.wait(found.call("count", vec![number(1)])).unwrap()
        ),
        16
    );
    assert!(other.wait(other.find_actor("mine")).is_err());
    let detail = other
        .wait(other.describe(&stays.to_string()[..20]))
        .unwrap()
        .task()
        .unwrap();
    assert!(detail.row.is_detached && detail.row.state == "running");
    let why = other.wait(other.explain(&stays.to_string())).unwrap();
    assert!(why.contains("running"), "{why}");
    other.wait(other.cancel(&stays.to_string())).unwrap();
    other.wait(other.kill("total")).unwrap();
    let dead = other.wait(found.call("count", vec![number(1)])).unwrap();
    assert!(matches!(
        failure(&other, &dead),
        TaskError::ActorDied { .. }
    ));
    wait_for_tasks(&other, "running", 0);
    // Those of the session that is over are remembered.
    wait_for_tasks(&other, "cancelled", 4);
}

#[test]
fn wrong_requests_are_refused_with_a_reason() {
    let served = Served::with_cpus(2);
    let client = served.client();
    let module = load(&client);
    let refused = |submit: Submit| match client.wait(client.submit(submit)) {
        Err(Error::Refused(why)) => (why.kind, why.message),
        other => panic!("{other:?}"),
    };
    let (kind, _) = refused(Submit::function(&module, "subtract"));
    assert_eq!(kind, RefusalKind::Usage);
    let (_, why) = refused(Submit::function(&module, "add").values([number(1)]));
    assert!(
        why.starts_with("it takes 2 arguments and 1 were given"),
        "{why}"
    );
    let mut greedy = wire::Terms::default();
    greedy
        .resources
        .insert("CPU".parse().unwrap(), Amount::units(1000));
    let (kind, _) = refused(Submit::function(&module, "spin").terms(greedy));
    assert_eq!(kind, RefusalKind::Unschedulable);
    let (kind, _) = refused(Submit::program(&module, Vec::new()));
    assert_eq!(kind, RefusalKind::Usage);
    // A variable that records would take for a secret.
    let env = wire::Grants {
        env: vec![("=TOKEN".into(), "KEY".into())],
        ..wire::Grants::default()
    };
    let (kind, why) = refused(Submit::function(&module, "spin").grants(env));
    assert_eq!(kind, RefusalKind::Usage);
    assert!(why.contains("'=TOKEN' is no name"), "{why}");
    let load = client.wait(client.load(b"no module"));
    assert!(matches!(load, Err(Error::Refused(_))));
    let spin = client
        .wait(client.submit(Submit::function(&module, "spin")))
        .unwrap();
    let soon = client.wait(spin.future().get(Some(Duration::from_millis(1))));
    assert!(matches!(soon, Err(GetError::TimedOut)));
    // The object of another session.
    let other = served.client();
    let foreign = Submit::function(&module, "sum").values([spin.future().into()]);
    let foreign = other.wait(other.submit(foreign));
    assert!(matches!(foreign, Err(Error::Refused(_))), "{foreign:?}");
}

#[test]
fn one_node_listens_at_an_address() {
    let served = Served::with_cpus(2);
    let second = served.node.serve(&served.address);
    assert!(matches!(second, Err(ServeError::Running(_))));
    let address = served.address.clone();
    drop(served);
    let gone = Client::connect(&address, TenantName::default());
    assert!(matches!(gone, Err(ConnectError::NotRunning { .. })));
}

#[test]
fn nonsense_closes_its_own_connection_only() {
    let served = Served::with_cpus(2);
    let client = served.client();
    let hello = hello(wire::PROTOCOL);
    let nonsense = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 64],
        [&hello[..], &[0xff; 8]].concat(),
        [&hello[..], b"\x02\0\0\0\x01\x7f"].concat(),
        hello[..9].to_vec(),
    ];
    for bytes in nonsense {
        let mut socket = UnixStream::connect(common::path(&served.address)).unwrap();
        socket.write_all(&bytes).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        // It hangs up.
        let _ = socket.read_to_end(&mut Vec::new());
    }
    client.wait(client.status()).unwrap();
}

#[test]
fn a_client_one_minor_version_apart_is_served_and_another_is_told_ours() {
    let served = Served::with_cpus(2);
    let ours = wire::PROTOCOL;
    // A client says all that it has to say, and only then reads: is it answered?
    let is_served = |protocol| {
        let status = wire::Frame {
            id: 1,
            message: wire::Request::Status,
        };
        let said = [hello(protocol), wire::encode(&status).unwrap()].concat();
        let mut socket = UnixStream::connect(common::path(&served.address)).unwrap();
        socket.write_all(&said).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // It ends with a reset where the node has hung up on the request; what it said before is there.
        let _ = socket.read_to_end(&mut answer);
        let len = wire::frame_len(answer[..4].try_into().unwrap()).unwrap();
        let (welcome, rest) = answer[4..].split_at(len);
        let (welcome, _) = wire::decode_greeting::<wire::Welcome>(welcome).unwrap();
        assert_eq!(welcome.protocol, ours);
        !rest.is_empty()
    };
    let version = |major, minor| Version { major, minor };
    for _ in 0..100 {
        assert!(is_served(ours));
    }
    assert!(is_served(version(ours.major, ours.minor + 1)));
    assert!(!is_served(version(ours.major, ours.minor + 2)));
    assert!(!is_served(version(ours.major + 1, ours.minor)));
}

#[test]
fn who_is_hung_up_on_hears_why() {
    let served = Served::with_cpus(2);
    // While it still sends, too.
    for more in [0, 1, 100_000].repeat(40) {
        let mut raw = Raw::connect(&served.address);
        let mut writer = raw.0.try_clone().unwrap();
        let sending = std::thread::spawn(move || {
            let bytes = [b"\x02\0\0\0\x01\x7f".to_vec(), vec![0; more]].concat();
            // It need not be taken.
            let _ = writer.write_all(&bytes);
        });
        let said = raw.frame();
        assert_eq!(said.id, 0);
        let wire::Response::Refused(why) = said.message else {
            panic!("{:?}", said.message);
        };
        assert_eq!(why.kind, RefusalKind::Usage);
        // And then it hangs up.
        assert_eq!(raw.0.read(&mut [0]).unwrap_or(0), 0);
        sending.join().unwrap();
    }
}

#[test]
fn who_is_hung_up_on_and_does_not_read_keeps_nothing() {
    let served = Served::with_cpus(2);
    let client = served.client();
    // More than a connection holds that nobody reads.
    let keep = PutOptions {
        is_kept: true,
        ..PutOptions::default()
    };
    let put = client.put_from(wire::Form::Postcard, 16 << 20, keep, io::repeat(7));
    let kept = client.wait(put).unwrap().id().to_string();
    let mut raw = Raw::connect(&served.address);
    let get = Request::Get {
        object: wire::ObjectRef::Prefix(kept),
        timeout_ms: None,
        can_map: false,
    };
    raw.send(1, get);
    raw.0.write_all(b"\x02\0\0\0\x01\x7f").unwrap();
    // Nothing can be written to a connection that the node has closed.
    while raw.0.write_all(&[0]).is_ok() {
        std::thread::yield_now();
    }
    client.wait(client.status()).unwrap();
}

#[test]
fn lies_about_lengths_are_found() {
    let served = Served::with_cpus(2);
    let client = served.client();
    let put = |len, has: u64| {
        let (form, source) = (wire::Form::Postcard, io::repeat(0).take(has));
        client.wait(client.put_from(form, len, PutOptions::default(), source))
    };
    // What never fits is refused before a byte is sent.
    assert!(matches!(put(u64::MAX, 0), Err(Error::Refused(_))));
    for len in [100_000, 5 << 20] {
        assert!(matches!(put(len, len - 1), Err(Error::Source(_))));
        put(len, len + 1).unwrap();
    }
    let unknown = client.wait(client.request(Request::Input {
        task: wasmrun_model::id::TaskId::from_bytes([1; 16]),
        bytes: wire::Bytes(vec![1]),
    }));
    assert!(matches!(unknown, Err(Error::Refused(_))));
}

#[test]
fn a_large_value_comes_whole_through_memory_of_its_own() {
    let served = Served::with_cpus(2);
    let client = served.client();
    let bytes: Vec<u8> = (0..(9_u32 << 20) + 3)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let value = Encoded::Postcard(bytes.clone());
    // At once, so that each has its own.
    let puts: Vec<_> = thread::scope(|scope| {
        let put = || client.wait(client.put(&value)).unwrap();
        let puts: Vec<_> = (0..3).map(|_| scope.spawn(put)).collect();
        puts.into_iter().map(|it| it.join().unwrap()).collect()
    });
    for stored in puts {
        let got = client.wait(stored.get(None)).unwrap();
        assert!(got[..] == bytes[..]);
    }
}

#[test]
fn what_does_not_lie_in_staging_memory_is_refused() {
    let served = Served::with_cpus(2);
    let staged = |put: Request, parts: &[(u64, u64)]| {
        let mut raw = Raw::connect(&served.address);
        raw.send(1, put);
        for &(offset, len) in parts {
            raw.send(1, Request::Staged { offset, len });
        }
        // The last answer, or what the node says when it hangs up.
        loop {
            if let wire::Response::Refused(why) = raw.answer() {
                return why.message;
            }
        }
    };
    let put = |len| {
        Request::Put(Box::new(wire::Put {
            form: wire::Form::Postcard,
            len,
            is_kept: false,
            room_ms: None,
            can_stage: true,
            objects: Vec::new(),
            actors: Vec::new(),
        }))
    };
    let large = 8 << 20;
    let not_there = "are not there";
    let early = "before the node said that they may";
    let wrong = "is empty, or there are more bytes than were announced";
    let told = |put: Request, part: (u64, u64), why: [&str; 2]| {
        let said = staged(put, &[part]);
        assert!(why.iter().any(|it| said.contains(it)), "{part:?}: {said}");
    };
    // It may or may not have said so by then.
    told(put(large), (u64::MAX, 2), [not_there, early]);
    told(put(large), (large, 1), [not_there, early]);
    told(put(large), (0, 0), [wrong, early]);
    told(put(large), (0, large + 1), [wrong, early]);
    // Small ones have no such memory.
    told(put(100_000), (0, 1), [not_there, early]);
}

#[test]
fn a_node_that_is_told_to_stop_waits_for_what_runs() {
    let served = Served::with_cpus(2);
    let client = served.client();
    let module = load(&client);
    let spin = client.wait(client.submit(Submit::function(&module, "spin").watched()));
    let mut spin = spin.unwrap();
    served.server.stopper().stop(false);
    let late = client.wait(client.submit(Submit::function(&module, "spin")));
    assert!(matches!(late, Err(Error::Refused(why)) if why.kind == RefusalKind::Stopping));
    let Served { server, .. } = served;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.wait());
        client.wait(client.cancel(&spin.id().to_string())).unwrap();
        let report = client.wait(spin.report()).unwrap();
        assert!(report.result.is_err());
        waiting.join().unwrap();
    });
}
