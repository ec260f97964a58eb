//! WAVE text to values and calls.

use std::collections::BTreeMap;

use wasm_wave::ast::{Node, NodeType};
use wasm_wave::parser::{ParserError, ParserErrorKind};
use wasm_wave::untyped::{UntypedFuncCall, UntypedValue};

use super::super::numbers::NumberList;
use super::super::path::At;
use super::super::text::{
    Fail, TextError, TextFault, arguments, excerpt, fail, find_name, left_out, mismatch,
    mismatch_hint, names, number,
};
use super::TEXT_MAX_BYTES;
use crate::value::{FunctionType, Handle, HandleKind, Value, ValueType};

/// WAVE text is not a value of the type, or not a call of the function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaveError {
    /// More text than is read.
    #[error(
        "the text is {length_bytes} bytes long, the limit is {TEXT_MAX_BYTES}; pass large data as \
         an object or a file"
    )]
    TooLong {
        /// The text's length.
        length_bytes: usize,
    },
    /// Not WAVE at all.
    #[error(
        "{what} at byte {offset}, at {near:?}; values look like 1, -0.5, \"text\", 'c', [1, 2], \
         {{x: 1, y: some(2)}}, (1, \"a\")"
    )]
    Syntax {
        /// What the parser said.
        what: String,
        /// Where, in bytes from 0.
        offset: usize,
        /// The text there.
        near: String,
    },
    /// What stands before the arguments is not a function's name.
    #[error(
        "{name:?} is not a function's name: {why}; write f(1, \"a\") or \
         ns:pkg/interface@1.0.0#f(1, \"a\")"
    )]
    Name {
        /// What was found.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Well-formed, but not what the types ask for.
    #[error(transparent)]
    Value(#[from] TextError),
}

/// A call as somebody typed it, read as far as that goes without the function's type.
#[derive(Clone, Debug)]
pub struct Invocation {
    name: String,
    /// `f` and the argument list: the function names that wasm-wave reads are not all of ours.
    source: String,
    /// The argument list as a tuple, if there are any arguments.
    args: Option<Node>,
}

/// Reads a value of type `ty`.
pub fn parse(ty: &ValueType, text: &str) -> Result<Value, WaveError> {
    parse_with(ty, text, &Handle::parse_ok)
}

/// As [`parse`], where people may write what they like for a handle: `find` says what that is, if it is something.
pub fn parse_with(
    ty: &ValueType,
    text: &str,
    find: &dyn Fn(HandleKind, &str) -> Option<Handle>,
) -> Result<Value, WaveError> {
    check_length(text)?;
    let untyped = UntypedValue::parse(text).map_err(|error| syntax(text, 0, &error))?;
    let walk = Walk { source: text, find };
    walk.value(ty, untyped.node())
        .map_err(|error| WaveError::Value(*error))
}

impl Invocation {
    /// Reads `f(1, "a")`, or just `f` for a call without arguments. The name may have an interface
    /// before it: `iface#f`, `ns:pkg/iface@1.0.0#f`.
    pub fn parse(text: &str) -> Result<Self, WaveError> {
        check_length(text)?;
        let (name, args) = match text.find('(') {
            Some(paren) => text.split_at(paren),
            None => (text, "()"),
        };
        let name = check_name(name.trim())?.to_owned();
        let source = format!("f{args}");
        let before = text.len().saturating_sub(args.len());
        let call = UntypedFuncCall::parse(&source).map_err(|error| syntax(args, before, &error))?;
        let args = call.params_node().cloned();
        Ok(Self { name, source, args })
    }

    /// The whole name, as it was written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What stands before `#`, if anything.
    pub fn interface(&self) -> Option<&str> {
        self.name.split_once('#').map(|(interface, _)| interface)
    }

    /// The function's own name.
    pub fn function(&self) -> &str {
        self.name
            .split_once('#')
            .map_or(&*self.name, |(_, function)| function)
    }

    /// The arguments as values of the function's parameter types, one for each parameter.
    pub fn arguments(&self, ty: &FunctionType) -> Result<Vec<Value>, WaveError> {
        self.arguments_with(ty, &Handle::parse_ok, &|_, _| None)
    }

    /// As [`Invocation::arguments`], where people may write what they like for a handle: `find` says what that is, if it
    /// is something. `word` says of an argument that is a bare word which value of its parameter's type it stands for; where
    /// it says nothing, the word is read as all else is.
    pub fn arguments_with(
        &self,
        ty: &FunctionType,
        find: &dyn Fn(HandleKind, &str) -> Option<Handle>,
        word: &dyn Fn(&str, &ValueType) -> Option<Value>,
    ) -> Result<Vec<Value>, WaveError> {
        let walk = Walk {
            source: &self.source,
            find,
        };
        arguments(ty, self.nodes().into_iter(), |ty, node| {
            let given = self.word(node).and_then(|name| word(name, ty));
            given.map_or_else(|| walk.value(ty, node), Ok)
        })
        .map_err(|error| WaveError::Value(*error))
    }

    /// The arguments that are bare words, in order: so are the cases of an enum written.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        let nodes = self.nodes().into_iter();
        nodes.filter_map(move |node| self.word(node))
    }

    fn word(&self, node: &Node) -> Option<&str> {
        node.as_enum(&self.source).ok()
    }

    fn nodes(&self) -> Vec<&Node> {
        let args = self
            .args
            .as_ref()
            .map(|args| args.as_tuple().expect("arguments are a tuple"));
        args.map_or(Vec::new(), Iterator::collect)
    }
}

