//! Which requests change something, and what the audit says of each.
//!
//! Owns the table of them ([`said`]) and what of work is said once for many tasks ([`kind_of_work`]). Must not: say what tasks
//! are given, values of environment variables, tokens or keys.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::LazyLock;

use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{Digest, DriverId};
use wasmrun_model::scheduler::Setting;
use wasmrun_model::wire::{
    Amounts, ChangeTenant, Create, CreateGroup, Entry, Grants, Net, Request, Serve, SetResource,
    Submit,
};

/// What is said of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    /// As the command line calls it.
    pub(super) action: &'static str,
    /// What it is done to, if the request says so.
    pub(super) subject: Option<String>,
    pub(super) job: Option<DriverId>,
    /// Whose work it is, if that is not the session's tenant.
    pub(super) tenant: Option<TenantName>,
    pub(super) details: BTreeMap<&'static str, String>,
}

impl Said {
    fn new(action: &'static str) -> Self {
        Self {
            action,
            subject: None,
            job: None,
            tenant: None,
            details: BTreeMap::new(),
        }
    }

    fn of(action: &'static str, subject: impl Display) -> Self {
        Self {
            subject: Some(subject.to_string()),
            ..Self::new(action)
        }
    }

    fn with(mut self, key: &'static str, value: impl Display) -> Self {
        self.details.insert(key, value.to_string());
        self
    }

    /// Not what is empty.
    fn with_any(self, key: &'static str, value: impl Display) -> Self {
        let value = value.to_string();
        match value.is_empty() {
            true => self,
            false => self.with(key, value),
        }
    }

    fn in_job(self, job: DriverId) -> Self {
        Self {
            job: Some(job),
            ..self
        }
    }

    fn of_tenant(self, tenant: Option<&TenantName>) -> Self {
        Self {
            tenant: tenant.cloned(),
            ..self
        }
    }

    fn reaching(self, grants: &Grants) -> Self {
        let dirs = grants.dirs.iter().map(|dir| match dir.is_read_only {
            true => format!("{}:ro", dir.host),
            false => dir.host.clone(),
        });
        let net = match &grants.net {
            Net::None => String::new(),
            Net::Only(addresses) => listed(addresses),
            Net::All => "all".to_owned(),
        };
        let dirs: Vec<String> = dirs.collect();
        self.with_any("dirs", dirs.join(","))
            .with_any("net", net)
            .with_any("http", listed(&grants.http))
            .with_any("secrets", secrets(grants).join(","))
    }
}

