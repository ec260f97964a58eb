//! A call's arguments, from a request's path, query and body.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::answer::problem;
use super::percent;
use super::route::Method;
use crate::value::json::{found, from_json};
use crate::value::{
    FunctionType, Path, Segment, TextError, Value, ValueType, excerpt, is_json, names, read_json,
    read_json_within,
};

/// How much memory the JSON of a body may take while it is read.
const MOST_JSON_BYTES: usize = 256 << 20;

pub(super) type Param = (Arc<str>, ValueType);

/// A request that does not fit the function: where, and what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct BadRequest {
    /// Which part of the request.
    pub place: Place,
    /// What is wrong with it.
    pub why: String,
}

/// A part of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A parameter, in the path.
    Path(String),
    /// A parameter, in the query.
    Query(String),
    /// A part of the body, by its JSON pointer (RFC 6901): the empty text is all of it.
    Body(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(name) => write!(f, "parameter '{name}' in the path"),
            Self::Query(name) => write!(f, "parameter '{name}' in the query"),
            Self::Body(pointer) if pointer.is_empty() => f.write_str("the body"),
            Self::Body(pointer) => write!(f, "the body at {pointer}"),
        }
    }
}

impl BadRequest {
    fn new(place: Place, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { place, why }
    }

    /// A value at a place that is not of its type. In the body the pointer goes on to the wrong part.
    fn of_value(place: Place, error: &TextError) -> Self {
        let within = pointer(&error.path);
        match place {
            Place::Body(pointer) => {
                Self::new(Place::Body(pointer + &within), error.fault.to_string())
            }
            place if within.is_empty() => Self::new(place, error.fault.to_string()),
            place => Self::new(place, format!("at {within}: {}", error.fault)),
        }
    }

    /// The answer's body, of status 400. Beyond what [`problem`] has, `errors` names the place as `pointer` or `parameter`.
    pub fn problem(&self) -> Json {
        let mut problem = problem(400, "Bad Request", &self.to_string());
        let (key, place) = match &self.place {
            Place::Path(name) | Place::Query(name) => ("parameter", name),
            Place::Body(pointer) => ("pointer", pointer),
        };
        problem["errors"] = json!([{ "detail": self.why, key: place }]);
        problem
    }
}

/// The arguments of a function for a request that a route of `method` took, with what its path captured.
///
/// Whatever the path has not is in the query or in the body, as [`Method::has_body`] says; the other one must be empty.
///
/// # Errors
/// When something is missing, is not of its type, or is not a parameter.
pub fn arguments(
    method: Method,
    ty: &FunctionType,
    captures: &[(&str, String)],
    query: Option<&str>,
    body: &[u8],
) -> Result<Vec<Value>, BadRequest> {
    let captured = |name: &str| captures.iter().find(|(it, _)| *it == name);
    let params = ty.params().iter();
    let rest: Vec<&Param> = params
        .filter(|(name, _)| captured(name).is_none())
        .collect();
    let query = query.unwrap_or_default();
    let mut others = match method.has_body() {
        true => {
            no_query(method, query)?;
            from_body(&rest, body)?
        }
        false => {
            no_body(method, body)?;
            from_query(&rest, query)?
        }
    };
    let is_bare = is_bare(&rest);
    let place = |name: &str| match (method.has_body(), is_bare) {
        (false, _) => Place::Query(name.to_owned()),
        (true, true) => Place::Body(String::new()),
        (true, false) => Place::Body(format!("/{name}")),
    };
    let argument = |(name, ty): &Param| -> Result<Value, BadRequest> {
        let (place, json) = match captured(name) {
            Some((name, text)) => {
                let place = Place::Path((*name).to_owned());
                (place.clone(), Some(from_text(ty, text, place)?))
            }
            None => (place(name), others.remove(&**name)),
        };
        match (json, ty) {
            (Some(json), _) => {
                from_json(ty, &json).map_err(|error| BadRequest::of_value(place, &error))
            }
            (None, ValueType::Option(_)) => Ok(Value::Option(None)),
            (None, _) => {
                let ty = excerpt(ty);
                Err(match place {
                    Place::Body(pointer) if pointer.is_empty() => BadRequest::new(
                        Place::Body(pointer),
                        format!(
                            "it is empty; send the value of '{name}' as JSON, its type is {ty}"
                        ),
                    ),
                    place => BadRequest::new(place, format!("it is missing; its type is {ty}")),
                })
            }
        }
    };
    ty.params().iter().map(argument).collect()
}

/// The type of which a parameter's text in a path or a query is a value without quotes, if there is one: the parameter's
/// own, or of an option what it may hold. Texts of other types are JSON.
pub(super) fn plain(ty: &ValueType) -> Option<&ValueType> {
    let some = match ty {
        ValueType::Option(option) => &option.some,
        ty => ty,
    };
    let is_word = matches!(
        some,
        ValueType::Bool
            | ValueType::Char
            | ValueType::String
            | ValueType::Handle(_)
            | ValueType::Enum(_)
    );
    (is_word || some.number_kind().is_some()).then_some(some)
}

