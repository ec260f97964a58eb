//! What routes are, said to other programs: OpenAPI 3.1.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::answer::{REFUSED, status_of_case};
use super::arguments::{Param, is_bare, plain};
use super::route::Route;
use super::routes::Routes;
use crate::value::schema::{self, Side};
use crate::value::{FunctionType, ValueType};

/// The description of all routes. Each is an operation with the name of its function; if that name is taken, with a number.
pub fn openapi(title: &str, version: &str, routes: &Routes) -> Json {
    let mut paths = Map::new();
    let mut ids = BTreeSet::new();
    for (route, ty) in routes.iter() {
        // Routes of one path may name what they capture differently. There it is one path, with the names of the first.
        let mut same_path = routes.iter().map(|(it, _)| it);
        let first = same_path.find(|it| it.is_same_path(route));
        let first = first.unwrap_or(route);
        let operation = operation(route, ty, first, &mut ids);
        let path = paths.entry(first.path()).or_insert_with(|| json!({}));
        path[route.method().as_str().to_ascii_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": title, "version": version },
        "paths": paths,
        "components": { "schemas": { "Problem": problem_schema() } },
    })
}

fn operation(route: &Route, ty: &FunctionType, first: &Route, ids: &mut BTreeSet<String>) -> Json {
    let find = |name: &str| ty.params().iter().find(|(own, _)| **own == *name);
    let in_path = route.captures().zip(first.captures());
    let in_path = in_path.filter_map(|(own, name)| Some((name, &find(own)?.1)));
    let mut parameters: Vec<Json> = in_path
        .map(|(name, ty)| parameter("path", name, ty, true))
        .collect();
    let is_captured = |name: &str| route.captures().any(|it| it == name);
    let rest = ty.params().iter().filter(|(name, _)| !is_captured(name));
    let rest: Vec<&Param> = rest.collect();
    let mut operation = json!({
        "operationId": operation_id(route, ids),
        "summary": format!("calls {}", route.function()),
        "responses": responses(ty),
    });
    if !route.method().has_body() {
        let in_query = rest.iter().map(|(name, ty)| {
            let is_required = !matches!(ty, ValueType::Option(_));
            parameter("query", name, ty, is_required)
        });
        parameters.extend(in_query);
    } else if !rest.is_empty() {
        let schema = match is_bare(&rest) {
            true => schema::of_type(&rest[0].1, Side::Input),
            false => Json::Object(schema::of_arguments(rest.iter().copied())),
        };
        let is_required = rest
            .iter()
            .any(|(_, ty)| !matches!(ty, ValueType::Option(_)));
        operation["requestBody"] = json!({ "required": is_required, "content": content(schema) });
    }
    operation["parameters"] = Json::Array(parameters);
    operation
}

fn parameter(place: &str, name: &str, ty: &ValueType, is_required: bool) -> Json {
    let mut parameter = json!({ "name": name, "in": place, "required": is_required });
    match plain(ty) {
        Some(ty) => parameter["schema"] = schema::of_type(ty, Side::Input),
        None => parameter["content"] = content(schema::of_type(ty, Side::Input)),
    }
    parameter
}

fn content(schema: Json) -> Json {
    json!({ "application/json": { "schema": schema } })
}

/// The function's name without its interface, or that with a number.
fn operation_id(route: &Route, ids: &mut BTreeSet<String>) -> String {
    let full = route.function();
    let name = full.rsplit('#').next().unwrap_or(full);
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let free = iter::once(name.to_owned())
        .chain(numbered)
        .find(|id| !ids.contains(id));
    let id = free.expect("there are more numbers than routes");
    ids.insert(id.clone());
    id
}

