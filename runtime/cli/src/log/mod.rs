//! What the process logs, and where to: lines on standard error, from `tracing` events of all crates.
//!
//! Owns which events are wanted ([`Filter`]), how a line looks (`line`) and how it gets out (`writer`). Must
//! not: make a thread that says something wait for whoever reads the lines, or show a secret: tokens and keys
//! have no `Display` that would end up in an event, and a test watches it.
//!
//! Invariants: an event is one line, whatever is in it; a client logs nothing unless asked to; nobody outside
//! makes the log grow without limit (`rate`).

mod line;
mod rate;
mod writer;

use std::io::IsTerminal;
use std::str::FromStr;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

pub use wasmrun_node::stamp;

use self::line::Line;
use self::rate::{Rate, Verdict};
use self::writer::Writer;

/// The beginning of the targets of all our crates.
const OURS: &str = "wasmrun";

/// The form of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// For people: time, level, node, where from, what, and its fields.
    #[default]
    Text,
    /// For programs: one JSON object a line.
    Json,
}

/// Which events are logged: `LEVEL` for wasmrun's own, `TARGET=LEVEL` for others, with commas between.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter(Targets);

impl Filter {
    /// Our own from this level on; of others only warnings, and not even these if ours are not wanted.
    pub fn own(level: LevelFilter) -> Self {
        let others = level.min(LevelFilter::WARN);
        let targets = Targets::new().with_default(others);
        Self(targets.with_target(OURS, level))
    }
}

impl Default for Filter {
    fn default() -> Self {
        Self::own(LevelFilter::INFO)
    }
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut own = None;
        let mut others = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (target, level) = match part.split_once('=') {
                Some((target, level)) => (Some(target.trim()), level.trim()),
                None => (None, part),
            };
            let level = level_of(level).ok_or_else(|| {
                format!(
                    "'{part}' must be a level (off, error, warn, info, debug or trace) or TARGET=LEVEL, such \
                     as wasmrun_net=debug"
                )
            })?;
            match target {
                Some("") => return Err(format!("'{part}' names nothing before its '='")),
                Some(target) => others.push((target.to_owned(), level)),
                None if own.replace(level).is_some() => {
                    return Err(format!("'{text}' has more than one level without a target"));
                }
                None => {}
            }
        }
        let own = Self::own(own.unwrap_or(LevelFilter::INFO));
        Ok(Self(own.0.with_targets(others)))
    }
}

fn level_of(text: &str) -> Option<LevelFilter> {
    // Its own parser takes numbers, too.
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphabetic());
    (is_word && !text.is_empty())
        .then(|| text.parse().ok())
        .flatten()
}

/// Logging, as long as this is there. Dropping it writes what is left.
#[derive(Debug)]
pub struct Logging {
    _writer: Writer,
}

/// The name of the node of this process, once it has one.
static NODE: OnceLock<String> = OnceLock::new();

/// Begins to log. Nothing if the process logs already.
pub fn start(filter: Filter, format: Format) -> Option<Logging> {
    let is_coloured = format == Format::Text
        && std::io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let form = Form {
        format,
        is_coloured,
    };
    let left_out = move |count: u64| form.line(&Line::left_out(count, node()));
    let writer = Writer::start(left_out);
    let lines = Lines {
        out: writer.sender(),
        form,
        rate: Mutex::default(),
    };
    let subscriber = tracing_subscriber::registry().with(filter.0).with(lines);
    tracing::subscriber::set_global_default(subscriber).ok()?;
    Some(Logging { _writer: writer })
}

/// From now on lines say that they are this node's.
pub fn set_node(name: &str) {
    // A process has one node; a second name would be a second node's.
    let _ = NODE.set(name.to_owned());
}

fn node() -> Option<&'static str> {
    NODE.get().map(String::as_str)
}

/// How lines are to look.
#[derive(Clone, Copy)]
struct Form {
    format: Format,
    is_coloured: bool,
}

impl Form {
    fn line(self, line: &Line<'_>) -> String {
        match self.format {
            Format::Text => line.text(self.is_coloured),
            Format::Json => line.json(),
        }
    }
}

/// Makes lines of events.
struct Lines {
    out: writer::Sender,
    form: Form,
    rate: Mutex<Rate>,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let is_limited = *event.metadata().level() <= Level::INFO;
        let verdict = match is_limited {
            true => {
                // A panic under it leaves counts behind, which are right enough.
                let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
                rate.says(event.metadata().callsite(), Instant::now())
            }
            false => Verdict::Write,
        };
        let mut line = Line::new(event, node());
        match verdict {
            Verdict::Write => {}
            Verdict::WriteAfter(count) => line.note_left_out(count),
            Verdict::LeaveOut => return,
        }
        self.out.send(self.form.line(&line));
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[track_caller]
    fn filter(text: &str) -> Targets {
        text.parse::<Filter>().unwrap().0
    }

    #[test]
    fn a_level_is_for_our_own_events() {
        let info = Filter::default().0;
        assert!(info.would_enable("wasmrun_net::event", &Level::INFO));
        assert!(!info.would_enable("wasmrun_net::event", &Level::DEBUG));
        assert!(info.would_enable("quinn", &Level::WARN));
        assert!(!info.would_enable("quinn", &Level::INFO));
        assert_eq!(filter("info"), info);
        assert_eq!(filter(" INFO "), info);
        let error = filter("error");
        assert!(!error.would_enable("quinn", &Level::WARN));
        assert!(!filter("off").would_enable("quinn", &Level::ERROR));
    }

    #[test]
    fn targets_have_levels_of_their_own() {
        let both = filter("wasmrun_net=trace, quinn=debug");
        assert!(both.would_enable("wasmrun_net::event", &Level::TRACE));
        assert!(!both.would_enable("wasmrun_node", &Level::DEBUG));
        assert!(both.would_enable("wasmrun_node", &Level::INFO));
        assert!(both.would_enable("quinn::connection", &Level::DEBUG));
        assert!(filter("warn,wasmrun=trace").would_enable("wasmrun_net", &Level::TRACE));
    }

    #[test]
    fn what_is_no_filter_is_refused_with_an_example() {
        for text in ["", "loud", "info,debug", "=info", "a=", "a=b", "3", "info,"] {
            let error = text.parse::<Filter>().unwrap_err();
            assert!(error.starts_with('\''), "{text}: {error}");
        }
    }
}
