//! The arguments of a function's calls: from the call as it was typed, from JSON, from files, and from the elements of an
//! array.
//!
//! Owns how each becomes a value of its parameter's type. An element is read as one value of that type: it can add no
//! arguments.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde_json::Value as Json;
use wasmrun_engine::Function;
use wasmrun_model::value::codec::encode;
use wasmrun_model::value::json::{arguments_from_json, from_json};
use wasmrun_model::value::wave::Invocation;
use wasmrun_model::value::{Encoded, FunctionType, NumberKind, NumberList, Value, ValueType};

use crate::args::{ArgFile, JsonArg, Submit, check_json, is_json};
use crate::fail::Failure;
use crate::local;
use crate::names::{self, Names, shorten};
use crate::submit::elements::{Element, Item, Kind};
use crate::submit::plan::FILE_BYTES;
use crate::submit::template;

/// What stands for placeholders while the call around them is read: a word of WAVE, with the placeholder's name behind it.
const WORD: &str = "wasmrun-input-";

/// Where the arguments of all calls come from.
pub struct Arguments {
    /// Those from files that are the same for all, at their positions.
    files: BTreeMap<usize, Encoded>,
    /// The function without these.
    written: FunctionType,
    source: Source,
}

enum Source {
    /// A call in WAVE, with placeholders where it is one of an array.
    Call(String),
    /// JSON that is the same for all calls.
    Json(Json),
    /// The JSON of each element.
    Elements,
}

impl Arguments {
    /// `invoke`: the call; `kind`: of the elements, if the tasks are an array with items.
    pub fn new(
        submit: &Submit,
        invoke: &str,
        kind: Option<Kind>,
        function: &Function,
    ) -> Result<Self, Failure> {
        let mut files = BTreeMap::new();
        for file in &submit.arg_file {
            let (at, value) = file_argument(file, function)?;
            if files.insert(at, value).is_some() {
                return Err(Failure::usage(format!(
                    "--arg-file: argument {} is given twice: give it once",
                    file.position
                )));
            }
        }
        let params = function.ty.params().iter().enumerate();
        let written = params.filter(|(at, _)| !files.contains_key(at));
        let written = written.map(|(_, param)| param.clone());
        let written = FunctionType::new(written, function.ty.result().cloned())?;
        let is_bare = !invoke.contains('(');
        let source = match (&submit.json_args, kind) {
            (Some(_), _) if !is_bare => {
                return Err(Failure::usage(
                    "--json-args has the arguments: name the function alone, --invoke f",
                ));
            }
            (Some(json), _) => Source::Json(read_json(json)?),
            (None, None) => Source::Call(invoke.to_owned()),
            (None, Some(kind)) if !is_bare => {
                check_placeholders(invoke, kind)?;
                Source::Call(invoke.to_owned())
            }
            (None, Some(kind)) => match (kind, written.params().len()) {
                (_, 1) => Source::Call(format!("{invoke}(${})", kind.name())),
                (Kind::Json { .. }, 2..) => Source::Elements,
                (_, most) => {
                    let shown = names::shown(&function.name, &function.ty);
                    let name = kind.name();
                    let to_do = match most {
                        0 => "none of its arguments is left for it".to_owned(),
                        _ => format!("say which argument it is: --invoke '{invoke}(${name}, …)'"),
                    };
                    return Err(Failure::usage(format!(
                        "cannot call {shown} with ${name} alone: {to_do}"
                    )));
                }
            },
        };
        Ok(Self {
            files,
            written,
            source,
        })
    }

    /// The arguments of one call.
    pub fn values(
        &self,
        function: &Function,
        element: Option<Element<'_>>,
        names: &Names,
    ) -> Result<Vec<Encoded>, Failure> {
        let item = element.and_then(|element| element.item);
        let shown = || format!("cannot call {}", names::shown(&function.name, &function.ty));
        let values = match (&self.source, item) {
            (Source::Call(call), _) => self.of_call(call, function, element, names),
            (Source::Json(json), _) => {
                json_arguments(&self.written, json).map_err(|failure| failure.context(shown()))
            }
            (Source::Elements, Some(item)) => json_arguments(&self.written, &item.json()),
            (Source::Elements, None) => unreachable!("what has no items is no such source"),
        };
        let values = values.map_err(|failure| match item {
            Some(item) => failure.context(format!("{} with {item}", shown())),
            None => failure,
        });
        let mut values = values?.into_iter().zip(self.written.params());
        let at = |at: usize| match self.files.get(&at) {
            Some(encoded) => Ok(encoded.clone()),
            None => {
                let (value, (_, ty)) = values.next().expect("as many as were asked for");
                names.encode(ty, &value)
            }
        };
        (0..function.ty.params().len()).map(at).collect()
    }

