//! Arguments of requests: examples of each rule, and that what is written is read back.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::arguments::{BadRequest, Place, arguments, plain};
use super::route::{Method, Route, segments};
use crate::value::json::to_json;
use crate::value::tests::typed;
use crate::value::{FunctionType, NumberList, Value, ValueType};

fn list(ty: ValueType) -> ValueType {
    ValueType::list(ty).unwrap()
}

fn option(ty: ValueType) -> ValueType {
    ValueType::option(ty).unwrap()
}

fn function<const N: usize>(params: [(&str, ValueType); N]) -> FunctionType {
    FunctionType::new(params, None).unwrap()
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn some(value: Value) -> Value {
    Value::Option(Some(Box::new(value)))
}

/// The arguments in a query, or why there are none.
fn query(ty: &FunctionType, query: &str) -> Result<Vec<Value>, String> {
    let values = arguments(Method::Get, ty, &[], Some(query), b"");
    values.map_err(|error| error.to_string())
}

/// The arguments in a body, or why there are none.
fn body(ty: &FunctionType, body: &str) -> Result<Vec<Value>, String> {
    let values = arguments(Method::Post, ty, &[], None, body.as_bytes());
    values.map_err(|error| error.to_string())
}

/// All of a text percent-encoded.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// A value as it stands in a path or a query. `None`: it is left out.
fn written(ty: &ValueType, value: &Value) -> Option<String> {
    match (plain(ty), to_json(ty, value).unwrap()) {
        (Some(_), Json::Null) => None,
        (Some(_), Json::String(text)) => Some(encoded(&text)),
        (_, json) => Some(encoded(&json.to_string())),
    }
}

proptest! {
    #[test]
    fn what_is_written_in_a_body_is_read((ty, value) in typed(), (other, next) in typed()) {
        let json = to_json(&ty, &value).unwrap();
        let one = function([("two-words", ty.clone())]);
        let read = arguments(Method::Put, &one, &[], None, json.to_string().as_bytes()).unwrap();
        prop_assert!(read.len() == 1 && read[0].same_as(&value), "{json} read as {read:?}");

        let both = function([("a", ty), ("b", other.clone())]);
        let json = json!({ "b": to_json(&other, &next).unwrap(), "a": json });
        let read = arguments(Method::Post, &both, &[], Some(""), json.to_string().as_bytes());
        let read = read.unwrap();
        prop_assert!(read[0].same_as(&value) && read[1].same_as(&next), "{json} read as {read:?}");
    }

    #[test]
    fn what_is_written_in_a_path_and_a_query_is_read(
        (ty, value) in typed(),
        (other, next) in typed(),
    ) {
        let both = function([("a", ty.clone()), ("b", other.clone())]);
        let route: Route = "DELETE /x/{a}=f".parse().unwrap();
        let first = written(&ty, &value);
        // A path takes neither what is left out nor an empty text.
        let in_path = first.clone().filter(|text| !text.is_empty());
        let captures = match &in_path {
            Some(text) => {
                let path = segments(&format!("/x/{text}")).unwrap();
                prop_assert!(route.matches(&path));
                route.captured(path)
            }
            None => Vec::new(),
        };
        let first = first.filter(|_| in_path.is_none()).map(|text| format!("a={text}"));
        let second = written(&other, &next).map(|text| format!("%62={text}"));
        let query = first.into_iter().chain(second).collect::<Vec<_>>().join("&");
        let read = arguments(Method::Delete, &both, &captures, Some(&query), b"").unwrap();
        let is_same = read[0].same_as(&value) && read[1].same_as(&next);
        prop_assert!(is_same, "{captures:?} and {query} read as {read:?}");
    }
}

#[test]
fn a_query_has_words_without_quotes_and_all_else_as_json() {
    let color = ValueType::enumeration(["red", "green"]).unwrap();
    let ty = function([
        ("n", ValueType::U64),
        ("is-new", ValueType::Bool),
        ("name", option(ValueType::String)),
        ("color", option(color)),
        ("ids", option(list(ValueType::U8))),
        ("at", option(ValueType::F64)),
    ]);
    let none = || Value::Option(None);
    assert_eq!(
        query(&ty, "n=18446744073709551615&is-new=true"),
        Ok(vec![
            Value::U64(u64::MAX),
            Value::Bool(true),
            none(),
            none(),
            none(),
            none()
        ])
    );
    let ids = Value::Numbers(NumberList::from_elements([1u8, 2]));
    assert_eq!(
        query(
            &ty,
            "name=a+b%2Bc&ids=[1,%202]&&color=green&is-new=false&n=7&at=-inf"
        ),
        Ok(vec![
            Value::U64(7),
            Value::Bool(false),
            some(text("a b+c")),
            some(Value::Enum(1)),
            some(ids),
            some(Value::F64(-f64::INFINITY)),
        ])
    );
    // A text is never taken for JSON where words need no quotes: it may well be empty, or "null".
    let name = function([("name", option(ValueType::String))]);
    assert_eq!(query(&name, "name"), Ok(vec![some(text(""))]));
    assert_eq!(query(&name, "name=null"), Ok(vec![some(text("null"))]));
    assert_eq!(query(&name, ""), Ok(vec![none()]));
}

#[test]
fn what_is_wrong_in_a_query_is_told() {
    let ty = function([
        ("n", ValueType::U8),
        ("ids", option(list(ValueType::U8))),
        ("max", option(ValueType::U8)),
    ]);
    for (text, why) in [
        ("", "'n' in the query: it is missing; its type is u8"),
        ("n=x", "'n' in the query: expected u8, found \"x\""),
        ("n=", "'n' in the query: expected u8, found \"\""),
        ("n=1.0", "'n' in the query: expected u8, found 1.0"),
        ("n=true", "'n' in the query: expected u8, found true"),
        (
            "n=256",
            "'n' in the query: 256 does not fit u8; give a number from 0 to 255",
        ),
        (
            "n=1&max=null",
            "'max' in the query: expected u8, found \"null\"",
        ),
        (
            "n=1&max=%221%22",
            "'max' in the query: expected u8, found \"\\\"1\\\"\"",
        ),
        (
            "n=1&n=1",
            "'n' in the query: it is given twice; give it once",
        ),
        (
            "n=1&m=1",
            "'m' in the query: there is no such parameter; those that can be here are n, ids, max",
        ),
        (
            "n=1&ids=[1,-1]",
            "'ids' in the query: at /1: -1 does not fit u8; give a number from 0 to 255",
        ),
        (
            "n=1&ids=1,2",
            "'ids' in the query: expected option<list<u8>> as JSON, found '1,2', which is no JSON: \
             trailing characters at line 1 column 2",
        ),
        (
            "n=%ff",
            "'n' in the query: it is not UTF-8, or has a '%' that does not begin an encoded character",
        ),
    ] {
        assert_eq!(query(&ty, text), Err(format!("parameter {why}")), "{text}");
    }
    let error = arguments(Method::Get, &ty, &[], Some("n=1"), b"{}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the body: GET takes no body; send parameters in the query"
    );
    let error = arguments(Method::Put, &ty, &[], Some("n=1"), b"{}").unwrap_err();
    let expected =
        "parameter 'n' in the query: PUT takes nothing from the query; send it in the body";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_body_is_an_object_or_the_value_of_the_only_parameter_left() {
    let order = ValueType::record([
        ("items", list(ValueType::U8)),
        ("by", option(ValueType::String)),
    ]);
    let order = order.unwrap();
    let value = Value::Record(vec![
        Value::Numbers(NumberList::from_elements([3u8])),
        Value::Option(None),
    ]);
    let one = function([("order", order.clone())]);
    assert_eq!(body(&one, r#" {"items": [3]} "#), Ok(vec![value.clone()]));
    // Never by its name.
    assert!(body(&one, r#"{"order": {"items": [3]}}"#).is_err());
    let two = function([("id", ValueType::U8), ("order", order)]);
    let both = Ok(vec![Value::U8(1), value]);
    assert_eq!(body(&two, r#"{"order": {"items": [3]}, "id": 1}"#), both);
    let captures = [("id", "1".to_owned())];
    let read = arguments(Method::Patch, &two, &captures, None, br#"{"items": [3]}"#);
    assert_eq!(read.map_err(|error| error.to_string()), both);

    let none = Value::Option(None);
    let optional = function([("a", option(ValueType::U8))]);
    assert_eq!(body(&optional, ""), Ok(vec![none.clone()]));
    assert_eq!(body(&optional, "null"), Ok(vec![none.clone()]));
    let optional = function([("a", option(ValueType::U8)), ("b", option(ValueType::U8))]);
    assert_eq!(
        body(&optional, " \r\n"),
        Ok(vec![none.clone(), none.clone()])
    );
    assert_eq!(
        body(&optional, r#"{"b": 1}"#),
        Ok(vec![none, some(Value::U8(1))])
    );
    assert_eq!(body(&function([]), ""), Ok(vec![]));
    assert_eq!(body(&function([]), "{}"), Ok(vec![]));
}

#[test]
fn what_is_wrong_in_a_body_is_told_with_a_pointer() {
    let item = ValueType::record([("price", ValueType::U8)]).unwrap();
    let shape = ValueType::variant([("of", Some(list(item.clone())))]).unwrap();
    let one = function([("item", item)]);
    let two = function([("shape", shape), ("n", ValueType::U8)]);
    let none = function([]);
    for (ty, text, why) in [
        (
            &one,
            "",
            "the body: it is empty; send the value of 'item' as JSON, its type is record { price: u8 }",
        ),
        (
            &one,
            "{",
            "the body: it is no JSON: EOF while parsing an object at line 1 column 1",
        ),
        (
            &one,
            r#"{"price": 1, "price": 2}"#,
            "the body: the key \"price\" is twice in one object: keep one at line 1 column 20",
        ),
        (
            &one,
            "[]",
            "the body: expected record { price: u8 }, found an array of 0",
        ),
        (
            &one,
            r#"{"price": "1"}"#,
            "the body at /price: expected u8, found \"1\"",
        ),
        (
            &one,
            r#"{"prise": 1}"#,
            "the body: field \"price\" is missing; add it, its type is u8",
        ),
        (
            &two,
            "",
            "the body at /shape: it is missing; its type is variant { of(list<record { price: u8 }>) }",
        ),
        (
            &two,
            "3",
            "the body: expected an object with these by name: shape, n; found 3",
        ),
        (
            &two,
            r#"{"shape": {"of": []}}"#,
            "the body at /n: it is missing; its type is u8",
        ),
        (
            &two,
            r#"{"shape": {"of": [{"price": 1}, {"price": null}]}, "n": 1}"#,
            "the body at /shape/of/1/price: expected u8, found null",
        ),
        (
            &two,
            r#"{"shape": {"of": []}, "n": 1, "a/b~": 1}"#,
            "the body at /a~1b~0: there is no such parameter; those that can be here are shape, n",
        ),
        (
            &none,
            r#"{"a": 1}"#,
            "the body at /a: there is no such parameter, and none that could be here",
        ),
        (
            &none,
            "null",
            "the body: expected none, as no parameter is left for it, found null",
        ),
    ] {
        assert_eq!(body(ty, text), Err(why.to_owned()), "{text}");
    }
    let captures = [("n", "x".to_owned())];
    let read = |text: &str| arguments(Method::Put, &two, &captures, None, text.as_bytes());
    let error = read(r#"{"of": []}"#).unwrap_err();
    assert_eq!(
        error.to_string(),
        "parameter 'n' in the path: expected u8, found \"x\""
    );
    assert_eq!(error.place, Place::Path("n".to_owned()));
}

#[test]
fn a_body_that_would_take_too_much_memory_is_not_read() {
    let ty = function([("a", list(ValueType::U8))]);
    let zeros = |n: usize| format!("[{}0]", "0,".repeat(n));
    assert!(body(&ty, &zeros(1_000)).is_ok());
    // As a tree it would take some thirty times as many bytes.
    let error = body(&ty, &zeros(6 << 20)).unwrap_err();
    assert!(
        error.starts_with("the body: it would take too much memory"),
        "{error}"
    );
}

#[test]
fn a_problem_names_the_place() {
    let of = |place| {
        let why = "it is wrong".to_owned();
        BadRequest { place, why }.problem()
    };
    let expected = json!({
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "detail": "the body at /a/0: it is wrong",
        "errors": [{ "detail": "it is wrong", "pointer": "/a/0" }],
    });
    assert_eq!(of(Place::Body("/a/0".to_owned())), expected);
    let parameter = of(Place::Query("n".to_owned()));
    assert_eq!(parameter["errors"][0]["parameter"], json!("n"));
}
