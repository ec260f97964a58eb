//! The elements of an array, one for each task: an index, and with it a line, a JSON value or a file.
//!
//! Owns reading them, and what errors call each. Must not: know what a function takes.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::{Component, Path};

use anyhow::Context;
use glob::PatternError;
use serde_json::Value as Json;
use serde_json::value::RawValue;

use crate::args::{ArrayOptions, Indices, MAX_ARRAY, check_json, is_json};
use crate::fail::Failure;
use crate::local;
use crate::submit::plan::FILE_BYTES;

/// The elements of an array: for each there is a task. There is one at least.
pub struct Elements {
    source: Source,
    count: u64,
}

enum Source {
    Indices(Indices),
    Lines(Text),
    /// `array`: where the values are, if the text is one array of all; else each has a line of its own.
    Json {
        text: Text,
        array: Option<Vec<Range<usize>>>,
    },
    /// Paths, in order.
    Files(Vec<String>),
}

/// The text of a file, and the file's name in errors.
struct Text {
    text: String,
    file: String,
}

/// What one task of an array is for.
#[derive(Debug, Clone, Copy)]
pub struct Element<'a> {
    pub index: u64,
    /// Its line, value or file; none where the array is of indices alone.
    pub item: Option<Item<'a>>,
}

/// A line, a JSON value or a file.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    pub kind: Kind,
    /// The line, the JSON as it was written, or the path.
    pub text: &'a str,
    /// The file that it is in, and its number there.
    file: &'a str,
    number: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Line,
    /// One of the values of an array, or one with a line of its own.
    Json {
        has_line: bool,
    },
    File,
}

impl Kind {
    /// What stands for it in calls and arguments, the usual name first.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::Line => &["line"],
            Self::Json { .. } => &["json"],
            Self::File => &["file", "path", "name", "stem"],
        }
    }

    /// The same, as people read them: `$line`, or `$file, $path, $name or $stem`.
    pub fn placeholders(self) -> String {
        let names = self.names().iter().map(|name| format!("${name}"));
        let names = names.collect::<Vec<_>>().join(", ");
        match names.rsplit_once(", ") {
            Some((names, last)) => format!("{names} or {last}"),
            None => names,
        }
    }

    /// The same; none for indices alone.
    pub fn names_of(kind: Option<Self>) -> &'static [&'static str] {
        match kind {
            Some(kind) => kind.names(),
            None => &[],
        }
    }

    /// The usual one.
    pub fn name(self) -> &'static str {
        self.names()[0]
    }
}

impl Elements {
    /// Reads what the options name; `None` where there is one task, of no array.
    ///
    /// # Errors
    /// There is nothing, or too much, or it is not what it should be.
    pub fn read(options: &ArrayOptions) -> Result<Option<Self>, Failure> {
        let ArrayOptions {
            array,
            from_lines,
            from_json,
            each,
        } = options;
        let source = match (array, from_lines, from_json) {
            (Some(indices), _, _) => Source::Indices(indices.clone()),
            (_, Some(path), _) => Source::Lines(Text::read(path, "--from-lines")?),
            (_, _, Some(path)) => json(Text::read(path, "--from-json")?)?,
            _ if each.is_empty() => return Ok(None),
            _ => Source::Files(files(each)?),
        };
        let count = match &source {
            Source::Indices(indices) => indices.len(),
            source => source.items().count() as u64,
        };
        let nothing = |text: &Text, what| {
            let file = &text.file;
            Failure::usage(format!(
                "there is no {what} in {file}, and so no task: give a file with a {what} for each task"
            ))
        };
        match (count, &source) {
            (0, Source::Lines(text)) => Err(nothing(text, "line")),
            (0, Source::Json { text, .. }) => Err(nothing(text, "value")),
            _ if count > MAX_ARRAY => Err(Failure::usage(format!(
                "an array of {count} tasks is larger than {MAX_ARRAY}: submit it in parts"
            ))),
            _ => Ok(Some(Self { source, count })),
        }
    }

    pub fn len(&self) -> u64 {
        self.count
    }

    /// The kind of their items, if they have any.
    pub fn kind(&self) -> Option<Kind> {
        match &self.source {
            Source::Indices(_) => None,
            Source::Lines(_) => Some(Kind::Line),
            Source::Json { array, .. } => Some(Kind::Json {
                has_line: array.is_none(),
            }),
            Source::Files(_) => Some(Kind::File),
        }
    }

