//! Words of a command line: amounts and times, and the small languages of single arguments.
//!
//! Each is read as a whole, and its error says what was meant.

use std::env::VarError;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use wasmrun_client::wire;
use wasmrun_engine::{DirGrant, NetGrant};
use wasmrun_model::cluster::{LabelKey, LabelValue};
use wasmrun_model::resource::{Amount, ResourceName};
use wasmrun_model::units;

pub(super) fn amount(text: &str) -> Result<Amount, String> {
    text.parse().map_err(|error| format!("{error}"))
}

/// What no memory of a guest is smaller than, in bytes: a page.
const LEAST_MEMORY: u64 = 64 << 10;

/// The memory of a task or a node: `64MiB`. A few bytes without a unit are a slip.
pub(super) fn memory(text: &str) -> Result<Amount, String> {
    let amount = Amount::parse_memory(text).map_err(|error| format!("{error}"))?;
    let has_unit = !text.ends_with(|c: char| c.is_ascii_digit());
    match amount.whole_units() {
        1..LEAST_MEMORY if !has_unit => Err(format!(
            "'{text}' is a number of bytes, and too few for any task: did you mean {text}MiB? Else write {text}B"
        )),
        _ => Ok(amount),
    }
}

/// A number of bytes: `4096`, `64KiB`, `1.5GB`.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let bytes = Amount::parse_memory(text).map_err(|error| format!("{error}"))?;
    Ok(bytes.whole_units())
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    units::parse_milliseconds(text)
        .map(Duration::from_millis)
        .map_err(|error| error.to_string())
}

/// A number of things that is not 0.
pub(super) fn at_least_one(text: &str) -> Result<NonZeroU32, String> {
    text.parse()
        .map_err(|_| format!("'{text}' must be a whole number from 1 to {}", u32::MAX))
}

/// How long a lease in the control store may live.
pub(super) fn lease_time(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    match (Duration::from_secs(1)..=Duration::from_secs(24 * 3600)).contains(&time) {
        true => Ok(time),
        false => Err(format!("'{text}' is no time for a lease: give 1s to 24h")),
    }
}

/// `NAME=AMOUNT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceArg {
    pub name: ResourceName,
    pub amount: Amount,
}

impl FromStr for ResourceArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| format!("'{text}' must be NAME=AMOUNT, such as tpu=1"))?;
        let name: ResourceName = name.parse().map_err(|error| format!("{error}"))?;
        let amount = super::amount::of(&name, value)?;
        Ok(Self { name, amount })
    }
}

/// `N=PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgFile {
    /// Which argument, from 1.
    pub position: usize,
    pub path: PathBuf,
}

impl FromStr for ArgFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' must be N=PATH, where N counts the arguments from 1");
        let (position, path) = text.split_once('=').ok_or_else(bad)?;
        let position = position.parse().ok().filter(|n| *n > 0).ok_or_else(bad)?;
        Ok(Self {
            position,
            path: path.into(),
        })
    }
}

/// `HOST::GUEST[:ro]` or `HOST[:ro]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirArg(pub DirGrant);

impl FromStr for DirArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let dir: wire::Dir = text.parse()?;
        Ok(Self(DirGrant {
            host: dir.host.into(),
            guest: dir.guest,
            read_only: dir.is_read_only,
        }))
    }
}

/// `all`, or addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetArg(pub NetGrant);

impl FromStr for NetArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self(NetGrant::All));
        }
        let parse = |address: &str| {
            address.parse().map_err(|_| {
                format!(
                    "'{address}' must be an IP address and a port, such as 10.0.0.1:80 or [::1]:0"
                )
            })
        };
        text.split(',')
            .map(parse)
            .collect::<Result<_, _>>()
            .map(|only| Self(NetGrant::Only(only)))
    }
}

/// `K=V`, or `K` for the value that we have ourselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvArg(pub String, pub String);

impl FromStr for EnvArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, value.to_owned()),
            None => {
                let value = std::env::var(text).map_err(|error| match error {
                    VarError::NotPresent => {
                        format!("there is no variable {text} to pass on; use {text}=VALUE")
                    }
                    VarError::NotUnicode(_) => format!(
                        "the variable {text} is not UTF-8, and guests read their environment as text; \
                         use {text}=VALUE, or a file"
                    ),
                })?;
                (text, value)
            }
        };
        if key.is_empty() || text.contains('\0') {
            return Err(format!("'{text}' must be K=V"));
        }
        Ok(Self(key.into(), value))
    }
}

/// The most tasks in one array.
pub const MAX_ARRAY: u64 = 10_000_000;

/// Indices of an array: ranges with steps, in the order written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Indices(Vec<(u64, u64, u64)>);

impl Indices {
    pub fn len(&self) -> u64 {
        self.0
            .iter()
            .map(|(first, last, step)| (last - first) / step + 1)
            .sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0
            .iter()
            .flat_map(|&(first, last, step)| (first..=last).step_by(step as usize))
    }
}