/// What is said of a request of a session with this driver; nothing of one that changes nothing, or only what the session has.
pub(super) fn said(request: &Request, own: DriverId) -> Option<Said> {
    Some(match request {
        Request::Module(_)
        | Request::Chunk(_)
        | Request::Staged { .. }
        | Request::Input { .. }
        | Request::InputFailed { .. }
        | Request::InputWanted(_)
        | Request::Get { .. }
        | Request::GetAll { .. }
        | Request::Wait { .. }
        | Request::Release(_)
        | Request::ReleaseActor(_)
        | Request::Unpin(_)
        | Request::FindActor(_)
        | Request::FindObject(_)
        | Request::Actor(_)
        | Request::ActorReady { .. }
        | Request::GroupReady { .. }
        | Request::RanAt(_)
        | Request::List(_)
        | Request::Describe(_)
        | Request::Explain(_)
        | Request::Logs(_)
        | Request::Status
        | Request::SchedulerState
        | Request::Secrets
        | Request::WhoAmI
        // As when the session ends: a command says so at its end.
        | Request::CancelMine
        | Request::Given(_) => return None,
        Request::Upload { digest, len } => Said::of("module upload", digest).with("bytes", len),
        // What is not kept goes with the session.
        Request::Put(put) if !put.is_kept => return None,
        Request::Put(put) => Said::new("put").with("bytes", put.len),
        Request::Submit(submit) => match submit.is_detached {
            true => task(submit),
            false => task(submit).in_job(own),
        },
        Request::SubmitAll { submit, .. } => task(submit).in_job(own),
        Request::SubmitOnce { submit, job, .. } => {
            task(submit).in_job(job.id).with_any("job_name", &job.name)
        }
        Request::Create(create) => actor(create, own),
        Request::Call(call) => Said::of("actor call", call.actor)
            .in_job(own)
            .with("method", &call.method),
        Request::Kill(name) => Said::of("actor kill", name),
        Request::KillActor(actor) => Said::of("actor kill", actor),
        Request::Cancel(text) => match text.parse::<DriverId>() {
            Ok(job) if job.job() == job => Said::of("job cancel", text).in_job(job),
            _ => Said::of("cancel", text),
        },
        Request::CancelObject(object) => Said::of("cancel", object.task()),
        Request::Delete(prefix) => Said::of("object delete", prefix),
        Request::CreateGroup(create) => group(create, own),
        Request::RemoveGroup(text) => Said::of("group remove", text),
        Request::Serve(serve) => service(serve),
        Request::StopService { name, .. } => Said::of("service stop", name),
        Request::ChangeTenant(change) => tenant(change),
        Request::RemoveTenant(name) => Said::of("tenant remove", name),
        Request::Scheduling(settings) if settings.is_empty() => return None,
        Request::Scheduling(settings) => scheduling(settings),
        Request::SetResource(set) => resource(set),
        Request::CreateToken {
            is_reusable,
            lifetime_ms,
        } => Said::new("node token create")
            .with("kind", "node")
            .with("many", is_reusable)
            .with("lifetime_ms", lifetime_ms),
        Request::CreateClientToken(token) => Said::new("node token create")
            .with("kind", "client")
            .with("role", token.access.role)
            .with("tenants", &token.access.tenants)
            .with("many", token.is_reusable)
            .with("lifetime_ms", token.lifetime_ms)
            .with_any("name", &token.access.name),
        Request::SetSecret { name, .. } => Said::of("secret set", name),
        Request::RemoveSecret(name) => Said::of("secret remove", name),
        Request::RotateSecrets => Said::new("secret rotate"),
        Request::RevokeToken(prefix) => Said::of("node token revoke", prefix),
        Request::RevokeClient(text) => Said::of("client revoke", text),
        Request::Drain { node, is_draining } => {
            Said::of("node drain", node).with("undo", !is_draining)
        }
        Request::RemoveNode { node, is_forced } => {
            Said::of("node remove", node).with("force", is_forced)
        }
        Request::Stop { is_now } => Said::new("node stop").with("now", is_now),
        Request::Dashboard => Said::new("dashboard"),
    })
}

fn task(submit: &Submit) -> Said {
    Said::new("task submit")
        .with("module", submit.module)
        .with("function", function(&submit.entry))
        .with_any("name", &submit.name)
        .with("detached", submit.is_detached)
        .of_tenant(submit.terms.tenant.as_ref())
        .reaching(&submit.grants)
}

fn function(entry: &Entry) -> &str {
    match entry {
        Entry::Program => "program",
        Entry::Function(name) => name,
    }
}

fn actor(create: &Create, own: DriverId) -> Said {
    let said = Said::new("actor create")
        .with("module", create.module)
        .with("class", &create.class)
        .with_any("name", create.name.as_deref().unwrap_or_default())
        .with("detached", create.is_detached)
        .of_tenant(create.terms.tenant.as_ref())
        .reaching(&create.grants);
    match create.is_detached {
        true => said,
        false => said.in_job(own),
    }
}

fn group(create: &CreateGroup, own: DriverId) -> Said {
    let said = Said::new("group create")
        .with("kind", create.spec.kind())
        .with_any("name", create.name.as_deref().unwrap_or_default())
        .with("detached", create.is_detached);
    match create.is_detached {
        true => said,
        false => said.in_job(own),
    }
}

fn service(serve: &Serve) -> Said {
    Said::of("serve", &serve.name)
        .with("module", serve.module)
        .with("address", serve.address)
        .with("tls", serve.tls.is_some())
        .with("detached", serve.is_detached)
        .of_tenant(serve.terms.tenant.as_ref())
        .reaching(&serve.grants)
}