    /// The arguments that a call in WAVE has.
    fn of_call(
        &self,
        call: &str,
        function: &Function,
        element: Option<Element<'_>>,
        names: &Names,
    ) -> Result<Vec<Value>, Failure> {
        let item = element.and_then(|element| element.item);
        let invocation = match element {
            Some(element) => {
                let kind = item.map(|item| item.kind);
                let (text, _) = placed(call, element.index, kind);
                read_call(&text, call, kind)?
            }
            None => read_call(call, call, None)?,
        };
        let word = |word: &str, ty: &ValueType| {
            let (item, name) = (item?, word.strip_prefix(WORD)?);
            let is_known = item.kind.names().contains(&name);
            is_known.then(|| item_value(&item, name, ty, names))
        };
        names.arguments_with(&invocation, &self.written, &function.ty, &word)
    }
}

/// The function that a call names, with whatever arguments.
pub fn function_of(
    invoke: &str,
    index: Option<u64>,
    kind: Option<Kind>,
) -> Result<String, Failure> {
    let text = match index {
        Some(index) => placed(invoke, index, kind).0,
        None => invoke.to_owned(),
    };
    Ok(read_call(&text, invoke, kind)?.name().to_owned())
}

/// Reads a call that was typed in this way.
fn read_call(text: &str, typed: &str, kind: Option<Kind>) -> Result<Invocation, Failure> {
    let read = Invocation::parse(text);
    let read = read.with_context(|| format!("cannot read the call '{}'", shorten(typed)));
    read.map_err(|error| slip(typed, kind).unwrap_or_else(|| error.into()))
}

/// That a placeholder in a call is mistyped, if one is.
fn slip(typed: &str, kind: Option<Kind>) -> Option<Failure> {
    let (wrong, meant) = template::mistyped(typed, Kind::names_of(kind))?;
    Some(Failure::usage(format!(
        "in the call '{}' ${wrong} stands for nothing: did you mean ${meant}?",
        shorten(typed)
    )))
}

/// The call with the index in its place and words in those of the other placeholders, and how many these are.
fn placed(call: &str, index: u64, kind: Option<Kind>) -> (String, usize) {
    let names = Kind::names_of(kind);
    let mut words = 0;
    let text = template::fill(call, |name| match name {
        "i" => Some(index.to_string()),
        _ if names.contains(&name) => {
            words += 1;
            Some(format!("{WORD}{name}"))
        }
        _ => None,
    });
    (text, words)
}

/// Checks that a call has a placeholder, and that each is a whole argument.
fn check_placeholders(invoke: &str, kind: Kind) -> Result<(), Failure> {
    let (name, all, typed) = (kind.name(), kind.placeholders(), shorten(invoke));
    let (text, words) = placed(invoke, 0, Some(kind));
    if words == 0 {
        return Err(slip(invoke, Some(kind)).unwrap_or_else(|| {
            Failure::usage(format!(
                "the call '{typed}' has no {all} in it: write it where an argument is, in single quotes, so that the shell \
                 leaves it alone; or leave the parentheses out"
            ))
        }));
    }
    let invocation = read_call(&text, invoke, Some(kind))?;
    let whole = invocation.words().filter(|word| word.starts_with(WORD));
    if whole.count() != words {
        return Err(Failure::usage(format!(
            "in the call '{typed}' {all} is a part of an argument, and must be a whole one: f(${name}, 1)"
        )));
    }
    Ok(())
}

/// What a placeholder stands for where an argument of this type is.
fn item_value(
    item: &Item<'_>,
    name: &str,
    ty: &ValueType,
    names: &Names,
) -> Result<Value, Failure> {
    match (item.kind, name) {
        (Kind::Json { .. }, _) => json_value(ty, &item.json()),
        (Kind::File, "file") => file_value(ty, Path::new(item.text), item.text, "$file"),
        _ => names.value(ty, &item.text_of(name).unwrap_or_default()),
    }
}

/// The argument of `--json-args`.
fn read_json(arg: &JsonArg) -> Result<Json, Failure> {
    match arg {
        JsonArg::Here(json) => Ok(json.clone()),
        JsonArg::File(path) => {
            let file = local::shown(path);
            let bytes = local::read_input(path, FILE_BYTES, "a smaller file, or --dir");
            let bytes = bytes.with_context(|| format!("cannot read {file} for --json-args"))?;
            let read = check_json(&bytes).and_then(|()| serde_json::from_slice(&bytes));
            read.map_err(|error| match is_json(&error) {
                true => Failure::usage(format!("{file}: {error}")),
                false => Failure::from(error).context(format!("{file} is not JSON")),
            })
        }
    }
}

fn json_arguments(ty: &FunctionType, json: &Json) -> Result<Vec<Value>, Failure> {
    let mut params = ty.params().iter();
    params.try_for_each(|(_, ty)| check_no_handles(ty))?;
    Ok(arguments_from_json(ty, json)?)
}

fn json_value(ty: &ValueType, json: &Json) -> Result<Value, Failure> {
    check_no_handles(ty)?;
    Ok(from_json(ty, json)?)
}