    pub fn iter(&self) -> Box<dyn Iterator<Item = Element<'_>> + '_> {
        match &self.source {
            Source::Indices(indices) => {
                Box::new(indices.iter().map(|index| Element { index, item: None }))
            }
            source => Box::new((0..).zip(source.items()).map(|(index, item)| Element {
                index,
                item: Some(item),
            })),
        }
    }
}

impl Source {
    /// The item of each task. Nothing is copied.
    fn items(&self) -> Box<dyn Iterator<Item = Item<'_>> + '_> {
        match self {
            Self::Indices(_) => Box::new(std::iter::empty()),
            Self::Lines(text) => {
                Box::new(lines(&text.text).map(move |line| text.item(Kind::Line, line)))
            }
            Self::Json { text, array: None } => {
                let lines = lines(&text.text).filter(|(_, line)| !line.trim().is_empty());
                Box::new(lines.map(move |line| text.item(Kind::Json { has_line: true }, line)))
            }
            Self::Json {
                text,
                array: Some(values),
            } => {
                let values = values.iter().map(move |range| &text.text[range.clone()]);
                let values = values.enumerate();
                Box::new(values.map(move |value| text.item(Kind::Json { has_line: false }, value)))
            }
            Self::Files(paths) => Box::new(paths.iter().map(|path| Item {
                kind: Kind::File,
                text: path,
                file: path,
                number: 0,
            })),
        }
    }
}

impl Text {
    fn read(path: &Path, option: &str) -> Result<Self, Failure> {
        let file = local::shown(path);
        let bytes = local::read_input(path, FILE_BYTES, "several files, one after the other");
        let bytes = bytes.with_context(|| format!("cannot read {file} for {option}"))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
            Failure::usage(format!(
                "line {line} of {file} is not UTF-8; {option} reads text"
            ))
        })?;
        Ok(Self { text, file })
    }

    fn item<'a>(&'a self, kind: Kind, (number, text): (usize, &'a str)) -> Item<'a> {
        Item {
            kind,
            text,
            file: &self.file,
            number,
        }
    }
}

/// The lines of a text, counted from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

/// Where the values of a JSON array are.
fn values(text: &str) -> serde_json::Result<Vec<Range<usize>>> {
    let values: Vec<&RawValue> = serde_json::from_str(text)?;
    let place = |value: &&RawValue| {
        let first = value.get().as_ptr().addr() - text.as_ptr().addr();
        first..first + value.get().len()
    };
    Ok(values.iter().map(place).collect())
}

/// Finds out how the text has its values, and that they are JSON.
fn json(text: Text) -> Result<Source, Failure> {
    let whole = values(&text.text);
    if let Err(error) = &whole
        && text.text.trim_start().starts_with('[')
    {
        // Lines of arrays begin like one array does that is not right, but for the end of the first.
        let first = lines(&text.text).find(|(_, line)| !line.trim().is_empty());
        let is_value =
            first.is_some_and(|(_, line)| serde_json::from_str::<&RawValue>(line).is_ok());
        if !is_value {
            return Err(Failure::usage(format!(
                "{} is not JSON: {error}",
                text.file
            )));
        }
    }
    let array = whole.ok();
    let source = Source::Json { text, array };
    for item in source.items() {
        if let Err(error) = check_json(item.text.as_bytes()) {
            let (line, column, why) = (error.line(), error.column(), error.to_string());
            let place = format!(" at line {line} column {column}");
            let why = why.strip_suffix(&place).unwrap_or(&why);
            let is = if is_json(&error) { "" } else { " is not JSON" };
            return Err(Failure::usage(format!(
                "{item}{is}: {why}, at column {column}"
            )));
        }
    }
    Ok(source)
}

