//! Numbers for people.

use std::time::Duration;

use wasmrun_client::wire::Amounts;
use wasmrun_model::resource::{Amount, ResourceName};
use wasmrun_model::units;

/// How long ago, or for how long, in whole seconds: what changes once a second changes a page once a second.
pub fn age(ms: u64) -> String {
    units::duration(Duration::from_secs(ms / 1000))
}

/// A time that something took, in microseconds.
pub fn took(us: u64) -> String {
    match us {
        0..1000 => format!("{us} µs"),
        1000..10_000 => format!("{}.{} ms", us / 1000, us % 1000 / 100),
        _ => units::milliseconds(us / 1000),
    }
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
    fn times_have_two_digits_or_more() {
        assert_eq!(took(12), "12 µs");
        assert_eq!(took(1234), "1.2 ms");
        assert_eq!(took(12_345), "12ms");
    }
}
