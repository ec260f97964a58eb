//! A fuzz target as a plain function: for `fuzz/` (libFuzzer) and for the stable test below.

use super::{Lookup, Route, Routes, arguments};
use crate::value::FunctionType;
use crate::value::fuzz::spell_type;

/// Bytes as a type and a request: what is read of the request for functions of that type has the type. Also as a route: one
/// that is read is written as text that reads as the same.
pub fn fuzz(data: &[u8]) {
    if let Ok(Ok(route)) = std::str::from_utf8(data).map(str::parse::<Route>) {
        assert_eq!(route.to_string().parse::<Route>(), Ok(route));
    }
    let mut data = data;
    let ty = spell_type(&mut data);
    let params = [("a", ty.clone()), ("b", ty.clone())];
    let function = FunctionType::new(params, None).expect("two parameters");
    let routes = ["GET /x/{a}=f", "POST /x/{a}=f", "PUT /x=f", "DELETE /=f"];
    let routes = routes.map(|route| (route.parse::<Route>().expect("a route"), function.clone()));
    let Ok(routes) = Routes::new(routes) else {
        assert!(ty.has_handles());
        return;
    };
    // The method, the path and the query, a line each, and the body.
    let mut parts = data.splitn(4, |byte| *byte == b'\n');
    let mut line = || std::str::from_utf8(parts.next().unwrap_or_default()).unwrap_or_default();
    let (method, path, query) = (line(), line(), line());
    let body = parts.next().unwrap_or_default();
    if let Lookup::Found { index, captures } = routes.find(method, path) {
        let (route, function) = routes.get(index);
        let values = arguments(route.method(), function, &captures, Some(query), body);
        if let Ok(values) = values {
            assert_eq!(values.len(), 2);
            for value in values {
                assert_eq!(value.check(&ty), Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    proptest! {
        #[test]
        fn survives(
            // Nothing, a list or an option of something plain.
            around in select(vec![vec![], vec![15u8], vec![16]]),
            plain in 0u8..13,
            method in "GET|POST|PUT|DELETE",
            path in "/|/x|/x/[a1%2F\\[\\]\"é]{0,6}",
            query in "([ab]=[01a%\\[\\]\"+&=]{0,4}&?){0,3}",
            body in "[01a\\[\\]{}\",: ]{0,12}|\\{\"a\":[01],\"b\":[01]\\}",
        ) {
            let request = format!("{method}\n{path}\n{query}\n{body}");
            super::fuzz(&[around, vec![plain], request.into_bytes()].concat());
        }

        #[test]
        fn routes_survive(text in "(GET|PUT) /[a{}%2F/=é]{0,8}=[a#]{0,2}") {
            super::fuzz(text.as_bytes());
        }
    }
}
