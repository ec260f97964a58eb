//! A route: which requests call which function.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::percent;

/// The methods that a route can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // HTTP's own names.
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// Requests of one method for a path, and the function that they call. As text `METHOD /path=function`.
///
/// A segment of the path is a literal text, percent-encoded where it has to be, or `{name}`, which takes any text but
/// none for the parameter of that name. `/orders` and `/orders/` are two paths.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Route {
    method: Method,
    segments: Vec<Segment>,
    function: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Segment {
    /// Decoded.
    Literal(String),
    /// The name of a parameter.
    Capture(String),
}

/// A text that is no route.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is no route: {why}; write METHOD /path=function, such as 'POST /price=price' or \
     'GET /orders/{{id}}=find'"
)]
pub struct ParseRouteError {
    text: String,
    why: &'static str,
}

impl Method {
    const ALL: [Self; 5] = [Self::Get, Self::Post, Self::Put, Self::Patch, Self::Delete];

    /// As it stands in a request.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Whether parameters come in the body; else they come in the query.
    pub fn has_body(self) -> bool {
        matches!(self, Self::Post | Self::Put | Self::Patch)
    }
}

impl Route {
    /// The method of its requests.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The function's name, as it was given: full or short.
    pub fn function(&self) -> &str {
        &self.function
    }

    /// The names in its path, in order. Each is there once.
    pub fn captures(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Literal(_) => None,
            Segment::Capture(name) => Some(&**name),
        })
    }

    /// Its path, percent-encoded, with `{name}` for what is captured.
    pub fn path(&self) -> String {
        PathOf(self).to_string()
    }

    /// Whether both match the same paths.
    pub(super) fn is_same_path(&self, other: &Self) -> bool {
        let is_same = |(own, other): (&Segment, &Segment)| match (own, other) {
            (Segment::Literal(own), Segment::Literal(other)) => own == other,
            (Segment::Capture(_), Segment::Capture(_)) => true,
            _ => false,
        };
        self.segments.len() == other.segments.len()
            && self.segments.iter().zip(&other.segments).all(is_same)
    }

    /// Whether it matches a path, by its decoded segments.
    pub(super) fn matches(&self, path: &[String]) -> bool {
        let is_match = |(own, text): (&Segment, &String)| match own {
            Segment::Literal(own) => own == text,
            Segment::Capture(_) => !text.is_empty(),
        };
        self.segments.len() == path.len() && self.segments.iter().zip(path).all(is_match)
    }

    /// What it captures of a path that it matches.
    pub(super) fn captured(&self, path: Vec<String>) -> Vec<(&str, String)> {
        let segments = self.segments.iter().zip(path);
        let captured = segments.filter_map(|(segment, text)| match segment {
            Segment::Literal(_) => None,
            Segment::Capture(name) => Some((&**name, text)),
        });
        captured.collect()
    }

    /// Whether each segment is a capture. Of two routes that match a path, the one of the lesser shape goes first.
    pub(super) fn shape(&self) -> impl Iterator<Item = bool> {
        let segments = self.segments.iter();
        segments.map(|segment| matches!(segment, Segment::Capture(_)))
    }
}

/// The decoded segments of a request's path, if it is one.
pub(super) fn segments(path: &str) -> Option<Vec<String>> {
    let path = path.strip_prefix('/')?;
    path.split('/').map(percent::decode).collect()
}

fn parse_path(path: &str) -> Result<Vec<Segment>, &'static str> {
    let path = path
        .strip_prefix('/')
        .ok_or("its path does not begin with '/'")?;
    if path.contains(['?', '#']) {
        return Err("its path has a '?' or '#', and the query needs no mention");
    }
    let mut segments: Vec<Segment> = Vec::new();
    let mut rest = path.split('/').peekable();
    while let Some(text) = rest.next() {
        let is_last = rest.peek().is_none();
        let segment = parse_segment(text)?;
        match &segment {
            Segment::Literal(text) if text.is_empty() && !is_last => {
                return Err("its path has two '/' with nothing in between");
            }
            Segment::Capture(_) if segments.contains(&segment) => {
                return Err("its path has the same {name} twice");
            }
            _ => segments.push(segment),
        }
    }
    Ok(segments)
}

