//! Lays the counts out as a table for people: most code first, the sum at the end.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

use crate::tree::Counts;

/// The table of all languages.
pub fn by_language(languages: &BTreeMap<&'static str, Counts>) -> String {
    let mut rows: Vec<(&str, Counts)> = languages.iter().map(|(name, all)| (*name, *all)).collect();
    rows.sort_by_key(|(name, counts)| (Reverse(counts.lines.code), Reverse(counts.bytes), *name));
    let mut total = Counts::default();
    rows.iter().for_each(|(_, counts)| total.add(counts));

    let mut table = String::new();
    let heads = ["files", "lines", "code", "comments", "blank", "bytes"].map(str::to_owned);
    add_row(&mut table, "language", &heads);
    let rule = format!("{}\n", "─".repeat(table.chars().count() - 1));
    table.push_str(&rule);
    for (name, counts) in &rows {
        add_row(&mut table, name, &cells(counts));
    }
    table.push_str(&rule);
    add_row(&mut table, "total", &cells(&total));
    table
}

fn cells(counts: &Counts) -> [String; 6] {
    let Counts {
        files,
        lines,
        bytes,
    } = counts;
    [
        *files,
        lines.total(),
        lines.code,
        lines.comments,
        lines.blank,
        *bytes,
    ]
    .map(grouped)
}

fn add_row(table: &mut String, name: &str, cells: &[String; 6]) {
    let [files, lines, code, comments, blank, bytes] = cells;
    // Writing to a string cannot fail.
    let _ = writeln!(
        table,
        "{name:<12}{files:>8}{lines:>11}{code:>11}{comments:>11}{blank:>10}{bytes:>14}"
    );
}

/// A number with its thousands apart: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1234567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn most_code_comes_first() {
        let counts = |code| {
            let mut counts = Counts {
                files: 1,
                bytes: 10,
                ..Counts::default()
            };
            counts.lines.code = code;
            counts
        };
        let languages =
            BTreeMap::from([("C", counts(1)), ("Rust", counts(20)), ("Zig", counts(3))]);
        let table = by_language(&languages);
        let names: Vec<_> = table
            .lines()
            .filter_map(|row| row.split(' ').next())
            .collect();
        assert_eq!(names[0], "language");
        assert_eq!(names[2..5], ["Rust", "Zig", "C"]);
        assert_eq!(names[6], "total");
        assert!(table.lines().last().is_some_and(|row| row.contains(" 24 ")));
    }
}
