//! What can be typed about how the cluster schedules.

use std::str::FromStr;
use std::time::Duration;

use clap::Subcommand;
use wasmrun_model::cluster::Share;
use wasmrun_model::fairness::{ParsePolicyError, Policy};
use wasmrun_model::resource::Amount;
use wasmrun_model::scheduler::{Setting, Settings};

use super::words;

/// What to do with it.
#[derive(Debug, Subcommand)]
pub enum SchedulingCommand {
    /// Change it for all nodes of the cluster, while they run. What is not named stays as it is.
    Set {
        /// Such as policy=fair or patience=1m: policy (drf, fair, fifo), spread-threshold and top-share (0 to 1),
        /// top-nodes, local-queue, patience, preemption (on, off). NAME=default gives the default back.
        #[arg(required = true, value_name = "NAME=VALUE")]
        settings: Vec<SettingArg>,
    },
}

/// `NAME=VALUE`.
#[derive(Debug, Clone)]
pub struct SettingArg {
    pub name: String,
    pub setting: Setting,
}

impl FromStr for SettingArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| format!("'{text}' must be NAME=VALUE, such as policy=fair"))?;
        let default = Settings::default();
        let setting = match name {
            "policy" => Setting::Policy(or(default.policy, value, policy)?),
            "spread-threshold" => {
                Setting::SpreadThreshold(or(default.spread_threshold, value, share)?)
            }
            "top-share" => Setting::TopShare(or(default.top_share, value, share)?),
            "top-nodes" => Setting::TopNodes(or(default.top_nodes, value, count)?),
            "local-queue" => Setting::LocalQueue(or(default.local_queue, value, count)?),
            "patience" => Setting::Patience(or(default.patience, value, patience)?),
            "preemption" => Setting::Preemption(or(default.preemption, value, on_or_off)?),
            _ => {
                return Err(format!(
                    "there is no '{name}': use policy, spread-threshold, top-share, top-nodes, local-queue, patience \
                     or preemption"
                ));
            }
        };
        Ok(Self {
            name: name.to_owned(),
            setting,
        })
    }
}

/// What a value says, or the default where it says that.
fn or<T>(default: T, value: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<T, String> {
    match value {
        "default" => Ok(default),
        value => read(value),
    }
}

fn policy(text: &str) -> Result<Policy, String> {
    text.parse()
        .map_err(|error: ParsePolicyError| error.to_string())
}

fn patience(text: &str) -> Result<Duration, String> {
    let patience = words::duration(text)?;
    match Settings::PATIENCE.contains(&patience) {
        true => Ok(patience),
        false => Err(format!("'{text}' is not from 1ms to 24h")),
    }
}

fn share(text: &str) -> Result<Share, String> {
    let amount: Amount = text.parse().map_err(|error| format!("{error}"))?;
    amount.try_into().map_err(|error| format!("{error}"))
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("'{text}' is neither on nor off")),
    }
}

fn count(text: &str) -> Result<u32, String> {
    let number = text.parse();
    number.map_err(|_| format!("'{text}' is not a whole number from 0 to {}", u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings() {
        let set = |text: &str| text.parse::<SettingArg>().map(|it| it.setting);
        let default = Settings::default();
        for (text, expected) in [
            ("policy=fifo", r#""policy":"fifo""#),
            ("spread-threshold=0", r#""spread-threshold":"0""#),
            ("top-share=0.25", r#""top-share":"0.25""#),
            ("top-nodes=3", r#""top-nodes":3"#),
            ("local-queue=0", r#""local-queue":0"#),
            ("preemption=off", r#""preemption":false"#),
            ("patience=1s500ms", r#""secs":1,"nanos":500000000"#),
        ] {
            let changed = default.with(set(text).unwrap());
            let json = serde_json::to_string(&changed).unwrap();
            assert!(json.contains(expected), "{json}");
            let name = text.split('=').next().unwrap();
            let again = changed.with(set(&format!("{name}=default")).unwrap());
            assert_eq!(again, default);
        }
        for (text, says) in [
            ("policy", "must be NAME=VALUE"),
            ("policy=max", "use drf, fair or fifo"),
            ("spread-threshold=1.5", "from 0 to 1"),
            ("top-share=-1", "-1"),
            ("top-nodes=1.5", "whole number"),
            ("patience=0", "at least 1ms"),
            ("patience=25h", "from 1ms to 24h"),
            ("preemption=true", "neither on nor off"),
            ("threshold=1", "there is no 'threshold'"),
        ] {
            let error = set(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
