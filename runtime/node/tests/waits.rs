//! Waiting for some of several futures, and for what a call makes, as a driver does.

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use wasmrun_client::wire::{Frame, RefusalKind, Request, Response};
use wasmrun_client::{Error, Future, Submit, wire};
use wasmrun_model::value::codec::encode;
use wasmrun_model::value::{Value, ValueType};
use wasmrun_node::NodeConfig;

use crate::common::{Raw, Served, hello, load};

const SOON: Option<Duration> = Some(Duration::from_millis(1));

#[test]
fn so_many_of_them_or_those_that_are_there_in_time() {
    let served = Served::with_cpus(4);
    let client = served.client();
    let module = load(&client);
    let submit = |submit: Submit| client.wait(client.submit(submit)).unwrap().future();
    let spin = || submit(Submit::function(&module, "spin"));
    let add = || {
        let one = encode(&ValueType::U64, &Value::U64(1)).unwrap();
        submit(Submit::function(&module, "add").values([one.clone().into(), one.into()]))
    };
    let wait = |futures: &[Future], count, timeout| {
        client
            .wait(client.wait_for(futures, count, timeout))
            .unwrap()
    };
    // Two never end; one ends badly, which is an end too.
    let crash = submit(Submit::function(&module, "crash"));
    let futures = [spin(), add(), spin(), crash, add()];
    assert_eq!(wait(&futures, 3, None), [1, 3, 4]);
    assert_eq!(wait(&futures, 1, None), [1, 3, 4], "all that are there");
    assert_eq!(wait(&futures, 0, None), [1, 3, 4]);
    assert_eq!(wait(&futures, 4, SOON), [1, 3, 4], "time is up");
    let never = [futures[0].clone(), futures[2].clone()];
    assert!(wait(&never, 1, SOON).is_empty());
    assert!(wait(&never, 1, Some(Duration::ZERO)).is_empty());
    // More than there are: as many as there are.
    let there = [futures[1].clone(), futures[1].clone()];
    assert_eq!(wait(&there, 5, None), [0, 1]);
    assert!(wait(&[], 1, None).is_empty());
    // One that ends while somebody waits for it.
    client.wait(async {
        let waiting = client.wait_for(&never, 1, None);
        let cancelling = async {
            let spins = never[0].id().task().to_string();
            client.cancel(&spins).await.unwrap();
        };
        let (ready, ()) = tokio::join!(waiting, cancelling);
        assert_eq!(ready.unwrap(), [0]);
    });
    // Another session's are not this one's.
    let other = served.client();
    let refused = other.wait(other.wait_for(&never, 1, SOON));
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
}

#[test]
fn what_a_request_has_started_is_asked_for_before_its_id_is_told() {
    let served = Served::start(NodeConfig::default());
    let client = served.client();
    let add = Submit::function(&load(&client), "add").wire().clone();
    let add = |numbers: [u64; 2]| {
        let values = numbers.map(|n| encode(&ValueType::U64, &Value::U64(n)).unwrap());
        Request::Submit(Box::new(wire::Submit {
            values: values.map(wire::Argument::Value).into(),
            ..add.clone()
        }))
    };
    let get = |by| Request::Get {
        object: wire::ObjectRef::Started(by),
        timeout_ms: None,
        can_map: false,
    };
    let mut raw = Raw(UnixStream::connect(common::path(&served.address)).unwrap());
    let mut sent = hello(wire::PROTOCOL);
    let requests = [add([1, 2]), get(1), add([3, 4]), get(3), get(1)];
    for (id, message) in (1..).zip(requests) {
        sent.extend(wire::encode(&Frame { id, message }).unwrap());
    }
    raw.0.write_all(&sent).unwrap();
    // The welcome.
    raw.read();
    let mut answers = BTreeMap::<u64, Vec<Response>>::new();
    for _ in 0..7 {
        let said = raw.frame();
        answers.entry(said.id).or_default().push(said.message);
    }
    for (id, sum) in [(2, 3_u8), (4, 7)] {
        let [Response::Value { .. }, Response::Chunk(bytes)] = &answers[&id][..] else {
            panic!("{answers:?}");
        };
        assert_eq!(bytes.0, [sum]);
    }
    // It was not the last any more.
    let [Response::Refused(why)] = &answers[&5][..] else {
        panic!("{answers:?}");
    };
    assert_eq!(why.kind, RefusalKind::NotFound);
}
