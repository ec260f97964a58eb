//! What is in records, and what becomes of it.

use std::time::Duration;

use wasmrun_model::id::TaskId;

use super::*;

/// Where tasks were submitted.
const HERE: NodeId = NodeId::from_bytes([5; 16]);

fn stored() -> Stored {
    let entry = wire::Entry::Function("f".into());
    let submit = wire::Submit {
        values: vec![wire::Argument::Value(Encoded::Postcard(vec![1]))],
        is_detached: true,
        ..wire::Submit::new(Digest::from_bytes([9; 32]), entry)
    };
    let job = wire::Job {
        id: DriverId::detached([8; 16]),
        name: "j".into(),
        tasks: 3,
    };
    Stored::new(submit, origin(job), "f", &"t".parse().unwrap(), 300)
}

fn origin(job: wire::Job) -> Origin {
    Origin {
        job,
        by: "b".into(),
        submitted_us: 5,
    }
}

/// What is in a record of a task.
fn read(bytes: &[u8]) -> Stored {
    match StoredRecord::from_value(bytes).map(StoredRecord::with_origin) {
        Ok(
            StoredRecord::Task(stored)
            | StoredRecord::TaskOf(_, stored)
            | StoredRecord::TaskFrom(_, _, stored),
        ) => *stored,
        other => panic!("{other:?}"),
    }
}

fn report(result: Result<Option<Value>, TaskError>) -> Report {
    Report {
        id: TaskId::from_bytes([2; 16]),
        result,
        waited: Duration::from_micros(3),
        ran: Duration::from_micros(4),
        held: Vec::new(),
        memory_peak: 0,
        stderr_tail: String::new(),
        ran_at: None,
        attempt: 1,
        phases: wire::Phases::default(),
    }
}

#[test]
fn a_record_has_these_bytes() {
    let mut bytes = b"p\x01\x03".to_vec();
    bytes.extend([8; 12]);
    bytes.extend(b"\x00\x00\x00\x01\x01j\x03\x01b\x05\x01\x01f\x01t\xac\x02");
    bytes.extend([9; 32]);
    // The function, no name, one value, then defaults: 256 MiB of output, 64 MiB of arguments and of result.
    bytes.extend(b"\x01\x01f\x00\x01\x00\x00\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00");
    bytes.extend(b"\x00\x00\x80\x80\x80\x80\x01\x80\x80\x80\x20\x80\x80\x80\x20");
    bytes.extend(b"\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00");
    assert_eq!(stored().to_value(), bytes);
    assert_eq!(read(&bytes), stored());
}

#[test]
fn a_record_of_the_first_wasmrun_that_kept_any_is_read_and_written_as_it_was() {
    let mut bytes = b"p\x01\x00\x01f\x01t\xac\x02".to_vec();
    bytes.extend([9; 32]);
    bytes.extend(b"\x01\x01f\x00\x01\x00\x00\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00");
    bytes.extend(b"\x00\x00\x80\x80\x80\x80\x01\x80\x80\x80\x20\x80\x80\x80\x20");
    bytes.extend(b"\x00\x00\x00\x00\x00\x01\x00\x00");
    let first = Stored {
        origin: None,
        ..stored()
    };
    assert_eq!(read(&bytes), first);
    assert_eq!(first.to_value(), bytes);

    let mut bytes = b"p\x01\x01\x01t\xac\x02".to_vec();
    bytes.extend([9; 32]);
    // The class, no values, the name, then as above, no wishes.
    bytes.extend(b"\x01c\x00\x01\x01n\x00\x00\x00\x00\x00\x00\x00");
    bytes.extend(b"\x00\x80\x80\x80\x80\x01\x80\x80\x80\x20\x80\x80\x80\x20");
    bytes.extend(b"\x00\x00\x00");
    let wishes = postcard::to_allocvec(&wire::Wishes::default()).unwrap();
    bytes.extend(&wishes);
    bytes.extend(b"\x01\x01\x00");
    let first = actor(None);
    assert_eq!(read_actor(&bytes), first);
    assert_eq!(first.to_value(), bytes);
}

