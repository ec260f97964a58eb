//! Placement groups of clients: created here, found, awaited and removed at whichever node owns them.
//!
//! Must not: reserve anything. Invariant: a client finds the groups of its tenant and its own, and no others.

use std::fmt::{Display, Write as _};
use std::time::{Duration, Instant};

use wasmrun_model::cluster::Cluster as Nodes;
use wasmrun_model::group::GroupState;
use wasmrun_model::id::{DriverId, GroupId, IdPrefix, NodeId};
use wasmrun_model::units::{self, ms};
use wasmrun_model::wire::{
    CreateGroup, GroupBundle, GroupRow, List, Refusal, RefusalKind, Response, Rows, Silent,
};

use super::lists::passes;
use super::session::{Session, refusal};
use super::views::{self, Asker, amounts};
use super::{Inner, merge};
use crate::cluster::Cluster;
use crate::guests::groups::{GroupError, NotReady};
use crate::ledger::{GroupRecord, RecordedGroup};
use crate::peers::ask::{Answer, Answers, Asked, Question};

/// How long a group that is about to be taken over is waited for where somebody wants to remove it.
const TAKING_OVER: Duration = Duration::from_secs(10);
/// How long the record of a group that another node ends may take to be gone.
const UNRECORDING: Duration = Duration::from_secs(3);
/// How often is looked whether it is so.
const LOOK: Duration = Duration::from_millis(20);

impl Session {
    /// Creates a group. One that is to stay is written down before it is answered.
    pub(super) async fn create_group(&self, create: CreateGroup) -> Result<Response, Refusal> {
        let CreateGroup {
            spec,
            name,
            is_detached,
            selectors,
        } = create;
        let spec = spec.with_selectors(selectors);
        let spec = spec.map_err(|why| refusal(RefusalKind::Usage, why))?;
        let client = match is_detached {
            true => &self.inner.detached,
            false => &self.client,
        };
        let created = client.create_group(spec.clone(), &self.tenant, name.clone());
        let group = created.map_err(|error| {
            let kind = match &error {
                GroupError::TooMany { .. } | GroupError::Tenants(_) => RefusalKind::Full,
                GroupError::Name(_) => RefusalKind::Usage,
                GroupError::Impossible(_) | GroupError::Quota(_) => RefusalKind::Unschedulable,
                GroupError::Stopping => RefusalKind::Stopping,
            };
            refusal(kind, error)
        })?;
        if !is_detached {
            return Ok(Response::Group(group));
        }
        let record = GroupRecord {
            spec,
            tenant: self.tenant.clone(),
            name,
            takeovers: 0,
        };
        Ok(match self.inner.keep_group(group, record).await {
            Ok(()) => Response::Group(group),
            Err(why) => Response::GroupHere { group, why },
        })
    }

    /// Waits until tasks can run in all bundles of a group that may be another node's.
    pub(super) async fn group_ready(
        &self,
        group: &str,
        timeout_ms: Option<u64>,
    ) -> Result<Response, Refusal> {
        let begun = Instant::now();
        let timeout = timeout_ms.map(Duration::from_millis);
        let found = within(timeout, self.find_group(group, None)).await;
        let Some(found) = found else {
            let why = match self.is_between_owners(group) {
                Some(id) => format!("timed out: {}", between_owners(id)),
                None => format!(
                    "timed out: not all nodes have said in time whether they have placement group '{group}'"
                ),
            };
            return Ok(Response::NotReady(why));
        };
        let (_, row) = found?;
        let rest = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
        match self.client.group_ready(row.id, rest).await {
            Ok(()) => Ok(Response::Done),
            Err(why @ NotReady::TimedOut { .. }) => Ok(Response::NotReady(why.to_string())),
            Err(why @ NotReady::Gone(_)) => Err(refusal(RefusalKind::NotFound, why)),
        }
    }