/// What the function can answer, and what the server can say in its place.
fn responses(ty: &FunctionType) -> Json {
    let mut all = BTreeMap::new();
    match ty.result().and_then(ValueType::when_ok) {
        Some(ok) => {
            let content = content(schema::of_type(ok, Side::Output));
            let what = "What the function returns.";
            let response = json!({ "description": what, "content": content });
            all.insert("200".to_owned(), response);
        }
        None => {
            let what = "The function has run. It returns nothing.";
            all.insert("204".to_owned(), json!({ "description": what }));
        }
    }
    for (status, error) in errors(ty) {
        let schema = json!({
            "type": "object",
            "properties": { "error": error },
            "required": ["error"],
            "additionalProperties": false,
        });
        let what = "The function returns an error.";
        let response = json!({ "description": what, "content": content(schema) });
        all.insert(status.to_string(), response);
    }
    for (status, what) in [
        ("400", "The request does not fit the function."),
        ("503", "The server has no room for the call now."),
        ("default", "There is no answer."),
    ] {
        let new = || json!({ "description": what, "content": {} });
        let response = all.entry(status.to_owned()).or_insert_with(new);
        let problem = json!({ "schema": { "$ref": "#/components/schemas/Problem" } });
        response["content"]["application/problem+json"] = problem;
    }
    json!(all)
}

/// The schema of the errors of each status that the function can return.
fn errors(ty: &FunctionType) -> BTreeMap<u16, Json> {
    let Some(ValueType::Result(result)) = ty.result() else {
        return BTreeMap::new();
    };
    let part = "some cases of a type are a type";
    let types: BTreeMap<u16, ValueType> = match &result.err {
        None => return BTreeMap::from([(REFUSED, json!({ "type": "null" }))]),
        Some(ValueType::Enum(it)) => by_status(&it.cases, |name| name)
            .map(|(status, cases)| (status, ValueType::enumeration(cases).expect(part)))
            .collect(),
        Some(ValueType::Variant(it)) => by_status(&it.cases, |(name, _)| name)
            .map(|(status, cases)| (status, ValueType::variant(cases).expect(part)))
            .collect(),
        Some(other) => BTreeMap::from([(REFUSED, other.clone())]),
    };
    let types = types.into_iter();
    types
        .map(|(status, ty)| (status, schema::of_type(&ty, Side::Output)))
        .collect()
}

/// Cases by the status that each stands for.
fn by_status<T: Clone>(
    cases: &[T],
    name: impl Fn(&T) -> &Arc<str>,
) -> impl Iterator<Item = (u16, Vec<T>)> {
    let mut by_status: BTreeMap<u16, Vec<T>> = BTreeMap::new();
    for case in cases {
        let status = status_of_case(name(case));
        by_status.entry(status).or_default().push(case.clone());
    }
    by_status.into_iter()
}

