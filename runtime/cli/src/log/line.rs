//! One event as one line: as text for people, or as JSON.
//!
//! Owns the form of both. Must not: let anything in an event break its line, move the cursor of a terminal, or
//! make the line longer than [`MOST_BYTES`].

use std::fmt::{self, Write};

use serde_json::{Map, Value as Json};
use time::OffsetDateTime;
use tracing::field::{Field, Visit};
use tracing::{Event, Level};
use wasmrun_node::stamp;

/// The longest text of a field or message, in bytes; what is more is cut.
const MOST_FIELD_BYTES: usize = 2048;
/// The longest line of text, about, in bytes. A line of JSON has all fields, each cut.
const MOST_BYTES: usize = 16 << 10;

/// What an event says.
#[derive(Debug)]
pub(super) struct Line<'a> {
    time: OffsetDateTime,
    level: Level,
    /// The node of this process.
    node: Option<&'a str>,
    /// The module that says it.
    target: &'a str,
    message: String,
    fields: Vec<(&'static str, Json)>,
}

impl<'a> Line<'a> {
    /// An event of now.
    pub(super) fn new(event: &Event<'a>, node: Option<&'a str>) -> Self {
        let metadata = event.metadata();
        let mut line = Self::empty(*metadata.level(), metadata.target(), node);
        event.record(&mut line);
        line
    }

    /// What stands in place of lines that are not written.
    pub(super) fn left_out(count: u64, node: Option<&'a str>) -> Self {
        let message = "lines of the log are left out: they are not read fast enough";
        Self {
            message: message.to_owned(),
            fields: vec![("lines", count.into())],
            ..Self::empty(Level::WARN, module_path!(), node)
        }
    }

    /// Says that as many lines like this were left out before it.
    pub(super) fn note_left_out(&mut self, count: u32) {
        self.fields.push(("left_out", count.into()));
    }

    fn empty(level: Level, target: &'a str, node: Option<&'a str>) -> Self {
        Self {
            time: OffsetDateTime::now_utc(),
            level,
            node,
            target,
            message: String::new(),
            fields: Vec::new(),
        }
    }

    /// For people.
    pub(super) fn text(&self, is_coloured: bool) -> String {
        let mut text = stamp(self.time);
        let level = format!("{:>5}", self.level);
        match is_coloured {
            true => push(
                &mut text,
                format_args!(" \x1b[{}m{level}\x1b[0m", colour(self.level)),
            ),
            false => push(&mut text, format_args!(" {level}")),
        }
        if let Some(node) = self.node {
            push(&mut text, format_args!(" {node}"));
        }
        push(
            &mut text,
            format_args!(" {}: {}", self.target, plain(&self.message)),
        );
        for (name, value) in &self.fields {
            if text.len() > MOST_BYTES {
                text.push_str(" …");
                break;
            }
            match value {
                Json::String(value) if is_word(value) => {
                    push(&mut text, format_args!(" {name}={value}"));
                }
                // Quoted and escaped.
                value => push(
                    &mut text,
                    format_args!(" {name}={}", plain(&value.to_string())),
                ),
            }
        }
        text.push('\n');
        text
    }

    /// For programs. The fields of the event are in an object of their own, so that none hides one of the line.
    pub(super) fn json(&self) -> String {
        let fields = self.fields.iter();
        let fields: Map<String, Json> = fields
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        let line = serde_json::json!({
            "time": stamp(self.time),
            "level": self.level.as_str().to_ascii_lowercase(),
            "node": self.node,
            "target": self.target,
            "message": self.message,
            "fields": fields,
        });
        format!("{line}\n")
    }