fn parse_segment(text: &str) -> Result<Segment, &'static str> {
    let name = text.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
    if name.unwrap_or(text).contains(['{', '}']) {
        return Err("a segment of its path is neither a text nor one {name}");
    }
    match name {
        Some("") => Err("its path has {} without a name"),
        Some(name) => Ok(Segment::Capture(name.to_owned())),
        None => match percent::decode(text) {
            None => Err("its path has a '%' that does not begin an encoded character"),
            Some(text) if text == "." || text == ".." => {
                Err("its path has a segment '.' or '..', which clients take out")
            }
            Some(text) => Ok(Segment::Literal(text)),
        },
    }
}

impl FromStr for Route {
    type Err = ParseRouteError;

    fn from_str(text: &str) -> Result<Self, ParseRouteError> {
        let wrong = |why| ParseRouteError {
            text: text.to_owned(),
            why,
        };
        let text = text.trim();
        let no_method = "it does not begin with GET, POST, PUT, PATCH or DELETE and a space";
        let (method, rest) = text.split_once(' ').ok_or(wrong(no_method))?;
        let method = Method::ALL.into_iter().find(|it| it.as_str() == method);
        let method = method.ok_or(wrong(no_method))?;
        let rest = rest.trim_start();
        if rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(wrong("it has a space in its path or function"));
        }
        let (path, function) = match rest.rsplit_once('=') {
            Some((path, function)) if !function.is_empty() => (path, function),
            _ => return Err(wrong("no '=' with a function's name follows the path")),
        };
        Ok(Self {
            method,
            segments: parse_path(path).map_err(wrong)?,
            function: function.to_owned(),
        })
    }
}

/// The path alone.
struct PathOf<'a>(&'a Route);

impl fmt::Display for PathOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.0.segments {
            f.write_str("/")?;
            match segment {
                Segment::Literal(text) => percent::write_segment(f, text)?,
                Segment::Capture(name) => write!(f, "{{{name}}}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (method, function) = (self.method.as_str(), &self.function);
        write!(f, "{method} {}={function}", PathOf(self))
    }
}

impl TryFrom<String> for Route {
    type Error = ParseRouteError;

    fn try_from(text: String) -> Result<Self, ParseRouteError> {
        text.parse()
    }
}

impl From<Route> for String {
    fn from(route: Route) -> Self {
        route.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_back() {
        for text in [
            "GET /=index",
            "POST /price=price",
            "GET /orders/{id}=a:b/orders@0.1.0#find",
            "DELETE /orders/=clear",
            "PUT /a=b/v1:batch/{two-words}=f",
            "PATCH /caf%C3%A9/a%2Fb/100%25=f",
        ] {
            let route: Route = text.parse().unwrap();
            assert_eq!(route.to_string(), text);
            let json = serde_json::to_string(&route).unwrap();
            assert_eq!(serde_json::from_str::<Route>(&json).unwrap(), route);
        }
        let plain: Route = "  GET  /café/{id}=find ".parse().unwrap();
        assert_eq!(plain.to_string(), "GET /caf%C3%A9/{id}=find");
        assert_eq!((plain.method(), plain.function()), (Method::Get, "find"));
        assert_eq!(plain.path(), "/caf%C3%A9/{id}");
        assert_eq!(plain.captures().collect::<Vec<_>>(), ["id"]);
    }

    #[test]
    fn what_is_no_route_says_why() {
        for (text, why) in [
            ("", "does not begin with GET"),
            ("/price=price", "does not begin with GET"),
            ("HEAD /price=price", "does not begin with GET"),
            ("get /price=price", "does not begin with GET"),
            ("GET /price", "no '=' with a function's name"),
            ("GET /price=", "no '=' with a function's name"),
            ("GET price=price", "does not begin with '/'"),
            ("GET /a b=f", "a space in its path or function"),
            ("GET /a=the function", "a space in its path or function"),
            ("GET /a?b=f", "has a '?'"),
            ("GET /a//b=f", "nothing in between"),
            ("GET //=f", "nothing in between"),
            ("GET /{a}/b/{a}=f", "the same {name} twice"),
            ("GET /{}=f", "without a name"),
            ("GET /{a=f", "neither a text nor one {name}"),
            ("GET /{a}.json=f", "neither a text nor one {name}"),
            ("GET /{a}{b}=f", "neither a text nor one {name}"),
            ("GET /100%=f", "has a '%'"),
            ("GET /%ff=f", "has a '%'"),
            ("GET /a/../b=f", "which clients take out"),
            ("GET /%2e=f", "which clients take out"),
        ] {
            let error = text.parse::<Route>().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(error.starts_with(&format!("'{text}' is no route: ")));
            assert!(error.ends_with("or 'GET /orders/{id}=find'"), "{error}");
        }
    }
}
