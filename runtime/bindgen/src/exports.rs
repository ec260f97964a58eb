//! The exports of a world that a driver can call.
//!
//! Owns which exports are functions and which classes, and their types as the node writes them. Must not: know Rust.

use wit_parser::{
    Function, FunctionKind, Handle, InterfaceId, Resolve, Type, TypeDefKind, TypeId, WorldId,
    WorldItem, WorldKey,
};

use crate::types;

/// What is exported, in its order.
#[derive(Default)]
pub(crate) struct Exports<'a> {
    pub(crate) functions: Vec<Exported<'a>>,
    pub(crate) classes: Vec<Class<'a>>,
    /// The world's names for interfaces that have none.
    pub(crate) named: Vec<(InterfaceId, &'a str)>,
    /// Exports that cannot be called, and why.
    pub(crate) skipped: Vec<String>,
}

/// A function that can be called.
pub(crate) struct Exported<'a> {
    /// The node's name for it: `interface#name`; of a method its name only.
    pub(crate) full: String,
    /// Its name in its interface or class.
    pub(crate) name: &'a str,
    pub(crate) interface: Option<InterfaceId>,
    /// Its type, as the node writes it.
    pub(crate) ty: String,
    pub(crate) function: &'a Function,
}

impl Exported<'_> {
    /// The names and types of its parameters, without a method's receiver.
    pub(crate) fn params(&self) -> impl Iterator<Item = (&str, Type)> {
        let is_method = method_of(self.function).is_some();
        let params = self.function.params.iter().skip(usize::from(is_method));
        params.map(|it| (it.name.as_str(), it.ty))
    }
}

/// A class that has a constructor.
pub(crate) struct Class<'a> {
    pub(crate) id: TypeId,
    pub(crate) constructor: Exported<'a>,
    pub(crate) methods: Vec<Exported<'a>>,
}

/// What the node itself calls.
const OF_THE_NODE: [&str; 2] = ["wasmrun:runtime/calls@", "wasi:cli/run@"];

impl<'a> Exports<'a> {
    pub(crate) fn of(resolve: &'a Resolve, world: WorldId) -> Self {
        let mut exports = Self::default();
        for (key, item) in &resolve.worlds[world].exports {
            match item {
                WorldItem::Function(function) => {
                    exports.function(resolve, None, function);
                }
                WorldItem::Interface { id, .. } => {
                    let full = resolve.name_world_key(key);
                    if OF_THE_NODE.iter().any(|it| full.starts_with(it)) {
                        continue;
                    }
                    if let WorldKey::Name(name) = key {
                        exports.named.push((*id, name));
                    }
                    exports.interface(resolve, &full, *id);
                }
                WorldItem::Type { .. } => {}
            }
        }
        exports
    }

    /// The types in them that have definitions, in the order of those.
    pub(crate) fn defined(&self, resolve: &Resolve) -> Vec<TypeId> {
        let constructors = self.classes.iter().map(|it| &it.constructor);
        let methods = self.classes.iter().flat_map(|it| &it.methods);
        let mut found = Vec::new();
        for it in self.functions.iter().chain(constructors).chain(methods) {
            let params = it.params().map(|(_, ty)| ty);
            for ty in params.chain(it.function.result) {
                types::defined(resolve, ty, &mut found);
            }
        }
        found.sort();
        found
    }

    fn function(
        &mut self,
        resolve: &Resolve,
        interface: Option<(&str, InterfaceId)>,
        function: &'a Function,
    ) {
        let full = match interface {
            Some((interface, _)) => format!("{interface}#{}", function.name),
            None => function.name.clone(),
        };
        match types::function(resolve, function, 0) {
            Ok(ty) => self.functions.push(Exported {
                full,
                name: &function.name,
                interface: interface.map(|(_, id)| id),
                ty,
                function,
            }),
            Err(why) => self.skipped.push(format!("{full}: {why}")),
        }
    }

    fn interface(&mut self, resolve: &'a Resolve, full: &str, id: InterfaceId) {
        let functions = resolve.interfaces[id].functions.values();
        for function in functions.clone() {
            match function.kind {
                FunctionKind::Freestanding | FunctionKind::AsyncFreestanding => {
                    self.function(resolve, Some((full, id)), function);
                }
                FunctionKind::Constructor(class) => {
                    let name = resolve.types[class].name.as_deref().unwrap_or_default();
                    let full = format!("{full}#{name}");
                    match constructor(resolve, function) {
                        Ok(ty) => self.classes.push(Class {
                            id: class,
                            constructor: Exported {
                                full,
                                name,
                                interface: Some(id),
                                ty,
                                function,
                            },
                            methods: Vec::new(),
                        }),
                        Err(why) => self.skipped.push(format!("{full}: {why}")),
                    }
                }
                _ => {}
            }
        }
        for function in functions {
            let class = method_of(function);
            let class = class.and_then(|id| self.classes.iter_mut().find(|it| it.id == id));
            let Some(class) = class else { continue };
            let name = function.name.rsplit('.').next().unwrap_or_default();
            match types::function(resolve, function, 1) {
                Ok(ty) => class.methods.push(Exported {
                    full: name.to_owned(),
                    name,
                    interface: Some(id),
                    ty,
                    function,
                }),
                Err(why) => {
                    let class = &class.constructor.full;
                    self.skipped.push(format!("{class}.{name}: {why}"));
                }
            }
        }
    }
}

/// The class that a function is a method of.
fn method_of(function: &Function) -> Option<TypeId> {
    match function.kind {
        FunctionKind::Method(id) | FunctionKind::AsyncMethod(id) => Some(id),
        _ => None,
    }
}

fn constructor(resolve: &Resolve, function: &Function) -> Result<String, String> {
    let makes_one = matches!(
        function.result,
        Some(Type::Id(id)) if matches!(resolve.types[id].kind, TypeDefKind::Handle(Handle::Own(_)))
    );
    match makes_one {
        true => types::signature(resolve, &function.params, None),
        false => Err("its constructor may fail".into()),
    }
}
