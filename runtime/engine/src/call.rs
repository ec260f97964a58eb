//! Calling a typed function: arguments into the guest, the result out of it.
//!
//! There are three ways, and all give the same values. wasmtime's dynamic calls hold every element of a
//! list as a value of its own, 40 bytes for one byte of a `list<u8>` and about 40 ms for a MiB. So where
//! all parameters are numbers, strings and lists of numbers, and the result is one of those,
//! arguments and result are moved by `memcpy` between our encoding and the guest's memory, which
//! hold the same bytes (`direct`). Where a component has the fast lane, everything else goes there: the
//! guest gets the encoded bytes and decodes them itself. The rest takes the dynamic path.

use std::pin::pin;

use wasmrun_model::failure::{LimitHit, LimitKind, TaskError};
use wasmrun_model::value::codec::{decode, encode, validate};
use wasmrun_model::value::{
    DecodeLimits, Encoded, EncodedRef, FunctionType, Value, ValueType, wave,
};
use wasmtime::AsContextMut;
use wasmtime::component::{Func, Instance, ResourceAny, Val};

use crate::direct::{self, Argument, MAX_FLAT, Numbers, Scalar};
use crate::exports::FastLane;
use crate::handle::{has_ended, into_guest, out_of_guest};
use crate::limits::Limits;
use crate::passed;
use crate::prefault::{Bytes, Name};
use crate::run::Sandbox;
use crate::services::HandleSlot;

/// How a function is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallPlan {
    /// By `memcpy`.
    Direct(DirectResult),
    /// By the fast lane.
    Fast,
    /// Through wasmtime's dynamic values.
    Dynamic,
}

/// What a directly called function returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectResult {
    Nothing,
    Scalar,
    String,
    Numbers,
}

impl CallPlan {
    /// How to call a function that has no fast lane.
    pub(crate) fn for_type(ty: &FunctionType, is_async: bool) -> Self {
        let flat = |ty: &ValueType| match ty {
            ty if is_scalar(ty) => Some(1),
            ValueType::String => Some(2),
            ty => ty.buffer_kind().map(|_| 2),
        };
        let count = ty
            .params()
            .iter()
            .try_fold(0, |sum, (_, ty)| Some(sum + flat(ty)?));
        // A method's instance is one more.
        let fits = count.is_some_and(|count| count < MAX_FLAT);
        let result = match ty.result() {
            None => Some(DirectResult::Nothing),
            Some(ValueType::String) => Some(DirectResult::String),
            Some(ty) if is_scalar(ty) => Some(DirectResult::Scalar),
            Some(ty) => ty.buffer_kind().map(|_| DirectResult::Numbers),
        };
        match result {
            Some(result) if fits && !is_async => Self::Direct(result),
            _ => Self::Dynamic,
        }
    }
}

fn is_scalar(ty: &ValueType) -> bool {
    matches!(ty, ValueType::Bool | ValueType::Char) || ty.number_kind().is_some()
}

/// What is called.
pub(crate) struct Callee<'a> {
    /// The function, for all ways but the fast lane.
    pub(crate) func: Func,
    /// The instance that it is called on.
    pub(crate) receiver: Option<ResourceAny>,
    pub(crate) ty: &'a FunctionType,
    /// [`CallPlan::Direct`] or [`CallPlan::Dynamic`].
    pub(crate) plan: CallPlan,
}

/// What a call gave.
#[derive(Default)]
pub(crate) struct Returned {
    /// The result, encoded by its type, if the function has one.
    pub(crate) value: Option<Encoded>,
    /// The handles that the guest gave away with it; each is still counted.
    pub(crate) handles: Vec<HandleSlot>,
}