/// What [`problem`](super::problem) makes.
fn problem_schema() -> Json {
    let text = json!({ "type": "string" });
    json!({
        "type": "object",
        "properties": {
            "type": text,
            "title": text,
            "status": { "type": "integer" },
            "detail": text,
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": { "detail": text, "parameter": text, "pointer": text },
                    "required": ["detail"],
                },
            },
        },
        "required": ["type", "title", "status", "detail"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(routes: impl IntoIterator<Item = (&'static str, FunctionType)>) -> Json {
        let routes = routes.into_iter();
        let routes = routes.map(|(route, ty)| (route.parse::<Route>().unwrap(), ty));
        openapi("orders", "1.2.3", &Routes::new(routes).unwrap())
    }

    fn function<const N: usize>(
        params: [(&str, ValueType); N],
        result: Option<ValueType>,
    ) -> FunctionType {
        FunctionType::new(params, result).unwrap()
    }

    fn option(ty: ValueType) -> ValueType {
        ValueType::option(ty).unwrap()
    }

    fn problem() -> Json {
        json!({ "schema": { "$ref": "#/components/schemas/Problem" } })
    }

    fn u8_schema() -> Json {
        json!({ "type": "integer", "minimum": 0, "maximum": 255 })
    }

    #[test]
    fn a_query_and_a_path_are_parameters() {
        let list = ValueType::list(ValueType::Bool).unwrap();
        let params = [
            ("id", ValueType::U8),
            ("name", option(ValueType::String)),
            ("flags", list),
        ];
        let all = described([("GET /orders/{id}=a:b/c#find", function(params, None))]);
        assert_eq!(all["openapi"], json!("3.1.0"));
        assert_eq!(
            all["info"],
            json!({ "title": "orders", "version": "1.2.3" })
        );
        let flags = json!({ "type": "array", "items": { "type": "boolean" } });
        let problems = json!({ "application/problem+json": problem() });
        let refused = |what: &str| json!({ "description": what, "content": problems });
        let expected = json!({
            "operationId": "find",
            "summary": "calls a:b/c#find",
            "parameters": [
                { "name": "id", "in": "path", "required": true, "schema": u8_schema() },
                { "name": "name", "in": "query", "required": false, "schema": { "type": "string" } },
                { "name": "flags", "in": "query", "required": true,
                    "content": { "application/json": { "schema": flags } } },
            ],
            "responses": {
                "204": { "description": "The function has run. It returns nothing." },
                "400": refused("The request does not fit the function."),
                "503": refused("The server has no room for the call now."),
                "default": refused("There is no answer."),
            },
        });
        assert_eq!(all["paths"]["/orders/{id}"]["get"], expected);
    }

    #[test]
    fn a_body_is_what_arguments_reads() {
        let params = || [("a", ValueType::U8), ("b", option(ValueType::U8))];
        let all = described([
            ("POST /two=f", function(params(), None)),
            ("PUT /{a}=f", function(params(), None)),
            ("PATCH /none=g", function([], Some(ValueType::U8))),
        ]);
        let body = |path: &str, method: &str| all["paths"][path][method]["requestBody"].clone();
        let two = body("/two", "post");
        assert_eq!(two["required"], json!(true));
        let schema = &two["content"]["application/json"]["schema"];
        assert_eq!(schema["required"], json!(["a"]));
        assert_eq!(schema["properties"]["a"], u8_schema());
        let one = body("/{a}", "put");
        assert_eq!(one["required"], json!(false));
        let schema = &one["content"]["application/json"]["schema"];
        assert_eq!(schema["anyOf"], json!([u8_schema(), { "type": "null" }]));
        assert_eq!(body("/none", "patch"), Json::Null);
        let ok = &all["paths"]["/none"]["patch"]["responses"]["200"];
        assert_eq!(ok["content"]["application/json"]["schema"], u8_schema());
        assert_eq!(all["paths"]["/{a}"]["put"]["operationId"], json!("f-2"));
    }

    #[test]
    fn one_path_has_one_set_of_names() {
        let of = |name: &'static str| function([(name, ValueType::U8)], None);
        let all = described([
            ("GET /orders/{id}=find", of("id")),
            ("DELETE /orders/{order}=remove", of("order")),
        ]);
        let paths = all["paths"].as_object().unwrap();
        assert_eq!(paths.len(), 1);
        for method in ["get", "delete"] {
            let parameter = &paths["/orders/{id}"][method]["parameters"][0];
            assert_eq!(parameter["name"], json!("id"));
        }
    }

    #[test]
    fn errors_stand_at_the_statuses_that_their_cases_name() {
        let responses = |err: Option<ValueType>| {
            let ty = ValueType::result(None, err).unwrap();
            responses(&function([], Some(ty)))
        };
        let error = |responses: &Json, status: &str| {
            let content = &responses[status]["content"]["application/json"];
            content["schema"]["properties"]["error"].clone()
        };
        let why = ValueType::variant([
            ("content-too-large", Some(ValueType::U8)),
            ("payload-too-large", None),
            ("bad-request", None),
            ("other", None),
        ]);
        let all = responses(Some(why.unwrap()));
        let names = |name: &str| json!({ "type": "string", "enum": [name] });
        assert_eq!(error(&all, "422"), names("other"));
        assert_eq!(error(&all, "400"), names("bad-request"));
        // The function's errors and the server's.
        assert_eq!(all["400"]["content"]["application/problem+json"], problem());
        let too_large = error(&all, "413");
        assert_eq!(too_large["anyOf"][0], names("payload-too-large"));
        let payload = &too_large["anyOf"][1]["properties"];
        assert_eq!(payload["content-too-large"], u8_schema());

        let gone = ValueType::enumeration(["gone"]).unwrap();
        let all = responses(Some(gone));
        assert_eq!(error(&all, "410"), names("gone"));
        assert_eq!(all.get("422"), None);
        let text = responses(Some(ValueType::String));
        assert_eq!(error(&text, "422"), json!({ "type": "string" }));
        assert_eq!(error(&responses(None), "422"), json!({ "type": "null" }));
    }
}
