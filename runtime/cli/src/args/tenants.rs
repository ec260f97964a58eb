//! What can be typed about tenants.

use std::str::FromStr;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use wasmrun_model::fairness::{TenantName, Weight};
use wasmrun_model::resource::ResourceSet;
use wasmrun_model::wire::{Amounts, MAX_MINIMA, Weights};

use super::{FilterArg, amount, words};

/// What to do with tenants.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// Set what a tenant is due and may have, for all nodes of the cluster. What is not named stays as it is.
    Set(Box<TenantSet>),
    /// List tenants: what each is due, what it has and what it may have, with those that are part of it.
    List {
        /// Only those whose field, name or weight, has this value, such as weight=3. Repeatable.
        #[arg(long, short, value_name = "FIELD=VALUE")]
        filter: Vec<FilterArg>,
    },
    /// Give a tenant the defaults back: weight 1, no minimum and no quota. Its work goes on.
    Remove {
        /// The tenant.
        tenant: TenantName,
    },
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("due").args(["weight", "min", "resource_weights", "max", "max_objects", "max_detached", "max_tasks", "max_waiting", "no_preempt"]).required(true).multiple(true))]
pub struct TenantSet {
    /// The tenant (team, queue), such as research, or one that is part of another, such as research/vision. It need not
    /// have submitted anything.
    pub tenant: TenantName,
    /// How much it counts beside the others, 0.0001 to 1000000.
    ///
    /// One of weight 2 is due twice what one of weight 1 is.
    #[arg(long, value_name = "WEIGHT", allow_hyphen_values = true)]
    pub weight: Option<Weight>,
    /// What it is guaranteed, such as CPU=2,memory=4GiB, or none.
    ///
    /// As long as it uses less, it goes before tenants that have what they are guaranteed. Replaces what was guaranteed
    /// before.
    #[arg(long, value_name = "AMOUNTS", allow_hyphen_values = true)]
    pub min: Option<MinArg>,
    /// The same for single resources, such as GPU=4,CPU=0.5, or none.
    ///
    /// It comes on top of the tenant's weight. Replaces what was set before.
    #[arg(long, value_name = "WEIGHTS")]
    pub resource_weights: Option<WeightsArg>,
    /// What it may use at once, with all that are part of it, such as CPU=8,memory=64GiB,GPU=0, or none.
    ///
    /// What is above it waits. Replaces what was set before.
    #[arg(long, value_name = "AMOUNTS", allow_hyphen_values = true)]
    pub max: Option<MaxArg>,
    /// How much of the memory for objects of each node it may have at once, with all that are part of it, such as 4GiB, or none
    /// for no bound.
    ///
    /// What is above it goes to disk if the node has one, else new objects wait.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub max_objects: Option<BytesArg>,
    /// How many detached tasks that have not ended it may have at one node, with all that are part of it, or none for any number.
    ///
    /// One more is refused when it is submitted.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub max_detached: Option<MostArg>,
    /// How many sandboxes it may have at once, with all that are part of it, or none for any number.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub max_tasks: Option<MostArg>,
    /// How many of its tasks may wait at one node, with those of all that are part of it, or none for any number.
    ///
    /// One more is refused when it is submitted.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub max_waiting: Option<MostArg>,
    /// Whether its tasks may ask not to be paused or stopped for others, with those of all that are part of it.
    ///
    /// They do with `submit --no-preempt`, which is refused else.
    #[arg(long, value_name = "ALLOW")]
    pub no_preempt: Option<AllowArg>,
}

/// Whether something may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AllowArg {
    /// It may.
    Allow,
    /// It may not.
    Refuse,
}

/// `10`, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MostArg(pub Option<u32>);

impl FromStr for MostArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("none", _) => Ok(Self(None)),
            (_, Ok(most)) => Ok(Self(Some(most))),
            (_, Err(_)) => Err(format!(
                "'{text}' must be a whole number, at most {}, or none for no bound",
                u32::MAX
            )),
        }
    }
}

/// `4GiB`, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BytesArg(pub Option<u64>);

impl FromStr for BytesArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            _ => words::size(text).map(|most| Self(Some(most))),
        }
    }
}

/// `CPU=8,GPU=0`, or `none`.
#[derive(Debug, Clone)]
pub struct MaxArg(pub Amounts);

impl FromStr for MaxArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut amounts = Amounts::new();
        if text == "none" {
            return Ok(Self(amounts));
        }
        for part in text.split(',') {
            let form = "RESOURCE=AMOUNT, such as CPU=8; none takes a quota away";
            let (name, amount) = amount::named(part, form)?;
            if amounts.insert(name.clone(), amount).is_some() {
                return Err(format!("{name} is given twice"));
            }
        }
        match amounts.len() {
            ..=MAX_MINIMA => Ok(Self(amounts)),
            len => Err(format!(
                "these are {len} resources, and a tenant may have a quota of {MAX_MINIMA}"
            )),
        }
    }
}

