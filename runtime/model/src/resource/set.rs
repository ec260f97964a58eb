//! Resource sets: how much of each resource.
//!
//! Owns the ordered map from names to amounts and its algebra. Must not: know ids or pools.
//!
//! Invariants: sorted by name, no name twice, no zero amount. So equal sets are equal values, and
//! iteration has one order.

use std::fmt;

use serde::de::{self, DeserializeSeed, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;

use super::amount::Amount;
use super::amount_text::deserialize_amount;
use super::name::ResourceName;

/// The most resources that a decoded set or a node may have.
pub const MAX_RESOURCES: usize = 256;

/// An amount for each of some resources; what is not named is zero.
///
/// Up to four resources need no allocation. Serialised as a map from names to amounts, where
/// memory may be written as a size in formats for people; a decoded set has at most
/// [`MAX_RESOURCES`] entries and no name twice.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ResourceSet {
    entries: SmallVec<[(ResourceName, Amount); 4]>,
}

impl ResourceSet {
    /// The set of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// This set with one amount replaced.
    #[must_use]
    pub fn with(mut self, name: ResourceName, amount: Amount) -> Self {
        self.set(name, amount);
        self
    }

    /// The amount of a resource; zero if it has no entry.
    pub fn get(&self, name: &ResourceName) -> Amount {
        self.find(name)
            .map_or(Amount::ZERO, |at| self.entries[at].1)
    }

    /// Sets the amount of a resource; zero takes the entry out.
    pub fn set(&mut self, name: ResourceName, amount: Amount) {
        match (self.find(&name), amount.is_zero()) {
            (Ok(at), false) => self.entries[at].1 = amount,
            (Ok(at), true) => drop(self.entries.remove(at)),
            (Err(at), false) => self.entries.insert(at, (name, amount)),
            (Err(_), true) => {}
        }
    }

    /// Takes a resource out and returns how much there was.
    pub fn remove(&mut self, name: &ResourceName) -> Amount {
        self.find(name)
            .map_or(Amount::ZERO, |at| self.entries.remove(at).1)
    }

    /// The resources that are not zero, in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&ResourceName, Amount)> {
        self.entries.iter().map(|(name, amount)| (name, *amount))
    }

    /// How many resources are not zero.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether everything is zero.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The CPU part alone.
    #[must_use]
    pub fn cpu_part(&self) -> Self {
        Self::new().with(ResourceName::CPU, self.get(&ResourceName::CPU))
    }

    /// Whether every amount is at most the one in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        let mut others = other.entries.iter();
        self.entries.iter().all(|(name, amount)| {
            others
                .find(|(other, _)| other >= name)
                .is_some_and(|(other, limit)| other == name && amount <= limit)
        })
    }

    /// Adds every amount of `other`. If one would be above [`Amount::MAX`], nothing changes.
    pub fn add(&mut self, other: &Self) -> Result<(), AddError> {
        for (name, amount) in other.iter() {
            if self.get(name).checked_add(amount).is_none() {
                return Err(AddError {
                    name: name.clone(),
                    have: self.get(name),
                    amount,
                });
            }
        }
        for (name, amount) in other.iter() {
            let sum = self.get(name).checked_add(amount);
            self.set(name.clone(), sum.expect("was checked above"));
        }
        Ok(())
    }

    /// Subtracts every amount of `other`, stopping at zero.
    pub fn subtract_clamped(&mut self, other: &Self) {
        self.entries.retain(|(name, amount)| {
            *amount = amount.saturating_sub(other.get(name));
            !amount.is_zero()
        });
    }

    /// Subtracts every amount of `other`. If one would be below zero, nothing changes.
    pub fn subtract(&mut self, other: &Self) -> Result<(), SubtractError> {
        for (name, amount) in other.iter() {
            let have = self.get(name);
            if amount > have {
                return Err(SubtractError {
                    name: name.clone(),
                    have,
                    amount,
                });
            }
        }
        self.subtract_clamped(other);
        Ok(())
    }

    fn find(&self, name: &ResourceName) -> Result<usize, usize> {
        // Sets are short: a scan beats a binary search.
        for (at, (other, _)) in self.entries.iter().enumerate() {
            match other.cmp(name) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Ok(at),
                std::cmp::Ordering::Greater => return Err(at),
            }
        }
        Err(self.entries.len())
    }
}