/// The files that match, in order of their paths. As shells have it, what is hidden must be named.
fn files(patterns: &[String]) -> Result<Vec<String>, Failure> {
    let mut paths = BTreeSet::new();
    for pattern in patterns {
        let cannot = || format!("cannot look for --each '{pattern}'");
        let (mut is_met, mut is_folder) = (false, false);
        for path in glob::glob(pattern).map_err(|error| no_pattern(pattern, &error))? {
            let path = path.with_context(cannot)?;
            is_folder |= path.is_dir();
            if !path.is_file() || hidden(&path) > hidden(Path::new(pattern)) {
                continue;
            }
            let path = path.into_os_string().into_string().map_err(|path| {
                let path = path.to_string_lossy();
                Failure::usage(format!(
                    "the path {path} is not UTF-8, as arguments must be: rename the file, or use a pattern that leaves it out"
                ))
            });
            paths.insert(path?);
            is_met = true;
        }
        if !is_met && is_folder {
            let folder = pattern.trim_end_matches("/**").trim_end_matches('/');
            return Err(Failure::usage(format!(
                "only folders match --each '{pattern}': the files in them match '{folder}/*', and those at any depth \
                 '{folder}/**/*'"
            )));
        }
        if !is_met {
            let here = std::env::current_dir().unwrap_or_default();
            return Err(Failure::usage(format!(
                "no file matches --each '{pattern}': check the pattern; a relative one begins at {}",
                here.display()
            )));
        }
    }
    Ok(paths.into_iter().collect())
}

fn no_pattern(pattern: &str, error: &PatternError) -> Failure {
    let why = match error.msg.contains("range") {
        true => "a [ needs characters and a ] behind it; [[] is a [ itself",
        false => "** must stand alone between slashes, and there is no ***",
    };
    Failure::usage(format!("cannot look for --each '{pattern}': {why}"))
}

/// How many names of a path begin with a dot.
fn hidden(path: &Path) -> usize {
    let is_hidden = |part: &Component<'_>| match part {
        Component::Normal(name) => name.as_encoded_bytes().starts_with(b"."),
        _ => false,
    };
    path.components().filter(is_hidden).count()
}

impl Element<'_> {
    /// What a placeholder stands for in a program's arguments.
    pub fn text_of(&self, name: &str) -> Option<String> {
        match name {
            "i" => Some(self.index.to_string()),
            name => self.item?.text_of(name),
        }
    }
}

impl Item<'_> {
    /// What a placeholder stands for as text.
    pub fn text_of(&self, name: &str) -> Option<String> {
        let path = Path::new(self.text);
        match (self.kind, name) {
            (Kind::Line, "line") | (Kind::File, "file" | "path") => Some(self.text.to_owned()),
            (Kind::Json { .. }, "json") => Some(compact(self.text)),
            (Kind::File, "name") => Some(path.file_name()?.to_string_lossy().into_owned()),
            (Kind::File, "stem") => Some(path.file_stem()?.to_string_lossy().into_owned()),
            _ => None,
        }
    }

    /// The line or path as a string, or the value.
    pub fn json(&self) -> Json {
        match self.kind {
            Kind::Json { .. } => serde_json::from_str(self.text).expect("it was read before"),
            Kind::Line | Kind::File => self.text.into(),
        }
    }
}

impl fmt::Display for Item<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, number, .. } = self;
        match self.kind {
            Kind::Line | Kind::Json { has_line: true } => write!(f, "line {number} of {file}"),
            Kind::Json { has_line: false } => write!(f, "value [{number}] of {file}"),
            Kind::File => f.write_str(file),
        }
    }
}

