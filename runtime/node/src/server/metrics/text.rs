//! Prometheus' text format, version 0.0.4.
//!
//! Owns the syntax, and that a name appears once. Must not: know what is measured. See
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::fmt::{self, Display, Write};

/// Families of values, one after the other.
#[derive(Debug, Default)]
pub(super) struct Text(String);

/// The values of one name.
pub(super) struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Text {
    /// Begins a family. All its values come before the next family's. Those of a name that ends in `_total` only grow
    /// while the node runs. `help` is one line.
    pub(super) fn family(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        let kind = match name.ends_with("_total") {
            true => "counter",
            false => "gauge",
        };
        self.begin(name, kind, help)
    }

    /// The same, of what [`buckets`] adds.
    pub(super) fn histogram(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        self.begin(name, "histogram", help)
    }

    fn begin(&mut self, name: &'static str, kind: &str, help: &str) -> Family<'_> {
        push(
            &mut self.0,
            format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"),
        );
        Family {
            text: &mut self.0,
            name,
        }
    }

    /// A family of one value without labels.
    pub(super) fn one(&mut self, name: &'static str, help: &'static str, value: impl Display) {
        self.family(name, help).add(&[], value);
    }

    /// Such families: names, helps and values.
    pub(super) fn all<V: Display>(
        &mut self,
        all: impl IntoIterator<Item = (&'static str, &'static str, V)>,
    ) {
        for (name, help, value) in all {
            self.one(name, help, value);
        }
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

impl Family<'_> {
    /// A value with these labels. The value is a decimal number as Rust writes it.
    pub(super) fn add(&mut self, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.add_part("", labels, value);
    }

    /// The same, of a name that goes on: `_bucket`, `_sum`, `_count`.
    pub(super) fn add_part(
        &mut self,
        part: &str,
        labels: &[(&str, &dyn Display)],
        value: impl Display,
    ) {
        self.text.push_str(self.name);
        self.text.push_str(part);
        for (at, (label, value)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            push(self.text, format_args!("{before}{label}=\""));
            write!(Escaped(self.text), "{value}").expect("a string takes all");
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        push(self.text, format_args!(" {value}\n"));
    }
}

/// Writes a label's value.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

fn push(text: &mut String, more: fmt::Arguments<'_>) {
    text.write_fmt(more).expect("a string takes all");
}

/// A histogram of times: how many there were up to each bound, and in all; and how long all took.
pub(super) fn buckets(family: &mut Family<'_>, bounds_us: &[u64], counts: &[u64], sum_us: u64) {
    for (bound_us, count) in bounds_us.iter().zip(counts) {
        let bound = *bound_us as f64 / 1e6;
        family.add_part("_bucket", &[("le", &bound)], count);
    }
    let all = counts[counts.len() - 1];
    family.add_part("_bucket", &[("le", &"+Inf")], all);
    let sum = format_args!("{}.{:06}", sum_us / 1_000_000, sum_us % 1_000_000).to_string();
    family.add_part("_sum", &[], sum);
    family.add_part("_count", &[], all);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_written_as_prometheus_reads_them() {
        let mut text = Text::default();
        text.one("a_bytes", "What it is.", 7);
        let mut family = text.family("b_total", "How many.");
        family.add(&[("x", &"1"), ("y", &"a \"b\"\\\nc")], 0.5);
        family.add(&[("x", &2)], 3);
        let expected = "# HELP a_bytes What it is.\n# TYPE a_bytes gauge\na_bytes 7\n\
                        # HELP b_total How many.\n# TYPE b_total counter\n\
                        b_total{x=\"1\",y=\"a \\\"b\\\"\\\\\\nc\"} 0.5\nb_total{x=\"2\"} 3\n";
        assert_eq!(text.into_string(), expected);
    }
}
