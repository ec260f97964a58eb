//! All routes of a server, with the types of their functions, and which of them a request takes.

use std::collections::BTreeSet;

use super::route::{Method, Route, segments};
use crate::value::{FunctionType, names};

/// Routes that fit their functions, and no two of which match the same requests.
#[derive(Debug, Clone)]
pub struct Routes(Vec<(Route, FunctionType)>);

/// Why routes cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RoutesError {
    /// Two have the same method, literals and places of captures.
    #[error(
        "'{first}' and '{second}' match the same requests; give one of them another path or method"
    )]
    Same {
        /// The one.
        first: String,
        /// The other.
        second: String,
    },
    /// A path names what the function does not have.
    #[error(
        "'{route}' has {{{name}}}, and its function has no such parameter: it {}",
        has(.parameters)
    )]
    NoParameter {
        /// The route.
        route: String,
        /// The name in its path.
        name: String,
        /// The function's own names.
        parameters: String,
    },
    /// JSON does not carry the function's handles.
    #[error(
        "'{route}' cannot be served: its function takes or returns objects or actors, which HTTP clients cannot hold; \
         serve a function of plain values"
    )]
    Handles {
        /// The route.
        route: String,
    },
}

/// What a request finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// A route.
    Found {
        /// Which one, in the order in which they were given.
        index: usize,
        /// What the path has for each name in the route's path, decoded.
        captures: Vec<(&'a str, String)>,
    },
    /// No route has this path.
    NoPath,
    /// Some have it, for other methods.
    WrongMethod {
        /// Those methods, as the header `allow` has them.
        allow: String,
    },
}

impl Routes {
    /// Checks routes and the types of their functions.
    ///
    /// # Errors
    /// When two match the same requests, a path names what is no parameter, or a function takes or returns handles.
    pub fn new(
        routes: impl IntoIterator<Item = (Route, FunctionType)>,
    ) -> Result<Self, RoutesError> {
        let mut all: Vec<(Route, FunctionType)> = Vec::new();
        for (route, ty) in routes {
            let is_same = |it: &Route| it.method() == route.method() && it.is_same_path(&route);
            if let Some((first, _)) = all.iter().find(|(it, _)| is_same(it)) {
                return Err(RoutesError::Same {
                    first: first.to_string(),
                    second: route.to_string(),
                });
            }
            let is_parameter = |name: &str| ty.params().iter().any(|(it, _)| **it == *name);
            if let Some(name) = route.captures().find(|name| !is_parameter(name)) {
                return Err(RoutesError::NoParameter {
                    route: route.to_string(),
                    name: name.to_owned(),
                    parameters: names(ty.params().iter().map(|(name, _)| name)),
                });
            }
            if ty.has_handles() {
                let route = route.to_string();
                return Err(RoutesError::Handles { route });
            }
            all.push((route, ty));
        }
        Ok(Self(all))
    }

    /// All of them, in the order in which they were given.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Route, &FunctionType)> {
        self.0.iter().map(|it| (&it.0, &it.1))
    }

    /// The route at an index of [`Lookup::Found`], and its function's type.
    ///
    /// # Panics
    /// When the index is not one of those.
    pub fn get(&self, index: usize) -> (&Route, &FunctionType) {
        let (route, ty) = &self.0[index];
        (route, ty)
    }

    /// The route of a request, by its method and its path (encoded, without the query).
    ///
    /// HEAD finds the routes of GET. Among the routes of the method, a literal segment wins over a capture, the first
    /// segment first. A path that is not percent-encoded UTF-8 is no path.
    pub fn find(&self, method: &str, path: &str) -> Lookup<'_> {
        let Some(path) = segments(path) else {
            return Lookup::NoPath;
        };
        let method = if method == "HEAD" { "GET" } else { method };
        let on_path = self.0.iter().enumerate();
        let on_path = on_path.map(|(index, (route, _))| (index, route));
        let on_path: Vec<_> = on_path.filter(|(_, route)| route.matches(&path)).collect();
        if on_path.is_empty() {
            return Lookup::NoPath;
        }
        let of_method = on_path.iter().copied();
        let of_method = of_method.filter(|(_, route)| route.method().as_str() == method);
        match of_method.min_by(|(_, a), (_, b)| a.shape().cmp(b.shape())) {
            Some((index, route)) => Lookup::Found {
                index,
                captures: route.captured(path),
            },
            None => Lookup::WrongMethod {
                allow: allow(on_path.iter().map(|(_, route)| route.method())),
            },
        }
    }
}

fn has(parameters: &str) -> String {
    match parameters {
        "" => "takes none".to_owned(),
        some => format!("has {some}"),
    }
}

