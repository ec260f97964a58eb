//! The cases of `wasmrun bench` in which guests work with tasks, objects and actors of their own.
//!
//! The guest starts them and takes the times, so these are the costs that a program sees. They need
//! the guest of `cargo xtask bench`: the one built in has no such functions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use wasmrun_engine::{Entry, Grants};
use wasmrun_model::value::codec::{decode, encode};
use wasmrun_model::value::{DecodeLimits, Value};
use wasmrun_node::{Call, Job, Overrides, Readable};

use super::Sample;
use super::cases::Setting;
use crate::fail::Failure;

const NESTED: u32 = 10_000;
const ACTORS: u32 = 500;
const SYNC_CALLS: u32 = 5_000;
const ASYNC_CALLS: u32 = 100_000;
const WAITED_FOR: u32 = 1_000;
const WAITS: u32 = 200;
/// 100 MiB of `f64`.
const NUMBERS: u32 = (100 << 20) / 8;
const SUMS: u32 = 5;

impl Setting {
    /// Calls a function of the guest: what it returns, and how long that took.
    fn ask(&self, function: &str, values: &[Value]) -> Result<(Option<Value>, Duration), Failure> {
        let (_, module) = self.flow().context("the case needs --flow-module")?;
        let index = module.find(function)?;
        let ty = &module.function(index).ty;
        let job = Job::new(
            function,
            module,
            Entry::Function(index),
            &Overrides {
                argument_bytes: 1 << 30,
                ..Overrides::default()
            },
            Grants::default(),
        )?;
        let values = ty.params().iter().zip(values);
        let values = values.map(|((_, ty), value)| Ok(encode(ty, value)?.into()));
        let call = Call {
            values: values.collect::<Result<Vec<_>, Failure>>()?,
            ..Call::default()
        };
        let started = Instant::now();
        let report = self.client().submit(&Arc::new(job), call)?.wait();
        let took = started.elapsed();
        let value = match (ty.result(), report.result?) {
            (Some(ty), Some(value)) => {
                let loaded = value.load().context("cannot read the result")?;
                Some(decode(ty, loaded.encoded(), DecodeLimits::default())?)
            }
            _ => None,
        };
        Ok((value, took))
    }

    /// The times that a function of the guest took for each of several things.
    fn times(&self, function: &str, values: &[Value]) -> Result<Vec<Duration>, Failure> {
        let wrong = || anyhow!("{function} of the bench guest returned no times");
        let numbers = match self.ask(function, values)?.0.ok_or_else(wrong)? {
            Value::U64(time) => vec![time],
            Value::Numbers(times) => times.elements().ok_or_else(wrong)?.collect(),
            _ => return Err(wrong().into()),
        };
        Ok(numbers.into_iter().map(Duration::from_nanos).collect())
    }

    pub(super) fn tasks_nested(&self) -> Result<Sample, Failure> {
        let tasks = self.count(NESTED);
        let (_, took) = self.ask("spawn-many", &[Value::U32(tasks)])?;
        Ok(Sample::from(f64::from(tasks) / took.as_secs_f64()))
    }

    pub(super) fn actor_create(&self) -> Result<Sample, Failure> {
        let latencies = self.times("actor-create", &[Value::U32(self.count(ACTORS))])?;
        Ok(Sample {
            value: median(&latencies).as_secs_f64() * 1e6,
            latencies,
        })
    }

    pub(super) fn actor_sync(&self) -> Result<Sample, Failure> {
        let calls = self.count(SYNC_CALLS);
        let latencies = self.times("actor-sync", &[Value::U32(calls)])?;
        let all: Duration = latencies.iter().sum();
        Ok(Sample {
            value: f64::from(calls) / all.as_secs_f64(),
            latencies,
        })
    }

    pub(super) fn actor_async(&self) -> Result<Sample, Failure> {
        let calls = self.count(ASYNC_CALLS);
        let took: Duration = self
            .times("actor-async", &[Value::U32(calls)])?
            .iter()
            .sum();
        Ok(Sample::from(f64::from(calls) / took.as_secs_f64()))
    }

    pub(super) fn wait_1k(&self) -> Result<Sample, Failure> {
        let waits = self.count(WAITS);
        let values = [Value::U32(self.count(WAITED_FOR)), Value::U32(waits)];
        let took: Duration = self.times("wait-often", &values)?.iter().sum();
        Ok(Sample::from(f64::from(waits) / took.as_secs_f64()))
    }

    pub(super) fn arg_100m(&self, is_attached: bool) -> Result<Sample, Failure> {
        let values = [
            Value::U32(self.count(NUMBERS)),
            Value::Bool(is_attached),
            Value::U32(self.count(SUMS)),
        ];
        let latencies = self.times("sum-stored", &values)?;
        Ok(Sample {
            value: median(&latencies).as_secs_f64() * 1e3,
            latencies,
        })
    }

    /// Fills the node with actors that live on.
    pub(super) fn populate(&self, actors: u32) -> Result<(), Failure> {
        self.ask("populate", &[Value::U32(actors)]).map(drop)
    }
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