fn check_length(text: &str) -> Result<(), WaveError> {
    match text.len() {
        length_bytes if length_bytes > TEXT_MAX_BYTES => Err(WaveError::TooLong { length_bytes }),
        _ => Ok(()),
    }
}

fn check_name(name: &str) -> Result<&str, WaveError> {
    let word = |part: &str, also: &str| {
        part.chars()
            .all(|c| c.is_ascii_alphanumeric() || also.contains(c))
            && !part.is_empty()
    };
    let (interface, function) = match name.split_once('#') {
        Some((interface, function)) => (Some(interface), function),
        None => (None, name),
    };
    // Methods and constructors are named `[method]counter.incr` in a component.
    let why = if name.is_empty() {
        "it is empty"
    } else if interface.is_some_and(|interface| !word(interface, "-_:/@.+%")) {
        "an interface is letters, digits and - : / @ . + before the '#'"
    } else if !word(function, "-_.%[]") {
        "a function is letters, digits and '-'"
    } else {
        return Ok(name);
    };
    Err(WaveError::Name {
        name: excerpt(&name),
        why,
    })
}

/// A parser's error in terms of the text that was given, of which `before` bytes and then the text
/// as parsed (with one byte for the function's name in a call).
fn syntax(text: &str, before: usize, error: &ParserError) -> WaveError {
    let in_text = if before == 0 {
        error.span().start
    } else {
        error.span().start - 1
    };
    let at = text.floor_char_boundary(in_text.min(text.len()));
    let what = match (error.kind(), error.detail()) {
        (ParserErrorKind::EmptyTuple, _) => "a tuple without items".to_owned(),
        (kind @ ParserErrorKind::UnexpectedToken, _) | (kind, None) => kind.to_string(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
    };
    let near = super::super::path::clip(&&text[at..], 24);
    WaveError::Syntax {
        what,
        offset: before + at,
        near,
    }
}

/// Follows the untyped tree along a type. The parser bounds the depth of the tree, the type ours.
struct Walk<'s> {
    source: &'s str,
    /// What the text of a handle stands for.
    find: &'s dyn Fn(HandleKind, &str) -> Option<Handle>,
}