/// `GPU=4,CPU=0.5`, or `none`.
#[derive(Debug, Clone)]
pub struct WeightsArg(pub Weights);

impl FromStr for WeightsArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut weights = Weights::new();
        if text == "none" {
            return Ok(Self(weights));
        }
        for part in text.split(',') {
            let (name, weight) = part.split_once('=').ok_or_else(|| {
                format!("'{part}' must be RESOURCE=WEIGHT, such as GPU=4; none takes all away")
            })?;
            let name = amount::resource(name.trim())?;
            let weight = weight.trim().parse().map_err(|error| format!("{error}"))?;
            if weights.insert(name.clone(), weight).is_some() {
                return Err(format!("{name} is given twice"));
            }
        }
        match weights.len() {
            ..=MAX_MINIMA => Ok(Self(weights)),
            len => Err(format!(
                "these are {len} resources, and a tenant may have weights of {MAX_MINIMA}"
            )),
        }
    }
}

/// `CPU=2,memory=4GiB`, or `none`.
#[derive(Debug, Clone)]
pub struct MinArg(pub ResourceSet);

impl FromStr for MinArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut amounts = ResourceSet::new();
        if text == "none" {
            return Ok(Self(amounts));
        }
        for part in text.split(',') {
            let form = "RESOURCE=AMOUNT, such as CPU=2; none takes a minimum away";
            let (name, amount) = amount::named(part, form)?;
            if amount.is_zero() {
                return Err(format!(
                    "{name}=0 guarantees nothing: leave it out, or say none to take all away"
                ));
            }
            if !amounts.get(&name).is_zero() {
                return Err(format!("{name} is given twice"));
            }
            amounts.set(name, amount);
        }
        match amounts.len() {
            ..=MAX_MINIMA => Ok(Self(amounts)),
            len => Err(format!(
                "these are {len} resources, and a tenant may be guaranteed something of {MAX_MINIMA}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_resources() {
        let weights = |text: &str| text.parse::<WeightsArg>().map(|it| it.0);
        let shown: Vec<String> = weights("gpus=4, CPU=0.5")
            .unwrap()
            .iter()
            .map(|it| format!("{} {}", it.0, it.1))
            .collect();
        assert_eq!(shown, ["CPU 0.5", "GPU 4"]);
        assert!(weights("none").unwrap().is_empty());
        for (text, says) in [
            ("", "must be RESOURCE=WEIGHT"),
            ("GPU", "must be RESOURCE=WEIGHT"),
            ("GPU=0", "0"),
            ("GPU=1,gpus=1", "GPU is given twice"),
            ("a b=1", "a b"),
        ] {
            let error = weights(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn quotas() {
        let max = |text: &str| text.parse::<MaxArg>().map(|it| it.0);
        let shown: Vec<String> = max("cpus=8, GPU=0")
            .unwrap()
            .iter()
            .map(|it| format!("{} {}", it.0, it.1))
            .collect();
        assert_eq!(shown, ["CPU 8", "GPU 0"]);
        assert!(max("none").unwrap().is_empty());
        for (text, says) in [
            ("", "must be RESOURCE=AMOUNT"),
            ("CPU=-1", "-1"),
            ("CPU=1,cpus=2", "CPU is given twice"),
        ] {
            let error = max(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        assert_eq!("0".parse::<MostArg>(), Ok(MostArg(Some(0))));
        assert_eq!("none".parse::<MostArg>(), Ok(MostArg(None)));
        assert_eq!("2KiB".parse::<BytesArg>(), Ok(BytesArg(Some(2048))));
        assert_eq!("none".parse::<BytesArg>(), Ok(BytesArg(None)));
        assert!("-1".parse::<BytesArg>().is_err());
        for text in ["", "-1", "1.5", "many", "4294967296"] {
            let error = text.parse::<MostArg>().unwrap_err();
            assert!(
                error.contains("must be a whole number, at most 4294967295"),
                "{error}"
            );
        }
    }

    #[test]
    fn minima() {
        let min = |text: &str| text.parse::<MinArg>().map(|it| it.0.to_string());
        assert_eq!(min("CPU=2,memory=4GiB").unwrap(), "{CPU: 2, memory: 4GiB}");
        assert_eq!(min("cpus=0.5, tpu=3").unwrap(), "{CPU: 0.5, tpu: 3}");
        assert_eq!(min("none").unwrap(), "{}");
        let many: Vec<String> = (0..=MAX_MINIMA).map(|n| format!("r{n}=1")).collect();
        for (text, says) in [
            ("", "must be RESOURCE=AMOUNT"),
            ("CPU", "must be RESOURCE=AMOUNT"),
            ("CPU=2;memory=1GiB", "2;memory=1GiB"),
            ("CPU=-1", "-1"),
            ("CPU=nan", "nan"),
            ("CPU=0", "guarantees nothing"),
            ("CPU=1,cpus=1", "CPU is given twice"),
            ("CPU=1,none", "'none' must be"),
            ("a b=1", "a b"),
            (&many.join(","), "33 resources"),
        ] {
            let error = min(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
