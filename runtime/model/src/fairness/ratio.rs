//! Ratios: shares as exact-enough fixed-point numbers.
//!
//! Owns the number type of shares, the division that makes it and its text. Must not: know
//! tenants.
//!
//! Invariant: a ratio is the exact quotient rounded down to a multiple of 2^-64. So equal
//! quotients are equal ratios whatever they are made of (1/3 and 2/6, or 2/3 by a weight of 2 and
//! 1/3 by 1), and a smaller quotient is never a larger ratio.

use std::fmt;

use crate::resource::{Amount, gcd};

use super::weight::Weight;

/// A quotient of amounts, divided by weights or not: a share. Totally ordered.
///
/// Resolution: 2^-64, about 5·10^-20. Quotients that differ by less may be equal ratios. Printed
/// as a decimal with four digits (or the precision asked for, at most 18), rounded down.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ratio(u128);

/// Digits after the point unless a precision is given.
const DIGITS: usize = 4;
/// The most digits after the point: more would not fit the arithmetic.
const MAX_DIGITS: usize = 18;
/// The unweighted ratio, 2^37, from which a weighted one is [`Ratio::MAX`]: below it nothing can
/// overflow, as two weights multiply by at most 10^8 < 2^27.
const LARGEST_TO_WEIGH: u128 = 1 << (64 + 37);

impl Ratio {
    /// Nothing of it.
    pub const ZERO: Self = Self(0);
    /// All of it.
    pub const ONE: Self = Self(1 << 64);
    /// More than anything of nothing, and whatever is too large to represent.
    pub const MAX: Self = Self(u128::MAX);

    /// `used` ÷ `total`. Nothing of nothing is [`Ratio::ZERO`], something of nothing
    /// [`Ratio::MAX`].
    pub fn of(used: Amount, total: Amount) -> Self {
        Self::divide(used.steps(), total.steps()).map_or(Self::MAX, |(quotient, _)| Self(quotient))
    }

    /// `used` ÷ `total` ÷ what `scale` says, and `used` ÷ `total` itself.
    ///
    /// The weighted one is [`Ratio::MAX`] from `used` ÷ `total` = 2^37 on.
    pub fn weighted(used: Amount, total: Amount, scale: Scale) -> (Self, Self) {
        let (used, total) = (used.steps(), total.steps());
        let Some((quotient, remainder)) = Self::divide(used, total) else {
            return (Self::MAX, Self::MAX);
        };
        let plain = Self(quotient);
        if scale == Scale::ONE {
            return (plain, plain);
        }
        if quotient >= LARGEST_TO_WEIGH {
            return (Self::MAX, plain);
        }
        // floor(used · 2^64 · multiply ÷ total) without 155 bits; then
        // floor(floor(a ÷ b) ÷ c) = floor(a ÷ (b · c)).
        let mut scaled = quotient;
        if scale.multiply != 1 {
            let multiply = u128::from(scale.multiply);
            // 64 bits times 27 bits. The total is not 0 where there is a remainder.
            let below = u128::from(remainder) * multiply / u128::from(total.max(1));
            scaled = quotient * multiply + below;
        }
        (Self(scaled / scale.divide), plain)
    }

    /// The quotient in units of 2^-64, and the remainder; `None` if something is divided by 0.
    fn divide(used: u64, total: u64) -> Option<(u128, u64)> {
        if used == 0 {
            return Some((0, 0));
        }
        if total == 0 {
            return None;
        }
        let numerator = u128::from(used) << 64;
        let quotient = numerator / u128::from(total);
        // The low 64 bits suffice: the remainder is below the total.
        let remainder = (quotient as u64).wrapping_mul(total).wrapping_neg();
        Some((quotient, remainder))
    }
}

/// What a share is divided by: a tenant's weight times its weight for one resource, as a fraction
/// in lowest terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// At most 10^8.
    multiply: u64,
    /// At most 10^20; not 0.
    divide: u128,
}

impl Scale {
    /// The scale that changes nothing.
    pub const ONE: Self = Self {
        multiply: 1,
        divide: 1,
    };

