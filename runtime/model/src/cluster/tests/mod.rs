//! Tests of the choice: each rule by itself, and all against a look at every node.

mod properties;
mod rules;

use super::*;
use crate::id::{Incarnation, NodeId};
use crate::random::Random;
use crate::resource::{NodeResources, Request};

fn resources(json: &str) -> NodeResources {
    NodeResources::of(&serde_json::from_str(json).unwrap()).unwrap()
}

fn request(json: &str) -> Request {
    serde_json::from_str(json).unwrap()
}

fn requests(jsons: &[&str]) -> Vec<Request> {
    jsons.iter().map(|json| request(json)).collect()
}

fn id(number: u8) -> NodeId {
    let mut bytes = [0; 16];
    bytes[15] = number;
    NodeId::from_bytes(bytes)
}

fn new_node(number: u8, labels: &str, supply: Supply) -> NewNode {
    NewNode {
        id: id(number),
        name: format!("n{number}").parse().unwrap(),
        incarnation: Incarnation(1),
        labels: labels.parse().unwrap(),
        supply,
    }
}

/// Own nodes n0, n1, … with these resources, in this order of ids.
fn cluster(nodes: &[&str]) -> Cluster {
    let mut cluster = Cluster::new(Tuning::default());
    for (number, json) in nodes.iter().enumerate() {
        let supply = Supply::Own(resources(json));
        cluster.join(new_node(number as u8, "", supply)).unwrap();
    }
    cluster
}

/// Takes resources of an own node for good.
fn take(cluster: &mut Cluster, node: u32, json: &str) {
    let held = cluster.own_mut(NodeIx(node)).acquire(&request(json));
    held.unwrap().abandon();
}

fn now(node: u32, alternative: usize) -> Choice {
    let node = NodeIx(node);
    Choice::Now { node, alternative }
}

fn later(node: u32, alternative: usize) -> Choice {
    let node = NodeIx(node);
    Choice::Later { node, alternative }
}

/// All nodes that the choice falls on, in order; all of them for now, with the first alternative.
fn chosen(cluster: &mut Cluster, demand: &Demand<'_>) -> Vec<u32> {
    let mut random = Random::new(1);
    let mut nodes: Vec<u32> = (0..200)
        .map(|_| match cluster.choose(demand, &mut random) {
            Choice::Now {
                node,
                alternative: 0,
            } => node.0,
            other => panic!("{other:?}"),
        })
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}
