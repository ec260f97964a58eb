//! An actor that adds up, and what it adds.

use std::cell::RefCell;

use crate::bindings::exports::example::by_hand::survey::{GuestTally, Summary};

impl Summary {
    /// Of no measurement.
    pub const NOTHING: Self = Self {
        count: 0,
        sum: 0.0,
        least: f64::INFINITY,
        most: f64::NEG_INFINITY,
    };

    /// With one more measurement.
    pub fn with(self, value: f64) -> Self {
        self.and(Self {
            count: 1,
            sum: value,
            least: value,
            most: value,
        })
    }

    /// Of all measurements of both.
    pub fn and(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            least: self.least.min(other.least),
            most: self.most.max(other.most),
        }
    }
}

/// See `wit/by-hand.wit`.
pub struct Tally(RefCell<(u32, Summary)>);

impl GuestTally for Tally {
    fn new() -> Self {
        Self(RefCell::new((0, Summary::NOTHING)))
    }

    fn add(&self, part: Summary) -> u32 {
        let (parts, total) = &mut *self.0.borrow_mut();
        *parts += 1;
        *total = total.and(part);
        *parts
    }

    fn total(&self) -> Summary {
        self.0.borrow().1
    }
}
