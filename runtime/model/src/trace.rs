//! Trace context of W3C (<https://www.w3.org/TR/trace-context-2/>): the trace and the span to which a task belongs.
//!
//! Owns the texts of [`Span`] (`traceparent`) and [`TraceState`] (`tracestate`), and which span an attempt is. Must not: know
//! how spans are exported.
//!
//! Invariant: what the specification calls invalid never is a value of these types, whether it comes as text or on the wire.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::{DriverId, SpanId, TaskId, TraceId};

/// The flags that there are: sampled, and that the trace's id is random. Others are not passed on.
const FLAGS: u8 = 0b11;
const SAMPLED: u8 = 0b01;
/// The most members of a `tracestate`.
const MOST_MEMBERS: usize = 32;
/// The longest `tracestate` that is passed on, in bytes: what everybody must pass on, at least.
const MOST_STATE_BYTES: usize = 512;
/// The longest key, and the longest value, of a member.
const MOST_MEMBER_BYTES: usize = 256;
/// How much of a wrong text an error shows, in characters.
const SHOWN_CHARS: usize = 120;

/// A span of a trace. As text it is a `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Span {
    trace: TraceId,
    id: SpanId,
    flags: u8,
}

/// A span as it comes.
#[derive(Deserialize)]
struct Unchecked {
    trace: TraceId,
    id: SpanId,
    flags: u8,
}

/// A text that is no `traceparent`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no traceparent: that has the form 00-TRACE-SPAN-FLAGS, with 32, 16 and 2 hexadecimal digits in lower case, neither \
     id all zeros, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)]
pub struct ParseSpanError(String);

impl Span {
    fn new(trace: TraceId, id: SpanId, flags: u8) -> Option<Self> {
        let is_valid = trace != TraceId::default() && id != SpanId::default();
        is_valid.then_some(Self {
            trace,
            id,
            flags: flags & FLAGS,
        })
    }

    /// The span of an attempt of a task: in the trace that a client has given, else in that of its job.
    pub fn of(given: Option<&TraceContext>, job: DriverId, task: &TaskId, attempt: u32) -> Self {
        let (trace, flags) = match given.map(TraceContext::parent) {
            Some(parent) => (parent.trace, parent.flags),
            None => (TraceId::of(job), SAMPLED),
        };
        Self {
            trace,
            id: SpanId::of(task, attempt),
            flags,
        }
    }

    /// Its trace.
    pub fn trace(&self) -> TraceId {
        self.trace
    }

    /// Its id.
    pub fn id(&self) -> SpanId {
        self.id
    }

    /// The flags of its trace, as the specification numbers them.
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// Whether its trace is recorded.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
}

impl TryFrom<Unchecked> for Span {
    type Error = &'static str;

    fn try_from(it: Unchecked) -> Result<Self, Self::Error> {
        Self::new(it.trace, it.id, it.flags).ok_or("a trace or a span without an id")
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace, self.id, self.flags)
    }
}

impl FromStr for Span {
    type Err = ParseSpanError;

    fn from_str(text: &str) -> Result<Self, ParseSpanError> {
        parse(text).ok_or_else(|| ParseSpanError(text.chars().take(SHOWN_CHARS).collect()))
    }
}

/// Of a higher version, what version 0 has is read.
fn parse(text: &str) -> Option<Span> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let mut parts = text.splitn(5, '-');
    let mut digits = |count: usize| {
        let part = parts.next()?;
        (part.len() == count && part.bytes().all(is_digit)).then_some(part)
    };
    let version = digits(2)?;
    let trace = digits(32)?.parse().ok()?;
    let id = digits(16)?.parse().ok()?;
    let flags = u8::from_str_radix(digits(2)?, 16).ok()?;
    let is_known = match version {
        "00" => parts.next().is_none(),
        version => version != "ff",
    };
    Span::new(trace, id, flags).filter(|_| is_known)
}

/// What tracing systems pass on along a trace. As text it is a `tracestate`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct TraceState(String);

/// A text that is no `tracestate`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no tracestate: that is a list of at most 32 KEY=VALUE with commas between them, each key once, in lower case, \
     such as rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
)]
pub struct ParseStateError(String);

impl TraceState {
    /// Its text, without spaces around members.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for TraceState {
    type Error = ParseStateError;