    fn add(&mut self, field: &Field, value: Json) {
        match (field.name(), value) {
            ("message", Json::String(message)) => self.message = message,
            (name, value) => self.fields.push((name, value)),
        }
    }
}

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = Cut(String::new());
        // It fails when it is cut.
        let _ = write!(text, "{value:?}");
        self.add(field, text.0.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let mut text = Cut(String::new());
        let _ = text.write_str(value);
        self.add(field, text.0.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

/// A text that stops growing at its limit.
struct Cut(String);

impl Write for Cut {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = MOST_FIELD_BYTES.saturating_sub(self.0.len());
        if more.len() <= room {
            self.0.push_str(more);
            return Ok(());
        }
        let end = (0..=room).rev().find(|at| more.is_char_boundary(*at));
        self.0.push_str(&more[..end.unwrap_or(0)]);
        self.0.push('…');
        Err(fmt::Error)
    }
}

/// Text without anything that a terminal would take for more than text.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => plain.extend(c.escape_default()),
            false => plain.push(c),
        }
    }
    plain
}

/// Whether a value needs no quotes.
fn is_word(text: &str) -> bool {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '"' | '=');
    !text.is_empty() && text.chars().all(is_plain)
}

fn colour(level: Level) -> u8 {
    match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        _ => 34,
    }
}

fn push(text: &mut String, more: fmt::Arguments<'_>) {
    text.write_fmt(more).expect("a string takes all");
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::subscriber::with_default;
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    use super::*;

    /// Keeps the lines of what is said.
    struct LineRecorder(Arc<Mutex<Vec<(String, String)>>>);

    impl<S: tracing::Subscriber> Layer<S> for LineRecorder {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let time = OffsetDateTime::from_unix_timestamp(1_700_000_000).unwrap();
            let line = Line {
                time,
                ..Line::new(event, Some("n1"))
            };
            let lines = (line.text(false), line.json());
            self.0.lock().unwrap().push(lines);
        }
    }

    fn lines(say: impl FnOnce()) -> Vec<(String, String)> {
        let lines = Arc::<Mutex<Vec<_>>>::default();
        let subscriber = tracing_subscriber::registry().with(LineRecorder(lines.clone()));
        with_default(subscriber, say);
        std::mem::take(&mut lines.lock().unwrap())
    }

    #[test]
    fn an_event_is_a_line() {
        let lines = lines(|| {
            let error = std::io::Error::other("no way");
            tracing::warn!(target: "wasmrun_x", tasks = 3_u64, node = %"b", ok = true, %error, "it is so");
        });
        let (text, json) = &lines[0];
        assert_eq!(
            text,
            "2023-11-14T22:13:20.000000Z  WARN n1 wasmrun_x: it is so tasks=3 node=b ok=true error=\"no way\"\n"
        );
        let json: Json = serde_json::from_str(json).unwrap();
        let expected = serde_json::json!({
            "time": "2023-11-14T22:13:20.000000Z", "level": "warn", "node": "n1", "target": "wasmrun_x",
            "message": "it is so",
            "fields": { "tasks": 3, "node": "b", "ok": true, "error": "no way" },
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn nothing_breaks_a_line_or_moves_a_cursor() {
        let bad = "a\nb\r\x1b[2J\u{9b}31m\0\"=";
        let lines = lines(|| tracing::info!(field = %bad, debug = ?bad, text = bad, "{bad}"));
        for line in [&lines[0].0, &lines[0].1] {
            let (body, end) = line.split_at(line.len() - 1);
            assert_eq!(end, "\n");
            assert!(
                !body.contains(char::is_control) || line.starts_with('{'),
                "{body:?}"
            );
            assert!(!body.contains(['\n', '\r', '\x1b', '\0']), "{body:?}");
        }
    }

    #[test]
    fn long_values_are_cut() {
        let long = "ä".repeat(1 << 20);
        let lines = lines(|| tracing::info!(field = %long, text = long, debug = ?long, "{long}"));
        for line in [&lines[0].0, &lines[0].1] {
            assert!(
                line.len() < MOST_BYTES && line.contains('…'),
                "{}",
                line.len()
            );
        }
    }
}