/// Adding two sets failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name}: {have} and {amount} together exceed the largest amount, {}; use less",
    Amount::MAX
)]
pub struct AddError {
    /// The resource.
    pub name: ResourceName,
    /// What there was.
    pub have: Amount,
    /// What was to be added.
    pub amount: Amount,
}

/// Subtracting a set failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: cannot take {amount} from {have}; take at most {have}")]
pub struct SubtractError {
    /// The resource.
    pub name: ResourceName,
    /// What there was.
    pub have: Amount,
    /// What was to be subtracted.
    pub amount: Amount,
}

impl FromIterator<(ResourceName, Amount)> for ResourceSet {
    /// The set of these amounts; of a name that comes twice the last one counts.
    fn from_iter<I: IntoIterator<Item = (ResourceName, Amount)>>(amounts: I) -> Self {
        amounts
            .into_iter()
            .fold(Self::new(), |set, (name, amount)| set.with(name, amount))
    }
}

impl fmt::Display for ResourceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (at, (name, amount)) in self.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{name}: {}", amount.display_for(name))?;
        }
        f.write_str("}")
    }
}

impl fmt::Debug for ResourceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ResourceSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for ResourceSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(SetVisitor)
    }
}

struct SetVisitor;

impl<'de> Visitor<'de> for SetVisitor {
    type Value = ResourceSet;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from resource names to amounts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ResourceSet, A::Error> {
        let mut seen: SmallVec<[ResourceName; 4]> = SmallVec::new();
        let mut set = ResourceSet::new();
        while let Some(name) = map.next_key::<ResourceName>()? {
            if seen.contains(&name) {
                return Err(de::Error::custom(format_args!(
                    "{name} is given twice; keep one"
                )));
            }
            if seen.len() == MAX_RESOURCES {
                return Err(de::Error::custom(format_args!(
                    "more than {MAX_RESOURCES} resources in one set; use fewer"
                )));
            }
            set.set(name.clone(), map.next_value_seed(AmountOf(&name))?);
            seen.push(name);
        }
        Ok(set)
    }
}

/// Decodes the amount of one resource; an error names the resource.
struct AmountOf<'a>(&'a ResourceName);

