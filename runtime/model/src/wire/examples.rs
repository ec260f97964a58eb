//! A request of each kind, for tests that go over all of them.

use super::*;
use crate::access::Access;
use crate::fairness::Weight;
use crate::group::{GroupKind, GroupSpec};
use crate::id::{ActorId, Digest, DriverId, ObjectId, TaskId};
use crate::resource::{Amount, Request as Bundle, ResourceName, ResourceSet};
use crate::scheduler::Setting;
use crate::secret::SecretName;
use crate::value::Encoded;

const TASK: TaskId = TaskId::from_bytes([7; 16]);
const ACTOR: ActorId = ActorId::from_bytes([3; 16]);
const MODULE: Digest = Digest::from_bytes([9; 32]);

/// The kinds of requests that are to run something, for this tenant and with these grants.
pub fn runs(tenant: Option<&TenantName>, grants: &Grants) -> Vec<Request> {
    let terms = Terms {
        tenant: tenant.cloned(),
        ..Terms::default()
    };
    let submit = || {
        Box::new(Submit {
            terms: terms.clone(),
            grants: grants.clone(),
            ..Submit::new(MODULE, Entry::Program)
        })
    };
    let create = Create {
        terms: terms.clone(),
        grants: grants.clone(),
        ..Create::new(MODULE, "c".into())
    };
    let serve = Serve {
        name: "s".into(),
        module: MODULE,
        routes: Vec::new(),
        address: Listen::At(([127, 0, 0, 1], 0).into()),
        tls: None,
        hosts: Vec::new(),
        most_running: 1,
        most_waiting: 1,
        patience_ms: 1,
        terms: terms.clone(),
        limits: Limits::default(),
        grants: grants.clone(),
        is_detached: false,
    };
    let job = Job {
        id: DriverId::detached([1; 16]),
        name: String::new(),
        tasks: 0,
    };
    vec![
        Request::Submit(submit()),
        Request::SubmitOnce {
            task: TASK,
            submit: submit(),
            job,
            is_again: false,
        },
        Request::SubmitAll {
            submit: submit(),
            calls: vec![Vec::new()],
        },
        Request::Create(Box::new(create)),
        Request::Serve(Box::new(serve)),
    ]
}

/// A request for each list.
pub fn lists() -> Vec<Request> {
    let all = [
        What::Tasks,
        What::Actors,
        What::Objects,
        What::Jobs,
        What::Modules,
        What::Nodes,
        What::Tenants,
        What::Members,
        What::Tokens,
        What::Groups,
        What::Due,
        What::Access,
        What::Attempts,
        What::Services,
        What::Audit,
    ];
    all.map(|what| Request::List(List::of(what))).into()
}

/// Requests of all kinds, those that differ in what they need more than once.
pub fn requests() -> Vec<Request> {
    let dir = Dir {
        host: "/".into(),
        guest: "/".into(),
        is_read_only: true,
    };
    let with_dir = Grants {
        dirs: vec![dir],
        ..Grants::default()
    };
    let mut all = runs(None, &Grants::default());
    all.extend(runs(None, &with_dir));
    all.extend(lists());
    all.extend(of_work());
    all.extend(of_looks());
    all.extend(of_the_cluster());
    all
}

fn of_work() -> Vec<Request> {
    let object = ObjectId::of(TASK, 0);
    let put = Put {
        form: Form::Postcard,
        len: 1,
        is_kept: true,
        room_ms: None,
        can_stage: false,
        objects: Vec::new(),
        actors: Vec::new(),
    };
    let call = Call {
        actor: ACTOR,
        method: "m".into(),
        values: vec![Argument::Value(Encoded::Postcard(vec![5]))],
        is_watched: false,
        time_ms: None,
        trace: None,
    };
    let cpu = ResourceSet::from_iter([(ResourceName::CPU, Amount::units(1))]);
    let bundle = Bundle::new(cpu).expect("a bundle");
    let group = CreateGroup {
        spec: GroupSpec::new(GroupKind::Pack, vec![bundle]).expect("a group"),
        name: None,
        is_detached: false,
        selectors: Vec::new(),
    };
    vec![
        Request::Module(MODULE),
        Request::Upload {
            digest: MODULE,
            len: 1,
        },
        Request::Chunk(Bytes(vec![1])),
        Request::Staged { offset: 0, len: 1 },
        Request::Put(Box::new(put)),
        Request::Input {
            task: TASK,
            bytes: Bytes(vec![1]),
        },
        Request::InputFailed {
            task: TASK,
            errno: 5,
        },
        Request::InputWanted(TASK),
        Request::FindActor("n".into()),
        Request::Actor(ACTOR),
        Request::ActorReady {
            actor: ACTOR,
            timeout_ms: None,
        },
        Request::Call(Box::new(call)),
        Request::Kill("n".into()),
        Request::KillActor(ACTOR),
        Request::Cancel("ab".into()),
        Request::CancelMine,
        Request::CancelObject(object),
        Request::Delete("ab".into()),
        Request::CreateGroup(Box::new(group)),
        Request::RemoveGroup("ab".into()),
        Request::Given(TASK),
        Request::SetSecret {
            name: secret(),
            value: Bytes(b"s".to_vec()),
        },
        Request::RemoveSecret(secret()),
        Request::StopService {
            name: "s".into(),
            patience_ms: 1,
        },
    ]
}

