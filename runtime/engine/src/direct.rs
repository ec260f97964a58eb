//! Direct calls: arguments and results by `memcpy`, for types known only at run time.
//!
//! Implements wasmtime's `Lower` and `Lift` for them. Those traits are public but their methods are
//! not documented: the version of wasmtime is pinned to one release train, and the tests exercise
//! every kind of value.

use std::mem::MaybeUninit;

use wasmrun_model::failure::TaskError;
use wasmrun_model::value::{NumberKind, NumberList, Value};
use wasmtime::ValRaw;
use wasmtime::component::__internal::{
    CanonicalAbiInfo, InstanceType, InterfaceType, LiftContext, LowerContext,
};
use wasmtime::component::{
    ComponentNamedList, ComponentType, Func, Lift, Lower, ResourceAny, TypedFunc,
};

use crate::run::Sandbox;

/// How many core values the canonical ABI passes without going through memory.
pub(crate) const MAX_FLAT: usize = 16;

/// An argument as it goes into the guest.
pub(crate) enum Argument<'a> {
    /// A number, bool, char or string.
    Plain(Value),
    /// A list of numbers.
    Numbers(NumberKind, &'a [u8]),
}

/// Calls `func` directly, on `receiver` if it is a method. Its type is one for which
/// [`CallPlan::for_type`] says so, with a result that `R` stands for, and `values` are of its
/// parameters' types.
///
/// [`CallPlan::for_type`]: crate::call::CallPlan::for_type
pub(crate) async fn call<R>(
    sandbox: &mut Sandbox,
    func: Func,
    receiver: Option<ResourceAny>,
    values: &[Argument<'_>],
) -> Result<R, TaskError>
where
    R: ComponentNamedList + Lift + Send + Sync + 'static,
{
    // SAFETY: `for_type` has compared the function's type, which wasmtime told us, with what
    // `Arguments` and `R` can stand for, and `arguments` has decoded the values by that type.
    let func = unsafe { TypedFunc::<Arguments<'_>, R>::new_unchecked(func) };
    let arguments = Arguments { receiver, values };
    let called = func.call_async(&mut sandbox.store, arguments).await;
    called.map_err(|error| sandbox.failure(error))
}

/// The arguments of a direct call, already of the right types.
struct Arguments<'a> {
    receiver: Option<ResourceAny>,
    values: &'a [Argument<'a>],
}

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
        ty: InterfaceType,
        dst: &mut MaybeUninit<Self::Lower>,
    ) -> wasmtime::Result<()> {
        let mut flat = [ValRaw::u64(0); MAX_FLAT];
        let mut slots = flat.iter_mut();
        let mut put = |raw| *slots.next().expect("CallPlan has counted") = raw;
        if let Some(receiver) = &self.receiver {
            let InterfaceType::Tuple(params) = ty else {
                wasmtime::bail!("parameters are a tuple")
            };
            let ty = cx.types[params].types[0];
            let mut raw = MaybeUninit::new(ValRaw::u64(0));
            receiver.linear_lower_to_flat(cx, ty, &mut raw)?;
            // SAFETY: it was initialised when it was made.
            put(unsafe { raw.assume_init() });
        }
        for value in self.values {
            let value = match value {
                Argument::Plain(value) => value,
                Argument::Numbers(kind, bytes) => {
                    let width = kind.width_bytes();
                    let at = cx.realloc(0, 0, width as u32, bytes.len())?;
                    cx.as_slice_mut()[at..at + bytes.len()].copy_from_slice(bytes);
                    put(ValRaw::u64(at as u64));
                    put(ValRaw::u64((bytes.len() / width) as u64));
                    continue;
                }
            };
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
pub(crate) struct Scalar(pub(crate) Value);

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
pub(crate) struct Numbers(pub(crate) NumberList);

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