fn tenant(change: &ChangeTenant) -> Said {
    let mut said = Said::of("tenant set", &change.tenant);
    if let Some(weight) = &change.weight {
        said = said.with("weight", weight);
    }
    if let Some(min) = &change.min {
        said = said.with("min", amounts(min));
    }
    if let Some(weights) = &change.resource_weights {
        let weights = weights.iter().map(|(name, it)| format!("{name}={it}"));
        said = said.with("resource_weights", weights.collect::<Vec<_>>().join(","));
    }
    if let Some(max) = &change.max {
        said = said.with("max", amounts(max));
    }
    for (key, most) in [
        ("max_detached", change.max_detached),
        ("max_objects", change.max_objects),
        ("max_tasks", change.max_tasks.map(|it| it.map(u64::from))),
        (
            "max_waiting",
            change.max_waiting.map(|it| it.map(u64::from)),
        ),
    ] {
        let most = most.map(|it| it.map_or_else(|| "none".to_owned(), |it| it.to_string()));
        if let Some(most) = most {
            said = said.with(key, most);
        }
    }
    match change.no_preempt {
        Some(true) => said.with("no_preempt", "allow"),
        Some(false) => said.with("no_preempt", "refuse"),
        None => said,
    }
}

fn scheduling(settings: &[Setting]) -> Said {
    let choices = settings.iter().map(|setting| match setting {
        Setting::Policy(policy) => format!("policy={policy}"),
        Setting::SpreadThreshold(share) => format!("spread-threshold={share}"),
        Setting::TopShare(share) => format!("top-share={share}"),
        Setting::TopNodes(count) => format!("top-nodes={count}"),
        Setting::LocalQueue(count) => format!("local-queue={count}"),
        Setting::Preemption(true) => "preemption=on".to_owned(),
        Setting::Preemption(false) => "preemption=off".to_owned(),
        Setting::Patience(time) => format!("patience={}ms", time.as_millis()),
    });
    Said::of("scheduling set", choices.collect::<Vec<_>>().join(","))
}

fn resource(set: &SetResource) -> Said {
    let said = match &set.amount {
        Some(amount) => {
            Said::of("node resource set", &set.name).with("amount", amount.display_for(&set.name))
        }
        None => Said::of("node resource delete", &set.name),
    };
    said.with_any("node", set.node.as_deref().unwrap_or_default())
        .with("persist", set.is_kept)
}

fn amounts(amounts: &Amounts) -> String {
    let each = amounts.iter();
    let each = each.map(|(name, amount)| format!("{name}={}", amount.display_for(name)));
    each.collect::<Vec<_>>().join(",")
}

/// Their names.
fn secrets(grants: &Grants) -> Vec<&str> {
    let secrets = grants.secrets.iter();
    secrets.map(|it| it.name.as_str()).collect()
}

fn listed(all: &[impl Display]) -> String {
    let all = all.iter().map(ToString::to_string);
    all.collect::<Vec<_>>().join(",")
}

/// What a job does over and over, as a number: of the tasks that have one in common, the first is in the audit. None of what is
/// rare.
pub(super) fn kind_of_work(request: &Request, own: DriverId) -> Option<u64> {
    // With known keys a client could find work that has no line, because it has the number of other work that has one.
    static HASH: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let mut hasher = HASH.build_hasher();
    match request {
        Request::Submit(submit) if !submit.is_detached => hash_task(submit, own, &mut hasher),
        Request::SubmitAll { submit, .. } => hash_task(submit, own, &mut hasher),
        Request::SubmitOnce { submit, job, .. } => hash_task(submit, job.id, &mut hasher),
        Request::Create(create) if !create.is_detached && create.name.is_none() => {
            hash_code(&create.module, &create.class, &mut hasher);
            hash_grants(&create.grants, &mut hasher);
            create
                .terms
                .tenant
                .as_ref()
                .map(TenantName::as_str)
                .hash(&mut hasher);
        }
        Request::Call(call) => (call.actor.as_bytes(), &call.method).hash(&mut hasher),
        _ => return None,
    }
    Some(hasher.finish())
}

