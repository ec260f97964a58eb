//! The suite on the store of simulations: as it is, and over a way on which nothing goes wrong, in simulated time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use wasmrun_control::simulated::{Faults, Line, Process, Store, Time, Way};
use wasmrun_control::{ControlStore, EmbeddedConfig, MonotonicClock};
use wasmrun_model::random::Random;

use crate::Harness;

struct InMemory(Arc<Store>);

#[async_trait]
impl Harness for InMemory {
    fn store(&self) -> Arc<dyn ControlStore> {
        self.0.itself().unwrap()
    }

    async fn restart(&mut self) {
        self.0.stop().await;
        self.0.start().await;
    }
}

async fn make(_: &str) -> Option<InMemory> {
    let clock = Arc::new(MonotonicClock::default());
    Some(InMemory(Store::new(EmbeddedConfig::default(), clock).await))
}

crate::conform!(make);

struct OverWay {
    store: Arc<Store>,
    way: Arc<Way>,
}

#[async_trait]
impl Harness for OverWay {
    fn store(&self) -> Arc<dyn ControlStore> {
        self.way.clone()
    }

    async fn restart(&mut self) {
        self.store.stop().await;
        self.store.start().await;
    }
}

impl OverWay {
    async fn new(time: Arc<Time>) -> Self {
        let clock = Arc::new(time.hand(Process(0), 0));
        let store = Store::new(EmbeddedConfig::default(), clock).await;
        let line = Line::new(Faults::NONE);
        let way = Way::new(&store, &line, (&time, Process(1)), Random::new(1));
        Self { store, way }
    }
}

macro_rules! conform_in_simulated_time {
    ($($name:ident),* $(,)?) => {
        mod over_a_way {
            use super::*;

            $(
                #[test]
                fn $name() {
                    let time = Time::new(Duration::from_secs(3600));
                    let world = time.clone();
                    time.run(async move {
                        let mut harness = OverWay::new(world).await;
                        crate::suite::$name(&mut harness).await;
                    });
                }
            )*
        }
    };
}

// All that need no time of their own: tokio's does not pass here.
conform_in_simulated_time!(
    values_and_their_numbers,
    pages_cover_a_range,
    transactions_are_all_or_nothing,
    conditions_hold_or_not,
    what_is_too_large_is_refused,
    large_values_survive,
    a_watch_from_the_past,
    prefixes_do_not_mix,
    compacted_history_is_said,
    leases_end_and_take_their_keys,
    a_key_leaves_its_lease,
    a_restart_loses_nothing,
    watches_survive_a_restart,
    leases_survive_a_restart,
);
