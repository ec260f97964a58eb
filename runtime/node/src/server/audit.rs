//! What the audit of a node says of its sessions, and the list of it.
//!
//! Owns the requests that have changed something and are not answered yet. Each is written when its answer is sent, or when its
//! client is gone. What is said of which request is in [`super::changes`]. Must not: hold up an answer.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use wasmrun_model::access::Tenants;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::DriverId;
use wasmrun_model::wire::{AuditRow, List, Refusal, RefusalKind, Request, Response, Rows, What};

use super::Inner;
use super::changes::{Said, kind_of_work, said};
use super::lists::passes;
use super::session::{Session, refusal};
use crate::audit::{Audit, Entry, Outcome};
use crate::cluster::JoinToken;
use crate::records::object::Reference;

/// How many kinds of work are remembered of a session. Of more it is said again.
const MOST_KINDS: usize = 10_000;
/// How many rows a page has at most: their texts are longer than those of other lists.
const MOST_ROWS: usize = 1000;
/// Why nothing is changed.
const NOT_WRITTEN: &str = "the node cannot write its audit, and was started to change nothing without it \
    (--audit-required): its log says why; give the disk of the audit room";

/// The requests of a session that the audit has a line of, until they are answered.
pub(super) struct Changes {
    audit: Arc<Audit>,
    who: String,
    from: String,
    tenant: TenantName,
    /// Whether work that is said to be for `default` is: who does not have that has said nothing by it.
    has_default: bool,
    /// The numbers of all requests that are not answered yet. No two have the same: each answer is to one.
    unanswered: Mutex<HashSet<u64>>,
    open: Mutex<HashMap<u64, Open>>,
    /// How many these are.
    count: AtomicUsize,
    kinds: Mutex<Kinds>,
}

struct Open {
    said: Said,
    /// Of work that is said once.
    kind: Option<u64>,
}

/// Work that there is a line of.
#[derive(Default)]
struct Kinds {
    done: HashSet<u64>,
    refused: HashSet<u64>,
}

impl Kinds {
    /// Whether this is the first one that came to this.
    fn is_first(&mut self, kind: u64, outcome: &Outcome) -> bool {
        let kinds = match outcome {
            Outcome::Done | Outcome::Unknown => &mut self.done,
            Outcome::Refused { .. } => &mut self.refused,
        };
        if kinds.len() >= MOST_KINDS {
            kinds.clear();
        }
        kinds.insert(kind)
    }
}

impl Changes {
    /// Of a session; none if the node keeps no audit.
    pub(super) fn of(
        audit: &Arc<Audit>,
        who: String,
        from: String,
        (tenant, tenants): (&TenantName, &Tenants),
    ) -> Option<Arc<Self>> {
        audit.is_kept().then(|| {
            Arc::new(Self {
                audit: audit.clone(),
                who,
                from,
                tenant: tenant.clone(),
                has_default: tenants.covers(&TenantName::default()),
                unanswered: Mutex::default(),
                open: Mutex::default(),
                count: AtomicUsize::new(0),
                kinds: Mutex::default(),
            })
        })
    }

    /// Whether no other request has this number that is not answered yet. With two of one number a client could have the audit
    /// say of a change what came of something else.
    fn has_own_number(&self, id: u64, request: &Request) -> bool {
        match request {
            // Parts of another, and what has no answer.
            Request::Chunk(_)
            | Request::Staged { .. }
            | Request::Release(_)
            | Request::ReleaseActor(_)
            | Request::Unpin(_) => true,
            _ => self.unanswered.lock().insert(id),
        }
    }

