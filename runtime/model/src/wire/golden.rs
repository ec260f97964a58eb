//! The bytes of every message. A change here is a change of the protocol: raise [`super::PROTOCOL`].

use super::*;
use crate::access::{Access, Role};
use crate::cluster::Strategy;
use crate::failure::{Failure, FailureKind, Frame as StackFrame, LimitHit, LimitKind, TaskError};
use crate::fairness::{Policy, Quota, Weight};
use crate::group::{GroupKind, GroupSpec};
use crate::id::{
    ActorId, ActorName, Digest, DriverId, GroupId, NodeId, ObjectId, ObjectName, TaskId,
};
use crate::resource::{Amount, ResourceName, ResourceSet};
use crate::scheduler::{Setting, Settings};
use crate::secret::SecretName;
use crate::task::Cancellation;
use crate::trace::{TraceContext, TraceState};
use crate::value::{Encoded, FunctionType, ValueType};

/// Bytes as text, in hexadecimal digits, `07x16` for sixteen times the same.
pub(super) fn text(bytes: &[u8]) -> String {
    let mut parts = Vec::new();
    for run in bytes.chunk_by(|a, b| a == b) {
        let byte = format!("{:02x}", run[0]);
        match run.len() {
            len @ 4.. => parts.push(format!("{byte}x{len}")),
            len => parts.extend(std::iter::repeat_n(byte, len)),
        }
    }
    parts.join(" ")
}

/// Asserts what a message's bytes are, and that they are the message.
#[track_caller]
fn assert_bytes<T>(message: T, expected: &str)
where
    T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug + Clone,
{
    let id = 0;
    let frame = Frame {
        id,
        message: message.clone(),
    };
    let bytes = encode(&frame).unwrap();
    let (length, rest) = bytes.split_first_chunk::<HEADER_BYTES>().unwrap();
    assert_eq!(frame_len(*length), Ok(rest.len()));
    assert_eq!(rest[0], id as u8);
    assert_eq!(text(&rest[1..]), expected, "{message:?}");
    assert_eq!(decode(rest), Ok(frame));
}

const TASK: TaskId = TaskId::from_bytes([7; 16]);
const ACTOR: ActorId = ActorId::from_bytes([3; 16]);

fn object() -> ObjectId {
    ObjectId::of(TASK, 0)
}

fn amounts() -> Amounts {
    Amounts::from([(ResourceName::CPU.clone(), Amount::units(2))])
}

fn submit() -> Submit {
    Submit {
        module: Digest::from_bytes([9; 32]),
        entry: Entry::Function("f".into()),
        name: "n".into(),
        values: vec![
            Argument::Value(Encoded::Postcard(vec![5])),
            Argument::Object(object()),
        ],
        args: vec!["a".into()],
        array_index: Some(4),
        terms: terms(),
        limits: limits(),
        grants: Grants {
            env: vec![("k".into(), "v".into())],
            dirs: vec![Dir {
                host: "/h".into(),
                guest: "g".into(),
                is_read_only: true,
            }],
            net: Net::Only(vec!["127.0.0.1:80".parse().unwrap()]),
            http: vec!["a.org:81".parse().unwrap()],
            secrets: vec!["K=S".parse().unwrap()],
        },
        input: Input::Bytes(Bytes(vec![6])),
        is_watched: true,
        is_detached: false,
        trace: Some(trace()),
    }
}

fn serve() -> Serve {
    Serve {
        name: "s".into(),
        module: Digest::from_bytes([9; 32]),
        routes: vec!["GET /a/{b}=f".parse().unwrap()],
        address: Listen::At("127.0.0.1:80".parse().unwrap()),
        tls: Some((Bytes(vec![1]), Bytes(vec![2]))),
        hosts: vec!["h".into()],
        most_running: 1,
        most_waiting: 2,
        patience_ms: 3,
        terms: Terms::default(),
        limits: Limits::default(),
        grants: Grants::default(),
        is_detached: true,
    }
}

fn trace() -> TraceContext {
    let parent = "00-0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a-0b0b0b0b0b0b0b0b-01";
    let state: TraceState = "k=v".parse().unwrap();
    TraceContext::new(parent.parse().unwrap(), state)
}

fn terms() -> Terms {
    Terms {
        resources: amounts(),
        tenant: Some("t".parse().unwrap()),
        priority: -1,
        retries: Some(3),
        retry_on_error: Some(true),
        no_preempt: true,
        selectors: "zone=a".parse().unwrap(),
        strategy: Strategy::Spread,
    }
}

fn limits() -> Limits {
    Limits {
        time_ms: Some(1),
        output_bytes: 2,
        argument_bytes: 3,
        result_bytes: 300,
    }
}

