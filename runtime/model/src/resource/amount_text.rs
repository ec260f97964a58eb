//! Amounts as text.
//!
//! Owns how amounts are written, read, printed and serialised: decimals, sizes of memory, and the
//! errors of both. Must not: go through floats, or round.
//!
//! Invariant: every amount prints as a number with at most four decimals, which parses back to it.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::amount::Amount;
use super::name::ResourceName;

impl Amount {
    /// Parses an amount of memory: a number of bytes, or a number with one of the suffixes `B`,
    /// `kB`, `MB`, `GB`, `TB`, `PB` (powers of 1000) and `KiB`, `MiB`, `GiB`, `TiB`, `PiB`
    /// (powers of 1024), in upper or lower case, with at most one space before the suffix.
    pub fn parse_memory(text: &str) -> Result<Self, ParseAmountError> {
        let end = text
            .find(|c: char| c.is_ascii_alphabetic())
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        if suffix.is_empty() {
            return parse_scaled(number, 1, text);
        }
        let bytes = SIZES
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(suffix));
        match bytes {
            Some(&(_, bytes)) => {
                parse_scaled(number.strip_suffix(' ').unwrap_or(number), bytes, text)
            }
            // `1e9` and the like are no sizes; say that, not that `e9` is no suffix.
            None if !suffix.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
                Err(ParseAmountError::NotANumber { text: clip(text) })
            }
            None => Err(ParseAmountError::Suffix {
                text: clip(text),
                suffix: clip(suffix),
            }),
        }
    }

    /// Parses an amount of the named resource: [`Amount::parse_memory`] for `memory`, a plain
    /// number for every other.
    pub fn parse_for(name: &ResourceName, text: &str) -> Result<Self, ParseAmountError> {
        if name.is_memory() {
            Self::parse_memory(text)
        } else {
            text.parse()
        }
    }

    /// The text of this amount of the named resource, which [`Amount::parse_for`] takes back:
    /// memory in the largest binary unit that divides it (`2GiB`), all else as a plain number.
    pub fn display_for(self, name: &ResourceName) -> impl fmt::Display + use<> {
        DisplayFor {
            amount: self,
            is_memory: name.is_memory(),
        }
    }
}

/// Why a text is not an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseAmountError {
    /// Not decimal digits with an optional point between them.
    #[error("'{text}' is not an amount: write decimal digits, such as 4 or 0.5")]
    NotANumber {
        /// The text, shortened.
        text: String,
    },
    /// Below zero.
    #[error("'{text}' is negative: an amount is 0 or more")]
    Negative {
        /// The text, shortened.
        text: String,
    },
    /// Not a multiple of the smallest step.
    #[error(
        "'{text}' has more precision than is kept: amounts count in steps of 0.0001, \
         so write at most 4 digits after the point (of a byte, for memory)"
    )]
    TooPrecise {
        /// The text, shortened.
        text: String,
    },
    /// Above [`Amount::MAX`].
    #[error("'{text}' is too large: the largest amount is {}", Amount::MAX)]
    TooLarge {
        /// The text, shortened.
        text: String,
    },
    /// A suffix that no size has.
    #[error(
        "'{text}' ends in an unknown suffix '{suffix}': \
         use B, kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB or PiB, or give plain bytes"
    )]
    Suffix {
        /// The text, shortened.
        text: String,
        /// What was found after the number.
        suffix: String,
    },
    /// A size where a plain number belongs.
    #[error(
        "'{text}' has a suffix: only memory takes one, so write a plain number such as 4 or 0.5"
    )]
    SuffixNotAllowed {
        /// The text, shortened.
        text: String,
    },
}

/// Suffixes of memory sizes and their bytes; for printing, the binary ones from large to small.
const SIZES: [(&str, u64); 11] = [
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
];
const BINARY_SIZES: usize = 5;

/// Digits after the point that are looked at, trailing zeros aside.
const MAX_FRACTION_DIGITS: usize = 18;

