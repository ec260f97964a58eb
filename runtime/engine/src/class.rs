//! Actor classes: exported resources, whose instances are actors.

use std::fmt;

use wasmrun_model::value::{FunctionType, ValueType};
use wasmtime::component::ComponentExportIndex;

use crate::call::CallPlan;

/// A class of a module: an exported resource with a constructor.
pub struct Class {
    /// The interface that exports it, such as `example:shop/api@1.0.0`.
    pub interface: Option<String>,
    /// Its name within that.
    pub name: String,
    /// What creates an instance.
    pub constructor: Method,
    /// What can be called on one, in order of name.
    pub methods: Vec<Method>,
    /// What makes an instance of a state.
    pub(crate) restore: Option<ComponentExportIndex>,
    pub(crate) lane: Lane,
}

/// How the instances of a class are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// By its exported functions.
    Typed,
    /// By the fast lane.
    Fast,
}

/// A method or constructor.
pub struct Method {
    /// Its name within the class.
    pub name: String,
    /// Its parameters, without the instance, and its result; a constructor has none.
    pub ty: FunctionType,
    pub(crate) export: ComponentExportIndex,
    pub(crate) plan: CallPlan,
}

/// Which of a module's classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassIndex(pub(crate) usize);

/// Which of a class's methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MethodIndex(pub(crate) usize);

/// The method that gives an instance's state.
const CHECKPOINT: &str = "checkpoint";

impl Class {
    /// The name that is its alone within the module: `interface#name`.
    pub fn full_name(&self) -> String {
        match &self.interface {
            Some(interface) => format!("{interface}#{}", self.name),
            None => self.name.clone(),
        }
    }

    /// The method of that name.
    pub fn find(&self, name: &str) -> Option<MethodIndex> {
        let found = self
            .methods
            .binary_search_by(|it| it.name.as_str().cmp(name));
        found.ok().map(MethodIndex)
    }

    /// The method at this place of [`Class::methods`].
    pub fn at(&self, place: usize) -> Option<MethodIndex> {
        (place < self.methods.len()).then_some(MethodIndex(place))
    }

    /// The method at `index`.
    pub fn method(&self, index: MethodIndex) -> &Method {
        &self.methods[index.0]
    }

    /// Whether an instance can give its state, and another be made of that.
    pub fn can_checkpoint(&self) -> bool {
        self.restore.is_some() && self.checkpoint().is_some()
    }

    pub(crate) fn checkpoint(&self) -> Option<&Method> {
        let method = self.method(self.find(CHECKPOINT)?);
        let bytes = |ty: &ValueType| ty.buffer_kind() == ValueType::U8.number_kind();
        let is_it = method.ty.params().is_empty() && method.ty.result().is_some_and(bytes);
        is_it.then_some(method)
    }
}

impl fmt::Debug for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Class")
            .field("name", &self.full_name())
            .field("methods", &self.methods)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.ty)
    }
}