/// Checks that there are as many arguments as parameters, that they are of their types, and not too
/// large.
pub(crate) fn check_arguments(
    ty: &FunctionType,
    values: &[EncodedRef<'_>],
    limits: &Limits,
) -> Result<(), TaskError> {
    if ty.params().len() != values.len() {
        let (takes, given) = (ty.params().len(), values.len());
        return Err(TaskError::Arguments(format!(
            "the function takes {takes} and {given} were given: {ty}"
        )));
    }
    let bytes = values.iter().map(|v| v.bytes().len() as u64).sum::<u64>();
    if bytes > limits.arguments {
        return Err(limit(LimitKind::Arguments, limits.arguments, bytes));
    }
    for ((name, ty), value) in ty.params().iter().zip(values) {
        validate(ty, *value).map_err(|error| TaskError::Arguments(format!("{name}: {error}")))?;
    }
    Ok(())
}

/// Calls a function, with arguments that have been checked.
pub(crate) async fn call(
    sandbox: &mut Sandbox,
    callee: Callee<'_>,
    values: &[EncodedRef<'_>],
    limits: &Limits,
) -> Result<Returned, TaskError> {
    let Callee {
        func,
        receiver,
        ty,
        plan,
    } = callee;
    let mut handles = Vec::new();
    let value = match plan {
        CallPlan::Direct(result) => {
            let arguments = plain(ty, values)?;
            let called = pin!(call_directly(sandbox, func, receiver, &arguments, result));
            called.await?
        }
        CallPlan::Dynamic | CallPlan::Fast => {
            dynamic(sandbox, func, receiver, ty, values, &mut handles).await?
        }
    };
    let (Some(ty), Some(value)) = (ty.result(), value) else {
        return Ok(Returned {
            value: None,
            handles,
        });
    };
    match encoded(ty, value).and_then(|value| finish(ty, value, limits)) {
        Ok(value) => Ok(Returned {
            value: Some(value),
            handles,
        }),
        Err(error) => {
            // The guest gave them away, and nobody takes them.
            let services = sandbox.store.data().services.clone();
            handles.into_iter().for_each(|slot| services.release(slot));
            Err(error)
        }
    }
}

/// Calls a function by the fast lane, with arguments that have been checked.
pub(crate) async fn call_fast(
    sandbox: &mut Sandbox,
    instance: Instance,
    lane: &FastLane,
    target: Target<'_>,
    ty: &FunctionType,
    values: &[EncodedRef<'_>],
    limits: &Limits,
) -> Result<Returned, TaskError> {
    let values: Vec<&[u8]> = values.iter().map(|value| value.bytes()).collect();
    let module = sandbox.module.clone();
    let store = &mut sandbox.store;
    let called = match target {
        Target::Function(name) => {
            let func =
                instance.get_typed_func::<(Name<'_>, &[&[u8]]), (Bytes,)>(&mut *store, lane.call);
            let name = Name(name, &module.0.dirty_pages);
            match func {
                Ok(func) => func.call_async(&mut *store, (name, &values)).await,
                Err(error) => Err(error),
            }
            .map(|(Bytes(bytes, memory),)| {
                module.0.dirty_pages.learn(&memory);
                (bytes,)
            })
        }
        Target::Method(instance_number, name) => {
            let func = instance
                .get_typed_func::<(u32, &str, &[&[u8]]), (Vec<u8>,)>(&mut *store, lane.invoke);
            match func {
                Ok(func) => {
                    func.call_async(&mut *store, (instance_number, name, &values))
                        .await
                }
                Err(error) => Err(error),
            }
        }
    };
    let (bytes,) = called.map_err(|error| sandbox.failure(error))?;
    let value = match ty.result() {
        Some(ty) => {
            let value = Encoded::in_form(ty, bytes);
            validate(ty, &value)
                .map_err(|error| wrong(format!("its fast lane returned a wrong value: {error}")))?;
            Some(finish(ty, value, limits)?)
        }
        None => None,
    };
    Ok(Returned {
        value,
        handles: Vec::new(),
    })
}

/// What is called by the fast lane.
pub(crate) enum Target<'a> {
    /// A function, by its name.
    Function(&'a str),
    /// A method of an instance.
    Method(u32, &'a str),
}

/// What a guest has done wrong after it came to its end.
fn wrong(message: String) -> TaskError {
    TaskError::Trap {
        message,
        frames: Vec::new(),
    }
}

fn encoded(ty: &ValueType, value: Value) -> Result<Encoded, TaskError> {
    match value {
        Value::Numbers(list) => Ok(Encoded::in_form(ty, list.into_le_bytes())),
        value => encode(ty, &value)
            .map_err(|error| TaskError::Sandbox(format!("the result cannot be encoded: {error}"))),
    }
}

/// Arguments for a direct call. They have been checked.
fn plain<'a>(ty: &FunctionType, values: &[EncodedRef<'a>]) -> Result<Vec<Argument<'a>>, TaskError> {
    let values = ty.params().iter().zip(values);
    let arguments = values.map(|((name, ty), value)| match *value {
        EncodedRef::Buffer { kind, bytes } => Ok(Argument::Numbers(kind, bytes)),
        EncodedRef::Postcard(_) => decoded(name, ty, *value).map(Argument::Plain),
    });
    arguments.collect()
}

fn decoded(name: &str, ty: &ValueType, value: EncodedRef<'_>) -> Result<Value, TaskError> {
    decode(ty, value, DecodeLimits::default())
        .map_err(|error| TaskError::Arguments(format!("{name}: {error}")))
}

async fn call_directly(
    sandbox: &mut Sandbox,
    func: Func,
    receiver: Option<ResourceAny>,
    arguments: &[Argument<'_>],
    result: DirectResult,
) -> Result<Option<Value>, TaskError> {
    Ok(match result {
        DirectResult::Nothing => {
            direct::call::<()>(sandbox, func, receiver, arguments).await?;
            None
        }
        DirectResult::Scalar => {
            let (value,) = direct::call::<(Scalar,)>(sandbox, func, receiver, arguments).await?;
            Some(value.0)
        }
        DirectResult::String => {
            let (text,) = direct::call::<(String,)>(sandbox, func, receiver, arguments).await?;
            Some(Value::String(text))
        }
        DirectResult::Numbers => {
            let (list,) = direct::call::<(Numbers,)>(sandbox, func, receiver, arguments).await?;
            Some(Value::Numbers(list.0))
        }
    })
}

/// Checks a result against its limit. The error case of a result fails the task.
fn finish(ty: &ValueType, value: Encoded, limits: &Limits) -> Result<Encoded, TaskError> {
    if value.size_bytes() as u64 > limits.result {
        let size = value.size_bytes() as u64;
        return Err(limit(LimitKind::Result, limits.result, size));
    }
    let is_error =
        matches!(ty, ValueType::Result(_)) && matches!(EncodedRef::from(&value).bytes(), [1, ..]);
    if !is_error {
        return Ok(value);
    }
    let decoded = decode(ty, &value, DecodeLimits::default()).ok();
    let passed = decoded
        .as_ref()
        .and_then(|value| passed::failure(ty, value));
    let text = match (&passed, &decoded) {
        (Some(passed), _) => Some(passed.message.clone()),
        (None, Some(decoded)) => error_text(ty, decoded),
        (None, None) => None,
    };
    Err(TaskError::Guest {
        text: text.unwrap_or_else(|| SAYS_NOTHING.to_owned()),
        value,
        passed: passed.map(Box::new),
    })
}

const SAYS_NOTHING: &str = "err, without saying more";

/// What the error case of a result says, as WAVE.
fn error_text(ty: &ValueType, value: &Value) -> Option<String> {
    let (ValueType::Result(result), Value::Result(Err(Some(payload)))) = (ty, value) else {
        return None;
    };
    let ty = result.err.as_ref()?;
    let text = wave::print(ty, payload).ok()?;
    Some(match ty {
        ValueType::String => without_escaped_quotes(&text),
        _ => text,
    })
}

/// A text in quotes, in which others are as they are. They are often quotes of what other tasks said, and each of those
/// would double the backslashes.
fn without_escaped_quotes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match (char, chars.peek()) {
            ('\\', Some(next @ ('"' | '\'' | '\\'))) => {
                plain.push(*next);
                chars.next();
            }
            _ => plain.push(char),
        }
    }
    plain
}

pub(crate) fn limit(kind: LimitKind, limit: u64, wanted: u64) -> TaskError {
    let hit = LimitHit {
        kind,
        limit,
        wanted: Some(wanted),
    };
    TaskError::Limit {
        hit,
        frames: Vec::new(),
    }
}

/// Arguments for a dynamic call, with a handle of the guest's for each one in them.
pub(crate) fn lower(
    sandbox: &mut Sandbox,
    ty: &FunctionType,
    values: &[Value],
) -> Result<Vec<Val>, TaskError> {
    let mut store = sandbox.store.as_context_mut();
    let services = store.data().services.clone();
    let vals = crate::types::to_vals(ty, values, &mut |handle| {
        // The caller's name for it is good only if the node knows it as given to this guest.
        let Some(slot) = services.open(&handle) else {
            wasmtime::bail!("the {} {handle} was not given to this guest", handle.kind());
        };
        into_guest(&mut store, handle, slot)
    });
    vals.map_err(|error| TaskError::Arguments(error.to_string()))
}

async fn dynamic(
    sandbox: &mut Sandbox,
    func: Func,
    receiver: Option<ResourceAny>,
    ty: &FunctionType,
    values: &[EncodedRef<'_>],
    handles: &mut Vec<HandleSlot>,
) -> Result<Option<Value>, TaskError> {
    let params = ty.params().iter().zip(values);
    let values = params.map(|((name, ty), value)| decoded(name, ty, *value));
    let values = values.collect::<Result<Vec<Value>, TaskError>>()?;
    let mut vals = lower(sandbox, ty, &values)?;
    if let Some(receiver) = receiver {
        vals.insert(0, Val::Resource(receiver));
    }
    let mut results = [Val::Bool(false)];
    let results = &mut results[..usize::from(ty.result().is_some())];
    if let Err(error) = func.call_async(&mut sandbox.store, &vals, results).await {
        return Err(sandbox.failure(error));
    }
    let result = results
        .first_mut()
        .map(|val| std::mem::replace(val, Val::Bool(false)));
    let Some((ty, val)) = ty.result().zip(result) else {
        return Ok(None);
    };
    let mut store = sandbox.store.as_context_mut();
    let value = crate::types::from_val(ty, val, &mut |resource| {
        let slot = out_of_guest(&mut store, resource)?;
        handles.push(slot);
        let handle = store.data().services.handle(slot);
        handle.ok_or_else(has_ended)
    });
    value
        .map(Some)
        .map_err(|error| wrong(format!("its result has a wrong handle: {error}")))
}
