//! The texts of amounts, durations and resource names.
//!
//! Owns the same rules as the host (`runtime/model`: `amount_text`, `units`, `name`), which has the
//! last word; here a mistake is found when the guest is built. Must not compute with them.

/// Suffixes of sizes, in lower case, and their bytes.
const SIZES: [(&str, u64); 11] = [
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("pb", 1_000_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("pib", 1 << 50),
];

/// The host counts in steps of 1/10,000 of a unit.
const STEPS_PER_UNIT: u64 = 10_000;

/// Checks an amount of a resource.
pub fn check(resource: &str, text: &str) -> Result<(), String> {
    let is_memory = resource == "memory";
    let (number, bytes) = if is_memory {
        split_size(text)?
    } else {
        (text, 1)
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if !are_digits(whole) || !are_digits(fraction) {
        return Err(if is_memory {
            format!("`{text}` is no amount of memory: write for example \"64MiB\"")
        } else {
            format!("`{text}` is no amount: write for example \"2\" or \"0.5\"")
        });
    }
    let whole = whole.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    let too_exact = || format!("`{text}` is too exact: amounts count in steps of 0.0001");
    let too_large = || format!("`{text}` is more than there can be");
    if fraction.len() > 18 {
        return Err(too_exact());
    }
    if whole.len() > 20 {
        return Err(too_large());
    }
    // 38 digits at most: they fit 128 bits.
    let digits = whole.bytes().chain(fraction.bytes());
    let mantissa = digits.fold(0_u128, |sum, digit| sum * 10 + u128::from(digit - b'0'));
    let scale = 10_u128.pow(fraction.len() as u32);
    let steps = u128::from(bytes) * u128::from(STEPS_PER_UNIT);
    let common = greatest_common_divisor(scale, steps);
    if mantissa % (scale / common) != 0 {
        return Err(too_exact());
    }
    (mantissa / (scale / common))
        .checked_mul(steps / common)
        .and_then(|steps| u64::try_from(steps).ok())
        .map_or_else(|| Err(too_large()), |_| Ok(()))
}

/// A size's number, and the bytes of its unit.
fn split_size(text: &str) -> Result<(&str, u64), String> {
    let end = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    if suffix.is_empty() {
        return Ok((number, 1));
    }
    let lower = suffix.to_ascii_lowercase();
    match SIZES.iter().find(|(name, _)| *name == lower) {
        Some(&(_, bytes)) => Ok((number.strip_suffix(' ').unwrap_or(number), bytes)),
        None => Err(format!(
            "`{suffix}` is no unit of memory: write for example \"64MiB\" or \"1GB\""
        )),
    }
}

fn greatest_common_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Checks a duration.
pub fn check_duration(text: &str) -> Result<(), String> {
    let bad = || {
        format!(
            "`{text}` is no duration: write whole numbers with units, such as 250ms, 30s or 1h30m"
        )
    };
    let (mut rest, mut total) = (text, 0_u64);
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let unit_end = after
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(bad()),
        };
        let number: u64 = number.parse().map_err(|_| bad())?;
        total = number
            .checked_mul(unit_ms)
            .and_then(|part| total.checked_add(part))
            .ok_or_else(bad)?;
        rest = next;
    }
    match (text, total) {
        ("", _) => Err(bad()),
        (_, 0) => Err(format!("`{text}` is no time at all: give at least 1ms")),
        _ => Ok(()),
    }
}

/// Checks the name of a resource.
pub fn check_resource(name: &str) -> Result<(), String> {
    let is_ok = |(at, c): (usize, char)| match c {
        'a'..='z' | 'A'..='Z' | '_' => true,
        '0'..='9' | '.' | '-' | '/' => at > 0,
        _ => false,
    };
    if name.is_empty() || name.len() > 128 || !name.char_indices().all(is_ok) {
        return Err(format!(
            "`{name}` is no resource's name: begin with a letter or _, and go on with letters, \
             digits, _ . - /, 128 at most"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_those_of_the_host() {
        for good in ["0", "1", "0.5", "0.0003", "64"] {
            assert_eq!(check("CPU", good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "abc",
            "-1",
            "1.",
            ".5",
            "1.00005",
            "1e3",
            "64MiB",
            "99999999999999999999",
        ] {
            assert!(check("CPU", bad).is_err(), "{bad}");
        }
        for good in [
            "1048576",
            "64MiB",
            "1.5GiB",
            "1TiB",
            "100B",
            "64 mb",
            "0.00048828125MiB",
        ] {
            assert_eq!(check("memory", good), Ok(()), "{good}");
        }
        for bad in ["64MX", "MiB", "64  MiB", "9999999TiB", "0.00001"] {
            assert!(check("memory", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_are_those_of_the_host() {
        for good in ["250ms", "30s", "1h30m", "2d"] {
            assert_eq!(check_duration(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "0s",
            "5x",
            "s",
            "1.5h",
            "-3s",
            "99999999999999999999s",
            "é",
        ] {
            assert!(check_duration(bad).is_err(), "{bad}");
        }
    }
}