impl<'s> Walk<'s> {
    fn value(&self, ty: &ValueType, node: &Node) -> Result<Value, Fail> {
        if let Some(kind) = ty.number_kind() {
            return match node.ty() {
                NodeType::Number => number(kind, self.slice(node)),
                _ => mismatch(ty, self.slice(node)),
            };
        }
        match ty {
            ValueType::Bool => match node.as_bool() {
                Ok(b) => Ok(Value::Bool(b)),
                Err(_) => mismatch_hint(ty, "true or false", self.slice(node)),
            },
            ValueType::Char => match (node.ty(), node.as_char(self.source)) {
                (_, Ok(c)) => Ok(Value::Char(c)),
                (NodeType::Char, Err(error)) => self.bad_escape(node, &error),
                (_, Err(_)) => mismatch_hint(ty, "like 'x'", self.slice(node)),
            },
            ValueType::String => match (node.ty(), node.as_str(self.source)) {
                (_, Ok(text)) => Ok(Value::String(text.into_owned())),
                (NodeType::String | NodeType::MultilineString, Err(error)) => {
                    self.bad_escape(node, &error)
                }
                (_, Err(_)) => mismatch_hint(ty, "in double quotes", self.slice(node)),
            },
            ValueType::Handle(kind) => match node.as_str(self.source) {
                Ok(text) => match (self.find)(*kind, &text) {
                    Some(handle) => Ok(handle.into()),
                    None => mismatch_hint(ty, "as ID@OWNER", excerpt(&text)),
                },
                Err(_) => mismatch_hint(ty, "in double quotes, as ID@OWNER", self.slice(node)),
            },
            ValueType::List(list) => self.list(ty, &list.element, node),
            ValueType::Option(option) => match node.ty() {
                NodeType::OptionNone => Ok(Value::Option(None)),
                NodeType::OptionSome => {
                    let some = node.as_option().ok().flatten();
                    self.payload("some", Some(&option.some), some)
                        .map(Value::Option)
                }
                _ if can_be_flat(&option.some) => Ok(Value::Option(Some(Box::new(
                    self.value(&option.some, node)?,
                )))),
                _ => mismatch_hint(ty, "some(..) or none", self.slice(node)),
            },
            ValueType::Result(result) => match (node.as_result(), &result.ok) {
                (Ok(Ok(payload)), ok) => Ok(Value::Result(Ok(self.payload(
                    "ok",
                    ok.as_ref(),
                    payload,
                )?))),
                (Ok(Err(payload)), _) => Ok(Value::Result(Err(self.payload(
                    "err",
                    result.err.as_ref(),
                    payload,
                )?))),
                (Err(_), Some(ok)) if can_be_flat(ok) => {
                    Ok(Value::Result(Ok(Some(Box::new(self.value(ok, node)?)))))
                }
                _ => mismatch_hint(ty, "ok or err, with (..) for a payload", self.slice(node)),
            },
            ValueType::Record(_) => self.record(ty, node),
            ValueType::Tuple(tuple) => {
                let Ok(items) = node.as_tuple() else {
                    return mismatch(ty, self.slice(node));
                };
                if items.len() != tuple.items.len() {
                    let (expected, found) = (tuple.items.len(), items.len());
                    return fail(TextFault::TupleLength {
                        expected,
                        ty: excerpt(ty),
                        found,
                    });
                }
                let items = tuple.items.iter().zip(items).enumerate();
                let items = items.map(|(at, (ty, item))| self.value(ty, item).at_position(at));
                items.collect::<Result<_, _>>().map(Value::Tuple)
            }
            ValueType::Variant(variant) => {
                let Ok((found, payload)) = node.as_variant(self.source) else {
                    return self.not_a_name(ty, node);
                };
                let names = variant.cases.iter().map(|(name, _)| name);
                let case = find_name("case", found, names)?;
                let payload = self.payload(found, variant.cases[case].1.as_ref(), payload)?;
                Ok(Value::Variant(case as u32, payload))
            }
            ValueType::Enum(names) => {
                let Ok(found) = node.as_enum(self.source) else {
                    return self.not_a_name(ty, node);
                };
                let case = find_name("case", found, names.cases.iter())?;
                Ok(Value::Enum(case as u32))
            }
            ValueType::Flags(flags) => {
                let Ok(found) = node.as_flags(self.source) else {
                    return mismatch_hint(ty, "like {a, b}", self.slice(node));
                };
                let mut set = vec![false; flags.flags.len()];
                for name in found {
                    let name = name.strip_prefix('%').unwrap_or(name);
                    set[find_name("flag", name, flags.flags.iter())?] = true;
                }
                Ok(Value::Flags(set))
            }
            _ => unreachable!("{ty} is a number"),
        }
    }