fn task_row() -> TaskRow {
    TaskRow {
        id: TASK,
        name: "n".into(),
        state: "s".into(),
        tenant: "t".parse().unwrap(),
        job: DriverId::from_bytes([8; 16]),
        parent: Some(TASK),
        parent_attempt: 6,
        trace: Some(trace()),
        actor: Some(ACTOR),
        array_index: Some(4),
        attempt: 2,
        is_detached: true,
        submitted_us: 5,
        age_ms: 300,
        node: "m".into(),
        inputs: vec![object()],
        held: vec![held_resource()],
        run: Some(Run {
            waited_us: 1,
            ran_us: Some(2),
            ended_us: 3,
            phases: Phases {
                thread: 4,
                arguments_us: 5,
                sandbox_us: 6,
                blocked_us: 7,
                paused_us: 10,
                result_us: 8,
            },
            memory_peak_bytes: 9,
        }),
        error: Some("e".into()),
    }
}

fn held_resource() -> HeldResource {
    HeldResource {
        name: ResourceName::CPU,
        steps: 10_000,
        units: vec![(0, 5000)],
    }
}

fn job_row() -> JobRow {
    JobRow {
        id: DriverId::from_bytes([8; 16]),
        name: "n".into(),
        state: "s".into(),
        tenant: "t".parse().unwrap(),
        by: "b".into(),
        is_detached: true,
        submitted_us: 5,
        age_ms: 300,
        took_ms: Some(6),
        tasks: JobTasks {
            expected: 1,
            waiting: 2,
            running: 3,
            finished: 4,
            failed: 5,
            cancelled: 6,
        },
        node: "m".into(),
    }
}

fn actor_row() -> ActorRow {
    ActorRow {
        id: ACTOR,
        name: Some("n".into()),
        class: "c".into(),
        state: "s".into(),
        tenant: "t".parse().unwrap(),
        job: DriverId::from_bytes([8; 16]),
        node: "m".into(),
        generation: 2,
        calls: 3,
        state_bytes: Some(300),
        failure: Some("f".into()),
    }
}

fn status() -> NodeStatus {
    NodeStatus {
        name: "n".into(),
        version: "v".into(),
        process: 1,
        up_ms: 2,
        is_draining: false,
        sessions: 3,
        total: amounts(),
        available: Amounts::new(),
        tasks: vec![("s".into(), 4)],
        store: StoreStatus {
            capacity_bytes: 5,
            used_bytes: 6,
            pinned_bytes: 7,
            spilled_bytes: 8,
            objects: 9,
        },
    }
}

fn listed(rows: Rows) -> Response {
    Response::Listed(Box::new(Listed {
        rows,
        next: Some("p".into()),
        silent: vec![Silent {
            node: "q".into(),
            why: "w".into(),
        }],
    }))
}

fn function() -> FunctionType {
    FunctionType::new(vec![("a", ValueType::U8)], Some(ValueType::String)).unwrap()
}

#[test]
fn requests_about_tasks() {
    assert_bytes(
        Request::Submit(Box::new(submit())),
        "03 09x32 01 01 66 01 6e 02 00 00 01 05 01 07x16 00x4 01 01 61 01 04 01 03 43 50 55 a0 9c 01 01 01 74 01 01 03 01x4 06 7a 6f 6e 65 3d 61 02 01 01 02 03 ac 02 01 01 6b 01 76 01 02 2f 68 01 67 01 01 01 00 7f 00 00 01 50 01 08 61 2e 6f 72 67 3a 38 31 01 01 53 01 4b 01 01 06 01 00 01 0ax16 0bx8 01 03 6b 3d 76",
    );
    let bytes = Bytes(vec![1]);
    assert_bytes(Request::Input { task: TASK, bytes }, "04 07x16 01 01");
    assert_bytes(
        Request::InputFailed {
            task: TASK,
            errno: 5,
        },
        "29 07x16 0a",
    );
    assert_bytes(Request::InputWanted(TASK), "2b 07x16");
    let set = SetResource {
        node: Some("n".into()),
        name: ResourceName::CPU,
        amount: Some(Amount::ONE),
        is_kept: true,
    };
    assert_bytes(
        Request::SetResource(Box::new(set)),
        "2d 01 01 6e 03 43 50 55 01 90 4e 01",
    );
    let wait = Request::Wait {
        objects: vec![object()],
        count: 1,
        timeout_ms: None,
    };
    assert_bytes(wait, "07 01 07x16 00x4 01 00");
    assert_bytes(Request::Cancel("ab".into()), "0e 02 61 62");
    assert_bytes(Request::CancelMine, "0f");
    assert_bytes(Request::Describe("ab".into()), "11 02 61 62");
    assert_bytes(Request::Explain("ab".into()), "12 02 61 62");
    assert_bytes(Request::Logs("ab".into()), "13 02 61 62");
}

