//! Calling a typed function: arguments into the guest, the result out of it.
//!
//! wasmtime's dynamic calls hold every element of a list as a value of its own, 40 bytes for one
//! byte of a `list<u8>` and about 40 ms for a MiB. So where all parameters are numbers, strings
//! and lists of numbers, and the result is one of those, arguments and result are moved by
//! `memcpy` between our encoding and the guest's memory, which hold the same bytes. Everything
//! else takes the dynamic path.
//!
//! The direct path implements wasmtime's `Lower` and `Lift` for types whose shape is only known
//! at run time. Those traits are public but their methods are not documented: the version of
//! wasmtime is pinned to one release train, and `tests` below exercise every kind of value.

use std::mem::MaybeUninit;

use wasmrun_model::failure::{LimitHit, LimitKind, TaskError};
use wasmrun_model::value::codec::{decode, encode};
use wasmrun_model::value::{
    DecodeLimits, Encoded, FunctionType, NumberKind, NumberList, Value, ValueType, wave,
};
use wasmtime::ValRaw;
use wasmtime::component::__internal::{
    CanonicalAbiInfo, InstanceType, InterfaceType, LiftContext, LowerContext,
};
use wasmtime::component::{ComponentNamedList, ComponentType, Func, Lift, Lower, TypedFunc, Val};

use crate::limits::Limits;
use crate::module::Function;
use crate::run::Sandbox;

/// How a function is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallPlan {
    /// By `memcpy`.
    Direct(DirectResult),
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

/// How many core values the canonical ABI passes without going through memory.
const MAX_FLAT: usize = 16;

