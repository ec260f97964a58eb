//! Weights of tenants.
//!
//! Owns the weight type, its bounds and its text. Must not: know shares.
//!
//! Invariant: 0 < weight ≤ [`Weight::MAX`], in steps of 1/10,000.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::resource::{Amount, ParseAmountError};

/// How much a tenant counts beside others: one of weight 2 is due twice what one of weight 1 is.
///
/// More than 0, at most 1,000,000, in steps of 0.0001; by default 1. Text and serialised form are
/// those of an [`Amount`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Amount", into = "Amount")]
pub struct Weight(NonZeroU64);

impl Weight {
    /// The weight of whoever has none given: 1.
    pub const ONE: Self = Self(NonZeroU64::new(Amount::STEPS_PER_UNIT).expect("is not 0"));
    /// The largest weight: 1,000,000.
    pub const MAX: Self =
        Self(NonZeroU64::new(1_000_000 * Amount::STEPS_PER_UNIT).expect("is not 0"));

    /// The weight of this number; an error if it is 0 or above [`Weight::MAX`].
    pub fn new(number: Amount) -> Result<Self, WeightError> {
        let steps = NonZeroU64::new(number.steps()).ok_or(WeightError::Zero)?;
        if Self(steps) > Self::MAX {
            return Err(WeightError::TooLarge { number });
        }
        Ok(Self(steps))
    }

    /// The same as a number.
    pub const fn amount(self) -> Amount {
        Amount::from_steps(self.0.get())
    }

    /// Steps of 1/10,000; never 0.
    pub const fn steps(self) -> u64 {
        self.0.get()
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::ONE
    }
}

/// Why a number or text is not a weight.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WeightError {
    /// 0 would never be served.
    #[error("a weight of 0 would never get anything: use 0.0001 or more (1 is usual)")]
    Zero,
    /// Below 0.
    #[error("'{text}' is negative: a weight is 0.0001 or more (1 is usual)")]
    Negative {
        /// The text, shortened.
        text: String,
    },
    /// Above [`Weight::MAX`].
    #[error("a weight of {number} is too large: use at most {}", Weight::MAX)]
    TooLarge {
        /// The number.
        number: Amount,
    },
    /// Not a number with at most four decimals.
    #[error(transparent)]
    Number(ParseAmountError),
}

impl TryFrom<Amount> for Weight {
    type Error = WeightError;

    fn try_from(number: Amount) -> Result<Self, WeightError> {
        Self::new(number)
    }
}

impl From<Weight> for Amount {
    fn from(weight: Weight) -> Self {
        weight.amount()
    }
}

impl FromStr for Weight {
    type Err = WeightError;

    fn from_str(text: &str) -> Result<Self, WeightError> {
        match text.parse() {
            Ok(number) => Self::new(number),
            Err(ParseAmountError::Negative { text }) => Err(WeightError::Negative { text }),
            Err(error) => Err(WeightError::Number(error)),
        }
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.amount(), f)
    }
}

impl fmt::Debug for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        assert_eq!(Weight::default().to_string(), "1");
        for text in ["0.0001", "2.5", "1000000"] {
            let weight: Weight = text.parse().unwrap();
            assert_eq!(weight.to_string(), text);
            let json = serde_json::to_string(&weight).unwrap();
            assert_eq!(serde_json::from_str::<Weight>(&json).unwrap(), weight);
            let bytes = postcard::to_allocvec(&weight).unwrap();
            assert_eq!(postcard::from_bytes::<Weight>(&bytes).unwrap(), weight);
        }
        assert_eq!(serde_json::from_str::<Weight>("3").unwrap().steps(), 30_000);
    }

    #[test]
    fn what_is_no_weight_says_why() {
        let error = |text: &str| text.parse::<Weight>().unwrap_err().to_string();
        assert!(error("0.0000").contains("never get anything"));
        assert!(error("-1").contains("'-1' is negative: a weight is 0.0001"));
        assert!(error("1000000.0001").contains("use at most 1000000"));
        assert!(error("0.00001").contains("more precision"));
        assert!(error("heavy").contains("write decimal digits"));
        let error = serde_json::from_str::<Weight>("0").unwrap_err().to_string();
        assert!(error.contains("never get anything"), "{error}");
        assert!(postcard::from_bytes::<Weight>(&[0]).is_err());
    }
}