#[test]
fn requests_for_many_at_once() {
    let few = Submit {
        name: "n".into(),
        ..Submit::new(submit().module, submit().entry)
    };
    let calls = vec![
        vec![Argument::Value(Encoded::Postcard(vec![5]))],
        Vec::new(),
        vec![Argument::Object(object())],
    ];
    let submit = Box::new(few);
    assert_bytes(
        Request::SubmitAll { submit, calls },
        "18 09x32 01 01 66 01 6e 00x12 80x4 01 80 80 80 20 80 80 80 20 00x9 03 01 00 00 01 05 00 01 01 07x16 00x4",
    );
    let get_all = Request::GetAll {
        objects: vec![object(), ObjectId::of(TASK, 300)],
        timeout_ms: Some(300),
    };
    assert_bytes(get_all, "19 02 07x16 00x4 07x16 00 00 01 2c 01 ac 02");
    let once = Request::SubmitOnce {
        task: TASK,
        submit: Box::new(self::submit()),
        job: Job {
            id: DriverId::detached([8; 16]),
            name: "j".into(),
            tasks: 300,
        },
        is_again: true,
    };
    let bytes = encode(&Frame {
        id: 1,
        message: once,
    });
    let bytes = bytes.expect("it is short");
    assert_eq!(bytes[HEADER_BYTES..][..2], [1, 0x20]);
    assert_eq!(bytes[bytes.len() - 1], 1);
    assert_bytes(
        Request::GetAll {
            objects: Vec::new(),
            timeout_ms: None,
        },
        "19 00 00",
    );
}

#[test]
fn requests_about_modules_objects_and_the_node() {
    let digest = Digest::from_bytes([9; 32]);
    assert_bytes(Request::Module(digest), "00 09x32");
    assert_bytes(Request::Upload { digest, len: 300 }, "01 09x32 ac 02");
    assert_bytes(Request::Release(vec![object()]), "08 01 07x16 00x4");
    assert_bytes(Request::Delete("ab".into()), "14 02 61 62");
    let list = List {
        limit: 300,
        after: Some("a".into()),
        ..List::of(What::Jobs).with("k", "v")
    };
    assert_bytes(Request::List(list), "10 03 01 01 6b 01 76 ac 02 01 01 61");
}

#[test]
fn requests_about_actors() {
    let create = Create {
        module: Digest::from_bytes([9; 32]),
        class: "c".into(),
        values: vec![Argument::Object(object())],
        name: Some("n".into()),
        terms: terms(),
        limits: limits(),
        grants: Grants {
            net: Net::All,
            ..Grants::default()
        },
        wishes: Wishes {
            restarts: Some(2),
            call_retries: None,
        },
        is_detached: true,
        trace: Some(trace()),
    };
    assert_bytes(
        Request::Create(Box::new(create)),
        "0a 09x32 01 63 01 01 07x16 00x4 01 01 6e 01 03 43 50 55 a0 9c 01 01 01 74 01 01 03 01x4 06 7a 6f 6e 65 3d 61 02 01 01 02 03 ac 02 00 00 02 00 00 01 02 00 01 01 0ax16 0bx8 01 03 6b 3d 76",
    );
    assert_bytes(Request::ReleaseActor(ACTOR), "09 03x16");
    assert_bytes(Request::FindActor("n".into()), "0b 01 6e");
    assert_bytes(Request::Kill("n".into()), "0d 01 6e");
    let ready = Request::ActorReady {
        actor: ACTOR,
        timeout_ms: Some(300),
    };
    assert_bytes(ready, "2a 03x16 01 ac 02");
}

#[test]
fn what_handles_are_for() {
    assert_bytes(Request::CancelObject(object()), "21 07x16 00x4");
    assert_bytes(Request::KillActor(ACTOR), "22 03x16");
    assert_bytes(Request::Actor(ACTOR), "23 03x16");
    assert_bytes(Request::FindObject("ab".into()), "24 02 61 62");
    let owner = NodeId::from_bytes([6; 16]);
    let put = Put {
        form: Form::Postcard,
        len: 300,
        is_kept: true,
        room_ms: Some(1),
        can_stage: true,
        objects: vec![ObjectName {
            id: object(),
            owner,
        }],
        actors: vec![ActorName { id: ACTOR, owner }],
    };
    assert_bytes(
        Request::Put(Box::new(put)),
        "05 00 ac 02 01x5 07x16 00x4 06x16 01 03x16 06x16",
    );
    let (offset, len) = (300, 1);
    assert_bytes(Request::Staged { offset, len }, "30 ac 02 01");
    let value = Response::Value {
        form: Form::Postcard,
        len: 300,
        ty: None,
        objects: Vec::new(),
        actors: vec![ActorName { id: ACTOR, owner }],
    };
    assert_bytes(value, "09 00 ac 02 00 00 01 03x16 06x16");
    let found = ObjectName {
        id: object(),
        owner: NodeId::from_bytes([6; 16]),
    };
    assert_bytes(Response::Found(found), "1e 07x16 00x4 06x16");
    assert_bytes(Response::Cancelled(Cancellation::Cancelled), "1d 00");
    assert_bytes(Response::Cancelled(Cancellation::RunsOn), "1d 01");
    assert_bytes(Response::Cancelled(Cancellation::Over), "1d 02");
    assert_bytes(Response::Cancelled(Cancellation::Asked), "1d 03");
}

