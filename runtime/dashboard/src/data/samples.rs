//! Samples of the last minutes, one a second while a browser looks.
//!
//! Must not: read a clock, ask the node.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use wasmrun_model::fairness::TenantName;

/// How long a sample is kept.
pub const KEPT: Duration = Duration::from_secs(5 * 60);
/// How far samples are apart at least: a little less than the period of a view.
const APART: Duration = Duration::from_millis(900);
/// Over which time a rate is taken at least.
const SPAN: Duration = Duration::from_secs(4);

/// The numbers of one time.
#[derive(Debug, Clone)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// How many tasks had ended well by then.
    pub finished: u64,
    /// How many had failed.
    pub failed: u64,
    /// The largest shares of tenants.
    pub shares: Vec<(TenantName, f64)>,
}

/// A value at a time: so many seconds before the last sample.
pub type Point = (f64, f64);

/// Samples, the oldest first.
#[derive(Debug, Default)]
pub struct Samples(VecDeque<Sample>);

impl Samples {
    /// Keeps it, if the last one is old enough.
    pub fn push(&mut self, sample: Sample) {
        if let Some(last) = self.0.back()
            && sample.at.saturating_duration_since(last.at) < APART
        {
            return;
        }
        let is_old = |it: &Sample| sample.at.saturating_duration_since(it.at) > KEPT;
        while self.0.front().is_some_and(is_old) {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// How many tasks have ended well a second, and how many badly.
    pub fn rates(&self) -> (Vec<Point>, Vec<Point>) {
        (self.rate(|it| it.finished), self.rate(|it| it.failed))
    }

    fn rate(&self, count: impl Fn(&Sample) -> u64) -> Vec<Point> {
        let Some(end) = self.0.back() else {
            return Vec::new();
        };
        let mut points = Vec::new();
        let mut from = 0;
        for to in 1..self.0.len() {
            let since = |from: usize| self.0[to].at.saturating_duration_since(self.0[from].at);
            while from + 1 < to && since(from + 1) >= SPAN {
                from += 1;
            }
            let (one, other) = (&self.0[from], &self.0[to]);
            // Less than before if a node has left.
            let more = count(other).saturating_sub(count(one));
            let seconds = since(from).as_secs_f64().max(f64::MIN_POSITIVE);
            points.push((ago(end, other), more as f64 / seconds));
        }
        points
    }

    /// The shares of the tenants that have the largest now.
    pub fn shares(&self) -> BTreeMap<TenantName, Vec<Point>> {
        let Some(end) = self.0.back() else {
            return BTreeMap::new();
        };
        let of = |tenant: &TenantName| {
            let points = self.0.iter().filter_map(|sample| {
                let (_, share) = sample.shares.iter().find(|(it, _)| it == tenant)?;
                Some((ago(end, sample), *share))
            });
            points.collect::<Vec<Point>>()
        };
        let tenants = end.shares.iter();
        tenants.map(|(it, _)| (it.clone(), of(it))).collect()
    }
}

fn ago(end: &Sample, sample: &Sample) -> f64 {
    end.at.saturating_duration_since(sample.at).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: Instant, finished: u64) -> Sample {
        Sample {
            at,
            finished,
            failed: 0,
            shares: vec![(TenantName::default(), 0.5)],
        }
    }

    #[test]
    fn rates_are_differences_over_time() {
        let (mut samples, start) = (Samples::default(), Instant::now());
        assert!(samples.rates().0.is_empty());
        let at = |seconds| start + Duration::from_secs(seconds);
        for (second, finished) in [(0, 0), (1, 10), (2, 30), (3, 20)] {
            samples.push(sample(at(second), finished));
        }
        // Too early to count.
        samples.push(sample(at(3) + Duration::from_millis(1), 1000));
        let (finished, failed) = samples.rates();
        assert_eq!(finished, [(2.0, 10.0), (1.0, 15.0), (0.0, 20.0 / 3.0)]);
        assert_eq!(failed.len(), 3);
        assert_eq!(samples.shares()[&TenantName::default()].len(), 4);
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let (mut samples, start) = (Samples::default(), Instant::now());
        for second in 0..1000 {
            samples.push(sample(start + Duration::from_secs(second), second));
        }
        assert_eq!(samples.0.len() as u64, KEPT.as_secs() + 1);
    }
}