impl CallPlan {
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
        let fits = count.is_some_and(|count| count <= MAX_FLAT);
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

/// Calls `function` in a new instance.
pub(crate) async fn call(
    sandbox: &mut Sandbox<'_>,
    function: &Function,
    values: &[Encoded],
    limits: &Limits,
) -> Result<Option<Encoded>, TaskError> {
    let values = arguments(&function.ty, values, limits)?;
    call_with(sandbox, function, &values, limits)
        .await
        .map_err(|error| match error {
            TaskError::Sandbox(message) if message.contains(OUT_OF_FUEL) => {
                let (kind, limit) = (LimitKind::Result, limits.result);
                let hit = LimitHit {
                    kind,
                    limit,
                    wanted: None,
                };
                TaskError::Limit {
                    hit,
                    frames: Vec::new(),
                }
            }
            error => error,
        })
}

/// What wasmtime says when more is to be lifted out of a guest than the store allows. Its error
/// has no type that could be asked for.
const OUT_OF_FUEL: &str = "fuel allocated for hostcalls has been exhausted";

async fn call_with(
    sandbox: &mut Sandbox<'_>,
    function: &Function,
    values: &[Value],
    limits: &Limits,
) -> Result<Option<Encoded>, TaskError> {
    let instance = sandbox.instantiate().await?;
    let func = instance
        .get_func(&mut sandbox.store, function.export)
        .ok_or_else(|| TaskError::Sandbox(format!("{} is gone", function.full_name())))?;
    let result = match function.plan {
        CallPlan::Direct(DirectResult::Nothing) => {
            direct::<()>(sandbox, func, values).await?;
            None
        }
        CallPlan::Direct(DirectResult::Scalar) => {
            Some(direct::<(Scalar,)>(sandbox, func, values).await?.0.0)
        }
        CallPlan::Direct(DirectResult::String) => Some(Value::String(
            direct::<(String,)>(sandbox, func, values).await?.0,
        )),
        CallPlan::Direct(DirectResult::Numbers) => Some(Value::Numbers(
            direct::<(Numbers,)>(sandbox, func, values).await?.0.0,
        )),
        CallPlan::Dynamic => dynamic(sandbox, func, &function.ty, values).await?,
    };
    let (Some(ty), Some(value)) = (function.ty.result(), result) else {
        return Ok(None);
    };
    finish(ty, value, limits)
}

/// Checks and decodes the arguments.
fn arguments(
    ty: &FunctionType,
    values: &[Encoded],
    limits: &Limits,
) -> Result<Vec<Value>, TaskError> {
    if ty.params().len() != values.len() {
        let (takes, given) = (ty.params().len(), values.len());
        return Err(TaskError::Arguments(format!(
            "the function takes {takes} and {given} were given: {ty}"
        )));
    }
    let bytes = values.iter().map(|v| v.size_bytes() as u64).sum::<u64>();
    if bytes > limits.arguments {
        return Err(limit(LimitKind::Arguments, limits.arguments, bytes));
    }
    let decoded = ty.params().iter().zip(values).map(|((name, ty), value)| {
        decode(ty, value, DecodeLimits::default())
            .map_err(|error| TaskError::Arguments(format!("{name}: {error}")))
    });
    decoded.collect()
}

/// Encodes the result, within its limit. The error case of a result fails the task.
fn finish(ty: &ValueType, value: Value, limits: &Limits) -> Result<Option<Encoded>, TaskError> {
    let failed = matches!(value, Value::Result(Err(_)));
    let text = failed.then(|| error_text(ty, &value));
    let encoded = encode(ty, &value)
        .map_err(|error| TaskError::Sandbox(format!("the result cannot be encoded: {error}")))?;
    if encoded.size_bytes() as u64 > limits.result {
        return Err(limit(
            LimitKind::Result,
            limits.result,
            encoded.size_bytes() as u64,
        ));
    }
    match text {
        Some(text) => Err(TaskError::Guest {
            text,
            value: encoded,
        }),
        None => Ok(Some(encoded)),
    }
}

/// What the error case of a result says, as WAVE.
fn error_text(ty: &ValueType, value: &Value) -> String {
    let text = match (ty, value) {
        (ValueType::Result(result), Value::Result(Err(Some(payload)))) => result
            .err
            .as_ref()
            .and_then(|ty| wave::print(ty, payload).ok()),
        _ => None,
    };
    text.unwrap_or_else(|| "err, without saying more".into())
}

fn limit(kind: LimitKind, limit: u64, wanted: u64) -> TaskError {
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

async fn dynamic(
    sandbox: &mut Sandbox<'_>,
    func: Func,
    ty: &FunctionType,
    values: &[Value],
) -> Result<Option<Value>, TaskError> {
    let vals: Vec<Val> = crate::types::to_vals(ty, values);
    let mut results = [Val::Bool(false)];
    let results = &mut results[..usize::from(ty.result().is_some())];
    if let Err(error) = func.call_async(&mut sandbox.store, &vals, results).await {
        return Err(sandbox.failure(error));
    }
    let result = results
        .first_mut()
        .map(|val| std::mem::replace(val, Val::Bool(false)));
    Ok(ty
        .result()
        .zip(result)
        .map(|(ty, val)| crate::types::from_val(ty, val)))
}

/// Calls `func` directly. Its type is one for which [`CallPlan::for_type`] says so, with a result
/// that `R` stands for, and `values` are of its parameters' types.
async fn direct<R>(sandbox: &mut Sandbox<'_>, func: Func, values: &[Value]) -> Result<R, TaskError>
where
    R: ComponentNamedList + Lift + Send + Sync + 'static,
{
    // SAFETY: `for_type` has compared the function's type, which wasmtime told us, with what
    // `Arguments` and `R` can stand for, and `arguments` has decoded the values by that type.
    let func = unsafe { TypedFunc::<Arguments<'_>, R>::new_unchecked(func) };
    let called = func.call_async(&mut sandbox.store, Arguments(values)).await;
    called.map_err(|error| sandbox.failure(error))
}

/// The arguments of a direct call, already of the right types.
struct Arguments<'a>(&'a [Value]);

// SAFETY: as `Lower` it fills an array of core values, as many as the canonical ABI may pass
// without memory; wasmtime hands the callee those that its own signature has. It is only ever
// used for functions that `CallPlan::for_type` chose, whose flat count is within the array.
unsafe impl ComponentType for Arguments<'_> {
    type Lower = [ValRaw; MAX_FLAT];

    const ABI: CanonicalAbiInfo = CanonicalAbiInfo {
        size32: 0,
        align32: 1,
        size64: 0,
        align64: 1,
        flat_count: Some(MAX_FLAT as u8),
    };

    fn typecheck(_: &InterfaceType, _: &InstanceType<'_>) -> wasmtime::Result<()> {
        wasmtime::bail!("direct calls are checked by CallPlan")
    }
}

// SAFETY: it stands for a list of parameters.
unsafe impl ComponentNamedList for Arguments<'_> {}

// SAFETY: every core value of the array is written, and those for pointers come from the
// guest's own allocator, checked by wasmtime to be within its memory.
unsafe impl Lower for Arguments<'_> {
    fn linear_lower_to_flat<T>(
        &self,
        cx: &mut LowerContext<'_, T>,
        _: InterfaceType,
        dst: &mut MaybeUninit<Self::Lower>,
    ) -> wasmtime::Result<()> {
        let mut flat = [ValRaw::u64(0); MAX_FLAT];
        let mut slots = flat.iter_mut();
        let mut put = |raw| *slots.next().expect("CallPlan has counted") = raw;
        for value in self.0 {
            match value {
                Value::Bool(v) => put(ValRaw::u32(u32::from(*v))),
                Value::U8(v) => put(ValRaw::u32(u32::from(*v))),
                Value::U16(v) => put(ValRaw::u32(u32::from(*v))),
                Value::U32(v) => put(ValRaw::u32(*v)),
                Value::U64(v) => put(ValRaw::u64(*v)),
                Value::S8(v) => put(ValRaw::i32(i32::from(*v))),
                Value::S16(v) => put(ValRaw::i32(i32::from(*v))),
                Value::S32(v) => put(ValRaw::i32(*v)),
                Value::S64(v) => put(ValRaw::i64(*v)),
                Value::F32(v) => put(ValRaw::f32(v.to_bits())),
                Value::F64(v) => put(ValRaw::f64(v.to_bits())),
                Value::Char(v) => put(ValRaw::u32(u32::from(*v))),
                Value::String(v) => {
                    // wasmtime's own, for the sake of the guest's string encoding.
                    let mut pair = MaybeUninit::new([ValRaw::u64(0); 2]);
                    v.as_str()
                        .linear_lower_to_flat(cx, InterfaceType::String, &mut pair)?;
                    // SAFETY: it was initialised when it was made.
                    unsafe { pair.assume_init() }.into_iter().for_each(&mut put);
                }
                Value::Numbers(numbers) => {
                    let (bytes, width) = (numbers.as_le_bytes(), numbers.kind().width_bytes());
                    let at = cx.realloc(0, 0, width as u32, bytes.len())?;
                    cx.as_slice_mut()[at..at + bytes.len()].copy_from_slice(bytes);
                    put(ValRaw::u64(at as u64));
                    put(ValRaw::u64(numbers.len() as u64));
                }
                other => unreachable!("CallPlan takes no {}", other.kind_name()),
            }
        }
        dst.write(flat);
        Ok(())
    }

    fn linear_lower_to_memory<T>(
        &self,
        _: &mut LowerContext<'_, T>,
        _: InterfaceType,
        _: usize,
    ) -> wasmtime::Result<()> {
        wasmtime::bail!("direct calls pass no arguments through memory")
    }
}

/// A number, bool or char as a result.
struct Scalar(Value);

// SAFETY: every such type is one core value.
unsafe impl ComponentType for Scalar {
    type Lower = ValRaw;

