//! Counts the lines, words, characters and most frequent words of a text.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write;

use crate::table::grouped;

/// Words shorter than this are left out of the frequent ones: they would all be "the" and "of".
const LETTERS_MIN: usize = 5;
const FREQUENT_MAX: usize = 10;

/// The report on a text. Bytes that are not UTF-8 count as a replacement character each.
pub fn report(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let words = text.split_whitespace().count();
    let numbers = [
        ("lines", text.lines().count()),
        ("words", words),
        ("characters", text.chars().count()),
        ("bytes", bytes.len()),
    ];
    let mut report = String::new();
    for (name, number) in numbers {
        let _ = writeln!(report, "{name:<12}{:>12}", grouped(number as u64));
    }
    let frequent = frequent_words(&text);
    if !frequent.is_empty() {
        let _ = writeln!(
            report,
            "\nmost frequent words of {LETTERS_MIN} letters or more"
        );
    }
    for (word, count) in frequent {
        let _ = writeln!(report, "{word:<16}{:>8}", grouped(count));
    }
    report
}

fn frequent_words(text: &str) -> Vec<(String, u64)> {
    let mut counts: HashMap<String, u64> = HashMap::new();
    for word in text.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '’') {
        let word = word.trim_matches(['\'', '’']);
        if word.chars().count() >= LETTERS_MIN {
            *counts.entry(word.to_lowercase()).or_default() += 1;
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|a, b| (Reverse(a.1), &a.0).cmp(&(Reverse(b.1), &b.0)));
    counts.truncate(FREQUENT_MAX);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_counted_whatever_their_case() {
        let counted =
            frequent_words("Spheres, spheres and 'Spheres'; couldn't light? Couldn’t the light.");
        let expected = [
            ("spheres", 3),
            ("light", 2),
            ("couldn't", 1),
            ("couldn’t", 1),
        ];
        assert_eq!(
            counted,
            expected.map(|(word, count)| (word.to_owned(), count))
        );
    }

    #[test]
    fn a_text_without_words_has_a_report_too() {
        assert!(report(b"").contains("words                  0"));
        assert!(report(b"\xff\xfe").contains("characters             2"));
    }
}
