//! Golden bytes, limits, and what is refused.

use proptest::prelude::*;

use super::*;
use crate::id::{ActorId, ActorName, Digest, NodeId, ObjectId, ObjectName, TaskId};
use crate::value::{Encoded, NumberKind, ValueType};

/// The bytes of a frame, its length included.
fn bytes<T: Serialize>(id: u64, message: T) -> Vec<u8> {
    encode(&Frame { id, message }).unwrap()
}

#[test]
fn first_frames_are_as_they_are_for_ever() {
    let hello = Hello {
        magic: MAGIC,
        protocol: Version { major: 9, minor: 0 },
        version: "0.1".into(),
        tenant: TenantName::default(),
        job: "j".into(),
    };
    let expected = b"\x18\0\0\0wasmrun\0\x09\0\x030.1\x07default\x01j";
    assert_eq!(encode(&hello).unwrap(), expected);
    let spoken = Version { major: 9, minor: 0 };
    assert_eq!(decode_greeting(&expected[4..]), Ok((hello, spoken)));
    let welcome = Welcome {
        magic: MAGIC,
        protocol: Version { major: 9, minor: 0 },
        version: "0.1".into(),
        node: "n1".into(),
        id: NodeId::from_bytes([6; 16]),
    };
    let expected = b"\x21\0\0\0wasmrun\0\x09\0\x030.1\x02n1\x06\x06\x06\x06\x06\x06\x06\x06\x06\x06\x06\x06\x06\x06\x06\x06";
    assert_eq!(encode(&welcome).unwrap(), expected);
    assert_eq!(decode_greeting(&expected[4..]), Ok((welcome, spoken)));
}

#[test]
fn another_version_and_another_protocol_are_told_apart() {
    let newer = b"wasmrun\0\x0a\x01 whatever comes then";
    let told = decode_greeting::<Hello>(newer);
    let theirs = Version {
        major: 10,
        minor: 1,
    };
    assert_eq!(told, Err(FrameError::Version { theirs }));
    for other in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"",
        b"wasmrun",
        b"wasmrun\0",
        b"wasmrun\0\x06",
    ] {
        assert_eq!(decode_greeting::<Hello>(other), Err(FrameError::NotWasmrun));
    }
}

#[test]
fn one_minor_version_apart_is_understood_and_the_lower_one_spoken() {
    let greets = |minor| {
        let hello = Hello {
            magic: MAGIC,
            protocol: Version { minor, ..PROTOCOL },
            version: "0.1".into(),
            tenant: TenantName::default(),
            job: String::new(),
        };
        let spoken = decode_greeting(&encode(&hello).unwrap()[HEADER_BYTES..]);
        spoken.map(|(said, spoken)| {
            assert_eq!(hello, said);
            spoken
        })
    };
    assert_eq!(greets(PROTOCOL.minor + 1), Ok(PROTOCOL));
    if let Some(minor) = PROTOCOL.minor.checked_sub(1) {
        assert_eq!(greets(minor), Ok(Version { minor, ..PROTOCOL }));
    }
    let theirs = Version {
        minor: PROTOCOL.minor + 2,
        ..PROTOCOL
    };
    assert_eq!(greets(theirs.minor), Err(FrameError::Version { theirs }));
}

#[test]
fn as_many_names_as_there_may_be_are_one_frame() {
    let put = |objects: usize, actors: usize| {
        let owner = NodeId::from_bytes([255; 16]);
        let id = ObjectId::of(TaskId::from_bytes([255; 16]), u32::MAX);
        let actor = ActorId::from_bytes([255; 16]);
        Request::Put(Box::new(Put {
            form: Form::Buffer(NumberKind::U8),
            len: u64::MAX,
            is_kept: true,
            room_ms: Some(u64::MAX),
            can_stage: true,
            objects: vec![ObjectName { id, owner }; objects],
            actors: vec![ActorName { id: actor, owner }; actors],
        }))
    };
    for most in [put(MAX_NAMES, 0), put(0, MAX_NAMES)] {
        assert!(bytes(u64::MAX, most).len() <= HEADER_BYTES + MAX_FRAME_BYTES);
    }
}