impl<'de> DeserializeSeed<'de> for AmountOf<'_> {
    type Value = Amount;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Amount, D::Error> {
        deserialize_amount(deserializer, |text| Amount::parse_for(self.0, text))
            .map_err(|error| de::Error::custom(format_args!("{}: {error}", self.0)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::resource::properties::sets;

    fn set(json: &str) -> ResourceSet {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn text_and_order() {
        let given = set(r#"{"tpu": 1, "memory": "2GiB", "GPU": "0.5", "CPU": 4, "fpga": 0}"#);
        assert_eq!(
            given.to_string(),
            "{CPU: 4, GPU: 0.5, memory: 2GiB, tpu: 1}"
        );
        let json = serde_json::to_string(&given).unwrap();
        assert_eq!(
            json,
            r#"{"CPU":"4","GPU":"0.5","memory":"2147483648","tpu":"1"}"#
        );
        assert_eq!(set(&json), given);
        let bytes = postcard::to_allocvec(&given).unwrap();
        assert_eq!(postcard::from_bytes::<ResourceSet>(&bytes).unwrap(), given);
    }

    #[test]
    fn illegal_input_names_the_field() {
        let error = |json: &str| {
            serde_json::from_str::<ResourceSet>(json)
                .unwrap_err()
                .to_string()
        };
        assert!(error(r#"{"CPU": 0.5}"#).contains("CPU: 0.5 is not exact"));
        assert!(error(r#"{"CPU": "2GiB"}"#).contains("CPU: '2GiB' has a suffix"));
        assert!(error(r#"{"CPU": 1, "CPU": 0}"#).contains("CPU is given twice"));
        assert!(error(r#"{"a b": 1}"#).contains("not a resource name"));
        assert!(error(r#"{"memory": "2XB"}"#).contains("memory: '2XB' ends in an unknown suffix"));
        let many: Vec<_> = (0..=MAX_RESOURCES).map(|i| format!("\"r{i}\":0")).collect();
        assert!(error(&format!("{{{}}}", many.join(","))).contains("more than 256"));
    }

    #[test]
    fn zero_is_no_entry() {
        let mut set = set(r#"{"CPU": 4, "GPU": 0}"#);
        assert_eq!(set.len(), 1);
        set.set(ResourceName::CPU, Amount::ZERO);
        assert!(set.is_empty());
        assert_eq!(set.remove(&ResourceName::CPU), Amount::ZERO);
    }

    #[test]
    fn an_addition_that_fails_changes_nothing() {
        let mut have = set(r#"{"CPU": 4, "tpu": 1}"#);
        let before = have.clone();
        assert!(
            have.add(&set(r#"{"GPU": 1}"#).with(ResourceName::CPU, Amount::MAX))
                .is_err()
        );
        assert_eq!(have, before);
        assert_eq!(
            set(r#"{"CPU": 3, "tpu": 1}"#).cpu_part(),
            set(r#"{"CPU": 3}"#)
        );
    }

    proptest! {
        #[test]
        fn algebra(a in sets(), b in sets(), c in sets()) {
            let plus = |a: &ResourceSet, b: &ResourceSet| {
                let mut sum = a.clone();
                sum.add(b).unwrap();
                sum
            };
            let clamped = |a: &ResourceSet, b: &ResourceSet| {
                let mut rest = a.clone();
                rest.subtract_clamped(b);
                rest
            };
            // Addition is a commutative monoid, and strict subtraction undoes it.
            prop_assert_eq!(plus(&a, &b), plus(&b, &a));
            prop_assert_eq!(plus(&plus(&a, &b), &c), plus(&a, &plus(&b, &c)));
            prop_assert_eq!(&plus(&a, &ResourceSet::new()), &a);
            let mut rest = plus(&a, &b);
            rest.subtract(&b).unwrap();
            prop_assert_eq!(&rest, &a);
            // Being a subset is a partial order that fits addition and subtraction.
            prop_assert!(a.is_subset(&a) && a.is_subset(&plus(&a, &b)));
            prop_assert_eq!(a.is_subset(&b) && b.is_subset(&a), a == b);
            prop_assert!(!(a.is_subset(&b) && b.is_subset(&c)) || a.is_subset(&c));
            prop_assert_eq!(a.is_subset(&b), a.iter().all(|(name, x)| x <= b.get(name)));
            prop_assert_eq!(a.is_subset(&b), clamped(&a, &b).is_empty());
            let mut strict = a.clone();
            prop_assert_eq!(strict.subtract(&b).is_ok(), b.is_subset(&a));
            let expected = if b.is_subset(&a) { clamped(&a, &b) } else { a.clone() };
            prop_assert_eq!(strict, expected);
        }

        #[test]
        fn text_round_trips(a in sets()) {
            let json = serde_json::to_string(&a).unwrap();
            prop_assert_eq!(&serde_json::from_str::<ResourceSet>(&json).unwrap(), &a);
            let bytes = postcard::to_allocvec(&a).unwrap();
            prop_assert_eq!(&postcard::from_bytes::<ResourceSet>(&bytes).unwrap(), &a);
        }
    }
}