    /// The scale of a tenant's weight and its weight for the resource.
    pub fn new(weight: Weight, resource_weight: Weight) -> Self {
        let unit = u128::from(Amount::STEPS_PER_UNIT);
        let weights = u128::from(weight.steps()) * u128::from(resource_weight.steps());
        let common = gcd(weights, unit * unit);
        Self {
            multiply: (unit * unit / common) as u64,
            divide: weights / common,
        }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::MAX {
            return f.pad_integral(true, "", "inf");
        }
        let digits = f.precision().unwrap_or(DIGITS).min(MAX_DIGITS);
        // One up, since a quotient such as 0.7 was rounded down and is not to print as 0.6999.
        let shown = self.0.saturating_add(1);
        let units = shown >> 64;
        let fraction = ((shown & u128::from(u64::MAX)) * 10u128.pow(digits as u32)) >> 64;
        let text = match digits {
            0 => units.to_string(),
            _ => format!("{units}.{fraction:0digits$}"),
        };
        f.pad_integral(true, "", &text)
    }
}

impl fmt::Debug for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(used: u64, total: u64) -> Ratio {
        Ratio::of(Amount::from_steps(used), Amount::from_steps(total))
    }

    fn weight(steps: u64) -> Weight {
        Weight::new(Amount::from_steps(steps)).unwrap()
    }

    fn weighted(used: u64, total: u64, first: u64, second: u64) -> Ratio {
        let scale = Scale::new(weight(first), weight(second));
        Ratio::weighted(Amount::from_steps(used), Amount::from_steps(total), scale).0
    }

    #[test]
    fn text() {
        assert_eq!(of(2, 3).to_string(), "0.6666");
        for steps in 0..=20_000 {
            let text = format!("{}.{:04}", steps / 10_000, steps % 10_000);
            assert_eq!(of(steps, 10_000).to_string(), text);
        }
        assert_eq!(format!("{:.2} {:.0}", of(2, 3), of(5, 2)), "0.66 2");
        assert_eq!(format!("{:.30}", of(1, 3)), "0.333333333333333333");
        assert_eq!(
            format!("{:>8}|{:<8}|", of(1, 2), of(1, 2)),
            "  0.5000|0.5000  |"
        );
        assert_eq!(Ratio::MAX.to_string(), "inf");
        assert_eq!(of(u64::MAX, 1).to_string(), "18446744073709551615.0000");
    }

    #[test]
    fn of_nothing() {
        assert_eq!(of(0, 0), Ratio::ZERO);
        assert_eq!(of(1, 0), Ratio::MAX);
        assert_eq!(of(7, 7), Ratio::ONE);
        assert!(of(u64::MAX, 1) < Ratio::MAX && of(1, u64::MAX) > Ratio::ZERO);
        assert_eq!(weighted(1, 0, 20_000, 10_000), Ratio::MAX);
        assert_eq!(weighted(0, 0, 30_000, 3), Ratio::ZERO);
        assert_eq!(weighted(u64::MAX, 1, 1, 1), Ratio::MAX);
        assert_eq!(
            weighted(1 << 36, 1, 1, 1).to_string(),
            "6871947673600000000.0000"
        );
    }

    proptest! {
        /// Against the exact order of the quotients, where these are far enough apart to tell.
        #[test]
        fn ordered_as_the_quotients(
            a in (0u64..1_000_000, 1u64..1_000_000, 1u64..100_000, 1u64..100_000),
            b in (0u64..1_000_000, 1u64..1_000_000, 1u64..100_000, 1u64..100_000),
        ) {
            let divisor = |x: (u64, u64, u64, u64)| u128::from(x.1 * x.2) * u128::from(x.3);
            let exact = (u128::from(a.0) * divisor(b)).cmp(&(u128::from(b.0) * divisor(a)));
            let ratio = |x: (u64, u64, u64, u64)| weighted(x.0, x.1, x.2, x.3);
            prop_assert_eq!(ratio(a).cmp(&ratio(b)), exact);
        }

        /// Equal quotients are equal ratios, over the whole range.
        #[test]
        fn equal_quotients_are_equal(
            used in 0u64..u64::MAX / 1_000,
            total in 1u64..u64::MAX / 1_000,
            first in 1u64..10_000_000,
            second in 1u64..10_000_000,
            factor in 1u64..1_000,
        ) {
            prop_assume!(used / total < 1 << 20);
            let one = weighted(used, total, first, second);
            prop_assert_eq!(weighted(used * factor, total * factor, first, second), one);
            prop_assert_eq!(weighted(used * factor, total, first * factor, second), one);
            prop_assert_eq!(weighted(used * factor, total, first, second * factor), one);
            prop_assert_eq!(weighted(used, total, second, first), one);
            prop_assert_eq!(weighted(used, total, 10_000, 10_000), of(used, total));
            // Never above a larger one, and apart by one step of the resource.
            prop_assert!(weighted(used + 1, total, first, second) >= one);
            prop_assert!(of(used + 1, total) > of(used, total));
        }
    }
}
