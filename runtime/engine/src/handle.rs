//! Handles that a guest holds: entries of its table that stand for objects and actors elsewhere.
//!
//! A handle is counted with the node while it is in the table, and moves out of it as its name.

use std::sync::Arc;

use wasmrun_model::id::{ActorName, ObjectName};
use wasmrun_model::value::Handle;
use wasmtime::component::{Resource, ResourceAny};
use wasmtime::{AsContextMut, StoreContextMut};

use crate::services::Services;
use crate::state::TaskState;

/// A handle to an object.
#[derive(Debug, Clone, Copy)]
pub struct ObjectHandle(pub(crate) ObjectName);

/// A handle to an actor.
#[derive(Debug, Clone, Copy)]
pub struct ActorHandle(pub(crate) ActorName);

/// Puts a handle into the guest's table, as an argument. The node has counted it.
pub(crate) fn into_guest(
    store: &mut StoreContextMut<'_, TaskState>,
    handle: Handle,
) -> wasmtime::Result<ResourceAny> {
    match handle {
        Handle::Object(name) => {
            let resource = store.data_mut().push_object(name)?;
            resource.try_into_resource_any(store.as_context_mut())
        }
        Handle::Actor(name) => {
            let resource = store.data_mut().push_actor(name)?;
            resource.try_into_resource_any(store.as_context_mut())
        }
    }
}

/// Takes a handle out of the guest's table, as part of a result: its name. The guest's count goes
/// with the table entry, so it is kept by whoever takes the name before that.
pub(crate) fn out_of_guest(
    store: &mut StoreContextMut<'_, TaskState>,
    resource: ResourceAny,
) -> wasmtime::Result<Handle> {
    let object = Resource::<ObjectHandle>::try_from_resource_any(resource, store.as_context_mut());
    if let Ok(object) = object {
        let handle = store.data_mut().table().delete(object)?;
        return Ok(Handle::Object(handle.0));
    }
    let actor = Resource::<ActorHandle>::try_from_resource_any(resource, store.as_context_mut())?;
    let handle = store.data_mut().table().delete(actor)?;
    Ok(Handle::Actor(handle.0))
}

impl TaskState {
    /// A new table entry for an object that the node has counted.
    pub(crate) fn push_object(
        &mut self,
        name: ObjectName,
    ) -> wasmtime::Result<Resource<ObjectHandle>> {
        Ok(self.table().push(ObjectHandle(name))?)
    }

    /// A new table entry for an actor that the node has counted.
    pub(crate) fn push_actor(
        &mut self,
        name: ActorName,
    ) -> wasmtime::Result<Resource<ActorHandle>> {
        Ok(self.table().push(ActorHandle(name))?)
    }

    /// The object that a handle stands for.
    pub(crate) fn object(
        &mut self,
        handle: &Resource<ObjectHandle>,
    ) -> wasmtime::Result<ObjectName> {
        Ok(self.table().get(handle)?.0)
    }

    /// The actor that a handle stands for.
    pub(crate) fn actor(&mut self, handle: &Resource<ActorHandle>) -> wasmtime::Result<ActorName> {
        Ok(self.table().get(handle)?.0)
    }

    /// The node's services for whatever runs now.
    pub(crate) fn services(&self) -> Arc<dyn Services> {
        self.services.clone()
    }
}