    /// The one group of this name or id, else the one whose id begins so, at whichever node; and that, if it is
    /// another. One whose owner is lost, and that another node is about to take over, is waited for; for so long, if
    /// that is limited.
    pub(super) async fn find_group(
        &self,
        text: &str,
        patience: Option<Duration>,
    ) -> Result<(Option<NodeId>, GroupRow), Refusal> {
        let begun = Instant::now();
        loop {
            let why = match self.find_group_now(text).await {
                Err(why) if why.kind == RefusalKind::NotFound => why,
                found => return found,
            };
            let Some(group) = self.is_between_owners(text) else {
                return Err(why);
            };
            if patience.is_some_and(|patience| begun.elapsed() >= patience) {
                return Err(refusal(RefusalKind::Full, between_owners(group)));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The group of this name or id that has a record. If nobody has it, it is about to be taken over.
    fn is_between_owners(&self, text: &str) -> Option<GroupId> {
        let prefix = IdPrefix::parse(text);
        let is_meant = |group: &GroupId, record: &GroupRecord| {
            let is_named = record.name.as_deref() == Some(text);
            let is_begun = || prefix.is_some_and(|it| it.begins(group));
            record.tenant == self.tenant && (is_named || is_begun())
        };
        self.inner.shared.ask(|ledger| {
            let mut recorded = ledger.recorded_groups();
            let meant = recorded.find(|(group, it)| is_meant(group, &it.record));
            meant.map(|(group, _)| group)
        })
    }

    fn recorded_owner(&self, group: &GroupId) -> Option<NodeId> {
        let shared = &self.inner.shared;
        shared.ask(|ledger| ledger.scheduler().recorded_owner(group))
    }

    async fn find_group_now(&self, text: &str) -> Result<(Option<NodeId>, GroupRow), Refusal> {
        let own = find(&self.inner, self.asker(), text);
        let Some(cluster) = self.inner.cluster() else {
            return own.map(|row| (None, row));
        };
        if let Ok(row) = &own
            && row.id.to_string() == text
        {
            return own.map(|row| (None, row));
        }
        let asked = self.asked(Question::Group(text.to_owned()));
        let all = match text.parse() {
            Ok(id) => {
                let recorded = self.recorded_owner(&id);
                ask_owner(cluster, &asked, &id, recorded).await
            }
            Err(_) => cluster.ask_all(&asked).await,
        };
        let (mut found, mut missing) = (Vec::new(), None);
        match own {
            Ok(row) => found.push((None, row)),
            Err(why) if why.kind == RefusalKind::Ambiguous => return Err(why),
            Err(why) => missing = Some(why),
        }
        for (node, answer) in all.answers {
            match answer {
                Answer::Group(row) => found.push((Some(node), *row)),
                Answer::Refused(why) if why.kind == RefusalKind::Ambiguous => return Err(why),
                _ => {}
            }
        }
        let is_named = |row: &GroupRow| row.name.as_deref() == Some(text);
        if found.iter().any(|(_, row)| is_named(row)) {
            // The beginning of an id is what somebody calls another only by accident.
            found.retain(|(_, row)| is_named(row));
            if found.len() > 1 {
                return Err(many_named(text));
            }
        }
        match (found.pop(), found.is_empty(), missing) {
            (Some(one), true, _) => Ok(one),
            (None, _, Some(why)) => Err(merge::with_silent(why, &all.silent)),
            (last, ..) => {
                let ids = found.iter().chain(&last).map(|(_, row)| row.id);
                Err(views::ambiguous(text, "placement group", ids))
            }
        }
    }

    /// Ends a group, at whichever node owns it.
    pub(super) async fn remove_group(&self, text: &str) -> Result<Response, Refusal> {
        let (owner, row) = self.find_group(text, Some(TAKING_OVER)).await?;
        let group = row.id;
        let (Some(owner), Some(cluster)) = (owner, self.inner.cluster()) else {
            match row.is_detached {
                true if !self.inner.end_group(group).await => {
                    return Err(refusal(
                        RefusalKind::Full,
                        format_args!(
                            "another node has just taken group {group} over from this one, which counted as lost; remove it again"
                        ),
                    ));
                }
                true => {}
                false => self.client.remove_group(&group),
            }
            return Ok(Response::Done);
        };
        let asked = self.asked(Question::RemoveGroup(group));
        let answer = cluster.ask(owner, &asked).await.map_err(|why| {
            let why = format_args!("node {owner}, which owns group {group}, does not do it: {why}");
            refusal(RefusalKind::Full, why)
        })?;
        match answer {
            Answer::Refused(why) => Err(why),
            _ => {
                self.is_unrecorded(&group).await;
                Ok(Response::Done)
            }
        }
    }

    /// Waits until the control store has no record of a group, so that nobody takes it over; not for long where that
    /// does not answer.
    async fn is_unrecorded(&self, group: &GroupId) {
        let begun = Instant::now();
        while self.recorded_owner(group).is_some() && begun.elapsed() < UNRECORDING {
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// What is said of a group that no node owns just now.
fn between_owners(group: GroupId) -> String {
    format!(
        "placement group {group} has no owner that answers just now: that is lost or begins anew, and the next one takes \
         the group over as soon as the control store says that it may; what runs in its bundles at other nodes goes on; \
         ask again soon"
    )
}

/// Asks the one node that owns a group by its record, or may own one with this id, if there is one.
async fn ask_owner(
    cluster: &Cluster,
    asked: &Asked,
    group: &GroupId,
    recorded: Option<NodeId>,
) -> Answers {
    let mut all = Answers::default();
    let members = cluster.members();
    let mut others = members
        .into_iter()
        .filter(|it| !it.is_own && it.state != "dead");
    let owner = others.find(|it| match recorded {
        Some(owner) => it.id == owner,
        None => group.may_be_of(it.id),
    });
    if let Some(owner) = owner {
        match cluster.ask(owner.id, asked).await {
            Ok(answer) => all.answers.push((owner.id, answer)),
            Err(why) => all.silent.push(Silent {
                node: owner.name,
                why,
            }),
        }
    }
    all
}

/// What comes of something, unless time is up before.
async fn within<T>(timeout: Option<Duration>, what: impl Future<Output = T>) -> Option<T> {
    match timeout {
        Some(timeout) => tokio::time::timeout(timeout, what).await.ok(),
        None => Some(what.await),
    }
}

fn many_named(name: &str) -> Refusal {
    let shown: String = name.chars().take(80).collect();
    let why = format_args!(
        "more than one placement group is called '{shown}'; name the one that you mean by its id: \
         `wasmrun group list`"
    );
    refusal(RefusalKind::Ambiguous, why)
}

/// Ends a group that this node owns, for a client of another.
pub(super) fn remove(inner: &Inner, asker: Asker<'_>, group: &GroupId) -> Result<(), Refusal> {
    let row = find(inner, asker, &group.to_string())?;
    if row.is_detached {
        inner.forget_group(row.id);
    }
    inner.shared.remove_groups(&[row.id]);
    Ok(())
}

/// The one group that this node owns of this name, or whose id begins so, of those of whoever asks.
pub(super) fn find(inner: &Inner, asker: Asker<'_>, text: &str) -> Result<GroupRow, Refusal> {
    let all = all(inner);
    let own = all.iter().filter(|row| asker.owns(&row.tenant, row.job));
    let mut named = own.clone().filter(|row| row.name.as_deref() == Some(text));
    match (named.next(), named.next()) {
        (Some(one), None) => return Ok(one.clone()),
        (Some(_), Some(_)) => return Err(many_named(text)),
        (None, _) => {}
    }
    asker
        .one(text, "placement group", own, |row| row.id)
        .cloned()
}

/// The groups that this node owns, or is about to take over.
pub(super) fn groups(inner: &Inner, asker: Asker<'_>, list: &List) -> Vec<GroupRow> {
    let mut rows = all(inner);
    let own = inner.shared.home.node;
    rows.extend(unowned(inner, |_, owner| owner == own));
    filtered(rows, asker, list)
}

/// The groups whose owners are lost and that nobody has taken over yet, as far as this node knows. To be asked for
/// before other nodes are: then one that is taken over meanwhile is in the answer of the node that has done it.
pub(super) fn lost(inner: &Inner, asker: Asker<'_>, list: &List) -> Vec<GroupRow> {
    let own = inner.shared.home.node;
    let is_lost = |nodes: &Nodes, owner| owner != own && !nodes.is_there(owner);
    filtered(unowned(inner, is_lost), asker, list)
}

/// The groups whose records name such an owner, and that this node does not own.
fn unowned(inner: &Inner, is_meant: impl Fn(&Nodes, NodeId) -> bool) -> Vec<GroupRow> {
    let rows: Vec<(NodeId, GroupRow)> = inner.shared.ask(|ledger| {
        let scheduler = ledger.scheduler();
        let rows = ledger.recorded_groups().filter_map(|(id, recorded)| {
            let owner = scheduler.recorded_owner(&id)?;
            let is_unowned = is_meant(scheduler.cluster(), owner) && !scheduler.owns_group(&id);
            is_unowned.then(|| (owner, unowned_row(id, recorded)))
        });
        rows.collect()
    });
    let cluster = inner.cluster();
    let rows = rows.into_iter().map(|(owner, mut row)| {
        row.node = cluster.map_or_else(|| owner.to_string(), |it| it.name_of(owner));
        row.why = Some(match owner == inner.shared.home.node {
            true => format!("node {} is about to take it over", row.node),
            false => format!(
                "node {}, which owned it, is lost; the next one takes it over as soon as the control store says that \
                 it may; what runs in its bundles at other nodes goes on",
                row.node
            ),
        });
        row
    });
    rows.collect()
}

/// What is known of a group by its record alone: which bundles lie where, nodes say to the one that takes it over.
fn unowned_row(id: GroupId, recorded: &RecordedGroup) -> GroupRow {
    let GroupRecord {
        spec, tenant, name, ..
    } = &recorded.record;
    let bundles = spec.bundles().iter().map(|bundle| GroupBundle {
        amounts: amounts(bundle.amounts()),
        node: None,
    });
    let known_ms = ms(recorded.since.elapsed());
    GroupRow {
        id,
        name: name.clone(),
        kind: spec.kind(),
        state: UNOWNED.to_owned(),
        since_ms: known_ms,
        bundles: bundles.collect(),
        why: None,
        is_detached: true,
        tenant: tenant.clone(),
        job: DriverId::from_bytes([0; 16]),
        age_ms: known_ms,
        node: String::new(),
    }
}

fn filtered(mut rows: Vec<GroupRow>, asker: Asker<'_>, list: &List) -> Vec<GroupRow> {
    rows.retain(|row| {
        let name = row.name.clone().unwrap_or_default();
        let fields: [(&str, &dyn Display); 7] = [
            ("id", &row.id),
            ("name", &name),
            ("kind", &row.kind),
            ("state", &row.state),
            ("tenant", &row.tenant),
            ("job", &row.job),
            ("node", &row.node),
        ];
        asker.tenants.covers(&row.tenant) && passes(list, &fields)
    });
    rows.truncate(Rows::MAX);
    rows
}

fn all(inner: &Inner) -> Vec<GroupRow> {
    inner.shared.ask(|ledger| {
        let views = ledger.group_views();
        let cluster = ledger.scheduler().cluster();
        let name = |node: NodeId| {
            let known = cluster.by_id(node).map(|ix| cluster[ix].name().to_string());
            known.unwrap_or_else(|| node.to_string())
        };
        let rows = views.into_iter().map(|(id, group, view)| {
            let bundles = view.spec.bundles().iter().zip(&view.nodes);
            let bundles = bundles.map(|(bundle, node)| GroupBundle {
                amounts: amounts(bundle.amounts()),
                node: node.map(&name),
            });
            GroupRow {
                id,
                name: group.name,
                kind: view.spec.kind(),
                state: state(view.state).to_owned(),
                since_ms: ms(view.since.unwrap_or_default()),
                bundles: bundles.collect(),
                why: view.why,
                is_detached: group.driver.is_detached(),
                tenant: group.tenant,
                job: group.driver.job(),
                age_ms: ms(group.created.elapsed()),
                node: inner.name(),
            }
        });
        rows.collect()
    })
}

/// What the state of a group is called that is between two owners.
const UNOWNED: &str = "unowned";

/// What the states of groups are called that nodes own.
pub(super) const STATES: [&str; 5] = ["pending", "preparing", "committing", "ready", "removing"];

/// One of [`STATES`].
pub(super) fn state(state: GroupState) -> &'static str {
    match state {
        GroupState::Pending => "pending",
        GroupState::Preparing => "preparing",
        GroupState::Committing => "committing",
        GroupState::Ready => "ready",
        GroupState::Removing | GroupState::Removed => "removing",
    }
}

/// Why there is neither a task nor a group of this name: that there are several groups, or one that nobody owns just now,
/// says more than that there is no task.
pub(super) fn more_telling(of_task: Refusal, of_group: Refusal) -> Refusal {
    match of_group.kind {
        RefusalKind::Ambiguous | RefusalKind::Full => of_group,
        _ => of_task,
    }
}

/// Where a group stands and why, in words.
pub(super) fn explained(row: &GroupRow) -> String {
    let mut text = format!(
        "placement group {} ({}) has been {} for {}",
        row.id,
        row.kind,
        row.state,
        units::duration(Duration::from_millis(row.since_ms))
    );
    if let Some(why) = &row.why {
        let _ = write!(text, ": {why}");
    }
    for (number, bundle) in row.bundles.iter().enumerate() {
        let amounts = bundle.amounts.iter();
        let amounts = amounts.map(|(name, amount)| format!("{name} {}", amount.display_for(name)));
        let amounts: Vec<String> = amounts.collect();
        let _ = write!(text, "\n  bundle {number}: {}: ", amounts.join(", "));
        match &bundle.node {
            Some(node) => {
                let _ = write!(text, "on node {node}");
            }
            None => text.push_str("on no node yet"),
        }
    }
    text
}