/// Whether a body is the value of the only parameter, and not an object of all by name.
pub(super) fn is_bare(rest: &[&Param]) -> bool {
    rest.len() == 1
}

/// The JSON that the text of a parameter stands for.
fn from_text(ty: &ValueType, text: &str, place: Place) -> Result<Json, BadRequest> {
    let word = || Json::String(text.to_owned());
    match plain(ty) {
        None => read_json(text.as_bytes()).map_err(|error| {
            let (ty, text) = (excerpt(ty), excerpt(&text));
            let is = if is_json(&error) {
                "has an error"
            } else {
                "is no JSON"
            };
            let why = format!("expected {ty} as JSON, found '{text}', which {is}: {error}");
            BadRequest::new(place, why)
        }),
        Some(ValueType::Char | ValueType::String | ValueType::Handle(_) | ValueType::Enum(_)) => {
            Ok(word())
        }
        // A number or a bool. What is neither is a string, so that the error shows it.
        Some(_) => {
            let json = serde_json::from_str(text).ok();
            let json = json.filter(|json: &Json| json.is_number() || json.is_boolean());
            Ok(json.unwrap_or_else(word))
        }
    }
}

/// The JSON of each parameter that is in a query.
fn from_query(rest: &[&Param], query: &str) -> Result<Map<String, Json>, BadRequest> {
    let mut given = Map::new();
    for (name, text) in pairs(query)? {
        let place = Place::Query(excerpt(&name));
        let Some((_, ty)) = rest.iter().find(|(own, _)| **own == *name) else {
            return Err(unknown(place, rest));
        };
        let json = from_text(ty, &text, place.clone())?;
        if given.insert(name, json).is_some() {
            return Err(BadRequest::new(place, "it is given twice; give it once"));
        }
    }
    Ok(given)
}

/// The JSON of each parameter that is in a body.
fn from_body(rest: &[&Param], body: &[u8]) -> Result<Map<String, Json>, BadRequest> {
    let whole = || Place::Body(String::new());
    if body.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    let json = read_json_within(body, MOST_JSON_BYTES).map_err(|error| {
        let is = if is_json(&error) {
            ""
        } else {
            "it is no JSON: "
        };
        BadRequest::new(whole(), format!("{is}{error}"))
    })?;
    if let [(name, _)] = rest {
        return Ok(Map::from_iter([(name.to_string(), json)]));
    }
    let given = match json {
        Json::Object(given) => given,
        other => {
            let (names, found) = (names(rest.iter().map(|(name, _)| name)), found(&other));
            let why = match rest {
                [] => format!("expected none, as no parameter is left for it, found {found}"),
                _ => format!("expected an object with these by name: {names}; found {found}"),
            };
            return Err(BadRequest::new(whole(), why));
        }
    };
    let is_unknown = |name: &str| rest.iter().all(|(own, _)| **own != *name);
    if let Some(name) = given.keys().find(|name| is_unknown(name)) {
        return Err(unknown(Place::Body(step(&excerpt(name))), rest));
    }
    Ok(given)
}

/// Names and texts of a query, decoded.
fn pairs(query: &str) -> Result<Vec<(String, String)>, BadRequest> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| {
        let (name, text) = pair.split_once('=').unwrap_or((pair, ""));
        let decoded = percent::decode_form(name).zip(percent::decode_form(text));
        decoded.ok_or_else(|| {
            let why = "it is not UTF-8, or has a '%' that does not begin an encoded character";
            BadRequest::new(Place::Query(excerpt(&name)), why)
        })
    });
    pairs.collect()
}

fn no_query(method: Method, query: &str) -> Result<(), BadRequest> {
    match pairs(query)?.first() {
        None => Ok(()),
        Some((name, _)) => Err(BadRequest::new(
            Place::Query(excerpt(name)),
            format!(
                "{} takes nothing from the query; send it in the body",
                method.as_str()
            ),
        )),
    }
}

fn no_body(method: Method, body: &[u8]) -> Result<(), BadRequest> {
    match body.trim_ascii() {
        [] => Ok(()),
        _ => Err(BadRequest::new(
            Place::Body(String::new()),
            format!(
                "{} takes no body; send parameters in the query",
                method.as_str()
            ),
        )),
    }
}

fn unknown(place: Place, rest: &[&Param]) -> BadRequest {
    let why = match rest {
        [] => "there is no such parameter, and none that could be here".to_owned(),
        _ => {
            let names = names(rest.iter().map(|(name, _)| name));
            format!("there is no such parameter; those that can be here are {names}")
        }
    };
    BadRequest::new(place, why)
}

/// A path in a value as a JSON pointer.
fn pointer(path: &Path) -> String {
    let steps = path.segments().map(|segment| match segment {
        Segment::Name(name) => step(name),
        Segment::Index(index) | Segment::Position(index) => format!("/{index}"),
    });
    steps.collect()
}

fn step(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}
