//! Why a scenario cannot be used.
//!
//! Owns the errors and their words. Must not: decide what is an error.
//!
//! Invariant: every error in a file that is JSON names its place in it, as a path
//! (`tasks[3].resources.CPU`) and as a line and column.

use std::fmt;

use super::limits::{FILE_BYTES_MAX, NAME_BYTES_MAX};
use crate::resource::{
    Amount, CapacityError, ParseAmountError, ParsePoolError, ParseResourceNameError, RequestError,
    ResourceName,
};

/// Why a scenario cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The file is larger than any sensible one.
    #[error(
        "the scenario has {bytes} bytes, more than the {FILE_BYTES_MAX} that are read; \
         use `count` instead of many equal entries"
    )]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It is not JSON at all.
    #[error("it is not JSON: {what}, at line {line}, column {column}; correct it there")]
    NotJson {
        /// What the parser met.
        what: String,
        /// The line, from 1.
        line: usize,
        /// The column in bytes, from 1; 0 is the end of the line before.
        column: usize,
    },
    /// Something in it is impossible.
    #[error("{place}: {fault}")]
    Invalid {
        /// Where, such as `tasks[3].resources.CPU`.
        place: String,
        /// The line that the value starts in, from 1.
        line: usize,
        /// The column in bytes that the value starts at, from 1.
        column: usize,
        /// What is impossible there.
        fault: Box<Fault>,
    },
}

impl ScenarioError {
    /// The line and column to show to people, both from 1; `None` if it is about the whole file.
    pub fn line_and_column(&self) -> Option<(usize, usize)> {
        match self {
            Self::TooLarge { .. } => None,
            Self::NotJson { line, column, .. } | Self::Invalid { line, column, .. } => {
                Some((*line, *column))
            }
        }
    }
}