fn hash_task(submit: &Submit, job: DriverId, hasher: &mut DefaultHasher) {
    job.as_bytes().hash(hasher);
    hash_code(&submit.module, function(&submit.entry), hasher);
    submit
        .terms
        .tenant
        .as_ref()
        .map(TenantName::as_str)
        .hash(hasher);
    hash_grants(&submit.grants, hasher);
}

fn hash_code(module: &Digest, name: &str, hasher: &mut DefaultHasher) {
    (module.as_bytes(), name).hash(hasher);
}

fn hash_grants(grants: &Grants, hasher: &mut DefaultHasher) {
    for dir in &grants.dirs {
        (&dir.host, dir.is_read_only).hash(hasher);
    }
    match &grants.net {
        Net::None => {}
        Net::Only(addresses) => addresses.hash(hasher),
        Net::All => u64::MAX.hash(hasher),
    }
    secrets(grants).hash(hasher);
    for host in &grants.http {
        host.to_string().hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_model::id::{ActorId, ObjectId, TaskId};
    use wasmrun_model::value::Encoded;
    use wasmrun_model::wire::{self, Argument, Bytes, Dir, Input, Job, List, What};

    use super::*;

    const OWN: DriverId = DriverId::session([5; 16]);
    /// What must stand in no line.
    const SECRET: &str = "hunter2";

    fn submit() -> Submit {
        Submit {
            name: "sum".into(),
            values: vec![Argument::Value(Encoded::Postcard(SECRET.into()))],
            args: vec![SECRET.into()],
            grants: Grants {
                env: vec![("PASSWORD".into(), SECRET.into())],
                dirs: vec![Dir {
                    host: "/srv".into(),
                    guest: "/d".into(),
                    is_read_only: true,
                }],
                net: Net::All,
                http: Vec::new(),
                secrets: vec!["TOKEN=API_KEY".parse().unwrap()],
            },
            input: Input::Bytes(Bytes(SECRET.into())),
            is_watched: true,
            ..Submit::new(Digest::from_bytes([9; 32]), Entry::Function("add".into()))
        }
    }

    fn once(job: DriverId) -> Request {
        Request::SubmitOnce {
            task: TaskId::from_bytes([1; 16]),
            submit: Box::new(submit()),
            job: Job {
                id: job,
                name: "j".into(),
                tasks: 1,
            },
            is_again: false,
        }
    }

    #[test]
    fn a_task_is_said_without_what_it_is_given() {
        let request = Request::Submit(Box::new(submit()));
        let task = said(&request, OWN).unwrap();
        assert_eq!((task.action, task.job), ("task submit", Some(OWN)));
        let details: Vec<(&str, &str)> =
            task.details.iter().map(|(key, it)| (*key, &**it)).collect();
        let module = "09".repeat(32);
        let expected = [
            ("detached", "false"),
            ("dirs", "/srv:ro"),
            ("function", "add"),
            ("module", &*module),
            ("name", "sum"),
            ("net", "all"),
            ("secrets", "API_KEY"),
        ];
        assert_eq!(details, expected);
    }

    #[test]
    fn secrets_are_in_no_line() {
        let serve = Serve {
            name: "s".into(),
            module: Digest::from_bytes([9; 32]),
            routes: Vec::new(),
            address: "127.0.0.1:80".parse().unwrap(),
            tls: Some((Bytes(SECRET.into()), Bytes(SECRET.into()))),
            hosts: Vec::new(),
            most_running: 1,
            most_waiting: 1,
            patience_ms: 1,
            terms: wire::Terms::default(),
            limits: wire::Limits::default(),
            grants: submit().grants,
            is_detached: true,
        };
        let job = DriverId::detached([6; 16]);
        for request in [
            Request::Submit(Box::new(submit())),
            once(job),
            Request::Serve(Box::new(serve)),
        ] {
            let text = format!("{:?}", said(&request, OWN).unwrap());
            assert!(!text.contains(SECRET), "{text}");
        }
    }

    #[test]
    fn what_is_asked_of_the_cluster_is_called_as_on_the_command_line() {
        let object = ObjectId::of(TaskId::from_bytes([7; 16]), 0);
        let (job, task) = (OWN.to_string(), "07".repeat(16));
        let drain = Request::Drain {
            node: "b".into(),
            is_draining: true,
        };
        for (request, action, subject) in [
            (Request::Kill("total".into()), "actor kill", "total"),
            (Request::Cancel(job.clone()), "job cancel", &*job),
            (Request::Cancel("ab".into()), "cancel", "ab"),
            (Request::CancelObject(object), "cancel", &*task),
            (Request::RevokeClient("ci".into()), "client revoke", "ci"),
            (drain, "node drain", "b"),
        ] {
            let said = said(&request, OWN).unwrap();
            assert_eq!(
                (said.action, said.subject.as_deref()),
                (action, Some(subject))
            );
        }
        let policy = wasmrun_model::fairness::Policy::Fifo;
        let set = Request::Scheduling(vec![Setting::Policy(policy), Setting::TopNodes(3)]);
        let set = said(&set, OWN).unwrap();
        assert_eq!(set.subject.as_deref(), Some("policy=fifo,top-nodes=3"));
    }

    #[test]
    fn all_that_changes_of_a_tenant_is_said() {
        let change = ChangeTenant {
            tenant: "t".parse().unwrap(),
            weight: Some("3".parse().unwrap()),
            min: Some(Amounts::new()),
            resource_weights: Some(BTreeMap::new()),
            max: Some(Amounts::new()),
            max_tasks: Some(Some(2)),
            max_waiting: Some(None),
            max_objects: Some(Some(4096)),
            max_detached: Some(Some(7)),
            no_preempt: Some(false),
        };
        let said = tenant(&change);
        let details: Vec<(&str, &str)> =
            said.details.iter().map(|(key, it)| (*key, &**it)).collect();
        let expected = [
            ("max", ""),
            ("max_detached", "7"),
            ("max_objects", "4096"),
            ("max_tasks", "2"),
            ("max_waiting", "none"),
            ("min", ""),
            ("no_preempt", "refuse"),
            ("resource_weights", ""),
            ("weight", "3"),
        ];
        assert_eq!(details, expected);
    }

    #[test]
    fn what_changes_nothing_is_not_said() {
        for request in [
            Request::Scheduling(Vec::new()),
            Request::List(List::of(What::Tasks)),
            Request::Status,
            Request::Release(Vec::new()),
        ] {
            assert_eq!(said(&request, OWN), None);
        }
    }

    #[test]
    fn work_is_told_apart_by_what_runs_and_what_it_reaches() {
        let kind = |submit: Submit| kind_of_work(&Request::Submit(Box::new(submit)), OWN);
        let same = Submit {
            args: Vec::new(),
            values: Vec::new(),
            ..submit()
        };
        assert_eq!(kind(submit()), kind(same));
        let mut others = vec![submit(), submit(), submit(), submit()];
        others[0].entry = Entry::Program;
        others[1].module = Digest::from_bytes([8; 32]);
        others[2].grants.dirs[0].is_read_only = false;
        others[3].terms.tenant = Some("blue".parse().unwrap());
        for other in others {
            assert_ne!(kind(submit()), kind(other));
        }
        let (one, other) = (DriverId::detached([1; 16]), DriverId::detached([2; 16]));
        assert_ne!(
            kind_of_work(&once(one), OWN),
            kind_of_work(&once(other), OWN)
        );
        let detached = Submit {
            is_detached: true,
            ..submit()
        };
        assert_eq!(kind(detached), None, "each is a job");
        let kill = Request::KillActor(ActorId::from_bytes([1; 16]));
        assert_eq!(kind_of_work(&kill, OWN), None);
        // Nobody outside can tell which number it is.
        let mut known = DefaultHasher::new();
        hash_task(&submit(), OWN, &mut known);
        assert_ne!(kind(submit()), Some(known.finish()));
    }
}
