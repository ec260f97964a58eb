//! The nodes: their state, and which tasks hold which units of their resources.

use std::collections::BTreeMap;

use maud::{Markup, html};
use wasmrun_client::wire::{List, MemberRow, NodeStatus, TaskRow, What};
use wasmrun_model::id::DriverId;
use wasmrun_model::resource::{Amount, ResourceName};

use super::{Fragment, overview, parts, share, units};
use crate::data::{AskError, Source};
use crate::picture::{Part, bar};

/// How many units are shown one by one; of more there is a bar.
const MOST_UNITS: u64 = 64;

pub async fn render(source: &Source) -> Result<Fragment, AskError> {
    let members = source.rows::<MemberRow>(List::of(What::Members)).await?;
    let nodes = source.rows::<NodeStatus>(List::of(What::Nodes)).await?;
    let running = List::of(What::Tasks).with("state", "running");
    let mut running = source.rows::<TaskRow>(running).await?.rows;
    let blocked = List::of(What::Tasks).with("state", "blocked");
    running.extend(source.rows::<TaskRow>(blocked).await?.rows);
    let of = |name: &str| nodes.rows.iter().find(|it| it.name == name);
    let body = html! {
        (parts::silent(&nodes.silent))
        @for member in &members.rows {
            (node(member, of(&member.name), &running))
        }
        @if members.rows.is_empty() {
            // A node that is alone is no member of anything.
            @for status in &nodes.rows { (alone(status, &running)) }
        }
    };
    Ok(Fragment::new("Nodes", body))
}

fn node(member: &MemberRow, status: Option<&NodeStatus>, running: &[TaskRow]) -> Markup {
    let mut facts = vec![
        ("state", parts::state(&member.state)),
        ("version", parts::text(&member.version)),
        (
            "in this state for",
            parts::text(units::age(member.since_ms)),
        ),
        ("address", parts::or_dash(member.address)),
        (
            "role",
            parts::text(if member.is_head { "head" } else { "node" }),
        ),
        ("incarnation", parts::text(member.incarnation)),
    ];
    facts.extend(status.into_iter().flat_map(of_status));
    html! {
        section.node id={ "node-" (member.name) } {
            h2 { (member.name) @if member.is_own { " (this one)" } }
            (parts::facts(facts))
            @if member.state != "dead" {
                (usage(&member.name, &member.total, &member.available, running))
            }
        }
    }
}

fn alone(status: &NodeStatus, running: &[TaskRow]) -> Markup {
    let mut facts = vec![("version", parts::text(&status.version))];
    facts.extend(of_status(status));
    html! {
        section.node id={ "node-" (status.name) } {
            h2 { (status.name) }
            (parts::facts(facts))
            (usage(&status.name, &status.total, &status.available, running))
        }
    }
}

/// What only the node itself knows.
fn of_status(status: &NodeStatus) -> Vec<(&'static str, Markup)> {
    let store = &status.store;
    let used = Part {
        class: "run",
        label: format!(
            "{} of {} used by {} objects",
            wasmrun_model::units::bytes(store.used_bytes),
            wasmrun_model::units::bytes(store.capacity_bytes),
            store.objects
        ),
        value: store.used_bytes,
    };
    let label = used.label.clone();
    let work = if status.is_draining {
        "takes none"
    } else {
        "takes new work"
    };
    vec![
        ("up for", parts::text(units::age(status.up_ms))),
        ("process", parts::text(status.process)),
        ("sessions", parts::text(status.sessions)),
        ("work", parts::text(work)),
        (
            "object store",
            html! {
                (bar(&[used], store.capacity_bytes)) span.small {
                    (label) ", " (wasmrun_model::units::bytes(store.spilled_bytes)) " on disk"
                }
            },
        ),
    ]
}

/// Which tasks hold the resources of a node.
fn usage(
    node: &str,
    total: &BTreeMap<ResourceName, Amount>,
    available: &BTreeMap<ResourceName, Amount>,
    running: &[TaskRow],
) -> Markup {
    let here: Vec<&TaskRow> = running.iter().filter(|it| it.node == node).collect();
    html! {
        @for (name, all) in total {
            @let has_units = here.iter().any(|it| holds_units(it, name)) || *name == ResourceName::GPU;
            @if has_units && all.is_whole() && all.whole_units() <= MOST_UNITS {
                (grid(name, all.whole_units() as u32, &here))
            } @else {
                dl.bars {
                    (overview::used(name, *all, available.get(name).copied().unwrap_or_default()))
                }
                (by_job(name, *all, &here))
            }
        }
    }
}