#[test]
fn requests_keep_their_bytes() {
    let object = ObjectId::of(TaskId::from_bytes([7; 16]), 1);
    let put = Request::Put(Box::new(Put {
        form: Form::Buffer(NumberKind::U8),
        len: 300,
        is_kept: true,
        room_ms: None,
        can_stage: true,
        objects: Vec::new(),
        actors: Vec::new(),
    }));
    let expected = b"\x0b\0\0\0\x05\x05\x01\0\xac\x02\x01\0\x01\0\0";
    assert_eq!(bytes(5, put), expected);
    let get = Request::Get {
        object: ObjectRef::Id(object),
        timeout_ms: Some(1000),
        can_map: true,
    };
    let expected = [
        &b"\x1b\0\0\0\x01\x06\0"[..],
        &[7; 16],
        b"\0\0\0\x01\x01\xe8\x07\x01",
    ];
    assert_eq!(bytes(1, get), expected.concat());
    let get = Request::Get {
        object: ObjectRef::Started(2),
        timeout_ms: None,
        can_map: true,
    };
    assert_eq!(bytes(3, get), b"\x06\0\0\0\x03\x06\x02\x02\0\x01");
    let chunk = Request::Chunk(Bytes(b"ab".to_vec()));
    assert_eq!(bytes(1, chunk), b"\x05\0\0\0\x01\x02\x02ab");
    assert_eq!(bytes(2, Request::Status), b"\x02\0\0\0\x02\x15");
    assert_eq!(
        bytes(2, Request::Stop { is_now: true }),
        b"\x03\0\0\0\x02\x16\x01"
    );
    let unpin = Request::Unpin(vec![1, 300]);
    assert_eq!(bytes(0, unpin), b"\x06\0\0\0\0\x17\x02\x01\xac\x02");
    let call = Call {
        actor: ActorId::from_bytes([3; 16]),
        method: "m".into(),
        values: vec![Argument::Value(Encoded::Postcard(vec![9]))],
        is_watched: false,
        time_ms: Some(5),
        trace: None,
    };
    let expected = [
        &b"\x1d\0\0\0\x01\x0c"[..],
        &[3; 16],
        b"\x01m\x01\0\0\x01\x09\0\x01\x05\0",
    ];
    assert_eq!(bytes(1, Request::Call(Box::new(call))), expected.concat());
}

#[test]
fn responses_keep_their_bytes() {
    assert_eq!(bytes(1, Response::Done), b"\x02\0\0\0\x01\0");
    let value = Response::Value {
        form: Form::Postcard,
        len: 1,
        ty: Some(ValueType::U8),
        objects: Vec::new(),
        actors: Vec::new(),
    };
    let expected = b"\x09\0\0\0\x01\x09\0\x01\x01\x01\x02\0\0";
    assert_eq!(bytes(1, value), expected);
    let refused = Response::Refused(Refusal {
        kind: RefusalKind::NotFound,
        message: "x".into(),
    });
    assert_eq!(bytes(1, refused), b"\x05\0\0\0\x01\x01\x01\x01x");
    assert_eq!(
        bytes(1, Response::Ready(vec![0, 2])),
        b"\x05\0\0\0\x01\x0d\x02\0\x02"
    );
    let mapped = Response::Mapped(Box::new(Mapped {
        form: Form::Postcard,
        ty: None,
        segment: 1,
        segment_bytes: 300,
        offset_bytes: 2,
        len_bytes: 3,
        has_descriptor: true,
    }));
    let expected = b"\x0a\0\0\0\x01\x13\0\0\x01\xac\x02\x02\x03\x01";
    assert_eq!(bytes(1, mapped), expected);
    assert_eq!(bytes(0, Response::Forget(7)), b"\x03\0\0\0\0\x14\x07");
    let failed = Response::Failed {
        origin: TaskId::from_bytes([1; 16]),
        error: (&crate::failure::TaskError::Cancelled).into(),
    };
    let expected = [&b"\x14\0\0\0\x01\x0b"[..], &[1; 16], b"\x01\x04"];
    assert_eq!(bytes(1, failed), expected.concat());
}

