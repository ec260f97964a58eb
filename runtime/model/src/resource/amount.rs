//! Amounts: exact quantities of a resource.
//!
//! Owns the one number type of resources and its arithmetic; its text is in `amount_text`. Must
//! not: use floats, wrap, or learn to multiply and divide (nothing needs that).
//!
//! Invariant: an amount is a count of steps of 1/10,000 of a unit.

/// A quantity of a resource, counted in steps of 1/10,000 of a unit. Never negative.
///
/// The unit is the resource's own: a core, a device, a byte. The largest amount is
/// [`Amount::MAX`], 1,844,674,407,370,955.1615 units, which is about 1.6 PiB of memory; more is
/// an error wherever it could arise, never a wrap.
///
/// Text: decimal digits with at most four after the point (`4`, `0.5`, `0.0003`), printed without
/// trailing zeros. Serialised as that text (integers are accepted too) in formats for people, as
/// the count of steps in binary ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Amount(u64);

impl Amount {
    /// Steps in one unit.
    pub const STEPS_PER_UNIT: u64 = 10_000;
    /// None of it.
    pub const ZERO: Self = Self(0);
    /// One unit.
    pub const ONE: Self = Self(Self::STEPS_PER_UNIT);
    /// The largest amount, 1,844,674,407,370,955.1615 units.
    pub const MAX: Self = Self(u64::MAX);

    /// The amount of this many whole units.
    pub const fn units(units: u32) -> Self {
        Self(units as u64 * Self::STEPS_PER_UNIT)
    }

    /// The amount of this many whole units, or bytes of memory; `None` above [`Amount::MAX`].
    pub const fn from_units(units: u64) -> Option<Self> {
        match units.checked_mul(Self::STEPS_PER_UNIT) {
            Some(steps) => Some(Self(steps)),
            None => None,
        }
    }

    /// The amount of this many steps of 1/10,000 of a unit.
    pub const fn from_steps(steps: u64) -> Self {
        Self(steps)
    }

    /// How many steps of 1/10,000 of a unit it is.
    pub const fn steps(self) -> u64 {
        self.0
    }

    /// The whole units (or bytes of memory) in it, rounded down.
    pub const fn whole_units(self) -> u64 {
        self.0 / Self::STEPS_PER_UNIT
    }

    /// What is left without the whole units: below 1.
    pub const fn fraction(self) -> Self {
        Self(self.0 % Self::STEPS_PER_UNIT)
    }

    /// Whether it is a whole number of units.
    pub const fn is_whole(self) -> bool {
        self.fraction().is_zero()
    }

    /// Whether it is nothing.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum, or `None` above [`Amount::MAX`].
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(steps) => Some(Self(steps)),
            None => None,
        }
    }

    /// The difference, or `None` below zero.
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(steps) => Some(Self(steps)),
            None => None,
        }
    }

    /// The difference, but never below zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_wraps() {
        let step = Amount::from_steps(1);
        assert_eq!(Amount::MAX.checked_add(step), None);
        assert_eq!(Amount::from_units(u64::MAX), None);
        assert_eq!(Amount::ZERO.checked_sub(step), None);
        assert_eq!(Amount::ZERO.saturating_sub(Amount::ONE), Amount::ZERO);
        assert_eq!(
            Amount::MAX.checked_sub(step).unwrap().checked_add(step),
            Some(Amount::MAX)
        );
    }

    #[test]
    fn units_and_fractions() {
        let amount = Amount::from_steps(25_001);
        assert_eq!(
            (amount.whole_units(), amount.fraction()),
            (2, Amount::from_steps(5_001))
        );
        assert!(!amount.is_whole() && Amount::units(2).is_whole() && Amount::ZERO.is_whole());
        assert_eq!(Amount::from_units(2), Some(Amount::units(2)));
    }
}
