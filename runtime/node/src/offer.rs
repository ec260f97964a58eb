//! What a node offers: its resources, name and labels.
//!
//! Owns how these follow from the configuration, the machine and earlier changes. Must not: start anything.

use std::collections::BTreeMap;
use std::fmt;

use wasmrun_model::cluster::{
    ACCELERATOR_TYPE, HOSTNAME, LabelValue, Labels, NODE_ID, NodeName, ParseLabelError,
};
use wasmrun_model::id::{Incarnation, NodeId};
use wasmrun_model::resource::{
    AddResourceError, Amount, CapacityError, NodeResources, Pool, ResourceName,
};
use wasmrun_model::scheduler::NodeInfo;

use crate::cluster::Opened;
use crate::ledger::LOCAL;
use crate::machine::Machine;
use crate::node::{NodeConfig, ResourceOffer, StartError};

/// The resources that a node offers: what it is told to, else what the machine has.
pub(super) fn offered(config: &NodeConfig, machine: &Machine) -> Result<NodeResources, StartError> {
    let units = |n| Amount::from_units(n).unwrap_or(Amount::MAX);
    let standard = [
        (
            ResourceName::CPU,
            config.cpus.unwrap_or(units(machine.cpus)),
        ),
        (
            ResourceName::GPU,
            config.gpus.unwrap_or(units(machine.gpus)),
        ),
        (
            ResourceName::MEMORY,
            config.memory.unwrap_or(units(machine.task_memory_bytes())),
        ),
    ];
    let mut resources = NodeResources::new();
    let refused = |name: &ResourceName, reason: &dyn fmt::Display| StartError::Offer {
        name: name.clone(),
        reason: reason.to_string(),
    };
    for (name, amount) in standard {
        let pool =
            Pool::for_name(&name, amount).map_err(|error: CapacityError| refused(&name, &error))?;
        let added: Result<(), AddResourceError> = resources.add(name.clone(), pool);
        added.map_err(|error| refused(&name, &error))?;
    }
    for ResourceOffer { name, amount } in &config.resources {
        let pool = Pool::parse(name, amount).map_err(|error| refused(name, &error))?;
        resources
            .add(name.clone(), pool)
            .map_err(|error| refused(name, &error))?;
    }
    Ok(resources)
}

/// What was changed in an earlier incarnation goes before what the node is started with.
pub(super) fn change(
    resources: &mut NodeResources,
    changes: BTreeMap<ResourceName, Option<Pool>>,
) -> Result<(), StartError> {
    for (name, pool) in changes {
        let amount = pool.as_ref().map(Pool::capacity);
        tracing::info!(%name, ?amount, "an earlier `node resource` changed this for good");
        let changed = match pool {
            None => {
                resources.delete(&name);
                Ok(())
            }
            Some(pool) if resources.pools().get(&name).is_some() => resources
                .set_capacity(&name, pool.capacity())
                .map_err(|error| error.to_string()),
            Some(pool) => resources
                .add(name.clone(), pool)
                .map_err(|error| error.to_string()),
        };
        changed.map_err(|reason| StartError::Offer { name, reason })?;
    }
    Ok(())
}

/// Who the node is: in its cluster, or alone.
pub(super) fn info(
    opened: Option<&Opened>,
    name: NodeName,
    own: &Labels,
    accelerator: Option<LabelValue>,
) -> Result<NodeInfo, ParseLabelError> {
    let (id, incarnation, name) = match opened {
        Some(opened) => {
            let cluster = &opened.cluster;
            (cluster.id(), cluster.incarnation(), opened.name.clone())
        }
        None => (LOCAL, Incarnation::default(), name),
    };
    let labels = labels(id, &name, own, accelerator)?;
    Ok(NodeInfo {
        id,
        incarnation,
        name,
        labels,
    })
}

/// The name of a node, made from whatever the machine or person calls it.
pub(super) fn node_name(text: &str) -> NodeName {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fit: String = text
        .chars()
        .map(|c| if is_fit(c) { c } else { '-' })
        .collect();
    let fit = fit.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let fit = &fit[..fit.len().min(NodeName::MAX_LEN)];
    let name = fit.parse().or_else(|_| "node".parse());
    name.expect("'node' is a name")
}

/// The longest value of a label, in bytes.
pub(super) const LABEL_BYTES: usize = 63;

/// The type of an accelerator, as a label has it, of what its driver calls it: `NVIDIA H100 80GB HBM3` is
/// `H100-80GB-HBM3`. None if nothing is left.
pub(super) fn accelerator_type(model: &str) -> Option<LabelValue> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let words = model.split(|c: char| !is_fit(c));
    // Who made it says nothing about what it can do.
    let words = words.filter(|word| !word.is_empty() && !matches!(*word, "NVIDIA" | "Tesla"));
    let mut text = words.collect::<Vec<_>>().join("-");
    text.truncate(LABEL_BYTES);
    let text = text.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    text.parse().ok().filter(|_| !text.is_empty())
}

/// The labels of a node: its id, its name, its accelerators' type, and what the operator gave it, which goes first.
pub(super) fn labels(
    id: NodeId,
    name: &NodeName,
    own: &Labels,
    accelerator: Option<LabelValue>,
) -> Result<Labels, ParseLabelError> {
    let mut labels = own.clone();
    if let (Ok(key), Some(value)) = (ACCELERATOR_TYPE.parse(), accelerator)
        && labels.get(ACCELERATOR_TYPE).is_none()
    {
        labels.set(key, value)?;
    }
    if let (Ok(key), Ok(value)) = (NODE_ID.parse(), id.to_string().parse())
        && labels.get(NODE_ID).is_none()
    {
        labels.set(key, value)?;
    }
    if let (Ok(key), Ok(value)) = (HOSTNAME.parse(), name.as_str().parse())
        && labels.get(HOSTNAME).is_none()
    {
        labels.set(key, value)?;
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_of_an_accelerator_is_a_label() {
        for (model, label) in [
            ("NVIDIA H100 80GB HBM3", "H100-80GB-HBM3"),
            ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
            ("Tesla T4", "T4"),
            ("NVIDIA GeForce RTX 4090", "GeForce-RTX-4090"),
            ("-Graphics (Device) 7_", "Graphics-Device-7"),
        ] {
            let found = accelerator_type(model).expect("a label");
            assert_eq!(found.as_str(), label);
        }
        let long = "x y".repeat(60);
        assert!(accelerator_type(&long).is_some());
        for nothing in ["", " ", "NVIDIA", "Tesla NVIDIA", "()", "_-."] {
            assert_eq!(accelerator_type(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn what_the_operator_says_goes_before_what_is_found() {
        let name = node_name("n1");
        let own: Labels = "zone=a".parse().unwrap();
        let found = || accelerator_type("Tesla T4");
        let labels_of = |own: &Labels, found| labels(LOCAL, &name, own, found).unwrap();
        let all = labels_of(&own, found());
        let get = |labels: &Labels, key| labels.get(key).map(|it| it.as_str().to_owned());
        assert_eq!(get(&all, ACCELERATOR_TYPE).as_deref(), Some("T4"));
        assert_eq!(get(&all, HOSTNAME).as_deref(), Some("n1"));
        assert_eq!(get(&all, "zone").as_deref(), Some("a"));
        let own: Labels = "wasmrun.io/accelerator-type=mine".parse().unwrap();
        assert_eq!(
            get(&labels_of(&own, found()), ACCELERATOR_TYPE).as_deref(),
            Some("mine")
        );
        assert_eq!(
            get(&labels_of(&Labels::default(), None), ACCELERATOR_TYPE),
            None
        );
    }
}
