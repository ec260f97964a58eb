//! How the cluster schedules, as far as operators choose, in the control store: the same at all nodes.
//!
//! Owns the record at `scheduling`, its changes, and the watch by which a node's scheduler hears of them
//! ([`Work`](super::Work)). Must not: know what the choices mean.
//!
//! Invariants as of [`tenants`](super::tenants): without a record all is as by default, and one that cannot be read
//! changes nothing.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wasmrun_control::records::{self, Form, Record, RecordError, SCHEDULING};
use wasmrun_control::{Changes, ControlStore, Entry, Error, Event, Revision, Watch};
use wasmrun_model::scheduler::{Setting, Settings};

use super::watched::{self, Applied, Follow, Next};

/// What operators have chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Chosen(Settings);

impl Record for Chosen {
    // Nodes of two versions read it.
    const FORM: Form = Form::Json;
    const VERSION: u8 = 1;
}

/// Why it could not be changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SchedulingError {
    /// The store did not do it, or has not said whether it did.
    #[error(transparent)]
    Store(#[from] Error),
    /// What is there cannot be read.
    #[error(
        "what is set of the cluster's scheduling cannot be read: {0}; upgrade this node, or ask another one"
    )]
    Record(RecordError),
}

/// What the store has.
#[derive(Debug)]
pub(crate) struct Scheduling {
    store: Arc<dyn ControlStore>,
    /// As of when this node goes by it.
    applied: Applied,
}

impl Scheduling {
    pub(super) fn new(store: Arc<dyn ControlStore>) -> Self {
        Self {
            store,
            applied: Applied::default(),
        }
    }

    /// Makes these choices for all nodes. What they are from now on; this node goes by it, unless the store has stopped
    /// answering just now.
    ///
    /// # Errors
    /// When the store does not do it, and when it has not said whether it did: to try again is right.
    pub(crate) async fn choose(&self, choices: &[Setting]) -> Result<Settings, SchedulingError> {
        let mut settings = Settings::default();
        let change = |entry: Option<&Entry>, _: bool| {
            let before = entry.map(|entry| Chosen::from_value(&entry.value));
            let before = before.transpose().map_err(SchedulingError::Record)?;
            let all = before.map(|it| it.0).unwrap_or_default();
            settings = choices.iter().fold(all, |all, choice| all.with(*choice));
            Ok(match before == Some(Chosen(settings)) {
                true => Next::Stays,
                false => Next::Put(Chosen(settings).to_value()),
            })
        };
        let key = records::scheduling();
        watched::swap::<SchedulingError>(&*self.store, &self.applied, key, change).await?;
        Ok(settings)
    }
}

/// Who is told what is chosen.
pub(super) type Tell = Box<dyn Fn(Settings) + Send + Sync>;

/// Tells somebody what is in the store.
pub(super) struct Follower {
    scheduling: Arc<Scheduling>,
    tell: Tell,
}

impl Follower {
    /// Tells what is there, and begins to watch it.
    ///
    /// # Errors
    /// When the store does not say.
    pub(super) async fn begin(
        scheduling: Arc<Scheduling>,
        tell: Tell,
    ) -> Result<(Self, Watch), Error> {
        let mut follower = Self { scheduling, tell };
        let watch = watched::begin(&mut follower).await?;
        Ok((follower, watch))
    }

    fn put(&self, entry: &Entry) {
        match Chosen::from_value(&entry.value) {
            Ok(Chosen(settings)) => {
                tracing::debug!(?settings, "how the cluster schedules");
                (self.tell)(settings);
            }
            Err(error) => {
                tracing::warn!(%error, "what is set of scheduling cannot be read, and does not count");
            }
        }
    }
}

impl Follow for Follower {
    const PREFIX: &'static str = SCHEDULING;
    const WHAT: &'static str = "how the cluster schedules";

    fn store(&self) -> &dyn ControlStore {
        self.scheduling.store.as_ref()
    }

    fn all(&mut self, entries: &[Entry], revision: Revision) {
        match entries {
            [] => (self.tell)(Settings::default()),
            entries => entries.iter().for_each(|entry| self.put(entry)),
        }
        self.scheduling.applied.set(revision);
    }

    fn changed(&mut self, changes: Changes) {
        for event in changes.events {
            match event {
                Event::Put(entry) => self.put(&entry),
                Event::Delete { .. } => (self.tell)(Settings::default()),
            }
        }
        self.scheduling.applied.set(changes.revision);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;
    use wasmrun_control::{Embedded, EmbeddedConfig};
    use wasmrun_model::fairness::Policy;

    use super::*;

    #[test]
    fn a_record_has_these_bytes_and_what_is_left_out_is_as_by_default() {
        let fair = Settings::default().with(Setting::Policy(Policy::Fair));
        let value = Chosen(fair).to_value();
        let text = r#"{"policy":"fair","spread-threshold":"0.5","top-share":"0.2","top-nodes":1,"local-queue":64,"patience":{"secs":30,"nanos":0},"preemption":true}"#;
        assert_eq!(&value[..2], b"j\x01");
        assert_eq!(std::str::from_utf8(&value[2..]).unwrap(), text);
        assert_eq!(Chosen::from_value(&value).unwrap(), Chosen(fair));
        let other = Chosen::from_value(b"j\x01{\"policy\":\"fair\",\"later\":1}").unwrap();
        assert_eq!(other, Chosen(fair));
        for bad in [
            &b"j\x01{\"spread-threshold\":\"1.5\"}"[..],
            b"j\x01{\"policy\":\"none\"}",
            b"j\x02{}",
        ] {
            assert!(Chosen::from_value(bad).is_err());
        }
    }

    #[tokio::test]
    async fn all_nodes_go_by_what_is_chosen_at_any() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path(), EmbeddedConfig::default());
        let store = store.await.unwrap();
        let clock = || Arc::new(wasmrun_control::MonotonicClock::default());
        let [here, there] = [(); 2].map(|()| Arc::new(Scheduling::new(store.clone())));
        let mut told = Vec::new();
        for scheduling in [&here, &there] {
            let heard = Arc::new(Mutex::new(None));
            let tell = {
                let heard = heard.clone();
                Box::new(move |settings| *heard.lock() = Some(settings))
            };
            let (follower, watch) = Follower::begin(scheduling.clone(), tell).await.unwrap();
            assert_eq!(heard.lock().take(), Some(Settings::default()));
            tokio::spawn(watched::run(follower, watch, clock()));
            told.push(heard);
        }
        let patience = Setting::Patience(Duration::from_millis(1));
        here.choose(&[Setting::Policy(Policy::Fifo)]).await.unwrap();
        let both = there.choose(&[patience]).await.unwrap();
        let expected = Settings::default().with(Setting::Policy(Policy::Fifo));
        assert_eq!(both, expected.with(patience));
        assert_eq!(*told[1].lock(), Some(both));
        // Nothing is written where nothing changes.
        let before = store.revision().await.unwrap();
        assert_eq!(here.choose(&[patience]).await.unwrap(), both);
        assert_eq!(store.revision().await.unwrap(), before);
        assert_eq!(*told[0].lock(), Some(both));
    }
}
