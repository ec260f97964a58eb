//! Quotients for people and programs to read: four decimals, in integers.
//!
//! Owns their division and text. Must not: decide anything; what is decided compares exactly.

use std::fmt;

use serde::{Serialize, Serializer, ser};
use serde_json::value::RawValue;

/// A number with four decimals, rounded down: a share shown as 1 is a whole one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Decimal(u128);

/// Parts of one.
const SCALE: u128 = 10_000;

impl Decimal {
    /// None.
    pub const ZERO: Self = Self(0);

    /// `part / whole`, rounded down to four decimals; zero if `whole` is.
    pub fn quotient(part: u128, whole: u128) -> Self {
        if whole == 0 {
            return Self::ZERO;
        }
        let (mut result, mut rest) = (part / whole, part % whole);
        // Digit by digit: `part * 10,000` need not fit.
        for _ in 0..4 {
            let (digit, left) = times_ten(rest, whole);
            result = result.saturating_mul(10).saturating_add(digit);
            rest = left;
        }
        Self(result)
    }

    /// Without what is after the point.
    pub fn whole(self) -> u64 {
        u64::try_from(self.0 / SCALE).unwrap_or(u64::MAX)
    }

    /// Hundredths, rounded down: 83 for 0.8399.
    pub fn percent(self) -> u64 {
        u64::try_from(self.0 / (SCALE / 100)).unwrap_or(u64::MAX)
    }
}

/// `10 * rest / whole` and what is left of that division, for a `rest` below `whole`.
fn times_ten(rest: u128, whole: u128) -> (u128, u128) {
    if let Some(tenfold) = rest.checked_mul(10) {
        return (tenfold / whole, tenfold % whole);
    }
    // Ten additions modulo `whole`, none of which overflows.
    let (mut digit, mut left) = (0, 0);
    for _ in 0..10 {
        if left >= whole - rest {
            left -= whole - rest;
            digit += 1;
        } else {
            left += rest;
        }
    }
    (digit, left)
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / SCALE, self.0 % SCALE);
        match rest {
            0 => f.pad(&whole.to_string()),
            _ => f.pad(format!("{whole}.{rest:04}").trim_end_matches('0')),
        }
    }
}

/// As a number, in JSON only.
impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number = RawValue::from_string(self.to_string()).map_err(ser::Error::custom)?;
        number.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quotients_are_rounded_down() {
        let text = |part, whole| Decimal::quotient(part, whole).to_string();
        assert_eq!(text(2, 3), "0.6666");
        assert_eq!(text(5, 6), "0.8333");
        assert_eq!(text(1, 2), "0.5");
        assert_eq!(text(99_999, 100_000), "0.9999");
        assert_eq!(text(7, 7), "1");
        assert_eq!(text(12_345, 10), "1234.5");
        assert_eq!(text(1, 0), "0");
        assert_eq!(text(u128::MAX / 2, u128::MAX), "0.4999");
        assert_eq!(text(u128::MAX - 1, u128::MAX), "0.9999");
        assert_eq!(Decimal::quotient(8_399, 10_000).percent(), 83);
    }

    proptest! {
        #[test]
        fn it_is_the_quotient(part in 0..u128::from(u64::MAX), whole in 1..u128::from(u64::MAX)) {
            let expected = part * SCALE / whole;
            prop_assert_eq!(Decimal::quotient(part, whole), Decimal(expected));
        }

        #[test]
        fn large_ones_scale(part: u64, whole in 1..u64::MAX) {
            // Far above where ten times the rest would overflow.
            let (part, whole) = (u128::from(part), u128::from(whole));
            prop_assert_eq!(
                Decimal::quotient(part << 64, whole << 64),
                Decimal::quotient(part, whole)
            );
        }
    }
}
