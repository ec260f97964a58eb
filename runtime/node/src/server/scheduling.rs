//! Requests about how the cluster schedules.
//!
//! Owns which choices are taken, and what is to be known of them. Must not: know what they mean, or keep them: in a
//! cluster that is the control store ([`crate::cluster::Scheduling`]), at a node that is alone its scheduler.

use std::fmt::{self, Write as _};

use wasmrun_model::fairness::{Policy, TenantConfig};
use wasmrun_model::resource::ResourceName;
use wasmrun_model::scheduler::{Setting, Settings};
use wasmrun_model::wire::{MAX_FRAME_BYTES, Refusal, RefusalKind, Response, Scheduling};

use super::Inner;
use super::session::{Session, refusal};
use crate::peers::ask::{Answer, Question};

/// The weights of how many tenants are told.
const MOST_TENANTS: usize = 500;
/// How much of what a scheduler has is told, in bytes.
const MOST_BYTES: usize = 64 << 10;

impl Session {
    /// Makes choices for all nodes, and says what holds then.
    pub(super) async fn scheduling(&self, choices: &[Setting]) -> Result<Response, Refusal> {
        let shared = &self.inner.shared;
        for choice in choices {
            if let Setting::Patience(patience) = choice
                && !Settings::PATIENCE.contains(patience)
            {
                let why = format_args!(
                    "patience is from {:?} to {:?}, and this is {patience:?}",
                    Settings::PATIENCE.start(),
                    Settings::PATIENCE.end()
                );
                return Err(refusal(RefusalKind::Usage, why));
            }
        }
        let (mut notes, mut chosen) = (Vec::new(), None);
        if !choices.is_empty() {
            match self.inner.cluster() {
                Some(cluster) => {
                    let made = cluster.changed(cluster.scheduling().choose(choices)).await;
                    chosen = Some(made.map_err(|error| refusal(RefusalKind::Full, error))?);
                }
                None => {
                    notes.push(format!(
                        "node {} is in no cluster: it knows this until it stops",
                        self.inner.name()
                    ));
                    shared.tell(|ledger| {
                        let before = ledger.scheduler().settings();
                        let settings = choices.iter().fold(before, |all, choice| all.with(*choice));
                        ledger.configure(settings)
                    });
                }
            }
            tracing::info!(?choices, "how the cluster schedules was set");
        }
        let (settings, has_memory, mut resource_weights) = shared.ask(|ledger| {
            // The node itself may go by them a moment later.
            let settings = chosen.unwrap_or_else(|| ledger.scheduler().settings());
            let tenants = ledger.scheduler().tenants();
            let has_memory = !tenants.total().get(&ResourceName::MEMORY).is_zero();
            let with_weights = tenants.iter().filter(|(_, tenant)| {
                let is_seen = self.caller.access.covers(tenant.name());
                is_seen && !tenant.config().resource_weights.is_empty()
            });
            let resource_weights = with_weights.map(|(_, tenant)| {
                let TenantConfig {
                    resource_weights, ..
                } = tenant.config();
                (tenant.name().clone(), resource_weights.clone())
            });
            let resource_weights: Vec<_> = resource_weights.take(MOST_TENANTS + 1).collect();
            (settings, has_memory, resource_weights)
        });
        if settings.policy == Policy::Fair && !has_memory {
            notes.push(
                "fair shares memory, and no node has any: whoever submitted first goes first"
                    .into(),
            );
        }
        if resource_weights.len() > MOST_TENANTS {
            resource_weights.truncate(MOST_TENANTS);
            notes.push(format!(
                "more than {MOST_TENANTS} tenants have weights of single resources"
            ));
        }
        Ok(Response::Scheduling(Box::new(Scheduling {
            settings,
            resource_weights,
            notes,
        })))
    }

    /// What the schedulers of all nodes have.
    pub(super) async fn scheduler_state(&self) -> Result<Response, Refusal> {
        let mut text = state(&self.inner);
        let all = self.others(&self.asked(Question::Scheduler)).await;
        for (node, answer) in all.answers {
            if text.len() > MAX_FRAME_BYTES / 2 {
                let _ = writeln!(text, "\nnode {node} and others: left out");
                break;
            }
            match answer {
                Answer::Text(more) => text += &format!("\n{more}"),
                _ => drop(writeln!(text, "\nnode {node} does not say")),
            }
        }
        for silent in all.silent {
            let _ = writeln!(text, "\nnode {} does not answer", silent.node);
        }
        Ok(Response::Text(text))
    }
}

/// What this node's scheduler has, or the beginning of it.
pub(super) fn state(inner: &Inner) -> String {
    let mut text = Beginning(format!("node {}: ", inner.name()));
    let written = inner
        .shared
        .ask(|ledger| write!(text, "{}", ledger.scheduler()));
    if written.is_err() {
        text.0 += "…\n";
    }
    text.0
}

/// A text that takes no more once it is long.
struct Beginning(String);

impl fmt::Write for Beginning {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.0.len() + more.len() > MOST_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(more);
        Ok(())
    }
}