#[test]
fn placement_groups() {
    let bundle = ResourceSet::from_iter([(ResourceName::CPU.clone(), Amount::units(2))]);
    let bundles = vec![crate::resource::Request::new(bundle).unwrap()];
    let create = CreateGroup {
        spec: GroupSpec::new(GroupKind::StrictPack, bundles).unwrap(),
        name: Some("n".into()),
        is_detached: true,
        selectors: vec!["zone=a".parse().unwrap()],
    };
    assert_bytes(
        Request::CreateGroup(Box::new(create)),
        "1d 02 01 01 03 43 50 55 a0 9c 01 01 01 6e 01 01 01 06 7a 6f 6e 65 3d 61",
    );
    assert_bytes(Request::RemoveGroup("ab".into()), "1e 02 61 62");
    let ready = Request::GroupReady {
        group: "ab".into(),
        timeout_ms: Some(300),
    };
    assert_bytes(ready, "1f 02 61 62 01 ac 02");
    let group = GroupId::from_bytes([5; 16]);
    assert_bytes(Response::Group(group), "17 05x16");
    let here = Response::GroupHere {
        group,
        why: "w".into(),
    };
    assert_bytes(here, "20 05x16 01 77");
    assert_bytes(Response::NotReady("w".into()), "18 01 77");
    let row = GroupRow {
        id: group,
        name: None,
        kind: GroupKind::Spread,
        state: "s".into(),
        since_ms: 300,
        bundles: vec![GroupBundle {
            amounts: amounts(),
            node: Some("o".into()),
        }],
        why: Some("w".into()),
        tenant: "t".parse().unwrap(),
        job: DriverId::from_bytes([8; 16]),
        is_detached: true,
        age_ms: 1,
        node: "m".into(),
    };
    assert_bytes(
        listed(Rows::Groups(vec![row])),
        "0f 09 01 05x16 00 01 01 73 ac 02 01 01 03 43 50 55 a0 9c 01 01 01 6f 01 01 77 01 74 08x16 \
         01 01 01 6d 01 01 70 01 01 71 01 77",
    );
}

#[test]
fn services() {
    assert_bytes(
        Request::Serve(Box::new(serve())),
        "33 01 73 09x32 01 0c 47 45 54 20 2f 61 2f 7b 62 7d 3d 66 00 00 7f 00 00 01 50 01x4 02 01 01 68 01 02 03 00x9 80x4 01 80 80 80 20 80 80 80 20 00x5 01",
    );
    let stop = Request::StopService {
        name: "s".into(),
        patience_ms: 300,
    };
    assert_bytes(stop, "34 01 73 ac 02");
    let row = ServiceRow {
        name: "s".into(),
        tenant: "t".parse().unwrap(),
        url: "u".into(),
        node: "m".into(),
        module: Digest::from_bytes([9; 32]),
        job: DriverId::from_bytes([8; 16]),
        is_detached: true,
        age_ms: 1,
        requests: 2,
        failed: 3,
        refused: 4,
        mean_us: 5,
        running: 6,
        waiting: 7,
        connections: 300,
        state: "l".into(),
        why: Some("y".into()),
        generation: 8,
        all_requests: 9,
    };
    assert_bytes(
        Response::Service(Box::new(row.clone())),
        "25 01 73 01 74 01 75 01 6d 09x32 08x16 01 01 02 03 04 05 06 07 ac 02 01 6c 01 01 79 08 09",
    );
    assert_bytes(
        listed(Rows::Services(vec![row])),
        "0f 0c 01 01 73 01 74 01 75 01 6d 09x32 08x16 01 01 02 03 04 05 06 07 ac 02 01 6c 01 01 79 08 09 01 01 70 01 01 71 01 77",
    );
}

#[test]
fn secrets() {
    let name: SecretName = "K".parse().unwrap();
    let set = Request::SetSecret {
        name: name.clone(),
        value: Bytes(vec![7]),
    };
    assert_bytes(set, "37 01 4b 01 07");
    assert_bytes(Request::RemoveSecret(name.clone()), "38 01 4b");
    assert_bytes(Request::Secrets, "39");
    assert_bytes(Request::RotateSecrets, "3a");
    let row = SecretRow {
        name,
        tenant: "t".parse().unwrap(),
        bytes: 300,
        set_s: 2,
        by: "b".into(),
    };
    assert_bytes(
        Response::Secrets(vec![row], 3),
        "27 01 01 4b 01 74 ac 02 02 01 62 03",
    );
}