fn actor(origin: Option<Origin>) -> StoredActor {
    let create = wire::Create {
        name: Some("n".into()),
        is_detached: true,
        ..wire::Create::new(Digest::from_bytes([9; 32]), "c".into())
    };
    StoredActor {
        tenant: "t".parse().unwrap(),
        module_bytes: 300,
        create,
        restarts_left: 1,
        state: State::Arguments,
        origin,
    }
}

/// What is in a record of an actor.
fn read_actor(bytes: &[u8]) -> StoredActor {
    match StoredRecord::from_value(bytes).map(StoredRecord::with_origin) {
        Ok(StoredRecord::Actor(stored) | StoredRecord::ActorFrom(_, stored)) => *stored,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_actor_that_is_taken_over_stays_in_its_job() {
    let job = wire::Job {
        id: DriverId::detached([8; 16]),
        name: "c".into(),
        tasks: 1,
    };
    let mut stored = actor(Some(origin(job)));
    let read = |stored: &StoredActor| read_actor(&stored.to_value());
    assert_eq!(read(&stored), stored);
    // An older wasmrun has not kept it.
    let creation = TaskId::from_bytes([2; 16]);
    stored.origin = None;
    let own = read(&stored).origin(creation).job;
    assert_eq!((own.id, &*own.name), (DriverId::detached([2; 16]), "c"));
}

/// What came of a task whose result node 3 has.
fn ending_elsewhere(written: usize) -> Ending {
    let log = Log::default();
    if written > 0 {
        log.add((1, 1), OutputSource::Stdout, &vec![b'a'; written]);
    }
    let place = Whereabouts {
        numbers: None,
        len: 100_000,
        holders: vec![NodeId::from_bytes([3; 16])],
    };
    let large = Value::inline(Encoded::Postcard(vec![7; 100_000]), Vec::new());
    Ending::of(&report(Ok(Some(large))), HERE, &log, Some(place))
}

/// Why a result is lost whose record is this.
fn why_lost(stored: &Stored) -> String {
    let object = ObjectId::of(TaskId::from_bytes([2; 16]), 0);
    let ending = stored.ending.clone().expect("it has ended");
    let (_, result) = ending.restore(object, |_| None);
    result.expect_err("it is lost").to_string()
}

#[test]
fn what_a_result_was_made_of_stays_as_long_as_it_is_elsewhere() {
    let ended = stored().ended(ending_elsewhere(0));
    assert!(ended.has_lineage());
    assert_eq!(ended.submit, stored().submit);
    let mut bytes = stored().to_value().to_vec();
    // Instead of no ending: what there is elsewhere, of 100,000 bytes, at one node, with what it was made of.
    bytes.pop();
    bytes.extend(b"\x01\x00\x04\x00\xa0\x8d\x06\x01");
    bytes.extend([3; 16]);
    bytes.extend(b"\x00\x03\x04\x01");
    bytes.extend([5; 16]);
    bytes.push(0);
    assert_eq!(ended.to_value(), bytes);
    assert_eq!(read(&bytes), ended);
    // Where there is no room for it any more the record says so.
    let mut without = ended;
    without.forget_lineage(Lineage::LetGo);
    assert!(!without.has_lineage() && !without.has_given && without.submit.values.is_empty());
    assert!(
        why_lost(&without).contains("was let go"),
        "{}",
        why_lost(&without)
    );
    let mut failed = stored().ended(Ending::of(
        &report(Err(TaskError::Cancelled)),
        HERE,
        &Log::default(),
        None,
    ));
    let before = failed.clone();
    failed.forget_lineage(Lineage::LetGo);
    assert_eq!(failed, before);
}

#[test]
fn a_record_is_never_larger_for_what_a_result_was_made_of() {
    let large = |bytes: usize| {
        let mut large = stored();
        large.submit.values = vec![wire::Argument::Value(Encoded::Postcard(vec![1; bytes]))];
        large
    };
    let bytes = MOST_BYTES - stored().to_value().len() - 100;
    assert!(large(bytes).ended(ending_elsewhere(10)).has_lineage());
    let ended = large(bytes).ended(ending_elsewhere(1000));
    assert!(!ended.has_lineage() && ended.to_value().len() < 2000);
    assert!(why_lost(&ended).contains("more than 262144 bytes"));
}

#[test]
fn what_a_task_was_given_stays_when_it_has_ended_if_it_is_little() {
    let ended = |bytes: usize| {
        let mut stored = stored();
        stored.submit.values = vec![wire::Argument::Value(Encoded::Postcard(vec![1; bytes]))];
        let ending = Ending::of(
            &report(Err(TaskError::Cancelled)),
            HERE,
            &Log::default(),
            None,
        );
        let (given, ended) = (stored.submit.clone(), stored.ended(ending));
        let ended = read(&ended.to_value());
        assert!(!ended.has_lineage());
        (ended.has_given, ended.submit == given)
    };
    assert_eq!(ended(MOST_GIVEN_BYTES / 2), (true, true));
    assert_eq!(ended(MOST_GIVEN_BYTES), (false, false));
}

#[test]
fn a_record_of_an_older_wasmrun_says_that_its_result_is_lost() {
    let mut old = stored().ended(ending_elsewhere(0));
    old.forget();
    let ending = old.ending.as_mut().expect("it has ended");
    let place = ending.place().expect("it is elsewhere").clone();
    ending.result = Ok(Outcome::Elsewhere(place));
    old.origin = None;
    let running = Stored {
        origin: None,
        ..stored()
    };
    assert!(read(&running.to_value()).has_given);
    let read = read(&old.to_value());
    assert_eq!(
        read.origin(TaskId::from_bytes([2; 16])).job.id,
        DriverId::detached([2; 16])
    );
    assert!(!read.has_lineage() && !read.has_given);
    let why = why_lost(&read);
    assert!(
        why.contains("100000 bytes") && why.contains("an older wasmrun"),
        "{why}"
    );
}

#[test]
fn what_came_of_a_task_outlives_it_if_it_is_small() {
    let object = ObjectId::of(TaskId::from_bytes([2; 16]), 0);
    let log = Log::default();
    log.add((1, 1), OutputSource::Stdout, &[b'a'; 3000]);
    log.add((1, 1), OutputSource::Stderr, &[b'b'; 3000]);
    let small = Value::inline(Encoded::Postcard(vec![7; 100]), Vec::new());
    let ending = Ending::of(&report(Ok(Some(small.clone()))), HERE, &log, None);
    let ended = stored().ended(ending);
    assert_eq!(read(&ended.to_value()), ended);
    let ending = ended.ending.expect("it has ended");
    let kept = Log::default();
    ending.write_to(&kept);
    let bytes: Vec<usize> = kept.chunks().iter().map(|it| it.bytes.len()).collect();
    assert_eq!(bytes, [MOST_LOG_BYTES - 3000, 3000]);
    let nobody = |_: &Whereabouts| None;
    let (end, result) = ending.restore(object, nobody);
    assert_eq!((end.error, end.ran), (None, Duration::from_micros(4)));
    assert_eq!(result, Ok(Some(small.clone())));
    // A larger one is where the record says, if it is; the task has finished in any case.
    let place = Whereabouts {
        numbers: None,
        len: MOST_RESULT_BYTES as u64 + 1,
        holders: vec![NodeId::from_bytes([3; 16])],
    };
    let large = vec![7; MOST_RESULT_BYTES + 1];
    let large = Value::inline(Encoded::Postcard(large), Vec::new());
    let ending = Ending::of(&report(Ok(Some(large))), HERE, &log, Some(place.clone()));
    assert_eq!(ending.place(), Some(&place));
    let (end, result) = ending.clone().restore(object, |_| Some(small.clone()));
    assert_eq!((end.error, result), (None, Ok(Some(small))));
    let (end, result) = ending.restore(object, nobody);
    assert_eq!(end.error, None);
    assert!(matches!(result, Err(TaskError::Gone { .. })));
    let failed = report(Err(TaskError::Cancelled));
    let (end, result) = Ending::of(&failed, HERE, &log, None).restore(object, nobody);
    assert_eq!(end.error, Some(TaskError::Cancelled));
    assert_eq!(result, Err(TaskError::Cancelled));
}