/// JSON has no form for handles.
fn check_no_handles(ty: &ValueType) -> Result<(), Failure> {
    match ty.has_handles() {
        true => Err(Failure::usage(
            "JSON cannot hold objects and actors, which this function takes: write their names or ids into --invoke, or \
             give them as lines, with --from-lines",
        )),
        false => Ok(()),
    }
}

/// An argument of `--arg-file`, and its position.
fn file_argument(file: &ArgFile, function: &Function) -> Result<(usize, Encoded), Failure> {
    let at = file.position - 1;
    let flag = format!("--arg-file {}={}", file.position, file.path.display());
    let Some((name, ty)) = function.ty.params().get(at) else {
        return Err(Failure::usage(format!(
            "{flag}: {} takes {} arguments: {}",
            function.name,
            function.ty.params().len(),
            function.ty
        )));
    };
    Ok((at, encode(ty, &file_value(ty, &file.path, &flag, name)?)?))
}

/// What a file contains, as a value of this type. `what` and `name` are what errors call the file and the argument.
fn file_value(ty: &ValueType, path: &Path, what: &str, name: &str) -> Result<Value, Failure> {
    // What is too large for an argument, the engine says better; but a device may have no end.
    let bytes = local::read_file(path, FILE_BYTES, "a smaller file, or --dir")
        .with_context(|| format!("{what}: cannot read the file"))?;
    match (ty.buffer_kind(), ty) {
        (Some(NumberKind::U8), _) => {
            let list = NumberList::from_le_bytes(NumberKind::U8, bytes);
            Ok(Value::Numbers(list.expect("bytes are whole elements")))
        }
        (Some(kind), _) => {
            let length = bytes.len();
            NumberList::from_le_bytes(kind, bytes)
                .map(Value::Numbers)
                .ok_or_else(|| {
                    Failure::usage(format!(
                        "{what}: the file has {length} bytes, not a whole number of {kind} \
                     (little-endian, {} bytes each)",
                        kind.width_bytes()
                    ))
                })
        }
        (None, ValueType::String) => String::from_utf8(bytes).map(Value::String).map_err(|_| {
            Failure::usage(format!(
                "{what}: the file is not UTF-8 text, and {name} is a string"
            ))
        }),
        (None, ty) => Err(Failure::usage(format!(
            "{what}: {name} is {ty}; only strings and lists of numbers can come from a file"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_take_the_place_of_placeholders() {
        let line = |call: &str| placed(call, 7, Some(Kind::Line));
        let (text, words) = line("f($i, ${line}, \"$i-$$line\", $file, $line)");
        let expected = "f(7, wasmrun-input-line, \"7-$line\", $file, wasmrun-input-line)";
        assert_eq!((&*text, words), (expected, 2));
        let (text, words) = placed("f($line, $i)", 7, None);
        assert_eq!((&*text, words), ("f($line, 7)", 0));
    }

    #[test]
    fn placeholders_are_whole_arguments() {
        let check = |call: &str| {
            let checked = check_placeholders(call, Kind::Line);
            checked.map_err(|failure| failure.to_string())
        };
        for call in [
            "f($line)",
            "f( ${line} , [\"$$line\", $i])",
            "f($line, $line)",
            "a:b/c#f(1, $line)",
        ] {
            assert_eq!(check(call), Ok(()), "{call}");
        }
        let (none, part) = ("has no $line in it", "$line is a part of an argument");
        let meant = "$lines stands for nothing: did you mean $line?";
        for (call, says) in [
            ("f()", none),
            ("f(\"$$line\")", none),
            ("f(\"$lines\")", meant),
            ("f($lines)", meant),
            ("f(${LINE}, $line)", "did you mean $line?"),
            ("f($other)", none),
            ("f([$line])", part),
            ("f({x: $line})", part),
            ("f(some($line))", part),
            ("f(\"a$line\")", part),
            ("f($line, [$line])", part),
            ("f($line(1))", part),
            ("$line(1)", part),
            ("f(1$line)", "cannot read the call 'f(1$line)'"),
        ] {
            let error = check(call).unwrap_err();
            assert!(error.contains(says), "{call}: {error}");
        }
    }

    #[test]
    fn a_text_is_one_value_and_no_more() {
        let names = Names::of(None);
        let value = |ty: &ValueType, text: &str| {
            let value = names.value(ty, text);
            value.map_err(|failure| failure.to_string())
        };
        let text = "a\", \"b";
        assert_eq!(
            value(&ValueType::String, text),
            Ok(Value::String(text.into()))
        );
        assert_eq!(value(&ValueType::U8, " 12"), Ok(Value::U8(12)));
        for text in ["1, 2", "1)", "", "1) //", "256", "\"1\""] {
            assert!(value(&ValueType::U8, text).is_err(), "{text}");
        }
        let option = ValueType::option(ValueType::U8).unwrap();
        assert_eq!(value(&option, "none"), Ok(Value::Option(None)));
        assert!(value(&option, "").is_err());
    }
}