    fn list(&self, ty: &ValueType, element: &ValueType, node: &Node) -> Result<Value, Fail> {
        let Ok(items) = node.as_list() else {
            return mismatch_hint(ty, "like [a, b]", self.slice(node));
        };
        let items = items
            .enumerate()
            .map(|(index, item)| self.value(element, item).at_index(index));
        match ty.buffer_kind() {
            None => items.collect::<Result<_, _>>().map(Value::List),
            Some(kind) => {
                let mut list = NumberList::new(kind);
                for item in items {
                    list.push(item?).expect("a number of the list's kind");
                }
                Ok(Value::Numbers(list))
            }
        }
    }

    fn record(&self, ty: &ValueType, node: &Node) -> Result<Value, Fail> {
        let ValueType::Record(record) = ty else {
            unreachable!("{ty} is a record")
        };
        let mut given: BTreeMap<&str, &Node> = match node.as_record(self.source) {
            Ok(fields) => fields.collect(),
            // `{}` is WAVE for no flags, but for whoever leaves out all fields it is a record.
            Err(_)
                if node
                    .as_flags(self.source)
                    .is_ok_and(|mut flags| flags.next().is_none()) =>
            {
                BTreeMap::new()
            }
            Err(_) => return mismatch(ty, self.slice(node)),
        };
        let mut values = Vec::with_capacity(record.fields.len());
        for (name, ty) in &record.fields {
            values.push(match given.remove(&**name) {
                Some(node) => self.value(ty, node).at_name(name)?,
                None => left_out(name, ty)?,
            });
        }
        match given.first_key_value() {
            None => Ok(Value::Record(values)),
            Some((found, _)) => fail(TextFault::UnknownField {
                found: excerpt(found),
                known: names(record.fields.iter().map(|(name, _)| name)),
            }),
        }
    }

    fn payload(
        &self,
        case: &str,
        ty: Option<&ValueType>,
        payload: Option<&Node>,
    ) -> Result<Option<Box<Value>>, Fail> {
        match (ty, payload) {
            (None, None) => Ok(None),
            // `some` adds nothing to a path: the option is the value there.
            (Some(ty), Some(node)) if case == "some" => Ok(Some(Box::new(self.value(ty, node)?))),
            (Some(ty), Some(node)) => Ok(Some(Box::new(self.value(ty, node).at_case(case)?))),
            (Some(ty), None) => fail(TextFault::MissingPayload {
                case: case.to_owned(),
                ty: excerpt(ty),
                hint: format!("{case}(..)"),
            }),
            (None, Some(_)) => fail(TextFault::UnexpectedPayload {
                case: case.to_owned(),
                hint: case.to_owned(),
            }),
        }
    }

    /// A keyword where a case's name should be is the likely mistake.
    fn not_a_name<T>(&self, ty: &ValueType, node: &Node) -> Result<T, Fail> {
        let hint = "a case's name; put % before one that is a keyword of WAVE";
        mismatch_hint(ty, hint, self.slice(node))
    }

    fn bad_escape<T>(&self, node: &Node, error: &ParserError) -> Result<T, Fail> {
        let why = error
            .detail()
            .map_or_else(|| error.kind().to_string(), str::to_owned);
        fail(TextFault::BadEscape {
            why,
            found: excerpt(&self.slice(node)),
        })
    }

    fn slice(&self, node: &Node) -> &'s str {
        &self.source[node.span()]
    }
}

/// Whether `some(x)` or `ok(x)` may be written as `x`: not where that would be ambiguous.
fn can_be_flat(ty: &ValueType) -> bool {
    !matches!(ty, ValueType::Option(_) | ValueType::Result(_))
}