#[test]
fn what_tenants_are_due() {
    let tenant: TenantName = "t".parse().unwrap();
    let weight: Weight = "3".parse().unwrap();
    let change = ChangeTenant {
        tenant: tenant.clone(),
        weight: Some(weight),
        min: Some(amounts()),
        resource_weights: Some(Weights::from([(ResourceName::GPU, weight)])),
        max: Some(amounts()),
        max_tasks: Some(Some(2)),
        max_waiting: Some(None),
        max_objects: Some(Some(1)),
        max_detached: Some(None),
        no_preempt: Some(true),
    };
    assert_bytes(
        Request::ChangeTenant(Box::new(change)),
        "25 01 74 01 b0 ea 01 01 01 03 43 50 55 a0 9c 01 01 01 03 47 50 55 b0 ea 01 \
         01 01 03 43 50 55 a0 9c 01 01 01 02 01 00 01x4 00 01 01",
    );
    let nothing = ChangeTenant {
        tenant: tenant.clone(),
        weight: None,
        min: None,
        resource_weights: None,
        max: None,
        max_tasks: None,
        max_waiting: None,
        max_objects: None,
        max_detached: None,
        no_preempt: None,
    };
    assert_bytes(Request::ChangeTenant(Box::new(nothing)), "25 01 74 00x9");
    assert_bytes(Request::RemoveTenant(tenant.clone()), "26 01 74");
    let half = crate::cluster::Share::try_from(Amount::from_steps(5_000)).unwrap();
    let settings = vec![
        Setting::Policy(Policy::Fair),
        Setting::SpreadThreshold(half),
        Setting::TopShare(half),
        Setting::TopNodes(2),
        Setting::LocalQueue(3),
        Setting::Patience(std::time::Duration::from_millis(1500)),
        Setting::Preemption(false),
    ];
    let scheduling = Scheduling {
        settings: settings
            .iter()
            .fold(Settings::default(), |all, it| all.with(*it)),
        resource_weights: vec![(tenant.clone(), Weights::from([(ResourceName::GPU, weight)]))],
        notes: vec!["w".into()],
    };
    assert_bytes(
        Request::Scheduling(settings),
        "2e 07 00 01 01 88 27 02 88 27 03 02 04 03 05 01 80 ca b5 ee 01 06 00",
    );
    assert_bytes(Request::SchedulerState, "2f");
    assert_bytes(
        Response::Scheduling(Box::new(scheduling)),
        "21 01 88 27 88 27 02 03 01 80 ca b5 ee 01 00 01 01 74 01 03 47 50 55 b0 ea 01 01 01 77",
    );
    let quota = Quota {
        max: amounts(),
        max_tasks: Some(2),
        max_detached: Some(3),
        ..Quota::default()
    };
    let changed = TenantChanged {
        tenant: tenant.clone(),
        weight,
        min: amounts(),
        quota: quota.clone(),
        notes: vec!["w".into()],
    };
    assert_bytes(
        Response::TenantChanged(Box::new(changed)),
        "1f 01 74 b0 ea 01 01 03 43 50 55 a0 9c 01 01 03 43 50 55 a0 9c 01 01 02 00 00 01 03 00 01 01 77",
    );
    let due = DueRow {
        name: tenant,
        weight,
        min: amounts(),
        share: "0.5".into(),
        used: Amounts::new(),
        quota,
        tasks: 1,
        waiting: 300,
    };
    assert_bytes(Request::List(List::of(What::Due)), "10 0a 00 00 00");
    assert_bytes(
        listed(Rows::Due(vec![due])),
        "0f 0a 01 01 74 b0 ea 01 01 03 43 50 55 a0 9c 01 03 30 2e 35 00 01 03 43 50 55 a0 9c 01 01 02 00 00 01 03 00 01 ac 02 \
         01 01 70 01 01 71 01 77",
    );
    // One that nobody can have is refused where it is read.
    let bytes = b"\x00\x25\x01t\x01\x00\x00\x00\x00\x00\x00";
    assert!(decode::<Frame<Request>>(bytes).is_err());
}