/// Each method once, and HEAD where GET is.
fn allow(methods: impl Iterator<Item = Method>) -> String {
    let methods: BTreeSet<Method> = methods.collect();
    let texts = methods.into_iter().map(|method| match method {
        Method::Get => "GET, HEAD",
        method => method.as_str(),
    });
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{HandleKind, ValueType};

    /// A function of strings.
    fn function(params: &[&str]) -> FunctionType {
        let params = params.iter().map(|name| (*name, ValueType::String));
        FunctionType::new(params, None).unwrap()
    }

    fn routes(all: &[(&str, &[&str])]) -> Result<Routes, RoutesError> {
        let all = all.iter();
        Routes::new(all.map(|(route, params)| (route.parse::<Route>().unwrap(), function(params))))
    }

    fn found<'a>(routes: &'a Routes, method: &str, path: &str) -> (usize, Vec<(&'a str, String)>) {
        match routes.find(method, path) {
            Lookup::Found { index, captures } => (index, captures),
            other => panic!("{method} {path}: {other:?}"),
        }
    }

    #[test]
    fn literals_win_over_captures() {
        let routes = routes(&[
            ("GET /{a}/{b}=f", &["a", "b"]),
            ("GET /{a}/x=f", &["a"]),
            ("GET /y/{b}=f", &["b"]),
            ("GET /y/x/{b}=f", &["b"]),
            ("POST /y/z=f", &[]),
            ("GET /=f", &[]),
        ])
        .unwrap();
        let index = |path: &str| found(&routes, "GET", path).0;
        assert_eq!(index("/1/2"), 0);
        assert_eq!(index("/1/x"), 1);
        assert_eq!(index("/y/x"), 2);
        assert_eq!(index("/y/x/z"), 3);
        // Another method's literal does not hide this one's capture.
        assert_eq!(index("/y/z"), 2);
        assert_eq!(index("/"), 5);
        assert_eq!(found(&routes, "HEAD", "/").0, 5);
    }

    #[test]
    fn segments_are_decoded_after_they_are_split() {
        let routes = routes(&[("GET /caf%C3%A9/{a}=f", &["a"]), ("PUT /b/=f", &[])]).unwrap();
        for (path, capture) in [
            ("/café/x", "x"),
            ("/caf%c3%a9/a%2Fb", "a/b"),
            ("/caf%C3%A9/a+b%20c", "a+b c"),
            ("/%63af%C3%A9/%7B%7D", "{}"),
        ] {
            let captures = vec![("a", capture.to_owned())];
            assert_eq!(found(&routes, "GET", path), (0, captures));
        }
        assert_eq!(found(&routes, "PUT", "/b/"), (1, vec![]));
        for path in [
            "",
            "*",
            "café/x",
            "/",
            "/café",
            "/café/",
            "/café/x/",
            "/café//x",
            "/café/%",
            "/café/%f",
            "/café/%ff",
            "/café/%+1",
            "/CAFÉ/x",
            "/b",
        ] {
            assert_eq!(routes.find("GET", path), Lookup::NoPath, "{path}");
        }
    }

    #[test]
    fn a_wrong_method_is_told_the_right_ones() {
        let routes = routes(&[
            ("POST /a=f", &[]),
            ("DELETE /{x}=f", &["x"]),
            ("GET /a=f", &[]),
            ("GET /{x}=f", &["x"]),
            ("PUT /b=f", &[]),
        ])
        .unwrap();
        for (method, path, expected) in [
            ("PATCH", "/a", "GET, HEAD, POST, DELETE"),
            ("get", "/a", "GET, HEAD, POST, DELETE"),
            ("OPTIONS", "/b", "GET, HEAD, PUT, DELETE"),
            ("POST", "/c", "GET, HEAD, DELETE"),
        ] {
            let allow = expected.to_owned();
            let lookup = routes.find(method, path);
            assert_eq!(lookup, Lookup::WrongMethod { allow }, "{method} {path}");
        }
    }

    #[test]
    fn what_cannot_be_served_is_refused() {
        let refused = |all: &[(&str, &[&str])]| routes(all).unwrap_err().to_string();
        assert_eq!(
            refused(&[("GET /a/{x}=f", &["x"]), ("GET /a/{y}=g", &["y"])]),
            "'GET /a/{x}=f' and 'GET /a/{y}=g' match the same requests; give one of them another path \
             or method"
        );
        assert!(routes(&[("GET /a/{x}=f", &["x"]), ("PUT /a/{y}=g", &["y"])]).is_ok());
        assert!(routes(&[("GET /a/{x}=f", &["x"]), ("GET /a/=g", &[])]).is_ok());
        assert_eq!(
            refused(&[("GET /{c}=f", &["a", "b"])]),
            "'GET /{c}=f' has {c}, and its function has no such parameter: it has a, b"
        );
        assert_eq!(
            refused(&[("GET /{c}=f", &[])]),
            "'GET /{c}=f' has {c}, and its function has no such parameter: it takes none"
        );
        let object = || ValueType::list(ValueType::Handle(HandleKind::Object)).unwrap();
        for ty in [
            FunctionType::new([("a", object())], None).unwrap(),
            FunctionType::new([("a", ValueType::Bool)], Some(object())).unwrap(),
        ] {
            let error = Routes::new([("GET /=f".parse::<Route>().unwrap(), ty)]).unwrap_err();
            let route = "GET /=f".to_owned();
            assert_eq!(error, RoutesError::Handles { route });
        }
    }
}
