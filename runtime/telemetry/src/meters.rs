//! Metrics of attempts, and of lost spans.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, MeterProvider};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use wasmrun_model::wire::TaskRow;

use crate::SCOPE;

/// How often the same warning is logged.
const SAID_EVERY: Duration = Duration::from_secs(60);
/// The bounds of the histograms' buckets, in seconds.
const BOUNDS: [f64; 10] = [
    0.0001, 0.0005, 0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0,
];

/// The instruments.
#[derive(Debug)]
pub(crate) struct Meters {
    attempts: Counter<u64>,
    waited: Histogram<f64>,
    ran: Histogram<f64>,
    lost: Counter<u64>,
    said: Said,
}

impl Meters {
    pub(crate) fn new(provider: &SdkMeterProvider) -> Self {
        let meter = provider.meter(SCOPE);
        let attempts = meter
            .u64_counter("wasmrun.attempts")
            .with_unit("{attempt}")
            .with_description("Attempts of tasks that have ended, by tenant and outcome.");
        let lost = meter
            .u64_counter("wasmrun.spans.lost")
            .with_unit("{span}")
            .with_description("Spans that the collector did not get.");
        Self {
            attempts: attempts.build(),
            waited: seconds(
                &meter,
                "wasmrun.attempt.waited",
                "From when a task was submitted until it had what it asked for.",
            ),
            ran: seconds(
                &meter,
                "wasmrun.attempt.ran",
                "From then until the attempt ended.",
            ),
            lost: lost.build(),
            said: Said::default(),
        }
    }

    /// Counts an attempt that has ended.
    pub(crate) fn count(&self, row: &TaskRow) {
        let tenant = [KeyValue::new("wasmrun.tenant", row.tenant.to_string())];
        let [name] = tenant.clone();
        let outcome = KeyValue::new("wasmrun.outcome", row.state.clone());
        self.attempts.add(1, &[name, outcome]);
        // One that did not run has waited to its end.
        if let Some(run) = &row.run
            && let Some(ran_us) = run.ran_us
        {
            let seconds = |us| Duration::from_micros(us).as_secs_f64();
            self.waited.record(seconds(run.waited_us), &tenant);
            self.ran.record(seconds(ran_us), &tenant);
        }
    }

    /// Counts spans that are lost, and logs that now and then.
    pub(crate) fn lose(&self, spans: u64, why: &dyn Display) {
        self.lost.add(spans, &[]);
        if self.said.is_due() {
            tracing::warn!(spans, %why, "the collector does not get all spans");
        }
    }
}

fn seconds(meter: &Meter, name: &'static str, what: &'static str) -> Histogram<f64> {
    meter
        .f64_histogram(name)
        .with_unit("s")
        .with_description(what)
        .with_boundaries(BOUNDS.to_vec())
        .build()
}

/// When a warning was logged last.
#[derive(Debug, Default)]
pub(crate) struct Said(Mutex<Option<Instant>>);

impl Said {
    /// Whether it may be logged again. The caller then does.
    pub(crate) fn is_due(&self) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = said.is_none_or(|said| said.elapsed() >= SAID_EVERY);
        if is_due {
            *said = Some(Instant::now());
        }
        is_due
    }
}