/// JSON without the space between its parts. Digits and the order of fields stay as they were written.
fn compact(json: &str) -> String {
    let (mut in_string, mut is_escaped) = (false, false);
    let is_part = |c: &char| {
        let is_part = in_string || !c.is_ascii_whitespace();
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = in_string,
            '"' => in_string = !in_string,
            _ => {}
        }
        is_part
    };
    json.chars().filter(is_part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Text {
        Text {
            text: text.into(),
            file: "f".into(),
        }
    }

    /// The items of a source: what errors call each, and its text.
    fn all(source: &Source) -> Vec<(String, &str)> {
        let items = source.items();
        items.map(|item| (item.to_string(), item.text)).collect()
    }

    #[test]
    fn each_line_is_one() {
        let of = |lines: &str| {
            let source = Source::Lines(text(lines));
            let items = source.items().map(|item| item.text.to_owned());
            items.collect::<Vec<_>>()
        };
        assert_eq!(of("a\nb"), ["a", "b"]);
        assert_eq!(of("a\r\n\n b \n"), ["a", "", " b "]);
        assert_eq!(of("\n"), [""]);
        assert_eq!(of(""), [""; 0]);
        let source = Source::Lines(text("x\ny\n"));
        assert_eq!(all(&source)[1], ("line 2 of f".to_owned(), "y"));
    }

    #[test]
    fn values_are_those_of_an_array_or_of_lines() {
        let of = |values: &str| match json(text(values)) {
            Ok(source) => {
                let all = all(&source).into_iter();
                Ok(all
                    .map(|(name, text)| format!("{name}: {text}"))
                    .collect::<Vec<_>>())
            }
            Err(failure) => Err(failure.to_string()),
        };
        let some = |values: &[&str]| Ok(values.iter().map(ToString::to_string).collect());
        let array = ["value [0] of f: 1", "value [1] of f: [\"a\", 2]"];
        assert_eq!(of("[1, [\"a\", 2] ]"), some(&array));
        assert_eq!(of(" \n[\n1\n, [\"a\", 2]\n]"), some(&array));
        let lines = ["line 1 of f: {\"a\": 1}", "line 3 of f: null"];
        assert_eq!(of("{\"a\": 1}\r\n\nnull\n"), some(&lines));
        let arrays = ["line 1 of f: [1]", "line 2 of f: [2, 3]"];
        assert_eq!(of("[1]\n[2, 3]"), some(&arrays));
        assert_eq!(of(""), some(&[]));
        assert_eq!(of("[]"), some(&[]));
        for (values, says) in [
            (
                "[1,\n2,\n]",
                "f is not JSON: trailing comma at line 3 column 1",
            ),
            (
                "[1] 2",
                "f is not JSON: trailing characters at line 1 column 5",
            ),
            (
                "1\n{\"a\" 1}",
                "line 2 of f is not JSON: expected `:`, at column 6",
            ),
            (
                "1 2",
                "line 1 of f is not JSON: trailing characters, at column 3",
            ),
            (
                "1\n{\"a\": 1, \"a\": 2}",
                "line 2 of f: the key \"a\" is twice in one object: keep one, at column 12",
            ),
        ] {
            assert_eq!(of(values), Err(says.to_owned()), "{values}");
        }
    }

    #[test]
    fn json_loses_its_space_and_nothing_else() {
        let json = "{ \"b a\" : [1.0, 12345678901234567890123 ,\n\t\"\\\" \\\\\" ], \"a\": \" \" }";
        let compacted = "{\"b a\":[1.0,12345678901234567890123,\"\\\" \\\\\"],\"a\":\" \"}";
        assert_eq!(compact(json), compacted);
    }

    #[test]
    fn files_are_in_order_and_each_is_there_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::create_dir(path("d.txt")).unwrap();
        for name in ["b.txt", "a.txt", "c.csv", ".d.txt", "d.txt/e.txt"] {
            std::fs::write(path(name), "").unwrap();
        }
        let found = files(&[path("*.txt"), path("**/*.txt"), path("c.csv")]);
        let expected = ["a.txt", "b.txt", "c.csv", "d.txt/e.txt"].map(path);
        assert_eq!(found.unwrap(), expected);
        let failure = files(&[path("*.txt"), path("*.bin")]).unwrap_err();
        assert!(failure.to_string().starts_with("no file matches --each '"));
        for (pattern, says) in [
            (path("d.txt"), "only folders match --each '"),
            (path("d.txt/"), "d.txt/*', and"),
            (path("**"), "only folders match --each '"),
            (path("["), "a [ needs characters and a ] behind it"),
            (path("[]"), "a [ needs characters and a ] behind it"),
            (path("***"), "there is no ***"),
            (path("a**"), "** must stand alone between slashes"),
        ] {
            let said = files(&[pattern]).unwrap_err().to_string();
            assert!(said.contains(says), "{said}");
        }
        let item = Item {
            kind: Kind::File,
            text: "a/b.c.txt",
            file: "a/b.c.txt",
            number: 0,
        };
        let texts = item.kind.names().iter().map(|name| item.text_of(name));
        let texts: Vec<_> = texts.map(Option::unwrap).collect();
        assert_eq!(texts, ["a/b.c.txt", "a/b.c.txt", "b.c.txt", "b.c"]);
    }
}