    fn try_from(text: String) -> Result<Self, ParseStateError> {
        let state: Self = text.parse()?;
        match state.0 == text {
            true => Ok(state),
            false => Err(ParseStateError::of(&text)),
        }
    }
}

impl ParseStateError {
    fn of(text: &str) -> Self {
        Self(text.chars().take(SHOWN_CHARS).collect())
    }
}

impl FromStr for TraceState {
    type Err = ParseStateError;

    /// Members at the end for which there is no room are left out.
    fn from_str(text: &str) -> Result<Self, ParseStateError> {
        let (mut state, mut has_room, mut keys) = (String::new(), true, BTreeSet::new());
        for member in text.split(',') {
            let member = member.trim_matches([' ', '\t']);
            if member.is_empty() {
                continue;
            }
            let key = key_of(member).filter(|key| keys.insert(*key));
            if key.is_none() || keys.len() > MOST_MEMBERS {
                return Err(ParseStateError::of(text));
            }
            let comma = if state.is_empty() { "" } else { "," };
            has_room &= state.len() + comma.len() + member.len() <= MOST_STATE_BYTES;
            if has_room {
                state.push_str(comma);
                state.push_str(member);
            }
        }
        Ok(Self(state))
    }
}

/// The key of a member, if that is valid.
fn key_of(member: &str) -> Option<&str> {
    let (key, value) = member.split_once('=')?;
    let is_first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_key = key.bytes().next().is_some_and(is_first)
        && key
            .bytes()
            .all(|byte| is_first(byte) || b"_-*/@".contains(&byte));
    // A space at the end was trimmed, and a comma is between members.
    let is_value = !value.is_empty()
        && value
            .bytes()
            .all(|it| matches!(it, b' '..=b'~') && it != b'=');
    let is_short = key.len().max(value.len()) <= MOST_MEMBER_BYTES;
    (is_key && is_value && is_short).then_some(key)
}

/// The trace that a client gives a task, and the span below which it is there. Nested tasks have the same. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext(Arc<Inner>);

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Inner {
    parent: Span,
    state: TraceState,
}

impl TraceContext {
    /// Below this span.
    pub fn new(parent: Span, state: TraceState) -> Self {
        Self(Arc::new(Inner { parent, state }))
    }

    /// The span below which the task is.
    pub fn parent(&self) -> &Span {
        &self.0.parent
    }

    /// The `tracestate`, unless it is empty.
    pub fn state(&self) -> Option<&str> {
        Some(self.0.state.as_str()).filter(|state| !state.is_empty())
    }
}

impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Inner::serialize(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for TraceContext {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let inner = Inner::deserialize(deserializer)?;
        Ok(Self(Arc::new(inner)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read() {
        let span: Span = PARENT.parse().unwrap();
        assert_eq!(span.to_string(), PARENT);
        assert!(span.is_sampled());
        assert_eq!(span.id().to_string(), "00f067aa0ba902b7");
        let unsampled = PARENT.replace("-01", "-00");
        assert!(!unsampled.parse::<Span>().unwrap().is_sampled());
        // Flags that nobody knows are not passed on.
        let flagged = PARENT.replace("-01", "-ff");
        let flagged = flagged.parse::<Span>().unwrap().to_string();
        assert_eq!(flagged, PARENT.replace("-01", "-03"));
        // What a higher version adds is not read.
        for later in ["", "-", "-what-ever"] {
            let later = format!("01{}{later}", &PARENT[2..]);
            assert_eq!(later.parse(), Ok(span), "{later}");
        }
    }

    #[test]
    fn what_is_no_traceparent_is_refused() {
        let (trace, id) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let zero = "0".repeat(32);
        let wrong = [
            String::new(),
            "00".to_owned(),
            format!(" {PARENT}"),
            format!("{PARENT}-"),
            format!("{PARENT}-00"),
            format!("{PARENT}0"),
            format!("01{}0", &PARENT[2..]),
            format!("ff{}", &PARENT[2..]),
            format!("0{}", &PARENT[2..]),
            format!("0g{}", &PARENT[2..]),
            format!("00-{zero}-{id}-01"),
            format!("00-{trace}-{}-01", &zero[..16]),
            format!("00-{}-{id}-01", trace.to_uppercase()),
            format!("00-{}-{id}-01", &trace[1..]),
            format!("00-{trace}-{id}0-01"),
            format!("00-{trace}-{id}-0"),
            format!("00-{trace}-{id}"),
            format!("00_{trace}_{id}_01"),
            "é".repeat(27),
        ];
        for text in wrong {
            let error = text.parse::<Span>().expect_err(&text);
            assert!(error.to_string().contains("00-TRACE-SPAN-FLAGS"), "{error}");
        }
    }

    #[test]
    fn a_tracestate_is_read() {
        for (text, state) in [
            ("", ""),
            ("a=1", "a=1"),
            (" a=1 ,\t, b= 2,,", "a=1,b= 2"),
            ("0a_-*/@x=!~ <>", "0a_-*/@x=!~ <>"),
        ] {
            let read: TraceState = text.parse().unwrap();
            assert_eq!(read.as_str(), state);
        }
        let member = |at: usize| format!("k{at}={}", "v".repeat(90));
        let long: Vec<String> = (0..9).map(member).collect();
        let read: TraceState = long.join(",").parse().unwrap();
        assert_eq!(read.as_str(), long[..5].join(","));
    }

    #[test]
    fn what_is_no_tracestate_is_refused() {
        let members = |count: usize| {
            let members: Vec<String> = (0..count).map(|at| format!("k{at}=v")).collect();
            members.join(",")
        };
        assert!(members(32).parse::<TraceState>().is_ok());
        let wrong = [
            members(33),
            "a".to_owned(),
            "=1".to_owned(),
            "a=".to_owned(),
            "A=1".to_owned(),
            "-a=1".to_owned(),
            "a=1=2".to_owned(),
            "a =1".to_owned(),
            "a=1,a=2".to_owned(),
            "a=\n".to_owned(),
            "a=é".to_owned(),
            format!("{}=1", "k".repeat(257)),
            format!("a={}", "v".repeat(257)),
        ];
        for text in wrong {
            let error = text.parse::<TraceState>().expect_err(&text);
            assert!(error.to_string().contains("KEY=VALUE"), "{error}");
        }
    }

    fn context() -> TraceContext {
        TraceContext::new(PARENT.parse().unwrap(), "a=1".parse().unwrap())
    }

    #[test]
    fn malformed_bytes_are_refused() {
        let bytes = postcard::to_allocvec(&context()).unwrap();
        assert_eq!(bytes.len(), 16 + 8 + 1 + 4);
        assert_eq!(postcard::from_bytes(&bytes), Ok(context()));
        let refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut changed = bytes.clone();
            change(&mut changed);
            postcard::from_bytes::<TraceContext>(&changed).is_err()
        };
        assert!(refused(&|bytes| bytes[..16].fill(0)));
        assert!(refused(&|bytes| bytes[16..24].fill(0)));
        assert!(refused(&|bytes| bytes[26] = b'A'));
        assert!(refused(&|bytes| bytes[26] = b' '));
        assert!(refused(&|bytes| bytes.truncate(27)));
    }

    #[test]
    fn an_attempt_is_a_span_of_the_trace_that_was_given_or_of_its_job() {
        let job = DriverId::from_bytes([2; 16]);
        let task = job.task(0);
        let given = Span::of(Some(&context()), job, &task, 1);
        let own = Span::of(None, job, &task, 1);
        assert_eq!(given.trace(), context().parent().trace());
        assert_eq!(own.trace().as_bytes(), job.as_bytes());
        assert_eq!(given.id(), own.id());
        assert_ne!(own.id(), Span::of(None, job, &task, 2).id());
        assert!(own.is_sampled());
        // It costs a task without a trace a pointer.
        assert_eq!(size_of::<Option<TraceContext>>(), size_of::<usize>());
    }

    proptest! {
        #[test]
        fn texts_are_read_and_written_the_same(text in "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-0[0-3](-.*)?") {
            if let Ok(span) = text.parse::<Span>() {
                let written = span.to_string();
                prop_assert_eq!(&written[2..], &text[2..55]);
                prop_assert_eq!(written.parse::<Span>(), Ok(span));
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = text.parse::<Span>();
            if let Ok(state) = text.parse::<TraceState>() {
                prop_assert_eq!(state.as_str().parse::<TraceState>(), Ok(state.clone()));
            }
        }
    }
}