#[test]
fn the_session_of_the_documentation_has_these_bytes() {
    const DOCS: &str = include_str!("../../../../docs/protocol.md");
    #[track_caller]
    fn is_there(bytes: &[u8]) {
        let text = format!("| `{}` |", super::golden::text(bytes));
        assert!(DOCS.contains(&text), "docs/protocol.md has no {text}");
    }
    let (task, digest) = (TaskId::from_bytes([7; 16]), Digest::from_bytes([9; 32]));
    let object = ObjectId::of(task, 0);
    let (magic, version) = (MAGIC, "0.1".to_owned());
    let hello = Hello {
        magic,
        protocol: PROTOCOL,
        version: version.clone(),
        tenant: TenantName::default(),
        job: "j".into(),
    };
    is_there(&encode(&hello).unwrap());
    let welcome = Welcome {
        magic,
        protocol: PROTOCOL,
        version,
        node: "n1".into(),
        id: NodeId::from_bytes([6; 16]),
    };
    is_there(&encode(&welcome).unwrap());
    is_there(&bytes(1, Request::Module(digest)));
    is_there(&bytes(1, Response::Unknown));
    let number = |n| Argument::Value(Encoded::Postcard(vec![n]));
    let submit = Submit {
        values: vec![number(1), number(2)],
        ..Submit::new(digest, Entry::Function("add".into()))
    };
    is_there(&bytes(2, Request::Submit(Box::new(submit))));
    is_there(&bytes(2, Response::Submitted(task)));
    let get = Request::Get {
        object: ObjectRef::Id(object),
        timeout_ms: None,
        can_map: false,
    };
    is_there(&bytes(3, get));
    let value = Response::Value {
        form: Form::Postcard,
        len: 1,
        ty: Some(ValueType::U64),
        objects: Vec::new(),
        actors: Vec::new(),
    };
    is_there(&bytes(3, value));
    is_there(&bytes(3, Response::Chunk(Bytes(vec![3]))));
    is_there(&bytes(0, Request::Release(vec![object])));
}

#[test]
fn what_is_too_long_is_neither_sent_nor_read() {
    let large = Request::Chunk(Bytes(vec![0; MAX_FRAME_BYTES]));
    let refused = encode(&Frame {
        id: 1,
        message: large,
    });
    assert!(matches!(refused, Err(FrameError::TooLong { .. })));
    assert!(frame_len([0xff; 4]).is_err());
    let most = u32::try_from(MAX_FRAME_BYTES).unwrap();
    assert_eq!(frame_len(most.to_le_bytes()), Ok(MAX_FRAME_BYTES));
    assert!(frame_len((most + 1).to_le_bytes()).is_err());
}

#[test]
fn a_frame_has_one_message() {
    assert_eq!(
        decode::<Frame<Request>>(b"\x02\x15!"),
        Err(FrameError::Trailing(1))
    );
    let cut = decode::<Frame<Request>>(b"\x02");
    assert!(matches!(cut, Err(FrameError::Malformed(_))));
    let unknown = decode::<Frame<Request>>(b"\x02\x7f");
    assert!(matches!(unknown, Err(FrameError::Malformed(_))));
    // A length that lies.
    let lie = decode::<Frame<Request>>(b"\x01\x02\xff\xff\xff\xff\x0f");
    assert!(matches!(lie, Err(FrameError::Malformed(_))));
}

#[test]
fn a_module_travels_with_its_types() {
    let function = crate::value::FunctionType::new(
        vec![("a", ValueType::list(ValueType::U8).unwrap())],
        Some(ValueType::String),
    );
    let module = Response::Module(Box::new(Module {
        digest: Digest::of(b"x"),
        has_program: false,
        functions: vec![("f".into(), function.unwrap())],
        classes: Vec::new(),
    }));
    let frame = Frame {
        id: 9,
        message: module,
    };
    let sent = encode(&frame).unwrap();
    assert_eq!(decode(&sent[HEADER_BYTES..]), Ok(frame));
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        fuzz(&bytes);
    }
}
