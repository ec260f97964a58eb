//! Objects that clients map, with clients that are real processes: this program starts itself again, in a role.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::Child;

use wasmrun_client::blocking::Client;
use wasmrun_client::wire::{Address, Form, RefusalKind};
use wasmrun_client::{Error, GetError, PutOptions, Value};
use wasmrun_model::value::{Encoded, NumberKind};

use crate::common::{Served, pinned, start};

const MIB: usize = 1 << 20;

fn connect(address: &Address, tenant: &str) -> Client {
    Client::connect(address, tenant.parse().unwrap()).unwrap()
}

fn bytes(len: usize) -> Encoded {
    Encoded::Buffer {
        kind: NumberKind::U8,
        bytes: (0..len).map(|n| (n % 251) as u8).collect(),
    }
}

fn put_and_get(client: &Client, len: usize) -> Value {
    let future = client.wait(client.put(&bytes(len))).unwrap();
    client.wait(future.get(None)).unwrap()
}

/// This process's mappings of the node's memory that can only be read, as the system lists them.
fn mappings() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let of_objects = maps.lines().filter(|line| line.contains("wasmrun-objects"));
    let read_only = of_objects.filter(|line| line.contains(" r--s "));
    read_only.map(str::to_owned).collect()
}

/// Whether the value's bytes lie in a mapping of which nothing is a copy.
fn is_in_place(value: &Value, mapping: &str) -> bool {
    let (range, _) = mapping.split_once(' ').unwrap();
    let (start, end) = range.split_once('-').unwrap();
    let address = |text| usize::from_str_radix(text, 16).unwrap();
    let bytes = value.as_ptr_range();
    let is_within = address(start) <= bytes.start as usize && bytes.end as usize <= address(end);
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut of_it = smaps.lines().skip_while(|line| *line != mapping);
    let copied = of_it.find(|line| line.starts_with("Anonymous:")).unwrap();
    is_within && copied.split_whitespace().nth(1) == Some("0")
}

/// The node, if this process is a client.
fn role() -> Option<Address> {
    Some(common::role()?.parse().unwrap())
}

fn say(line: &str) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

fn wait_for_line(child: &mut Child, line: &str) {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(
        lines.any(|it| it.unwrap().contains(line)),
        "{line} was not said"
    );
}

#[test]
fn a_stored_value_is_read_in_place() {
    if let Some(address) = role() {
        return reads_in_place(&address);
    }
    let served = Served::with_store(256 * MIB);
    let mut child = start("a_stored_value_is_read_in_place", &served.address);
    assert!(child.wait().unwrap().success());
}

fn reads_in_place(address: &Address) {
    let client = connect(address, "default");
    let value = put_and_get(&client, 24 * MIB);
    assert!(value.is_mapped() && value.form() == Form::Buffer(NumberKind::U8));
    assert!(value == bytes(24 * MIB));
    let small = put_and_get(&client, 1000);
    assert!(!small.is_mapped() && small == bytes(1000));
    // It is memory of the node's, all read by now, and none of it was copied.
    let mapped = mappings();
    assert_eq!(mapped.len(), 1, "{mapped:?}");
    assert!(is_in_place(&value, &mapped[0]), "{mapped:?}");
    // Another object of the segment needs no other mapping, nor does the same once more.
    let other = put_and_get(&client, 8 * MIB);
    assert!(is_in_place(&other, &mapped[0]) && other == bytes(8 * MIB));
    assert_eq!(mappings(), mapped);
    assert!(pinned(&client) >= 32 * MIB as u64);
    // The largest have segments of their own, in files without a name where the pages are huge.
    let largest = put_and_get(&client, 64 * MIB);
    assert!(largest.is_mapped() && largest == bytes(64 * MIB));
    drop(largest);
    // What is dropped is given back, and a clone is one more holder.
    let clone = other.clone();
    drop((value, other));
    while pinned(&client) > 8 * MIB as u64 {}
    assert_eq!(pinned(&client), 8 * MIB as u64);
    // The session goes on as long as somebody looks.
    drop(client);
    let second = connect(address, "default");
    assert!(clone == bytes(8 * MIB));
    assert_eq!(pinned(&second), 8 * MIB as u64);
    drop(clone);
    while pinned(&second) > 0 {}
}