    /// Notes a request until it is answered.
    fn ask(&self, id: u64, request: &Request, own: DriverId) -> Result<(), Refusal> {
        let kind = kind_of_work(request, own);
        if !kind.is_some_and(|kind| self.kinds.lock().done.contains(&kind)) {
            let Some(said) = said(request, own) else {
                return Ok(());
            };
            let before = self.open.lock().insert(id, Open { said, kind });
            match before {
                // Nobody will know which of the two is answered.
                Some(before) => self.write(before, Outcome::Unknown),
                None => {
                    self.count.fetch_add(1, Ordering::Release);
                }
            }
        }
        match self.audit.refuses() {
            true => Err(refusal(RefusalKind::Full, NOT_WRITTEN)),
            false => Ok(()),
        }
    }

    /// A request is about to have its answer, and its number may be another's.
    pub(super) fn is_over(&self, id: u64) {
        self.unanswered.lock().remove(&id);
    }

    /// A request is about to be answered.
    pub(super) fn answer(&self, id: u64, answer: &Response) {
        // What comes before an answer, or behind it.
        if matches!(
            answer,
            Response::Continue
                | Response::Chunk(_)
                | Response::Values(_)
                | Response::Output(_)
                | Response::Ended(_)
        ) {
            return;
        }
        self.is_over(id);
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let Some(mut open) = self.open.lock().remove(&id) else {
            return;
        };
        self.count.fetch_sub(1, Ordering::Release);
        open.said.complete(answer);
        let outcome = match answer {
            Response::Refused(why) => Outcome::Refused {
                kind: kind_name(why.kind),
                why: why.message.clone(),
            },
            _ => Outcome::Done,
        };
        self.write(open, outcome);
    }

    fn write(&self, open: Open, outcome: Outcome) {
        let Open { said, kind } = open;
        if kind.is_some_and(|kind| !self.kinds.lock().is_first(kind, &outcome)) {
            return;
        }
        let named = said.tenant.as_ref();
        let named = named.filter(|it| self.has_default || **it != TenantName::default());
        let tenant = named.unwrap_or(&self.tenant);
        let is_refused = matches!(outcome, Outcome::Refused { .. });
        let entry = Entry {
            tenant: Some(tenant.to_string()),
            subject: said.subject,
            job: said.job,
            details: said.details,
            outcome,
            ..Entry::new(self.who.clone(), self.from.clone(), said.action)
        };
        match is_refused {
            true => self.audit.add_refused(entry),
            false => self.audit.add(entry),
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let open = std::mem::take(&mut *self.open.lock());
        for (_, open) in open {
            self.write(open, Outcome::Unknown);
        }
    }
}

impl Said {
    /// What only the answer says. A token is a secret, but for its id.
    fn complete(&mut self, answer: &Response) {
        let made = match answer {
            Response::Submitted(task) | Response::SubmittedHere { task, .. } => task.to_string(),
            Response::SubmittedAll(tasks) => {
                self.details.insert("tasks", tasks.len().to_string());
                tasks.first().map(ToString::to_string).unwrap_or_default()
            }
            Response::Object(object) => object.to_string(),
            Response::Actor(actor) | Response::ActorHere { actor, .. } => actor.name.id.to_string(),
            Response::Group(group) | Response::GroupHere { group, .. } => group.to_string(),
            Response::Text(token) if self.action == "node token create" => {
                let token = token.parse::<JoinToken>().ok();
                token.map(|token| token.id.to_string()).unwrap_or_default()
            }
            Response::Text(id) if matches!(self.action, "client revoke" | "node remove") => {
                self.details.insert("id", id.clone());
                return;
            }
            _ => return,
        };
        if !made.is_empty() {
            self.subject.get_or_insert(made);
        }
    }
}

impl Session {
    /// Notes a request that changes something until it is answered.
    ///
    /// # Errors
    /// When that cannot be written down, and must be.
    pub(super) fn note(&self, id: u64, request: &Request) -> Result<(), Refusal> {
        match self.out.changes() {
            // What it has submitted itself ends with it anyway.
            Some(changes) if !self.is_own_cancellation(request) => {
                changes.ask(id, request, self.client.driver())
            }
            _ => Ok(()),
        }
    }