fn holds_units(task: &TaskRow, name: &ResourceName) -> bool {
    let mut of_it = task.held.iter().filter(|it| it.name == *name);
    of_it.any(|it| !it.units.is_empty())
}

/// Each unit of a resource, and which tasks hold which part of it.
fn grid(name: &ResourceName, units: u32, tasks: &[&TaskRow]) -> Markup {
    let mut holders = BTreeMap::<u32, Vec<(&TaskRow, u64)>>::new();
    for task in tasks {
        for held in task.held.iter().filter(|it| it.name == *name) {
            for (unit, steps) in &held.units {
                holders.entry(*unit).or_default().push((*task, *steps));
            }
        }
    }
    // Units that are held may have higher numbers than there are units now.
    let last = holders.keys().max().map_or(0, |it| it.saturating_add(1));
    html! {
        h3 { (name.as_str()) ", unit by unit" }
        ol.units {
            @for unit in 0..units.max(last.min(units.saturating_mul(2))) {
                @let held = holders.get(&unit).map_or(&[][..], Vec::as_slice);
                li {
                    span.unit { (name.as_str()) " " (unit) }
                    (bar(&parts_of(held), Amount::STEPS_PER_UNIT))
                    @if held.is_empty() { span.small { "free" } }
                    @for (task, steps) in held {
                        span.small {
                            (parts::task(&task.id)) " " (task.name) " holds " (Amount::from_steps(*steps).to_string())
                        }
                    }
                }
            }
        }
    }
}

fn parts_of(held: &[(&TaskRow, u64)]) -> Vec<Part> {
    let parts = held.iter().enumerate().map(|(at, (task, steps))| Part {
        class: share::paint(at),
        label: format!("{} holds {}", task.name, Amount::from_steps(*steps)),
        value: *steps,
    });
    parts.collect()
}

/// What jobs hold of a resource.
fn by_job(name: &ResourceName, total: Amount, tasks: &[&TaskRow]) -> Markup {
    let mut jobs = BTreeMap::<DriverId, (u64, usize)>::new();
    for task in tasks {
        for held in task.held.iter().filter(|it| it.name == *name) {
            let (steps, count) = jobs.entry(task.job).or_default();
            *steps = steps.saturating_add(held.steps);
            *count += 1;
        }
    }
    if jobs.is_empty() {
        return html! {};
    }
    let text = |steps: u64| units::named(name, Amount::from_steps(steps));
    let parts: Vec<Part> = jobs
        .iter()
        .enumerate()
        .map(|(at, (job, (steps, _)))| Part {
            class: share::paint(at),
            label: format!("job {job} holds {}", text(*steps)),
            value: *steps,
        })
        .collect();
    html! {
        details id={ "held-" (name.as_str()) "-" (tasks[0].node) } {
            summary { (name.as_str()) " by job" }
            (bar(&parts, total.steps()))
            ul.legend {
                @for (at, (job, (steps, count))) in jobs.iter().enumerate() {
                    li {
                        span class={ "key " (share::paint(at)) } {} " "
                        (parts::job(job)) " " (text(*steps)) " in " (count) " tasks"
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_client::wire::HeldResource;

    use super::*;

    #[test]
    fn each_unit_names_who_holds_which_part_of_it() {
        let mut one = TaskRow::example(DriverId::from_bytes([1; 16]).task(0));
        one.name = "<b>".into();
        one.held = vec![HeldResource {
            name: ResourceName::GPU,
            steps: 15_000,
            units: vec![(0, 10_000), (1, 5_000)],
        }];
        let total = BTreeMap::from([(ResourceName::GPU, Amount::units(2))]);
        let html = usage("n1", &total, &BTreeMap::new(), &[one]).into_string();
        assert!(html.contains("GPU 0") && html.contains("GPU 1"), "{html}");
        assert!(html.contains("&lt;b&gt; holds 0.5"), "{html}");
        assert!(!html.contains("GPU 2") && !html.contains("<b>"), "{html}");
        let free = usage("n1", &total, &total, &[]).into_string();
        assert_eq!(free.matches("free").count(), 2, "{free}");
    }
}
