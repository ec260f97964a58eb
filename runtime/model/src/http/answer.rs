//! What a request is answered with: a status, and JSON.

use serde_json::{Value as Json, json};

use crate::value::json::to_json;
use crate::value::{FunctionType, Value, ValueType};

/// The status of an error that names none itself: the request was understood, and the function refused it.
pub(super) const REFUSED: u16 = 422;

/// Cases of errors that are statuses by their names (RFC 9110 and its registry), older names among them. Statuses about the
/// connection or the protocol, such as 405, are the server's own to say.
const CASES: [(&str, u16); 26] = [
    ("bad-request", 400),
    ("unauthorized", 401),
    ("payment-required", 402),
    ("forbidden", 403),
    ("not-found", 404),
    ("not-acceptable", 406),
    ("conflict", 409),
    ("gone", 410),
    ("precondition-failed", 412),
    ("content-too-large", 413),
    ("payload-too-large", 413),
    ("unsupported-media-type", 415),
    ("unprocessable-content", 422),
    ("unprocessable-entity", 422),
    ("locked", 423),
    ("failed-dependency", 424),
    ("precondition-required", 428),
    ("too-many-requests", 429),
    ("unavailable-for-legal-reasons", 451),
    ("internal-server-error", 500),
    ("not-implemented", 501),
    ("bad-gateway", 502),
    ("service-unavailable", 503),
    ("gateway-timeout", 504),
    ("insufficient-storage", 507),
    ("loop-detected", 508),
];

/// The answer for what a function has returned: nothing, or a value of its result's type. The JSON is the body.
///
/// Of a `result`, what the ok case holds is the answer. An error is `{"error": …}`, of status 422, or of the one that its
/// case names, as `not-found` does.
///
/// # Panics
/// When the value is not of the type.
pub fn response(ty: &FunctionType, value: Option<&Value>) -> (u16, Option<Json>) {
    let (Some(ty), Some(value)) = (ty.result(), value) else {
        return (204, None);
    };
    match (ty, value) {
        (ValueType::Result(result), Value::Result(Ok(payload))) => {
            match (&result.ok, payload.as_deref()) {
                (Some(ty), Some(value)) => (200, Some(json_of(ty, value))),
                _ => (204, None),
            }
        }
        (ValueType::Result(result), Value::Result(Err(payload))) => {
            let (status, error) = match (&result.err, payload.as_deref()) {
                (Some(ty), Some(value)) => (status_of(ty, value), json_of(ty, value)),
                _ => (REFUSED, Json::Null),
            };
            (status, Some(json!({ "error": error })))
        }
        _ => (200, Some(json_of(ty, value))),
    }
}

/// What the server says by itself when there is no answer: `application/problem+json` (RFC 9457).
pub fn problem(status: u16, title: &str, detail: &str) -> Json {
    json!({ "type": "about:blank", "title": title, "status": status, "detail": detail })
}

/// The status of a case of an error.
pub(super) fn status_of_case(name: &str) -> u16 {
    let found = CASES.iter().find(|(case, _)| *case == name);
    found.map_or(REFUSED, |(_, status)| *status)
}

fn status_of(ty: &ValueType, value: &Value) -> u16 {
    match (ty, value) {
        (ValueType::Enum(it), Value::Enum(case)) => status_of_case(&it.cases[*case as usize]),
        (ValueType::Variant(it), Value::Variant(case, _)) => {
            status_of_case(&it.cases[*case as usize].0)
        }
        _ => REFUSED,
    }
}

fn json_of(ty: &ValueType, value: &Value) -> Json {
    to_json(ty, value).expect("the value is of its type")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(result: Option<ValueType>) -> FunctionType {
        FunctionType::new::<&str>([], result).unwrap()
    }

    fn result(ok: Option<ValueType>, err: Option<ValueType>) -> FunctionType {
        function(Some(ValueType::result(ok, err).unwrap()))
    }

    fn boxed(value: Value) -> Option<Box<Value>> {
        Some(Box::new(value))
    }

    #[test]
    fn values_are_answers() {
        assert_eq!(response(&function(None), None), (204, None));
        let number = function(Some(ValueType::U8));
        assert_eq!(
            response(&number, Some(&Value::U8(1))),
            (200, Some(json!(1)))
        );
        let none = function(Some(ValueType::option(ValueType::U8).unwrap()));
        assert_eq!(
            response(&none, Some(&Value::Option(None))),
            (200, Some(Json::Null))
        );
        let ok = Value::Result(Ok(boxed(Value::U8(1))));
        let ty = result(Some(ValueType::U8), Some(ValueType::String));
        assert_eq!(response(&ty, Some(&ok)), (200, Some(json!(1))));
        let ty = result(None, Some(ValueType::String));
        assert_eq!(response(&ty, Some(&Value::Result(Ok(None)))), (204, None));
    }

    #[test]
    fn an_error_has_the_status_that_its_case_names() {
        let answer = |ty: ValueType, value: Value| {
            let ty = result(None, Some(ty));
            response(&ty, Some(&Value::Result(Err(boxed(value)))))
        };
        let refused = |error: Json| (422, Some(json!({ "error": error })));
        let text = Value::String("not-found".to_owned());
        assert_eq!(answer(ValueType::String, text), refused(json!("not-found")));
        let nothing = response(&result(None, None), Some(&Value::Result(Err(None))));
        assert_eq!(nothing, refused(Json::Null));

        let color = ValueType::enumeration(["red", "gone"]).unwrap();
        assert_eq!(answer(color.clone(), Value::Enum(0)), refused(json!("red")));
        let gone = Some(json!({ "error": "gone" }));
        assert_eq!(answer(color, Value::Enum(1)), (410, gone));
        let why = ValueType::variant([("other", None), ("not-found", Some(ValueType::U8))]);
        let why = why.unwrap();
        let other = answer(why.clone(), Value::Variant(0, None));
        assert_eq!(other, refused(json!("other")));
        let not_found = answer(why, Value::Variant(1, boxed(Value::U8(7))));
        let body = Some(json!({ "error": { "not-found": 7 } }));
        assert_eq!(not_found, (404, body));
        // Only the outermost case counts.
        let inner = ValueType::enumeration(["conflict"]).unwrap();
        let outer = ValueType::variant([("store", Some(inner))]).unwrap();
        let value = Value::Variant(0, boxed(Value::Enum(0)));
        assert_eq!(
            answer(outer, value),
            refused(json!({ "store": "conflict" }))
        );
    }

    #[test]
    fn cases_are_names_in_wit_and_errors_of_http() {
        let names = CASES.map(|(name, _)| name);
        assert!(ValueType::enumeration(names).is_ok());
        assert!(CASES.iter().all(|(_, status)| (400..600).contains(status)));
        assert_eq!(status_of_case("too-many-requests"), 429);
        assert_eq!(status_of_case("ok"), REFUSED);
    }
}