    const ABI: CanonicalAbiInfo = CanonicalAbiInfo::SCALAR8;

    fn typecheck(_: &InterfaceType, _: &InstanceType<'_>) -> wasmtime::Result<()> {
        wasmtime::bail!("direct calls are checked by CallPlan")
    }
}

// SAFETY: each type is lifted by wasmtime's own implementation for it.
unsafe impl Lift for Scalar {
    fn linear_lift_from_flat(
        cx: &mut LiftContext<'_>,
        ty: InterfaceType,
        src: &ValRaw,
    ) -> wasmtime::Result<Self> {
        Ok(Self(match ty {
            InterfaceType::Bool => Value::Bool(bool::linear_lift_from_flat(cx, ty, src)?),
            InterfaceType::S8 => Value::S8(i8::linear_lift_from_flat(cx, ty, src)?),
            InterfaceType::U8 => Value::U8(u8::linear_lift_from_flat(cx, ty, src)?),
            InterfaceType::S16 => Value::S16(i16::linear_lift_from_flat(cx, ty, src)?),
            InterfaceType::U16 => Value::U16(u16::linear_lift_from_flat(cx, ty, src)?),
            InterfaceType::S32 => Value::S32(i32::linear_lift_from_flat(cx, ty, src)?),
            InterfaceType::U32 => Value::U32(u32::linear_lift_from_flat(cx, ty, src)?),
            InterfaceType::S64 => Value::S64(i64::linear_lift_from_flat(cx, ty, src)?),
            InterfaceType::U64 => Value::U64(u64::linear_lift_from_flat(cx, ty, src)?),
            InterfaceType::Float32 => Value::F32(f32::linear_lift_from_flat(cx, ty, src)?),
            InterfaceType::Float64 => Value::F64(f64::linear_lift_from_flat(cx, ty, src)?),
            InterfaceType::Char => Value::Char(char::linear_lift_from_flat(cx, ty, src)?),
            _ => wasmtime::bail!("a direct call returned something else than a scalar"),
        }))
    }