#[test]
fn what_joins_with_tokens_and_may_do() {
    let of_nodes = Request::CreateToken {
        is_reusable: true,
        lifetime_ms: 300,
    };
    assert_bytes(of_nodes, "1a 01 ac 02");
    assert_bytes(Request::RevokeClient("n".into()), "27 01 6e");
    let access = Access {
        name: "n".into(),
        role: Role::Viewer,
        tenants: "t".parse().unwrap(),
    };
    let token = ClientToken {
        access: access.clone(),
        is_reusable: true,
        lifetime_ms: 300,
    };
    assert_bytes(
        Request::CreateClientToken(Box::new(token)),
        "35 01 6e 06 76 69 65 77 65 72 01 74 01 ac 02",
    );
    assert_bytes(Request::WhoAmI, "36");
    let who = WhoAmI {
        access: access.clone(),
        tenant: "t".parse().unwrap(),
        node: "m".into(),
        from: "f".into(),
    };
    assert_bytes(
        Response::WhoAmI(Box::new(who)),
        "26 01 6e 06 76 69 65 77 65 72 01 74 01 74 01 6d 01 66",
    );
    assert_bytes(Request::List(List::of(What::Access)), "10 0b 00 00 00");
    let row = AccessRow {
        id: "i".into(),
        name: Some("n".into()),
        state: "s".into(),
        age_ms: Some(300),
        left_ms: None,
        role: access.role,
        tenants: access.tenants,
    };
    assert_bytes(
        listed(Rows::Access(vec![row])),
        "0f 0b 01 01 69 01 01 6e 01 73 01 ac 02 00 06 76 69 65 77 65 72 01 74 01 01 70 01 01 71 01 77",
    );
}

#[test]
fn the_audit() {
    let list = List::of(What::Audit);
    assert_bytes(Request::List(list), "10 0e 00 00 00");
    let row = AuditRow {
        sequence: 7,
        time_us: 300,
        time: "t".into(),
        node: "n".into(),
        who: "w".into(),
        from: "f".into(),
        tenant: Some("x".into()),
        action: "a".into(),
        subject: None,
        job: Some(DriverId::from_bytes([8; 16])),
        details: [("k".to_owned(), "v".to_owned())].into(),
        outcome: "o".into(),
        kind: Some("i".into()),
        error: Some("e".into()),
    };
    assert_bytes(
        listed(Rows::Audit(vec![row])),
        "0f 0d 01 07 ac 02 01 74 01 6e 01 77 01 66 01 01 78 01 61 00 01 08x16 01 01 6b 01 76 01 6f 01 01 69 01 01 65 01 01 70 01 01 71 01 77",
    );
}

#[test]
fn nodes_are_removed_by_this() {
    let remove = Request::RemoveNode {
        node: "n".into(),
        is_forced: true,
    };
    assert_bytes(remove, "28 01 6e 01");
}

#[test]
fn responses_about_tasks() {
    assert_bytes(Request::RanAt(TASK), "2c 07x16");
    assert_bytes(Request::Given(TASK), "32 07x16");
    assert_bytes(Response::Submitted(TASK), "05 07x16");
    assert_bytes(
        Response::Given(Box::new(submit())),
        "24 09x32 01 01 66 01 6e 02 00 00 01 05 01 07x16 00x4 01 01 61 01 04 01 03 43 50 55 a0 9c 01 01 01 74 01 01 03 01x4 06 7a 6f 6e 65 3d 61 02 01 01 02 03 ac 02 01 01 6b 01 76 01 02 2f 68 01 67 01 01 01 00 7f 00 00 01 50 01 08 61 2e 6f 72 67 3a 38 31 01 01 53 01 4b 01 01 06 01 00 01 0ax16 0bx8 01 03 6b 3d 76",
    );
    let here = Response::SubmittedHere {
        task: TASK,
        why: "w".into(),
    };
    assert_bytes(here, "19 07x16 01 77");
    assert_bytes(Response::SubmittedAll(vec![TASK, TASK]), "15 02 07x32");
    let output = Output {
        is_stderr: true,
        writer: 300,
        attempt: 2,
        bytes: Bytes(vec![1]),
    };
    assert_bytes(Response::Output(output), "06 01 ac 02 02 01 01");
    let report = Report {
        task: TASK,
        result: Err((&TaskError::Arguments("x".into())).into()),
        waited_us: 1,
        ran_us: 2,
        held: vec![held_resource()],
        memory_peak_bytes: 3,
        stderr_tail: "e".into(),
        attempt: 4,
    };
    assert_bytes(
        Response::Ended(Box::new(report)),
        "07x17 01 01 05 01 78 01 02 01 03 43 50 55 90 4e 01 00 88 27 03 01 65 04",
    );
    let detail = TaskDetail {
        row: task_row(),
        retried: vec![],
        error: Some((&TaskError::Cancelled).into()),
        stderr_tail: "e".into(),
        object: Some(object()),
        explanation: Some("w".into()),
    };
    assert_bytes(
        Response::Task(Box::new(detail)),
        "10 07x16 01 6e 01 73 01 74 08x16 01 07x16 06 01 0ax16 0bx8 01 03 6b 3d 76 01 03x16 01 04 02 01 \
         05 ac 02 01 6d 01 07x16 00x4 01 03 43 50 55 90 4e 01 00 88 27 01 01 01 02 03 04 05 06 07 0a 08 09 01 01 65 00 01 01 04 \
         01 65 01 07x16 00x4 01 01 77",
    );
    let actor = ActorDetail {
        row: actor_row(),
        is_detached: true,
        age_ms: 300,
        explanation: Some("w".into()),
    };
    assert_bytes(
        Response::ActorDetail(Box::new(actor)),
        "1b 03x16 01 01 6e 01 63 01 73 01 74 08x16 01 6d 02 03 01 ac 02 01 01 66 01 ac 02 01 01 77",
    );
    let job = JobDetail {
        row: job_row(),
        tasks: vec![],
        silent: vec![Silent {
            node: "m".into(),
            why: "w".into(),
        }],
    };
    assert_bytes(
        Response::Job(Box::new(job)),
        "1c 08x16 01 6e 01 73 01 74 01 62 01 05 ac 02 01 06 01 02 03 04 05 06 01 6d 00 01 01 6d 01 \
         77",
    );
    assert_bytes(Response::Text("w".into()), "11 01 77");
    assert_bytes(Response::TimedOut, "0c");
}