/// What is impossible about one value of a scenario.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A field that there is not.
    #[error("there is no field `{field}` here{}; known are {}", like(nearest.as_deref()), known.join(", "))]
    UnknownField {
        /// The field, shortened.
        field: String,
        /// The known field that looks like it.
        nearest: Option<String>,
        /// The fields that there are.
        known: &'static [&'static str],
    },
    /// A field that must be there.
    #[error("the field `{field}` is missing; add it, for example {example}")]
    MissingField {
        /// The field.
        field: &'static str,
        /// How it could look.
        example: &'static str,
    },
    /// A key that stands twice in one object.
    #[error("`{key}` is given twice in one object; keep one")]
    KeyTwice {
        /// The key, shortened.
        key: String,
    },
    /// A value of another type.
    #[error("this is {found}, and {expected} belongs here; write {example}")]
    Type {
        /// What it is.
        found: Found,
        /// What it should be.
        expected: &'static str,
        /// How it could look.
        example: &'static str,
    },
    /// A string whose escapes stand for no text.
    #[error("this string stands for no text: {what}; write the characters themselves")]
    Text {
        /// What is wrong with it.
        what: String,
    },
    /// A number that is not whole, negative or too large.
    #[error("{number} is not possible: this is a whole number from {min} to {max}{unit}")]
    Number {
        /// The number, shortened.
        number: String,
        /// The smallest one.
        min: i64,
        /// The largest one.
        max: i64,
        /// What it counts, after a space; or nothing.
        unit: &'static str,
    },
    /// More of something than is planned with.
    #[error("{found} {what} are more than the limit of {limit}; use fewer")]
    TooMany {
        /// How many there are, or at least are.
        found: u64,
        /// What they are.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// All tasks together would end after the end of time.
    #[error(
        "all tasks together run for up to {total_ms} ms, more than the {limit_ms} ms that can be \
         counted; use fewer or shorter tasks"
    )]
    TooLong {
        /// The sum of the durations, and when the last thing happens.
        total_ms: u128,
        /// The limit.
        limit_ms: u64,
    },
    /// No name of a node or task.
    #[error(
        "'{name}' is not a name for a {what}: use 1 to {NAME_BYTES_MAX} letters, digits, '-', '_' \
         and '.', beginning with a letter or digit"
    )]
    Name {
        /// The text, shortened.
        name: String,
        /// What it should name.
        what: &'static str,
    },
    /// A name that something else has.
    #[error("the name {name} is taken by {by}; choose another one")]
    NameTaken {
        /// The name.
        name: String,
        /// Who has it.
        by: String,
    },
    /// A name that nothing has.
    #[error("there is no {what} {name}{}; {advice}", like(nearest.as_deref()))]
    UnknownName {
        /// What there is none of.
        what: &'static str,
        /// The name, shortened.
        name: String,
        /// The known name that looks like it.
        nearest: Option<String>,
        /// What to do.
        advice: &'static str,
    },
    /// The name of several things where one belongs.
    #[error("{name} stands for {count} {what}, {name}-0 to {name}-{}; {advice}", count - 1)]
    NameOfMany {
        /// The name.
        name: String,
        /// How many.
        count: u32,
        /// What they are.
        what: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// The name of one instance of a task where the task belongs.
    #[error("{name} is one instance of {task}; write {task}, which means all of them")]
    InstanceOfTask {
        /// The instance.
        name: String,
        /// The task.
        task: String,
    },
    /// A node that is not there at that time.
    #[error("the node {name} is not there at {at_ms} ms; name one that is, or change the time")]
    NodeNotThere {
        /// The node.
        name: String,
        /// When.
        at_ms: u64,
    },
    /// Tasks that wait for each other in a circle.
    #[error(
        "these tasks wait for each other, so none can start: {}; take one `after` out",
        cycle.join(" after ")
    )]
    Cycle {
        /// The tasks, each after the next; the last is the first again. Shortened if it is long.
        cycle: Vec<String>,
    },
    /// A name in a list twice.
    #[error("{name} stands in this list twice; keep one")]
    ListedTwice {
        /// The name.
        name: String,
    },
    /// A task that fits in none of its own bundles.
    #[error(
        "none of the {bundles} bundles can hold this task, so it could never run; \
         make one at least as large as `resources`"
    )]
    NoBundleFits {
        /// How many bundles there are.
        bundles: usize,
    },
    /// Not exactly one of several fields.
    #[error("{found} of {} are given; give exactly one", known.join(", "))]
    NotOneOf {
        /// How many were given.
        found: usize,
        /// Which ones there are.
        known: &'static [&'static str],
    },
    /// Nothing where something must be.
    #[error("{what} of nothing is none; put something in, or leave it out")]
    Empty {
        /// What is empty.
        what: &'static str,
    },
    /// A capacity that units with ids cannot have, of a resource that could do without.
    #[error(
        "a capacity of {capacity} is not possible: units of {name} have ids, so it is a whole \
         number of at most 1048576; write \"sum:{capacity}\" if they need no ids"
    )]
    NeedsSum {
        /// The resource.
        name: ResourceName,
        /// The capacity.
        capacity: Amount,
    },
    /// A word that means nothing here.
    #[error("'{word}' means nothing here{}; {advice}", like(nearest.as_deref()))]
    Word {
        /// The word, shortened.
        word: String,
        /// The known word that looks like it.
        nearest: Option<&'static str>,
        /// What to write.
        advice: &'static str,
    },
    /// No name of a resource.
    #[error(transparent)]
    ResourceName(#[from] ParseResourceNameError),
    /// No amount.
    #[error(transparent)]
    Amount(#[from] ParseAmountError),
    /// An amount that cannot be asked for.
    #[error("{}", bare(.0))]
    Request(#[from] RequestError),
    /// No declaration of a resource.
    #[error("{}", bare(.0))]
    Pool(#[from] ParsePoolError),
    /// No capacity for that resource.
    #[error("{}", bare(.0))]
    Capacity(#[from] CapacityError),
    /// What another part of the model refused: a tenant, a weight, a policy, a label, a selector.
    #[error("{0}")]
    Refused(String),
}

impl Fault {
    /// What another part of the model says about a text.
    pub(super) fn refused(error: impl fmt::Display) -> Self {
        Self::Refused(error.to_string())
    }
}

/// What a JSON value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean,
    /// A number.
    Number,
    /// A string.
    String,
    /// A list.
    List,
    /// An object.
    Object,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "null",
            Self::Boolean => "true or false",
            Self::Number => "a number",
            Self::String => "a string",
            Self::List => "a list",
            Self::Object => "an object",
        })
    }
}

fn like(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(" (did you mean {name}?)"))
}

/// An error about a resource without the name before it, which the place ends with already.
fn bare(error: &impl fmt::Display) -> String {
    let text = error.to_string();
    match text.split_once(": ") {
        Some((name, rest)) if name.parse::<ResourceName>().is_ok() => rest.into(),
        _ => text,
    }
}

/// At most 80 characters of a text, for an error.
pub(super) fn clip(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

/// The known name that differs from `name` in at most two letters (one, for a short name), if
/// there is one; the first of the nearest. Upper and lower case are the same here.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = if name.len() < 4 { 1 } else { 2 };
    let similar = known.take(NEAREST_MAX).filter(|other| {
        name.len().abs_diff(other.len()) <= allowed && other.len() <= NAME_BYTES_MAX
    });
    let distances = similar.map(|other| (distance(name, other), other));
    let nearest = distances.min_by_key(|(distance, _)| *distance)?;
    (nearest.0 <= allowed).then_some(nearest.1)
}

/// How many names are compared to find one that looks like a wrong one.
const NEAREST_MAX: usize = 10_000;

/// The Levenshtein distance of two names, by bytes and without case.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(!x.eq_ignore_ascii_case(&y));
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name() {
        let of = |name| nearest(name, ["duration_ms", "count", "tenant", "name"].into_iter());
        assert_eq!(of("duration_s"), Some("duration_ms"));
        assert_eq!(of("Counts"), Some("count"));
        assert_eq!(of("tennant"), Some("tenant"));
        assert_eq!(of("cpus"), None);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }

    #[test]
    fn long_texts_are_shortened() {
        assert_eq!(clip("short"), "short");
        assert_eq!(clip(&"é".repeat(100)).chars().count(), 81);
    }
}