    fn linear_lift_from_memory(
        _: &mut LiftContext<'_>,
        _: InterfaceType,
        _: &[u8],
    ) -> wasmtime::Result<Self> {
        wasmtime::bail!("a single scalar is not returned through memory")
    }
}

/// A list of numbers as a result.
struct Numbers(NumberList);

// SAFETY: every list is a pointer and a length.
unsafe impl ComponentType for Numbers {
    type Lower = [ValRaw; 2];

    const ABI: CanonicalAbiInfo = CanonicalAbiInfo::POINTER_PAIR;

    fn typecheck(_: &InterfaceType, _: &InstanceType<'_>) -> wasmtime::Result<()> {
        wasmtime::bail!("direct calls are checked by CallPlan")
    }
}

// SAFETY: pointer and length are checked against the guest's memory before anything is read.
unsafe impl Lift for Numbers {
    fn linear_lift_from_flat(
        _: &mut LiftContext<'_>,
        _: InterfaceType,
        _: &Self::Lower,
    ) -> wasmtime::Result<Self> {
        wasmtime::bail!("a list is returned through memory")
    }

    fn linear_lift_from_memory(
        cx: &mut LiftContext<'_>,
        ty: InterfaceType,
        bytes: &[u8],
    ) -> wasmtime::Result<Self> {
        let InterfaceType::List(list) = ty else {
            wasmtime::bail!("a direct call returned something else than a list")
        };
        let kind = number_kind(cx.types[list].element)?;
        let word = |at: usize| {
            u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
        };
        let (at, width) = (word(0), kind.width_bytes());
        let length = word(4).saturating_mul(width);
        if at % width != 0 {
            wasmtime::bail!("list pointer is not aligned");
        }
        let Some(numbers) = at
            .checked_add(length)
            .and_then(|end| cx.memory().get(at..end))
        else {
            wasmtime::bail!("list pointer/length out of bounds of memory")
        };
        cx.consume_fuel(length)?;
        let numbers = NumberList::from_le_bytes(kind, numbers.to_vec());
        Ok(Self(numbers.expect("whole elements")))
    }
}

fn number_kind(ty: InterfaceType) -> wasmtime::Result<NumberKind> {
    Ok(match ty {
        InterfaceType::U8 => NumberKind::U8,
        InterfaceType::S8 => NumberKind::S8,
        InterfaceType::U16 => NumberKind::U16,
        InterfaceType::S16 => NumberKind::S16,
        InterfaceType::U32 => NumberKind::U32,
        InterfaceType::S32 => NumberKind::S32,
        InterfaceType::U64 => NumberKind::U64,
        InterfaceType::S64 => NumberKind::S64,
        InterfaceType::Float32 => NumberKind::F32,
        InterfaceType::Float64 => NumberKind::F64,
        _ => wasmtime::bail!("a direct call returned a list of something else than numbers"),
    })
}