impl FromStr for Indices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let bad = || format!("'{part}' is not a range: write 0-31, 1-9:2 or 7");
            let number = |text: &str| text.trim().parse::<u64>().map_err(|_| bad());
            let (range, step) = match part.split_once(':') {
                Some((range, step)) => (range, number(step)?),
                None => (part, 1),
            };
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(range)?, number(range)?),
            };
            if step == 0 {
                return Err(format!("'{part}' has a step of 0: use 1 or more"));
            }
            if first > last {
                return Err(format!("'{part}' runs backwards: write {last}-{first}"));
            }
            ranges.push((first, last, step));
        }
        let tasks = ranges.iter().try_fold(0u64, |sum, (first, last, step)| {
            sum.checked_add(((last - first) / step).checked_add(1)?)
        });
        match tasks {
            Some(..=MAX_ARRAY) => Ok(Self(ranges)),
            _ => Err(format!(
                "'{text}' has more than {MAX_ARRAY} indices: submit it in parts"
            )),
        }
    }
}

/// A label: `KEY=VALUE`.
#[derive(Debug, Clone)]
pub struct LabelArg {
    pub key: LabelKey,
    pub value: LabelValue,
}

impl FromStr for LabelArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("'{text}' must be KEY=VALUE, such as zone=a");
        let (key, value) = text.split_once('=').ok_or_else(form)?;
        Ok(Self {
            key: key.parse().map_err(|error| format!("{error}"))?,
            value: value.parse().map_err(|error| format!("{error}"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices() {
        let all = |text: &str| {
            text.parse::<Indices>()
                .map(|i| i.iter().collect::<Vec<_>>())
        };
        assert_eq!(all("1-3"), Ok(vec![1, 2, 3]));
        assert_eq!(all("1-9:4,7"), Ok(vec![1, 5, 9, 7]));
        assert_eq!("0-31".parse::<Indices>().unwrap().len(), 32);
        for bad in [
            "",
            "3-1",
            "1-5:0",
            "a-b",
            "1-",
            "0-18446744073709551615",
            "-1",
        ] {
            assert!(all(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_number_that_is_not_0_says_from_where_it_goes() {
        assert_eq!(at_least_one("1"), Ok(NonZeroU32::MIN));
        for text in ["0", "-1", "x", "", "4294967296"] {
            let error = at_least_one(text).unwrap_err();
            assert!(error.contains("a whole number from 1 to"), "{error}");
        }
    }

    #[test]
    fn leases_live_for_a_second_to_a_day() {
        for (text, is_fit) in [
            ("999ms", false),
            ("1s", true),
            ("24h", true),
            ("25h", false),
        ] {
            assert_eq!(lease_time(text).is_ok(), is_fit, "{text}");
        }
    }

    #[test]
    fn a_few_bytes_of_memory_are_a_slip() {
        for text in ["64", "65535"] {
            let said = memory(text).unwrap_err();
            assert!(said.contains(&format!("did you mean {text}MiB?")), "{said}");
        }
        for text in ["0", "64B", "65536", "64MiB"] {
            assert!(memory(text).is_ok(), "{text}");
        }
        assert!("memory=64".parse::<ResourceArg>().is_err());
        assert!("tpu=4".parse::<ResourceArg>().is_ok());
        assert_eq!(size("64"), Ok(64));
    }

    #[test]
    fn grants() {
        let dir = |text: &str| text.parse::<DirArg>().unwrap().0;
        assert_eq!(
            dir("./a::/b:ro"),
            DirGrant {
                host: "./a".into(),
                guest: "/b".into(),
                read_only: true
            }
        );
        assert_eq!(
            dir("/data"),
            DirGrant {
                host: "/data".into(),
                guest: "/data".into(),
                read_only: false
            }
        );
        assert!(dir("x::/d:RO").read_only && !dir("x::/d:rw").read_only);
        assert_eq!(dir("a:b::/d").host, PathBuf::from("a:b"));
        for bad in ["::/b", "x::/d:read", "x::/d:", "x:"] {
            assert!(bad.parse::<DirArg>().is_err(), "{bad}");
        }
        for (bad, meant) in [
            ("./a:/b", "./a::/b,"),
            ("./a:/b:ro", "./a::/b,"),
            ("a:b", "a::b,"),
        ] {
            let said = bad.parse::<DirArg>().unwrap_err();
            assert!(said.contains("one colon") && said.contains(meant), "{said}");
        }
        assert!("example.com:80".parse::<NetArg>().is_err());
        assert!(
            matches!("[::1]:0".parse::<NetArg>().unwrap().0, NetGrant::Only(a) if a.len() == 1)
        );
        assert_eq!(
            "A=b=c".parse::<EnvArg>(),
            Ok(EnvArg("A".into(), "b=c".into()))
        );
        assert!("=x".parse::<EnvArg>().is_err());
        assert_eq!(
            "2=x=y".parse::<ArgFile>().unwrap().path,
            PathBuf::from("x=y")
        );
        assert!("0=x".parse::<ArgFile>().is_err());
    }
}
