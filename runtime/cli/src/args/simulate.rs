//! What can be typed about scenarios.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueHint};
use wasmrun_model::fairness::{TenantConfig, TenantName, Weight};
use wasmrun_model::resource::ResourceSet;
use wasmrun_model::wire::Amounts;

use super::{amount, duration};

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").args(["scenario", "record"]).required(true))]
pub struct Simulate {
    /// The scenario, in JSON; `-` is standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub scenario: Option<PathBuf>,
    /// Run it once more with a change of a tenant, such as web:weight=2,min=CPU=4,max=CPU=8,max-tasks=20, and show both.
    /// Repeatable.
    ///
    /// What is not named stays as the scenario has it; `none` takes a minimum or a quota away.
    #[arg(long, value_name = "TENANT:CHANGES", conflicts_with = "record")]
    pub set_tenant: Vec<TenantArg>,
    /// Write a scenario of what has run in the cluster to this file; `-` is standard output.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub record: Option<PathBuf>,
    /// Also of what is in this folder, which a node was given as --history-dir, or in a file of one. Repeatable.
    #[arg(long, value_name = "DIR", conflicts_with = "scenario", value_hint = ValueHint::AnyPath)]
    pub from: Vec<PathBuf>,
    /// Only tasks that were submitted within this time, such as 7d.
    #[arg(long, value_name = "DURATION", conflicts_with = "scenario", value_parser = duration)]
    pub since: Option<Duration>,
    /// Only tasks of this tenant and of those that are part of it.
    #[arg(long, value_name = "NAME", conflicts_with = "scenario")]
    pub tenant: Option<TenantName>,
    /// Only tasks of this job: its name, its id, or as much of the beginning as is its alone.
    #[arg(long, value_name = "JOB", conflicts_with = "scenario")]
    pub job: Option<String>,
    /// Call functions f1, f2 and so on.
    #[arg(long, conflicts_with = "scenario")]
    pub anonymous: bool,
}

/// `web:weight=2,max=CPU=8`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantArg {
    pub tenant: TenantName,
    weight: Option<Weight>,
    min: Option<ResourceSet>,
    max: Option<Amounts>,
    max_tasks: Option<Option<u32>>,
}

impl TenantArg {
    /// Changes what it names.
    pub fn change(&self, config: &mut TenantConfig) {
        let Self {
            tenant: _,
            weight,
            min,
            max,
            max_tasks,
        } = self.clone();
        config.weight = weight.unwrap_or(config.weight);
        if let Some(min) = min {
            config.min_share = min;
        }
        if let Some(max) = max {
            config.quota.max = max;
        }
        config.quota.max_tasks = max_tasks.unwrap_or(config.quota.max_tasks);
    }

    /// One of the changes.
    fn read(&mut self, part: &str) -> Result<(), String> {
        let form = "weight=2, min=CPU=4, max=CPU=8 or max-tasks=20";
        let bad = || format!("'{part}' must be {form}");
        let (key, value) = part.split_once('=').ok_or_else(bad)?;
        match (key.trim(), value.trim()) {
            ("weight", weight) => {
                let weight: Result<Weight, _> = weight.parse();
                self.weight = Some(weight.map_err(|error| format!("{error}"))?);
            }
            ("min", "none") => self.min = Some(ResourceSet::new()),
            ("min", min) => {
                let (name, amount) = amount::named(min, "RESOURCE=AMOUNT, such as min=CPU=4")?;
                let all = self.min.get_or_insert_with(ResourceSet::new);
                all.set(name, amount);
            }
            ("max", "none") => self.max = Some(Amounts::new()),
            ("max", max) => {
                let (name, amount) = amount::named(max, "RESOURCE=AMOUNT, such as max=CPU=8")?;
                let all = self.max.get_or_insert_with(Amounts::new);
                all.insert(name, amount);
            }
            ("max-tasks", "none") => self.max_tasks = Some(None),
            ("max-tasks", most) => {
                let most = most.parse::<u32>().map_err(|_| {
                    let limit = u32::MAX;
                    format!(
                        "'{most}' must be a whole number, at most {limit}, or none for no bound"
                    )
                })?;
                self.max_tasks = Some(Some(most));
            }
            _ => return Err(bad()),
        }
        Ok(())
    }
}

impl FromStr for TenantArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (tenant, changes) = text.split_once(':').ok_or_else(|| {
            format!("'{text}' must be TENANT:CHANGES, such as web:weight=2,max=CPU=8")
        })?;
        let tenant: Result<TenantName, _> = tenant.parse();
        let mut arg = Self {
            tenant: tenant.map_err(|error| format!("{error}"))?,
            weight: None,
            min: None,
            max: None,
            max_tasks: None,
        };
        changes.split(',').try_for_each(|part| arg.read(part))?;
        Ok(arg)
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_model::resource::{Amount, ResourceName};

    use super::*;

    #[test]
    fn changes_of_a_tenant() {
        let changed = |text: &str| {
            let arg: TenantArg = text.parse().unwrap();
            let mut config = TenantConfig::default();
            config.min_share.set(ResourceName::GPU, Amount::ONE);
            config.quota.max_tasks = Some(7);
            arg.change(&mut config);
            (arg.tenant.to_string(), config)
        };
        let (name, config) = changed("org/web:weight=2,min=CPU=4,max=CPU=8,max=memory=1GiB");
        assert_eq!((&*name, &*config.weight.to_string()), ("org/web", "2"));
        assert_eq!(config.min_share.to_string(), "{CPU: 4}");
        assert_eq!(config.quota.max.len(), 2);
        assert_eq!(config.quota.max[&ResourceName::CPU], Amount::units(8));
        assert_eq!(config.quota.max_tasks, Some(7));
        let (_, config) = changed("web:min=none,max=none,max-tasks=none");
        assert_eq!(config, TenantConfig::default());
        for (text, says) in [
            ("web", "must be TENANT:CHANGES"),
            ("-:weight=2", "'-' may not stand there"),
            ("web:", "must be weight=2"),
            ("web:wieght=2", "must be weight=2"),
            ("web:weight=0", "0"),
            ("web:max=CPU", "must be RESOURCE=AMOUNT"),
            ("web:max-tasks=many", "must be a whole number"),
        ] {
            let error = text.parse::<TenantArg>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