/// Parses `number` times `bytes`, exactly; `whole` is the text to show in an error.
fn parse_scaled(number: &str, bytes: u64, whole: &str) -> Result<Amount, ParseAmountError> {
    let text = || clip(whole);
    if number
        .strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    {
        return Err(ParseAmountError::Negative { text: text() });
    }
    let (integer, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !is_digits(integer) || !is_digits(fraction) {
        return Err(ParseAmountError::NotANumber { text: text() });
    }
    let integer = integer.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    if integer.len() > 20 {
        return Err(ParseAmountError::TooLarge { text: text() });
    }
    if fraction.len() > MAX_FRACTION_DIGITS {
        return Err(ParseAmountError::TooPrecise { text: text() });
    }
    // At most 38 digits: they fit 128 bits.
    let digits = integer.bytes().chain(fraction.bytes());
    let mantissa = digits.fold(0u128, |sum, digit| sum * 10 + u128::from(digit - b'0'));
    let scale = 10u128.pow(fraction.len() as u32);
    let steps_per_unit = u128::from(bytes) * u128::from(Amount::STEPS_PER_UNIT);
    let common = gcd(scale, steps_per_unit);
    if mantissa % (scale / common) != 0 {
        return Err(ParseAmountError::TooPrecise { text: text() });
    }
    (mantissa / (scale / common))
        .checked_mul(steps_per_unit / common)
        .and_then(|steps| u64::try_from(steps).ok())
        .map(Amount::from_steps)
        .ok_or_else(|| ParseAmountError::TooLarge { text: text() })
}

/// The greatest common divisor.
pub(crate) fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn clip(text: &str) -> String {
    text.chars().take(40).collect()
}

impl FromStr for Amount {
    type Err = ParseAmountError;

    fn from_str(text: &str) -> Result<Self, ParseAmountError> {
        match parse_scaled(text, 1, text) {
            Err(ParseAmountError::NotANumber { text }) if Self::parse_memory(&text).is_ok() => {
                Err(ParseAmountError::SuffixNotAllowed { text })
            }
            other => other,
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (units, steps) = (self.whole_units(), self.fraction().steps());
        if steps == 0 {
            return f.pad_integral(true, "", &units.to_string());
        }
        f.pad(format!("{units}.{steps:04}").trim_end_matches('0'))
    }
}

impl fmt::Debug for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

struct DisplayFor {
    amount: Amount,
    is_memory: bool,
}

impl fmt::Display for DisplayFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.amount.whole_units();
        let unit = SIZES[..BINARY_SIZES]
            .iter()
            .find(|(_, size)| bytes.is_multiple_of(*size));
        match unit {
            Some((suffix, size)) if self.is_memory && self.amount.is_whole() && bytes > 0 => {
                f.pad(&format!("{}{suffix}", bytes / size))
            }
            _ => fmt::Display::fmt(&self.amount, f),
        }
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_u64(self.steps())
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_amount(deserializer, Self::from_str)
    }
}

/// Deserialises an amount whose text form, if it has one, goes through `parse`.
pub(super) fn deserialize_amount<'de, D: Deserializer<'de>>(
    deserializer: D,
    parse: impl Fn(&str) -> Result<Amount, ParseAmountError>,
) -> Result<Amount, D::Error> {
    if deserializer.is_human_readable() {
        deserializer.deserialize_any(AmountVisitor(parse))
    } else {
        u64::deserialize(deserializer).map(Amount::from_steps)
    }
}

struct AmountVisitor<P>(P);