fn secret() -> SecretName {
    "S".parse().expect("it is a name")
}

fn of_looks() -> Vec<Request> {
    let object = ObjectId::of(TASK, 0);
    vec![
        Request::Get {
            object: ObjectRef::Prefix("ab".into()),
            timeout_ms: None,
            can_map: true,
        },
        Request::GetAll {
            objects: vec![object],
            timeout_ms: None,
        },
        Request::Wait {
            objects: vec![object],
            count: 1,
            timeout_ms: None,
        },
        Request::FindObject("ab".into()),
        Request::Release(vec![object]),
        Request::ReleaseActor(ACTOR),
        Request::Unpin(vec![1]),
        Request::Describe("ab".into()),
        Request::Explain("ab".into()),
        Request::Logs("ab".into()),
        Request::RanAt(TASK),
        Request::GroupReady {
            group: "ab".into(),
            timeout_ms: None,
        },
        Request::Status,
        Request::Secrets,
        Request::WhoAmI,
        Request::Scheduling(Vec::new()),
    ]
}

fn of_the_cluster() -> Vec<Request> {
    let tenant = TenantName::default();
    let change = ChangeTenant {
        tenant: tenant.clone(),
        weight: Some(Weight::ONE),
        min: None,
        resource_weights: None,
        max: None,
        max_tasks: Some(Some(2)),
        max_waiting: None,
        max_objects: Some(Some(1)),
        max_detached: None,
        no_preempt: Some(true),
    };
    let resource = SetResource {
        node: None,
        name: ResourceName::GPU,
        amount: None,
        is_kept: false,
    };
    let token = ClientToken {
        access: Access::unnamed(),
        is_reusable: false,
        lifetime_ms: 1,
    };
    vec![
        Request::CreateToken {
            is_reusable: false,
            lifetime_ms: 1,
        },
        Request::CreateClientToken(Box::new(token)),
        Request::RevokeToken("ab".into()),
        Request::RevokeClient("ab".into()),
        Request::Drain {
            node: "n".into(),
            is_draining: true,
        },
        Request::RemoveNode {
            node: "n".into(),
            is_forced: true,
        },
        Request::ChangeTenant(Box::new(change)),
        Request::RemoveTenant(tenant),
        Request::SetResource(Box::new(resource)),
        Request::Scheduling(vec![Setting::TopNodes(2)]),
        Request::SchedulerState,
        Request::RotateSecrets,
        Request::Stop { is_now: true },
        Request::Dashboard,
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The numbers of the kinds, as they travel.
    fn kinds(requests: &[Request]) -> BTreeSet<u8> {
        let kind = |request: &Request| {
            let bytes = postcard::to_allocvec(request).expect("bytes");
            bytes[0]
        };
        requests.iter().map(kind).collect()
    }

    #[test]
    fn there_is_one_of_each_kind() {
        let kinds = kinds(&requests());
        let count = u8::try_from(kinds.len()).expect("there are fewer");
        assert!(kinds.iter().copied().eq(0..count), "{kinds:?}");
        // Of a number that is none, nothing that follows is a request.
        for rest in [0, 1] {
            let mut bytes = vec![rest; 200];
            bytes[0] = count;
            assert!(postcard::take_from_bytes::<Request>(&bytes).is_err());
        }
    }

    #[test]
    fn none_is_newer_than_the_protocol() {
        let newer = requests()
            .into_iter()
            .find(|it| it.since() > PROTOCOL.minor);
        assert_eq!(newer, None);
    }
}
