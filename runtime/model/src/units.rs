//! Sizes and durations as people write and read them.

use std::time::Duration;

/// A duration in whole milliseconds, at most as many as fit.
pub fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A duration in whole microseconds, at most as many as fit.
pub fn us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A number of bytes in the largest binary unit that leaves no more than one decimal.
pub fn bytes(amount: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    while unit + 1 < UNITS.len() && amount >> (10 * (unit + 1)) > 0 {
        unit += 1;
    }
    let scale = 1u64 << (10 * unit);
    let (whole, tenth) = (
        amount / scale,
        u128::from(amount % scale) * 10 / u128::from(scale),
    );
    match tenth {
        0 if amount == 1 => "1 byte".to_owned(),
        0 => format!("{whole} {}", UNITS[unit]),
        _ => format!("{whole}.{tenth} {}", UNITS[unit]),
    }
}

/// A number of milliseconds as people write it: `250ms`, `1.5s`, `2m`, `1h30m`, `90d`.
pub fn milliseconds(amount: u64) -> String {
    let (seconds, ms) = (amount / 1000, amount % 1000);
    match (seconds, ms) {
        (0, ms) => format!("{ms}ms"),
        (1..60, 0) => format!("{seconds}s"),
        (1..60, ms) => format!("{}s", format!("{seconds}.{ms:03}").trim_end_matches('0')),
        _ => {
            let (d, h) = (seconds / 86_400, seconds / 3600 % 24);
            let (m, s) = (seconds / 60 % 60, seconds % 60);
            let part = |n: u64, unit| {
                if n > 0 {
                    format!("{n}{unit}")
                } else {
                    String::new()
                }
            };
            format!(
                "{}{}{}{}",
                part(d, 'd'),
                part(h, 'h'),
                part(m, 'm'),
                part(s, 's')
            )
        }
    }
}

/// What is long, in milliseconds, as people say it: in the two largest units, such as `3d4h`.
fn age(amount: u64) -> String {
    let grain = match amount {
        86_400_000.. => 3_600_000,
        3_600_000.. => 60_000,
        60_000.. => 1000,
        _ => 1,
    };
    milliseconds(amount / grain * grain)
}

/// How long something took, however short: `906.11µs`, `12.3ms`, `1.5s`, and from a minute on in the two largest
/// units, such as `1m4s`.
pub fn duration(duration: Duration) -> String {
    if duration.as_secs() >= 60 {
        return age(ms(duration));
    }
    let text = format!("{duration:.2?}");
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(number_end.unwrap_or(text.len()));
    match number.trim_end_matches('0').trim_end_matches('.') {
        "0" => "0s".to_owned(),
        number => format!("{number}{unit}"),
    }
}

/// Text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseDurationError {
    /// It is something else, or too long.
    #[error(
        "'{text}' is not a duration: write whole numbers with units, such as 250ms, 30s or 1h30m"
    )]
    Malformed {
        /// What it was.
        text: String,
    },
    /// It is zero.
    #[error("'{text}' is no time at all: give at least 1ms")]
    Zero {
        /// What it was.
        text: String,
    },
}

/// The milliseconds in `250ms`, `30s`, `1h30m` or `2d`; a number alone counts seconds.
///
/// # Errors
/// When the text is something else, or zero, or more than a `u64` holds.
pub fn parse_milliseconds(text: &str) -> Result<u64, ParseDurationError> {
    let bad = || ParseDurationError::Malformed {
        text: text.chars().take(80).collect(),
    };
    let (mut rest, mut total, mut parts) = (text.trim(), 0u64, 0);
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let number: u64 = rest[..digits].parse().map_err(|_| bad())?;
        let unit_end = rest[digits..].find(|c: char| c.is_ascii_digit());
        let unit_end = unit_end.map_or(rest.len(), |at| digits + at);
        let unit_ms = match &rest[digits..unit_end] {
            "ms" => 1,
            "s" => 1000,
            "" if parts == 0 && unit_end == rest.len() => 1000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(bad()),
        };
        let part = number.checked_mul(unit_ms).ok_or_else(bad)?;
        total = total.checked_add(part).ok_or_else(bad)?;
        (rest, parts) = (&rest[unit_end..], parts + 1);
    }
    match (parts, total) {
        (0, _) => Err(bad()),
        (_, 0) => Err(ParseDurationError::Zero { text: text.into() }),
        (_, total) => Ok(total),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_well() {
        assert_eq!(bytes(0), "0 bytes");
        assert_eq!(bytes(1), "1 byte");
        assert_eq!(bytes(1023), "1023 bytes");
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(bytes((3 << 30) / 2), "1.5 GiB");
        assert_eq!(bytes(u64::MAX), "16777215.9 TiB");
        assert_eq!(milliseconds(250), "250ms");
        assert_eq!(milliseconds(1500), "1.5s");
        assert_eq!(milliseconds(5_400_000), "1h30m");
        assert_eq!(milliseconds(93_784_500), "1d2h3m4s");
        assert_eq!(age(93_784_500), "1d2h");
        assert_eq!(age(7_384_500), "2h3m");
        assert_eq!(age(184_500), "3m4s");
        assert_eq!(age(4500), "4.5s");
    }

    #[test]
    fn what_is_short_reads_well_too() {
        for (us, expected) in [
            (0, "0s"),
            (906, "906µs"),
            (1_500_599, "1.5s"),
            (12_340, "12.34ms"),
            (20_000_000, "20s"),
            (64_999_999, "1m4s"),
            (7_384_500_000, "2h3m"),
        ] {
            assert_eq!(duration(Duration::from_micros(us)), expected);
        }
        assert_eq!(duration(Duration::from_nanos(906_114)), "906.11µs");
        assert_eq!(duration(Duration::from_nanos(90)), "90ns");
    }

    #[test]
    fn durations_are_read() {
        assert_eq!(parse_milliseconds("250ms"), Ok(250));
        assert_eq!(parse_milliseconds("30s"), Ok(30_000));
        assert_eq!(parse_milliseconds("1h30m"), Ok(5_400_000));
        assert_eq!(parse_milliseconds("45"), Ok(45_000));
        for bad in [
            "",
            "0s",
            "5x",
            "s",
            "1.5h",
            "-3s",
            "99999999999999999999s",
            "3s5",
            "é",
        ] {
            assert!(parse_milliseconds(bad).is_err(), "{bad}");
        }
    }
}