#[test]
fn responses_with_values() {
    assert_bytes(Response::Continue, "02");
    assert_bytes(Response::Staging(300), "22 ac 02");
    assert_bytes(Response::Object(object()), "08 07x16 00x4");
    assert_bytes(Response::Chunk(Bytes(vec![1, 2])), "0a 02 01 02");
    let value = Gotten::Value {
        form: Form::Postcard,
        bytes: Bytes(vec![5]),
    };
    let failed = Gotten::Failed {
        origin: TASK,
        error: (&TaskError::Cancelled).into(),
    };
    assert_bytes(
        Response::Values(vec![value, Gotten::Large, failed]),
        "16 03 00 00 01 05 01 02 07x16 01 04",
    );
}

#[test]
fn failures() {
    let limit = || LimitHit {
        kind: LimitKind::Time,
        limit: 300,
        wanted: Some(4),
    };
    let frames = || {
        vec![StackFrame {
            function: "f".into(),
            location: Some("a:1".into()),
        }]
    };
    let passed = Failure {
        kind: FailureKind::Trap,
        message: "m".into(),
        origin: TASK,
        payload: Some(vec![5]),
    };
    let died = |cause: Option<TaskError>| TaskError::ActorDied {
        actor: ACTOR,
        cause: cause.map(Box::new),
    };
    let after = |cause: TaskError| TaskError::Dependency {
        index: 300,
        task: TASK,
        name: "n".into(),
        cause: Box::new(cause),
    };
    let trap = TaskError::Trap {
        message: "m".into(),
        frames: frames(),
    };
    let guest = TaskError::Guest {
        text: "t".into(),
        value: Encoded::Postcard(vec![1, 2]),
        passed: Some(Box::new(passed)),
    };
    let exit = TaskError::Exit {
        code: -1,
        limit: Some(limit()),
    };
    let limited = TaskError::Limit {
        hit: limit(),
        frames: frames(),
    };
    let gone = TaskError::Gone {
        object: object(),
        why: "w".into(),
    };
    let preempted = TaskError::Preempted {
        tenant: None,
        why: "w".into(),
    };
    let cases = [
        (trap, "01 00 01 6d 01 01 66 01 03 61 3a 31"),
        (guest, "01 01 01 74 00 02 01 02 01 01 01 6d 07x16 01 01 05"),
        (exit, "01 02 01 01 01 ac 02 01 04"),
        (limited, "01 03 01 ac 02 01 04 01 01 66 01 03 61 3a 31"),
        (TaskError::Cancelled, "01 04"),
        (TaskError::Arguments("w".into()), "01 05 01 77"),
        (died(None), "01 07 03x16"),
        (TaskError::Unschedulable("w".into()), "01 08 01 77"),
        (TaskError::Sandbox("w".into()), "01 09 01 77"),
        (TaskError::Lost(object()), "01 0a 07x16 00x4"),
        (gone, "01 0b 07x16 00x4 01 77"),
        (preempted, "01 0c 00 01 77"),
        // What led to it comes after it.
        (
            after(died(Some(after(TaskError::Cancelled)))),
            "04 06 ac 02 07x16 01 6e 07 03x16 06 ac 02 07x16 01 6e 04",
        ),
    ];
    for (error, expected) in cases {
        let there = WireError::from(&error);
        assert_eq!(TaskError::from(there.clone()), error);
        assert_bytes(there, expected);
    }
}

