//! What operators may choose of how a cluster schedules, while it runs.
//!
//! Owns the choices, their defaults and their ranges. Must not: know who has made them, or where they are kept.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Scheduler;
use crate::cluster::{Share, Tuning};
use crate::fairness::Policy;
use crate::task::Phase;

/// The choices. All schedulers of a cluster go by the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
// In the control store what is left out has its default, and what a later version adds is skipped.
#[serde(default, rename_all = "kebab-case")]
pub struct Settings {
    /// How tenants share.
    pub policy: Policy,
    /// Below this part of their most used resource nodes count as equally empty.
    pub spread_threshold: Share,
    /// The default strategy chooses at random among this part of the nodes.
    pub top_share: Share,
    /// And among so many at least; 0 is as 1.
    pub top_nodes: u32,
    /// Up to how many ready tasks a node takes its own submissions without looking elsewhere.
    pub local_queue: u32,
    /// How long a task may be passed over before freed resources are kept for it. Outside [`Settings::PATIENCE`] it
    /// counts as the end that is nearer.
    pub patience: Duration,
    /// Whether tasks that run are paused for tenants that are due their CPU.
    pub preemption: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let Tuning {
            spread_threshold,
            top_share,
            top_nodes,
        } = Tuning::default();
        Self {
            policy: Policy::default(),
            spread_threshold,
            top_share,
            top_nodes,
            local_queue: 64,
            patience: Duration::from_secs(30),
            preemption: true,
        }
    }
}

impl Settings {
    /// What patience may be.
    pub const PATIENCE: RangeInclusive<Duration> =
        Duration::from_millis(1)..=Duration::from_secs(24 * 60 * 60);

    /// The same with one choice made anew.
    #[must_use]
    pub fn with(mut self, setting: Setting) -> Self {
        match setting {
            Setting::Policy(it) => self.policy = it,
            Setting::SpreadThreshold(it) => self.spread_threshold = it,
            Setting::TopShare(it) => self.top_share = it,
            Setting::TopNodes(it) => self.top_nodes = it,
            Setting::LocalQueue(it) => self.local_queue = it,
            Setting::Patience(it) => self.patience = it,
            Setting::Preemption(it) => self.preemption = it,
        }
        self
    }

    pub(super) fn tuning(&self) -> Tuning {
        Tuning {
            spread_threshold: self.spread_threshold,
            top_share: self.top_share,
            top_nodes: self.top_nodes,
        }
    }
}

/// One choice of [`Settings`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Setting {
    /// [`Settings::policy`].
    Policy(Policy),
    /// [`Settings::spread_threshold`].
    SpreadThreshold(Share),
    /// [`Settings::top_share`].
    TopShare(Share),
    /// [`Settings::top_nodes`].
    TopNodes(u32),
    /// [`Settings::local_queue`].
    LocalQueue(u32),
    /// [`Settings::patience`].
    Patience(Duration),
    /// [`Settings::preemption`].
    Preemption(bool),
}

impl Scheduler {
    /// What this scheduler goes by.
    pub fn settings(&self) -> Settings {
        self.config.settings
    }

    /// It goes by something else from now on. What runs goes on, and what is kept for somebody stays kept.
    pub(super) fn configure(&mut self, settings: Settings) {
        let (least, most) = (*Settings::PATIENCE.start(), *Settings::PATIENCE.end());
        let patience = settings.patience.clamp(least, most);
        self.config.settings = Settings {
            patience,
            ..settings
        };
        self.cluster.set_tuning(settings.tuning());
        if settings.policy != self.tenants.policy() {
            self.set_policy(settings.policy);
        }
        self.look_at_deadlines();
    }

    /// Tenants share by another policy: everybody gets in line anew.
    fn set_policy(&mut self, policy: Policy) {
        let mut in_line = Vec::new();
        for phase in [Phase::Ready, Phase::Blocked] {
            let waiting = self
                .tasks
                .in_phase(phase)
                .filter(|ix| self.tasks[*ix].is_in_line);
            in_line.extend(waiting);
        }
        let classes: Vec<_> = in_line.iter().map(|ix| self.line_of(*ix)).collect();
        for (ix, class) in std::iter::zip(&in_line, &classes) {
            let lane = self.lane_of(*ix);
            // Who has been passed over comes back at once, and so does what is kept for it.
            let passed_over = self.classes[*class].passed_over;
            self.classes[*class].remove(&mut self.tasks, &self.tenants, lane, *ix);
            self.classes[*class].passed_over = passed_over;
        }
        self.tenants.set_policy(policy);
        self.keys.note_all();
        for (ix, class) in std::iter::zip(in_line, classes) {
            self.enqueue(ix, class);
        }
        self.open_held();
    }
}