#[test]
fn a_client_that_is_killed_leaves_nothing_pinned() {
    if let Some(address) = role() {
        let client = connect(&address, "default");
        let _held = put_and_get(&client, 10 * MIB);
        say("holding");
        // Nothing comes: it is killed here.
        std::io::stdin().read_line(&mut String::new()).unwrap();
        unreachable!("it was killed");
    }
    let served = Served::with_store(64 * MIB);
    let test = "a_client_that_is_killed_leaves_nothing_pinned";
    let mut child = start(test, &served.address);
    wait_for_line(&mut child, "holding");
    let client = connect(&served.address, "default");
    assert_eq!(pinned(&client), 10 * MIB as u64);
    child.kill().unwrap();
    child.wait().unwrap();
    while client.wait(client.status()).unwrap().store.objects > 0 {}
    assert_eq!(pinned(&client), 0);
}

#[test]
fn a_client_lets_go_of_memory_that_the_node_gives_back() {
    if let Some(address) = role() {
        let client = connect(&address, "red");
        drop(put_and_get(&client, 24 * MIB));
        assert_eq!(mappings().len(), 1, "it is kept for what comes next");
        say("has seen it");
        while !mappings().is_empty() {}
        // And goes on with another segment.
        assert!(put_and_get(&client, 10 * MIB) == bytes(10 * MIB));
        return;
    }
    let served = Served::with_store(36 * MIB);
    let test = "a_client_lets_go_of_memory_that_the_node_gives_back";
    let mut child = start(test, &served.address);
    wait_for_line(&mut child, "has seen it");
    // Another tenant needs the memory: the segment goes.
    let blue = connect(&served.address, "blue");
    drop(put_and_get(&blue, 24 * MIB));
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_is_another_tenants_is_refused() {
    let served = Served::with_store(64 * MIB);
    let (red, blue) = (
        connect(&served.address, "red"),
        connect(&served.address, "blue"),
    );
    let keep = PutOptions {
        is_kept: true,
        ..PutOptions::default()
    };
    let sevens = std::io::repeat(7);
    let kept = red.wait(red.put_from(Form::Postcard, MIB as u64, keep, sevens));
    let kept = kept.unwrap().id().to_string();
    let refused = match blue.wait(blue.get_kept(&kept, None)) {
        Err(GetError::Request(Error::Refused(why))) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused.kind, RefusalKind::Tenant);
    let says = "belongs to tenant 'red', and this session is of 'blue'; say --tenant red";
    assert!(refused.message.contains(says), "{refused}");
    assert!(blue.wait(blue.delete(&kept)).is_err());
    // Nothing has passed: whoever has the descriptor could see all that red has.
    assert!(mappings().is_empty());
    let incoming = red.wait(red.get_kept(&kept, None)).unwrap();
    let value = red.wait(incoming.value()).unwrap();
    assert!(value.is_mapped() && value.iter().all(|byte| *byte == 7));
    drop(value);
    red.wait(red.delete(&kept)).unwrap();
}

#[test]
fn a_put_waits_for_room_as_long_as_it_says() {
    let served = Served::with_store(MIB);
    let client = connect(&served.address, "default");
    let held = put_and_get(&client, 700_000);
    let soon = PutOptions {
        room_patience: Some(std::time::Duration::from_millis(1)),
        ..PutOptions::default()
    };
    let sevens = || std::io::repeat(7);
    let put = client.put_from(Form::Postcard, 700_000, soon, sevens());
    let refused = match client.wait(put) {
        Err(Error::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused.kind, RefusalKind::Full);
    assert!(refused.message.contains("in use"), "{refused}");
    drop(held);
    let patient = client.put_from(Form::Postcard, 700_000, PutOptions::default(), sevens());
    client.wait(patient).unwrap();
}
