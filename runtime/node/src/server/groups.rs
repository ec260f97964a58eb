//! Placement groups of clients: created here, found, awaited and removed at whichever node owns them.
//!
//! Must not: reserve anything. Invariant: a client finds the groups of its tenant and its own, and no others.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::time::Duration;

use wasmrun_model::group::GroupState;
use wasmrun_model::id::{DriverId, GroupId, NodeId};
use wasmrun_model::resource::{ResourceName, ResourceSet};
use wasmrun_model::units;
use wasmrun_model::wire::{
    CreateGroup, GroupBundle, GroupRow, List, Refusal, RefusalKind, Request, Response, Rows,
};

use super::Inner;
use super::session::{Session, refusal};
use super::views::{Asker, passes};
use crate::cluster::{Answer, Question};
use crate::groups::{GroupError, NotReady};

impl Session {
    pub(super) fn create_group(&self, create: CreateGroup) -> Result<Response, Refusal> {
        let client = match create.is_detached {
            true => &self.inner.detached,
            false => &self.client,
        };
        let created = client.create_group(create.spec, &self.tenant, create.name);
        created.map(Response::Group).map_err(|error| {
            let kind = match &error {
                GroupError::TooMany { .. } => RefusalKind::Full,
                GroupError::Name(_) => RefusalKind::Usage,
                GroupError::Impossible(_) => RefusalKind::Unschedulable,
                GroupError::Stopping => RefusalKind::Stopping,
            };
            refusal(kind, error)
        })
    }

    /// Answers a request about a group that may be another node's.
    pub(super) async fn of_group(&self, request: Request) -> Result<Response, Refusal> {
        match request {
            Request::RemoveGroup(group) => {
                let (owner, row) = self.find_group(&group).await?;
                self.remove_group(owner, row.id).await
            }
            Request::GroupReady { group, timeout_ms } => {
                let (_, row) = self.find_group(&group).await?;
                let timeout = timeout_ms.map(Duration::from_millis);
                match self.client.group_ready_async(row.id, timeout).await {
                    Ok(()) => Ok(Response::Done),
                    Err(why @ NotReady::TimedOut { .. }) => Ok(Response::NotReady(why.to_string())),
                    Err(why @ NotReady::Gone(_)) => Err(refusal(RefusalKind::NotFound, why)),
                }
            }
            _ => unreachable!("the session gives us no others"),
        }
    }

    /// The one group of this name, or whose id begins so, at whichever node; and that, if it is another.
    pub(super) async fn find_group(
        &self,
        text: &str,
    ) -> Result<(Option<NodeId>, GroupRow), Refusal> {
        let own = find(&self.inner, self.asker(), text);
        let Some(cluster) = self.inner.shared.cluster.get() else {
            return own.map(|row| (None, row));
        };
        if let Ok(row) = &own
            && row.id.to_string() == text
        {
            return own.map(|row| (None, row));
        }
        let asked = self.asked(Question::Group(text.to_owned()));
        let all = cluster.ask_all(&asked).await;
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
        match (found.pop(), found.is_empty(), missing) {
            (Some(one), true, _) => Ok(one),
            (None, _, Some(why)) => Err(super::gather::with_silent(why, &all.silent)),
            _ => Err(super::gather::ambiguous(text, "placement group")),
        }
    }

    async fn remove_group(
        &self,
        owner: Option<NodeId>,
        group: GroupId,
    ) -> Result<Response, Refusal> {
        let (Some(owner), Some(cluster)) = (owner, self.inner.shared.cluster.get()) else {
            self.client.remove_group(&group);
            return Ok(Response::Done);
        };
        let asked = self.asked(Question::RemoveGroup(group));
        let answer = cluster.ask(owner, &asked).await.map_err(|why| {
            let why = format_args!("node {owner}, which owns group {group}, does not do it: {why}");
            refusal(RefusalKind::Full, why)
        })?;
        match answer {
            Answer::Refused(why) => Err(why),
            _ => Ok(Response::Done),
        }
    }
}

/// Ends a group that this node owns, for a client of another.
pub(super) fn remove(inner: &Inner, asker: Asker<'_>, group: &GroupId) -> Result<(), Refusal> {
    let row = find(inner, asker, &group.to_string())?;
    inner.shared.remove_groups(&[row.id]);
    Ok(())
}

/// The one group that this node owns of this name, or whose id begins so, of those of whoever asks.
pub(super) fn find(inner: &Inner, asker: Asker<'_>, text: &str) -> Result<GroupRow, Refusal> {
    let all = all(inner, inner.detached.driver());
    let own = all.iter().filter(|row| asker.owns(&row.tenant, row.job));
    let mut named = own.clone().filter(|row| row.name.as_deref() == Some(text));
    if let (Some(one), None) = (named.next(), named.next()) {
        return Ok(one.clone());
    }
    asker
        .one(text, "placement group", own, |row| row.id)
        .cloned()
}

/// The groups that this node owns.
pub(super) fn groups(inner: &Inner, list: &List) -> Vec<GroupRow> {
    let mut rows = all(inner, inner.detached.driver());
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
        passes(list, &fields)
    });
    rows.truncate(Rows::MAX);
    rows
}

fn all(inner: &Inner, detached: DriverId) -> Vec<GroupRow> {
    let mut ledger = inner.shared.ledger.lock();
    let own = ledger.own_groups();
    let own: Vec<_> = own.map(|(id, group)| (*id, group.clone())).collect();
    let views = own.into_iter().filter_map(|(id, group)| {
        let view = ledger.group(&id)?;
        Some((id, group, view))
    });
    let views: Vec<_> = views.collect();
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
            is_detached: group.driver == detached,
            tenant: group.tenant,
            job: group.driver,
            age_ms: ms(group.created.elapsed()),
            node: inner.name(),
        }
    });
    rows.collect()
}

fn state(state: GroupState) -> &'static str {
    match state {
        GroupState::Pending => "pending",
        GroupState::Preparing => "preparing",
        GroupState::Committing => "committing",
        GroupState::Ready => "ready",
        GroupState::Removing | GroupState::Removed => "removing",
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn amounts(set: &ResourceSet) -> BTreeMap<ResourceName, wasmrun_model::resource::Amount> {
    set.iter()
        .map(|(name, amount)| (name.clone(), amount))
        .collect()
}

/// Where a group stands and why, in words.
pub(super) fn explained(row: &GroupRow) -> String {
    let mut text = format!(
        "placement group {} ({}) has been {} for {}",
        row.id,
        row.kind,
        row.state,
        units::milliseconds(row.since_ms)
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
