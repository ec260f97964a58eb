//! Numbers for people.

use std::time::Duration;

use wasmrun_client::wire::Amounts;
use wasmrun_model::resource::{Amount, ResourceName};
use wasmrun_model::units;

/// How long ago, or for how long, in whole seconds: a page that shows it changes once a second at most.
pub fn age(ms: u64) -> String {
    units::duration(Duration::from_secs(ms / 1000))
}

/// A time that something took, in microseconds.
pub fn took(us: u64) -> String {
    units::duration(Duration::from_micros(us))
}

/// Amounts with their names.
pub fn amounts(amounts: &Amounts) -> String {
    let parts = amounts.iter().map(|(name, amount)| named(name, *amount));
    match parts.collect::<Vec<_>>() {
        none if none.is_empty() => "nothing".to_owned(),
        some => some.join(", "),
    }
}

/// An amount with its name.
pub fn named(name: &ResourceName, amount: Amount) -> String {
    format!("{name} {}", shown(name, amount))
}

/// An amount, memory in the largest unit that leaves one decimal.
pub fn shown(name: &ResourceName, amount: Amount) -> String {
    match name.is_memory() {
        true => units::bytes(amount.whole_units()),
        false => amount.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_whole_seconds() {
        assert_eq!(age(999), "0s");
        assert_eq!(age(1999), "1s");
        assert_eq!(age(10_000), "10s");
        assert_eq!(age(61_500), "1m1s");
    }

    #[test]
    fn times_are_written_as_by_the_command_line() {
        assert_eq!(took(12), "12µs");
        assert_eq!(took(1230), "1.23ms");
        assert_eq!(took(12_340), "12.34ms");
    }
}
