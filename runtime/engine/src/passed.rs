//! Errors that a function got from the runtime and returns as its own.
//!
//! Owns how one is told from any other error: by its shape, which is that of `error` in
//! `wasmrun:runtime/objects`. A component names its types as it likes.

use std::sync::Arc;

use wasmrun_model::failure::{Failure, FailureKind};
use wasmrun_model::value::{Value, ValueType};

/// The failure of which the error case of a result tells, if that is an error of the runtime.
pub(crate) fn failure(ty: &ValueType, value: &Value) -> Option<Failure> {
    let (ValueType::Result(ty), Value::Result(Err(Some(error)))) = (ty, value) else {
        return None;
    };
    let (Some(ValueType::Variant(ty)), Value::Variant(case, Some(failure))) = (&ty.err, &**error)
    else {
        return None;
    };
    let (name, payload) = ty.cases.get(usize::try_from(*case).ok()?)?;
    match (&**name, payload, &**failure) {
        ("failed", Some(ValueType::Record(ty)), Value::Record(fields)) => read(&ty.fields, fields),
        _ => None,
    }
}

fn read(types: &[(Arc<str>, ValueType)], fields: &[Value]) -> Option<Failure> {
    let names = types.iter().map(|(name, _)| &**name);
    if !names.eq(["kind", "message", "origin", "payload"]) {
        return None;
    }
    let (_, ValueType::Enum(kinds)) = &types[0] else {
        return None;
    };
    let [
        Value::Enum(kind),
        Value::String(message),
        Value::String(origin),
        Value::Option(payload),
    ] = fields
    else {
        return None;
    };
    let kind = kinds.cases.get(usize::try_from(*kind).ok()?)?;
    let payload = match payload.as_deref() {
        None => None,
        Some(Value::Numbers(payload)) => Some(payload.as_le_bytes().to_vec()),
        Some(_) => return None,
    };
    Some(Failure {
        kind: FailureKind::named(kind)?,
        message: message.clone(),
        // One that a guest made up, perhaps; then it is its own.
        origin: origin.parse().ok()?,
        payload,
    })
}
