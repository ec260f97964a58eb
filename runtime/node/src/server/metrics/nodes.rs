//! The numbers of a node's cluster, as the node sees it: members, peers, records, the control store.
//!
//! Owns their names and meaning, as [`super::sample`] does for the node's own. Must not: ask another node or the
//! store for anything.
//!
//! Invariant: no label has more than [`MOST_PEERS`] values.

use std::collections::BTreeMap;

use wasmrun_model::wire::MemberRow;
use wasmrun_net::Tally;

use super::super::Inner;
use super::text::{Text, buckets};
use crate::cluster::{Cluster, RecordCounts};
use crate::guests::counters::Latency;

/// How many nodes have numbers of their own.
const MOST_PEERS: usize = 1000;

pub(super) fn in_cluster(text: &mut Text, inner: &Inner, cluster: &Cluster) {
    text.one(
        "wasmrun_node_incarnation",
        "How often the node was started, or began anew because it was counted as dead.",
        cluster.incarnation().0,
    );
    text.one(
        "wasmrun_lease_confirmed",
        "Whether the node knows that its lease lives.",
        u8::from(cluster.is_confirmed()),
    );
    if let Some(until) = cluster.certificate_until_s() {
        text.one(
            "wasmrun_certificate_expiry_seconds",
            "Until when the node's certificate is valid, in seconds since 1970.",
            until,
        );
    }
    let members = cluster.members();
    let mut states: BTreeMap<&str, u64> = BTreeMap::new();
    for state in ["alive", "draining", "unreachable", "unconfirmed", "dead"] {
        states.insert(state, 0);
    }
    for member in &members {
        *states.entry(&member.state).or_default() += 1;
    }
    let mut family = text.family(
        "wasmrun_nodes",
        "Nodes of the cluster, this one too, by state as this one sees them; of dead ones the last.",
    );
    for (state, count) in states {
        family.add(&[("state", &state)], count);
    }
    let mut family = text.family(
        "wasmrun_peer_connected",
        "Whether there is a connection to another node that lives.",
    );
    let is_peer = |member: &&MemberRow| !member.is_own && member.state != "dead";
    let others: Vec<&MemberRow> = members.iter().filter(is_peer).collect();
    for member in others.iter().take(MOST_PEERS) {
        let is_connected = u8::from(member.state != "unreachable");
        family.add(&[("peer", &member.name)], is_connected);
    }
    peers(text, cluster, &others);
    bandwidths(text, inner, &others);
    let mut family = text.family(
        "wasmrun_gossip_messages_total",
        "Of these, those in which nodes tell what they have and how busy they are.",
    );
    for (direction, value) in ["in", "out"].into_iter().zip(cluster.gossip()) {
        family.add(&[("direction", &direction)], value);
    }
    control(text, cluster.latency());
    if let Some((used, free)) = cluster.control_room() {
        text.one(
            "wasmrun_control_store_bytes",
            "What the control store takes on the head's disk.",
            used,
        );
        text.one(
            "wasmrun_control_store_free_bytes",
            "What is free on that disk: without room nothing can be changed.",
            free,
        );
    }
}

pub(super) fn records(text: &mut Text, counts: RecordCounts) {
    let mut family = text.family(
        "wasmrun_detached_records_total",
        "Changes of records of detached tasks and actors in the control store that were made or failed, and records \
         that were taken over from lost nodes.",
    );
    for (event, count) in [
        ("written", counts.written),
        ("failed", counts.failed),
        ("taken_over", counts.taken_over),
    ] {
        family.add(&[("event", &event)], count);
    }
    text.one(
        "wasmrun_detached_records_waiting",
        "Changes of them that wait for the control store. Those of one record that wait are one.",
        counts.waiting,
    );
}

/// What is in the control store besides, to make results of detached tasks again.
pub(super) fn lineage(text: &mut Text, (bytes, dropped): (u64, u64)) {
    text.one(
        "wasmrun_detached_lineage_bytes",
        "Records in the control store of detached tasks that have ended and whose results can be made again from them.",
        bytes,
    );
    text.one(
        "wasmrun_detached_lineage_dropped_total",
        "Records that keep no more what results were made of, because others needed the room.",
        dropped,
    );
}

/// What went over connections with others, by node.
fn peers(text: &mut Text, cluster: &Cluster, members: &[&MemberRow]) {
    let tallies = members.iter().take(MOST_PEERS).filter_map(|member| {
        let tally = cluster.tally(member.id)?;
        Some((&member.name, tally))
    });
    let tallies: Vec<_> = tallies.collect();
    let mut family = text.family(
        "wasmrun_peer_connections_total",
        "Connections with another node that lives, one after the other: all but the first are reconnects.",
    );
    for (peer, tally) in &tallies {
        family.add(&[("peer", peer)], tally.connections);
    }
    let mut both = |name, help, values: fn(&Tally) -> [u64; 2]| {
        let mut family = text.family(name, help);
        for (peer, tally) in &tallies {
            for (direction, value) in ["in", "out"].into_iter().zip(values(tally)) {
                family.add(&[("peer", peer), ("direction", &direction)], value);
            }
        }
    };
    both(
        "wasmrun_peer_messages_total",
        "Messages from and to this incarnation of another node that want no answer: those of the scheduler are such.",
        |tally| [tally.messages_received, tally.messages_sent],
    );
    both(
        "wasmrun_peer_bytes_total",
        "Bytes of datagrams from and to another node but those of objects, which go over connections of their own.",
        |tally| [tally.bytes_received, tally.bytes_sent],
    );
}

/// What the scheduler goes by where it estimates how long a task waits for its arguments.
fn bandwidths(text: &mut Text, inner: &Inner, members: &[&MemberRow]) {
    let known: Vec<_> = inner.shared.ask(|ledger| {
        let nodes = ledger.scheduler().cluster();
        let known = members.iter().take(MOST_PEERS).filter_map(|member| {
            let node = nodes.by_id(member.id)?;
            Some((&member.name, nodes[node].bandwidth()))
        });
        known.collect()
    });
    let mut family = text.family(
        "wasmrun_peer_bandwidth_bytes_per_second",
        "How fast another node sends objects to this one, by the last transfers; 100 MB/s until there was one.",
    );
    for (peer, bandwidth) in known {
        family.add(&[("peer", peer)], bandwidth);
    }
}

fn control(text: &mut Text, latency: &Latency) {
    let mut family = text.histogram(
        "wasmrun_control_request_duration_seconds",
        "How long the control store takes to answer this node, failures included.",
    );
    let counts = latency.cumulative();
    buckets(&mut family, &Latency::BOUNDS_US, &counts, latency.sum_us());
    text.one(
        "wasmrun_control_request_failures_total",
        "Requests to the control store that failed.",
        latency.failures(),
    );
}