    /// Whether no other request has this number that is not answered yet, as far as that matters here.
    pub(super) fn has_own_number(&self, id: u64, request: &Request) -> bool {
        let changes = self.out.changes();
        changes.is_none_or(|it| it.has_own_number(id, request))
    }

    fn is_own_cancellation(&self, request: &Request) -> bool {
        let Request::CancelObject(object) = request else {
            return false;
        };
        let objects = self.objects.lock();
        let reference = objects.get(object).map(|object| &object.0);
        matches!(reference, Some(Reference::Task(cell)) if cell.driver == self.client.driver())
    }
}

/// The kind of a reason, as a word.
fn kind_name(kind: RefusalKind) -> String {
    let mut name = String::new();
    for (at, letter) in format!("{kind:?}").char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            name.push('-');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// A row's place among those of all nodes.
type Place = (u64, u64, String);

fn place(row: &AuditRow) -> Place {
    (row.time_us, row.sequence, row.node.clone())
}

/// What [`finish`] has made.
pub(super) fn parse_place(text: &str) -> Option<Place> {
    let mut parts = text.splitn(3, '-');
    let (time, sequence) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some((time, sequence, parts.next()?.to_owned()))
}

fn page(list: &List) -> usize {
    list.page().min(MOST_ROWS)
}

/// The lines of this node that a list wants, the last one first.
pub(super) fn rows(inner: &Inner, list: &List) -> Vec<AuditRow> {
    let after = list.after.as_deref().and_then(parse_place);
    inner.audit.rows(page(list), |row| {
        let tenant = row.tenant.as_deref().unwrap_or_default();
        let subject = row.subject.as_deref().unwrap_or_default();
        let job = row.job.map(|id| id.to_string()).unwrap_or_default();
        let fields: [(&str, &dyn Display); 7] = [
            ("node", &row.node),
            ("who", &row.who),
            ("tenant", &tenant),
            ("action", &row.action),
            ("subject", &subject),
            ("job", &job),
            ("outcome", &row.outcome),
        ];
        after.as_ref().is_none_or(|after| place(row) < *after) && passes(list, &fields)
    })
}

/// The place of the last row of a node that may have more of them than fit on a page.
pub(super) fn horizon(list: &List, rows: &Rows) -> Option<Place> {
    match rows {
        Rows::Audit(rows) if rows.len() >= page(list) => rows.iter().map(place).min(),
        _ => None,
    }
}

/// Makes a page of the rows of all nodes. Where the next one begins, if there may be one.
pub(super) fn finish(
    list: &List,
    rows: &mut Vec<AuditRow>,
    horizon: Option<Place>,
) -> Option<String> {
    debug_assert_eq!(list.what, What::Audit);
    rows.sort_by_cached_key(|row| std::cmp::Reverse(place(row)));
    if let Some(horizon) = &horizon {
        rows.retain(|row| place(row) >= *horizon);
    }
    rows.truncate(page(list));
    let last = match rows.len() >= page(list) {
        true => rows.last().map(place),
        false => horizon,
    };
    last.map(|(time, sequence, node)| format!("{time}-{sequence}-{node}"))
}

#[cfg(test)]
mod tests {
    use wasmrun_model::id::{Digest, TaskId};
    use wasmrun_model::wire::{self, Submit};

    use super::*;
    use crate::audit::AuditConfig;

    const OWN: DriverId = DriverId::session([5; 16]);

    struct Fixture {
        _dir: tempfile::TempDir,
        audit: Arc<Audit>,
        changes: Option<Arc<Changes>>,
    }

    fn fixture() -> Fixture {
        fixture_of(&TenantName::default(), &Tenants::All)
    }

    fn fixture_of(tenant: &TenantName, tenants: &Tenants) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let audit = Arc::new(Audit::new(Some(AuditConfig {
            dir: dir.path().to_owned(),
            most_bytes: 1 << 20,
            is_required: false,
        })));
        audit.begin("n1").unwrap();
        let (who, from) = ("user 1".into(), "socket".into());
        let changes = Changes::of(&audit, who, from, (tenant, tenants));
        Fixture {
            _dir: dir,
            audit,
            changes,
        }
    }

    impl Fixture {
        fn ask(&self, id: u64, request: &Request) {
            let changes = self.changes.as_ref().unwrap();
            changes.ask(id, request, OWN).unwrap();
        }

        fn answer(&self, id: u64, answer: &Response) {
            self.changes.as_ref().unwrap().answer(id, answer);
        }

        /// Action, subject and outcome of each line, the first one first.
        fn lines(&self) -> Vec<(String, String, String)> {
            let rows = self.audit.rows(1000, |row| row.action != "node start");
            let rows = rows.into_iter().rev();
            rows.map(|row| (row.action, row.subject.unwrap_or_default(), row.outcome))
                .collect()
        }
    }

    fn line(action: &str, subject: &str, outcome: &str) -> (String, String, String) {
        (action.into(), subject.into(), outcome.into())
    }

    fn task(name: &str) -> Request {
        let entry = wire::Entry::Function(name.into());
        Request::Submit(Box::new(Submit::new(Digest::from_bytes([9; 32]), entry)))
    }

    fn refused() -> Response {
        Response::Refused(refusal(RefusalKind::NotFound, "there is none"))
    }

    #[test]
    fn a_change_is_a_line_once_it_is_answered() {
        let fixture = fixture();
        fixture.ask(1, &Request::Kill("a".into()));
        fixture.ask(2, &Request::Kill("b".into()));
        fixture.ask(3, &Request::Status);
        assert!(fixture.lines().is_empty());
        fixture.answer(2, &refused());
        fixture.answer(1, &Response::Done);
        fixture.answer(3, &Response::Done);
        fixture.answer(1, &Response::Done);
        let lines = [
            line("actor kill", "b", "refused"),
            line("actor kill", "a", "done"),
        ];
        assert_eq!(fixture.lines(), lines);
        let row = &fixture.audit.rows(2, |_| true)[1];
        assert_eq!(row.kind.as_deref(), Some("not-found"));
        assert_eq!(row.error.as_deref(), Some("there is none"));
        assert_eq!(
            (&*row.who, row.tenant.as_deref()),
            ("user 1", Some("default"))
        );
    }

    #[test]
    fn a_number_is_of_one_request_until_that_is_answered() {
        let fixture = fixture();
        let changes = fixture.changes.as_ref().unwrap();
        let has_own = |id, request: &Request| changes.has_own_number(id, request);
        assert!(has_own(1, &Request::Kill("a".into())));
        assert!(!has_own(1, &Request::Status));
        assert!(has_own(2, &Request::Status));
        // Those that belong to another, and have no answer.
        assert!(has_own(1, &Request::Chunk(wire::Bytes(Vec::new()))));
        assert!(has_own(1, &Request::Unpin(Vec::new())));
        // What comes before an answer is none.
        fixture.answer(1, &Response::Continue);
        assert!(!has_own(1, &Request::Status));
        fixture.answer(1, &refused());
        assert!(has_own(1, &Request::Status));
    }

    #[test]
    fn who_leaves_before_the_answer_leaves_a_line() {
        let mut fixture = fixture();
        fixture.ask(1, &Request::Kill("a".into()));
        fixture.ask(1, &Request::Kill("b".into()));
        fixture.changes = None;
        let lines = [
            line("actor kill", "a", "unknown"),
            line("actor kill", "b", "unknown"),
        ];
        assert_eq!(fixture.lines(), lines);
    }

    #[test]
    fn of_tasks_that_do_the_same_there_is_one_line() {
        let fixture = fixture();
        let first = TaskId::from_bytes([1; 16]);
        fixture.ask(1, &task("f"));
        fixture.ask(2, &task("f"));
        fixture.answer(1, &refused());
        fixture.answer(2, &refused());
        fixture.ask(3, &task("f"));
        fixture.answer(3, &Response::Submitted(first));
        for id in 4..9 {
            fixture.ask(id, &task("f"));
            fixture.answer(id, &Response::Submitted(TaskId::from_bytes([2; 16])));
        }
        fixture.ask(9, &task("g"));
        fixture.answer(9, &Response::Submitted(TaskId::from_bytes([3; 16])));
        let lines = [
            line("task submit", "", "refused"),
            line("task submit", &first.to_string(), "done"),
            line("task submit", &"03".repeat(16), "done"),
        ];
        assert_eq!(fixture.lines(), lines);
    }

    #[test]
    fn work_is_its_tenants_also_where_it_is_said_to_be_for_default() {
        let (own, default): (TenantName, _) = ("a".parse().unwrap(), TenantName::default());
        let named = |name: &TenantName| {
            let mut request = task(name.as_str());
            if let Request::Submit(submit) = &mut request {
                submit.terms.tenant = Some(name.clone());
            }
            request
        };
        let tenants = |fixture: Fixture, named: Request| {
            fixture.ask(1, &named);
            fixture.answer(1, &refused());
            fixture.audit.rows(1, |_| true)[0].tenant.clone().unwrap()
        };
        let of = |has: &str| fixture_of(&own, &has.parse().unwrap());
        assert_eq!(tenants(of("a"), named(&default)), "a");
        assert_eq!(tenants(of("a,default"), named(&default)), "default");
        // Who has tried to work for another is seen there.
        let other = "b".parse().unwrap();
        assert_eq!(tenants(of("a"), named(&other)), "b");
    }

    #[test]
    fn what_comes_in_parts_is_one_line() {
        let fixture = fixture();
        let digest = wasmrun_model::id::Digest::from_bytes([9; 32]);
        fixture.ask(1, &Request::Upload { digest, len: 5 });
        fixture.answer(1, &Response::Continue);
        assert!(fixture.lines().is_empty());
        fixture.answer(1, &Response::Unknown);
        assert_eq!(
            fixture.lines(),
            [line("module upload", &digest.to_string(), "done")]
        );
    }

    #[test]
    fn a_token_is_not_written_down() {
        let fixture = fixture();
        let create = Request::CreateToken {
            is_reusable: false,
            lifetime_ms: 1,
        };
        fixture.ask(1, &create);
        fixture.answer(1, &Response::Text("wasmrun-join-1-secret".into()));
        assert_eq!(fixture.lines(), [line("node token create", "", "done")]);
    }

    #[test]
    fn pages_go_through_the_rows_of_all_nodes() {
        let row = |time_us: u64, node: &str| AuditRow {
            sequence: time_us,
            time_us,
            time: String::new(),
            node: node.into(),
            who: String::new(),
            from: String::new(),
            tenant: None,
            action: String::new(),
            subject: None,
            job: None,
            details: Default::default(),
            outcome: "done".into(),
            kind: None,
            error: None,
        };
        let list = List {
            limit: 2,
            ..List::of(What::Audit)
        };
        // The first node has more behind its two.
        let (first, second) = (vec![row(9, "n-1"), row(7, "n-1")], vec![row(3, "n2")]);
        let end = horizon(&list, &Rows::Audit(first.clone()));
        assert_eq!(horizon(&list, &Rows::Audit(second.clone())), None);
        let mut rows = [second, first].concat();
        let next = finish(&list, &mut rows, end).unwrap();
        let times: Vec<u64> = rows.iter().map(|row| row.time_us).collect();
        assert_eq!((times, &*next), (vec![9, 7], "7-7-n-1"));
        assert_eq!(parse_place(&next), Some((7, 7, "n-1".into())));
        assert_eq!(parse_place("7"), None);
        let mut rest = vec![row(3, "n2")];
        assert_eq!(finish(&list, &mut rest, None), None);
    }

    #[test]
    fn kinds_of_reasons_are_words() {
        assert_eq!(kind_name(RefusalKind::Usage), "usage");
        assert_eq!(kind_name(RefusalKind::NotFound), "not-found");
    }
}