#[test]
fn responses_about_modules_and_actors() {
    let module = Module {
        digest: Digest::from_bytes([9; 32]),
        has_program: true,
        functions: vec![("f".into(), function())],
        classes: vec![("c".into(), function())],
    };
    assert_bytes(
        Response::Module(Box::new(module)),
        "03 09x32 01 01 01 66 01 01 61 01 02 01 01 0c 01 01 63 01 01 61 01 02 01 01 0c",
    );
    assert_bytes(Response::Unknown, "04");
    let actor = Actor {
        name: ActorName {
            id: ACTOR,
            owner: NodeId::from_bytes([6; 16]),
        },
        class: "c".into(),
        methods: vec![("m".into(), function())],
    };
    let here = Response::ActorHere {
        actor: Box::new(actor.clone()),
        why: "w".into(),
    };
    assert_bytes(
        here,
        "1a 03x16 06x16 01 63 01 01 6d 01 01 61 01 02 01 01 0c 01 77",
    );
    assert_bytes(
        Response::Actor(Box::new(actor)),
        "0e 03x16 06x16 01 63 01 01 6d 01 01 61 01 02 01 01 0c",
    );
}

fn object_row() -> ObjectRow {
    ObjectRow {
        id: object(),
        size_bytes: 300,
        place: "p".into(),
        tenant: "t".parse().unwrap(),
        is_kept: true,
        node: "m".into(),
        copy: Some("c".into()),
        references: Some(2),
        pins: Some(1),
    }
}

#[test]
fn an_object_and_who_needs_it() {
    let detail = ObjectDetail {
        copies: vec![object_row()],
        holders: vec![Holder {
            kind: "k".into(),
            id: Some("i".into()),
            name: "n".into(),
            state: Some("s".into()),
            how: "h".into(),
            node: "m".into(),
        }],
        more_holders: 300,
        silent: vec![Silent {
            node: "p".into(),
            why: "q".into(),
        }],
    };
    assert_bytes(
        Response::ObjectDetail(Box::new(detail)),
        "23 01 07x16 00x4 ac 02 01 70 01 74 01 01 6d 01 01 63 01 02 01x4 6b 01 01 69 01 6e 01 01 73 01 68 01 6d ac 02 01 01 70 01 71",
    );
}

#[test]
fn lists_and_the_status() {
    assert_bytes(
        listed(Rows::Tasks(vec![task_row()])),
        "0f 00 01 07x16 01 6e 01 73 01 74 08x16 01 07x16 06 01 0ax16 0bx8 01 03 6b 3d 76 01 03x16 01 04 02 01 05 ac 02 01 6d 01 07x16 00x4 01 03 43 50 55 90 4e 01 00 88 27 01 01 01 02 03 04 05 06 07 0a 08 09 01 01 65 01 01 70 01 01 71 01 77",
    );
    assert_bytes(
        listed(Rows::Actors(vec![actor_row()])),
        "0f 01 01 03x16 01 01 6e 01 63 01 73 01 74 08x16 01 6d 02 03 01 ac 02 01 01 66 01 01 70 01 \
         01 71 01 77",
    );
    assert_bytes(
        listed(Rows::Objects(vec![object_row()])),
        "0f 02 01 07x16 00x4 ac 02 01 70 01 74 01 01 6d 01 01 63 01 02 01x4 70 01 01 71 01 77",
    );
    assert_bytes(
        listed(Rows::Jobs(vec![job_row()])),
        "0f 03 01 08x16 01 6e 01 73 01 74 01 62 01 05 ac 02 01 06 01 02 03 04 05 06 01 6d 01 01 70 \
         01 01 71 01 77",
    );
    let module = ModuleRow {
        digest: Digest::from_bytes([9; 32]),
        exports: 2,
        has_program: true,
        node: "m".into(),
    };
    assert_bytes(
        listed(Rows::Modules(vec![module])),
        "0f 04 01 09x32 02 01 01 6d 01 01 70 01 01 71 01 77",
    );
    assert_bytes(
        listed(Rows::Nodes(vec![status()])),
        "0f 05 01 01 6e 01 76 01 02 00 03 01 03 43 50 55 a0 9c 01 00 01 01 73 04 05 06 07 08 09 01 \
         01 70 01 01 71 01 77",
    );
    let tenant = TenantRow {
        name: "t".parse().unwrap(),
        used: amounts(),
        objects_bytes: 300,
        share: "0.5".into(),
        submitted: 1,
        finished: 2,
        failed: 3,
        cancelled: 4,
        node: "m".into(),
    };
    assert_bytes(
        listed(Rows::Tenants(vec![tenant])),
        "0f 06 01 01 74 01 03 43 50 55 a0 9c 01 ac 02 03 30 2e 35 01 02 03 04 01 6d 01 01 70 01 01 71 01 \
         77",
    );
    assert_bytes(
        Response::Status(Box::new(status())),
        "12 01 6e 01 76 01 02 00 03 01 03 43 50 55 a0 9c 01 00 01 01 73 04 05 06 07 08 09",
    );
}
