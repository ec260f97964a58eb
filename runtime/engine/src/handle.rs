//! Handles that a guest holds: wasmtime's tables have for each the slot of the node's handle table.
//!
//! A handle is counted with the node as long as the guest has it, and moves out of the guest as its slot, still counted.

use std::sync::Arc;

use wasmrun_model::value::Handle;
use wasmtime::component::__internal::{CanonicalAbiInfo, InstanceType, InterfaceType, LiftContext};
use wasmtime::component::{ComponentType, Lift, Resource, ResourceAny};
use wasmtime::{AsContextMut, StoreContextMut, ValRaw};

use crate::services::{HandleSlot, Services};
use crate::state::TaskState;

/// An object, as the type of the guest's handles to it. There are no values of it.
#[derive(Debug)]
pub enum ObjectHandle {}

/// An actor, as the type of the guest's handles to it. There are no values of it.
#[derive(Debug)]
pub enum ActorHandle {}

/// The slot behind a handle.
pub(crate) fn slot<T: 'static>(handle: &Resource<T>) -> HandleSlot {
    HandleSlot(handle.rep())
}

/// A handle for the guest to what is in a slot. The node has counted it.
pub(crate) fn resource<T: 'static>(slot: HandleSlot) -> Resource<T> {
    Resource::new_own(slot.0)
}

/// Puts a handle into the guest's table, as an argument. The node has counted it.
pub(crate) fn into_guest(
    store: &mut StoreContextMut<'_, TaskState>,
    handle: Handle,
    slot: HandleSlot,
) -> wasmtime::Result<ResourceAny> {
    match handle {
        Handle::Object(_) => {
            resource::<ObjectHandle>(slot).try_into_resource_any(store.as_context_mut())
        }
        Handle::Actor(_) => {
            resource::<ActorHandle>(slot).try_into_resource_any(store.as_context_mut())
        }
    }
}

/// Takes a handle out of the guest's table, as part of a result: its slot, which stays counted.
pub(crate) fn out_of_guest(
    store: &mut StoreContextMut<'_, TaskState>,
    resource: ResourceAny,
) -> wasmtime::Result<HandleSlot> {
    let object = Resource::<ObjectHandle>::try_from_resource_any(resource, store.as_context_mut());
    if let Ok(object) = object {
        return Ok(slot(&object));
    }
    let actor = Resource::<ActorHandle>::try_from_resource_any(resource, store.as_context_mut())?;
    Ok(slot(&actor))
}

/// Why nothing is in a slot: what the guest was in has ended, and the call is on its way out.
pub(crate) fn has_ended() -> wasmtime::Error {
    wasmtime::format_err!("the actor has ended, and so have its handles")
}

impl TaskState {
    /// The node's services for whatever runs now.
    pub(crate) fn services(&self) -> Arc<dyn Services> {
        self.services.clone()
    }
}

/// A `list<borrow<object>>`, as the slots behind it. wasmtime's own would make a `Resource` of each.
pub(crate) struct BorrowedObjects(pub(crate) Vec<HandleSlot>);

/// How many bytes a handle has in the guest's memory.
const HANDLE_BYTES: usize = 4;

// SAFETY: every list is a pointer and a length.
unsafe impl ComponentType for BorrowedObjects {
    type Lower = [ValRaw; 2];

    const ABI: CanonicalAbiInfo = CanonicalAbiInfo::POINTER_PAIR;

    fn typecheck(ty: &InterfaceType, types: &InstanceType<'_>) -> wasmtime::Result<()> {
        <[Resource<ObjectHandle>] as ComponentType>::typecheck(ty, types)
    }
}

// SAFETY: pointer and length are checked against the guest's memory, and each index by wasmtime, which
// lends the handle until the call ends. `typecheck` has made sure that these are handles to objects.
unsafe impl Lift for BorrowedObjects {
    fn linear_lift_from_flat(
        cx: &mut LiftContext<'_>,
        ty: InterfaceType,
        src: &Self::Lower,
    ) -> wasmtime::Result<Self> {
        Self::lift(cx, ty, src[0].get_u32(), src[1].get_u32())
    }

    fn linear_lift_from_memory(
        cx: &mut LiftContext<'_>,
        ty: InterfaceType,
        bytes: &[u8],
    ) -> wasmtime::Result<Self> {
        let word = |at: usize| {
            u32::from_le_bytes(
                bytes[at..at + 4]
                    .try_into()
                    .expect("a pair of four bytes each"),
            )
        };
        let (at, count) = (word(0), word(4));
        Self::lift(cx, ty, at, count)
    }
}

impl BorrowedObjects {
    /// The list of so many handles at this place of the guest's memory.
    fn lift(
        cx: &mut LiftContext<'_>,
        ty: InterfaceType,
        at: u32,
        count: u32,
    ) -> wasmtime::Result<Self> {
        let InterfaceType::List(list) = ty else {
            wasmtime::bail!("the list of objects is no list")
        };
        let InterfaceType::Borrow(ty) = cx.types[list].element else {
            wasmtime::bail!("the objects are not borrowed")
        };
        let (at, count) = (at as usize, count as usize);
        if !at.is_multiple_of(HANDLE_BYTES) {
            wasmtime::bail!("list pointer is not aligned")
        }
        let bytes = count.saturating_mul(HANDLE_BYTES);
        let Some(indexes) = at
            .checked_add(bytes)
            .and_then(|end| cx.memory().get(at..end))
        else {
            wasmtime::bail!("list pointer/length out of bounds of memory")
        };
        // The memory is borrowed from what the handles are lent with.
        let mut slots: Vec<HandleSlot> = indexes
            .as_chunks::<HANDLE_BYTES>()
            .0
            .iter()
            .map(|index| HandleSlot(u32::from_le_bytes(*index)))
            .collect();
        cx.consume_fuel(size_of_val(slots.as_slice()))?;
        for slot in &mut slots {
            slot.0 = cx.guest_resource_lift_borrow(ty, slot.0)?;
        }
        Ok(Self(slots))
    }
}
