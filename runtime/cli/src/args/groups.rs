//! What can be typed about placement groups.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use wasmrun_model::cluster::{ParseSelectorError, Selectors};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::group::GroupKind;
use wasmrun_model::resource::{Amount, Request, ResourceName, ResourceSet};

use super::amount;

/// What a bundle has of memory for each of its CPUs if nobody says: what a task has that asks for nothing.
const MEMORY_PER_CPU: u64 = 256 << 20;

/// What to do with placement groups.
#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Create a group; print its id, for --strategy group:ID. It waits until all of it can be had.
    Create(GroupCreate),
    /// List groups.
    List,
    /// Wait until tasks can run in all bundles of a group.
    Ready {
        /// Its name, its id, or as much of the beginning as is its alone.
        group: String,
        /// How long to wait, such as 30s [default: for ever].
        #[arg(long, value_name = "DURATION", value_parser = super::duration)]
        timeout: Option<Duration>,
        /// The tenant whose it is.
        #[arg(long, value_name = "NAME", default_value_t)]
        tenant: TenantName,
    },
    /// End a group. What runs in it is killed.
    Remove {
        /// Its name, its id, or as much of the beginning as is its alone.
        group: String,
        /// The tenant whose it is.
        #[arg(long, value_name = "NAME", default_value_t)]
        tenant: TenantName,
    },
}

#[derive(Debug, Args)]
pub struct GroupCreate {
    /// How bundles lie: pack, spread, strict_pack, strict_spread.
    ///
    /// On as few nodes as can be, on as many as can be, all on one node, each on a node of its own.
    #[arg(long, value_name = "KIND", required_unless_present = "spec")]
    pub kind: Option<GroupKind>,
    /// What a bundle has: 'cpus=2,gpus=1,memory=1GiB,NAME=AMOUNT'.
    ///
    /// And what labels its node must have, if it has a selector of its own: 'cpus=2 @ zone=a'. Without memory, it has
    /// 256MiB for each CPU. Repeatable: the first is bundle 0.
    #[arg(long, value_name = "AMOUNTS", required_unless_present = "spec")]
    pub bundle: Vec<BundleArg>,
    /// What labels the nodes of bundles must have: 'zone=a,!spot'.
    ///
    /// Those of all that have no selector of their own. ';' separates fallbacks, which are tried in order.
    #[arg(long, value_name = "SELECTOR")]
    pub label_selector: Option<Selectors>,
    /// All of it as JSON instead, or a file with that.
    ///
    /// {"kind": "pack", "bundles": [{"CPU": 2}], "label_selectors": ["zone=a"]}
    #[arg(long, value_name = "FILE|JSON", value_hint = ValueHint::FilePath, conflicts_with_all = ["kind", "bundle", "label_selector"])]
    pub spec: Option<SpecArg>,
    /// What it is called, for people.
    #[arg(long)]
    pub name: Option<String>,
    /// Leave it to the running node until it is removed.
    ///
    /// Without, this command keeps it, until Ctrl-C.
    #[arg(long)]
    pub detach: bool,
    /// The tenant whose tasks may run in it.
    #[arg(long, value_name = "NAME", default_value_t)]
    pub tenant: TenantName,
}

/// `cpus=2,gpus=1 @ zone=a`.
#[derive(Debug, Clone)]
pub struct BundleArg {
    pub request: Request,
    /// What labels its node must have, if that is said of it alone.
    pub selectors: Option<Selectors>,
}

impl FromStr for BundleArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut amounts = ResourceSet::new();
        let mut has_memory = false;
        let (text, selectors) = match text.split_once('@') {
            Some((amounts, selectors)) => (amounts.trim_end(), Some(selectors.trim())),
            None => (text, None),
        };
        let selectors = selectors.map(str::parse).transpose();
        let selectors =
            selectors.map_err(|error: ParseSelectorError| format!("behind @: {error}"))?;
        for part in text.split(',') {
            let (name, amount) = amount::named(part, "NAME=AMOUNT, such as cpus=2")?;
            has_memory |= name == ResourceName::MEMORY;
            if amounts.get(&name) != Amount::ZERO {
                return Err(format!("{name} is given twice"));
            }
            amounts.set(name, amount);
        }
        let cpus = amounts.get(&ResourceName::CPU);
        if !has_memory && cpus != Amount::ZERO {
            let cpus = cpus.whole_units().max(1);
            let memory = Amount::from_units(cpus.saturating_mul(MEMORY_PER_CPU));
            amounts.set(ResourceName::MEMORY, memory.unwrap_or(Amount::MAX));
        }
        let request = Request::new(amounts).map_err(|error| error.to_string())?;
        Ok(Self { request, selectors })
    }
}

/// JSON, or a file with that.
#[derive(Debug, Clone)]
pub enum SpecArg {
    Text(String),
    File(PathBuf),
}

impl FromStr for SpecArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text.trim_start().starts_with('{') {
            true => Self::Text(text.to_owned()),
            false => Self::File(text.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles() {
        let bundle = |text: &str| {
            text.parse::<BundleArg>()
                .map(|it| it.request.amounts().to_string())
        };
        let placed: BundleArg = "cpus=1 @ zone in (a,b),!spot ; zone=c".parse().unwrap();
        assert_eq!(
            placed.request.amounts().to_string(),
            "{CPU: 1, memory: 256MiB}"
        );
        let selectors = placed.selectors.unwrap().to_string();
        assert_eq!(selectors, "zone in (a,b),!spot ; zone=c");
        assert!("cpus=1".parse::<BundleArg>().unwrap().selectors.is_none());
        assert_eq!(
            bundle("cpus=2,gpus=1").unwrap(),
            "{CPU: 2, GPU: 1, memory: 512MiB}"
        );
        assert_eq!(
            bundle("cpus=0.5, memory=1GiB,tpu=4").unwrap(),
            "{CPU: 0.5, memory: 1GiB, tpu: 4}"
        );
        assert_eq!(bundle("gpus=1").unwrap(), "{GPU: 1}");
        for (text, says) in [
            ("", "must be NAME=AMOUNT"),
            ("cpus", "must be NAME=AMOUNT"),
            ("cpus=x", "x"),
            ("cpus=1,cpus=1", "CPU is given twice"),
            ("cpus=1.5", "CPU"),
            ("a b=1", "a b"),
            ("cpus=1 @", "behind @: a term of the label selector"),
            ("cpus=1 @ zone in (", "behind @: "),
            ("@ zone=a", "must be NAME=AMOUNT"),
        ] {
            let error = bundle(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