impl<P: Fn(&str) -> Result<Amount, ParseAmountError>> Visitor<'_> for AmountVisitor<P> {
    type Value = Amount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an amount: an integer, or decimal text such as \"0.5\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Amount, E> {
        (self.0)(text).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, units: u64) -> Result<Amount, E> {
        self.visit_str(&units.to_string())
    }

    fn visit_i64<E: de::Error>(self, units: i64) -> Result<Amount, E> {
        self.visit_str(&units.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Amount, E> {
        Err(E::custom(format_args!(
            "{number} is not exact: write an amount that is not whole as text, \"{number}\""
        )))
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Amount {
        text.parse().unwrap()
    }

    #[test]
    fn the_specs_examples() {
        assert_eq!(amount("0.0003").steps(), 3);
        let error = "1.00005".parse::<Amount>().unwrap_err();
        assert!(
            error.to_string().contains("more precision than is kept"),
            "{error}"
        );
        assert_eq!(amount("2.5000").to_string(), "2.5");
        assert_eq!(amount("4"), Amount::units(4));
    }

    #[test]
    fn every_small_amount_round_trips() {
        for steps in 1..=40_000 {
            let amount = Amount::from_steps(steps);
            let text = amount.to_string();
            assert_eq!(text.parse(), Ok(amount));
            let has_needless_end = text.contains('.') && text.ends_with(['0', '.']);
            assert!(!has_needless_end, "{text}");
            assert_eq!(Amount::parse_memory(&text), Ok(amount));
            let json = serde_json::to_string(&amount).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<Amount>(&json).unwrap(), amount);
            let bytes = postcard::to_allocvec(&amount).unwrap();
            assert_eq!(postcard::from_bytes::<Amount>(&bytes).unwrap(), amount);
        }
    }

    #[test]
    fn extremes() {
        let text = "1844674407370955.1615";
        assert_eq!(Amount::MAX.to_string(), text);
        assert_eq!(amount(text), Amount::MAX);
        for text in [
            "1844674407370955.1616",
            "1844674407370956",
            "99999999999999999999999",
        ] {
            let error = text.parse::<Amount>().unwrap_err();
            assert_eq!(error, ParseAmountError::TooLarge { text: text.into() });
        }
        // Zeros carry nothing, however many there are.
        let zeros = "0".repeat(1000);
        assert_eq!(
            amount(&format!("{zeros}1.5{zeros}")),
            Amount::from_steps(15_000)
        );
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "", ".", "1.", ".5", "+1", "1e3", "1.5.2", " 1", "1 ", "1_000", "٣", "NaN",
        ] {
            let error = text.parse::<Amount>().unwrap_err();
            assert!(
                matches!(error, ParseAmountError::NotANumber { .. }),
                "{text}: {error}"
            );
        }
        assert!(matches!(
            "-1".parse::<Amount>(),
            Err(ParseAmountError::Negative { .. })
        ));
        assert!(matches!(
            "2GiB".parse::<Amount>(),
            Err(ParseAmountError::SuffixNotAllowed { .. })
        ));
    }

    #[test]
    fn memory_takes_sizes() {
        let bytes = |text: &str| Amount::parse_memory(text).unwrap().whole_units();
        assert_eq!(bytes("64MiB"), 64 << 20);
        assert_eq!(bytes("2GiB"), 2 << 30);
        assert_eq!(bytes("2 GiB"), 2 << 30);
        assert_eq!(bytes("512MB"), 512_000_000);
        assert_eq!(bytes("1.5gib"), 3 << 29);
        assert_eq!(bytes("0.000000000000000001PB"), 0);
        assert_eq!(bytes("10KB"), 10_000);
        assert_eq!(bytes("1048576"), 1 << 20);
        assert_eq!(
            Amount::parse_memory("1.3MiB").unwrap().to_string(),
            "1363148.8"
        );
        for text in ["1.6PiB", "1.8PB"] {
            assert!(Amount::parse_memory(text).is_ok(), "{text}");
        }
        assert!(matches!(
            Amount::parse_memory("2PiB"),
            Err(ParseAmountError::TooLarge { .. })
        ));
        assert!(matches!(
            Amount::parse_memory("5GX"),
            Err(ParseAmountError::Suffix { .. })
        ));
        assert!(matches!(
            Amount::parse_memory("GiB"),
            Err(ParseAmountError::NotANumber { .. })
        ));
        assert!(matches!(
            Amount::parse_memory("1e9"),
            Err(ParseAmountError::NotANumber { .. })
        ));
        assert!(matches!(
            Amount::parse_memory("1  MB"),
            Err(ParseAmountError::NotANumber { .. })
        ));
        assert!(matches!(
            Amount::parse_memory("-1MB"),
            Err(ParseAmountError::Negative { .. })
        ));
        let error = Amount::parse_memory("0.00001B").unwrap_err();
        assert!(matches!(error, ParseAmountError::TooPrecise { .. }));
    }

    #[test]
    fn memory_prints_as_a_size() {
        let shown = |text: &str| {
            let amount = Amount::parse_memory(text).unwrap();
            let shown = amount.display_for(&ResourceName::MEMORY).to_string();
            assert_eq!(Amount::parse_memory(&shown), Ok(amount));
            shown
        };
        assert_eq!(shown("2048MiB"), "2GiB");
        assert_eq!(shown("1536MiB"), "1536MiB");
        assert_eq!(shown("1000"), "1000");
        assert_eq!(shown("0"), "0");
        assert_eq!(shown("1024.5"), "1024.5");
        assert_eq!(
            Amount::units(1024)
                .display_for(&ResourceName::CPU)
                .to_string(),
            "1024"
        );
        assert_eq!(
            format!("[{:>4}|{:<4}]", Amount::units(2), amount("0.5")),
            "[   2|0.5 ]"
        );
    }

    #[test]
    fn json_takes_integers_and_text_but_no_floats() {
        assert_eq!(
            serde_json::from_str::<Amount>("9").unwrap(),
            Amount::units(9)
        );
        assert_eq!(
            serde_json::from_str::<Amount>("\"0.25\"").unwrap(),
            amount("0.25")
        );
        let error = serde_json::from_str::<Amount>("0.5")
            .unwrap_err()
            .to_string();
        assert!(error.contains("as text, \"0.5\""), "{error}");
        assert!(
            serde_json::from_str::<Amount>("-1")
                .unwrap_err()
                .to_string()
                .contains("negative")
        );
        assert!(serde_json::from_str::<Amount>("18446744073709551615").is_err());
    }
}
