//! What a component exports: tasks, actor classes, a program, the fast lane.

use std::collections::BTreeMap;

use wasmrun_model::value::FunctionType;
use wasmtime::component::types::{self, ComponentFunc, ComponentItem};
use wasmtime::component::{Component, ComponentExportIndex};

use crate::call::CallPlan;
use crate::class::{Class, Lane, Method};
use crate::module::{Function, Skipped};
use crate::types::{constructor_type, function_type, method_type, restore_type};

/// What a component exports.
#[derive(Default)]
pub(crate) struct Exports {
    pub(crate) functions: Vec<Function>,
    pub(crate) classes: Vec<Class>,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) imports: Vec<String>,
    pub(crate) run: Option<ComponentExportIndex>,
    pub(crate) fast: Option<FastLane>,
}

/// The functions of `wasmrun:runtime/calls`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FastLane {
    pub(crate) call: ComponentExportIndex,
    pub(crate) create: ComponentExportIndex,
    pub(crate) invoke: ComponentExportIndex,
    pub(crate) checkpoint: ComponentExportIndex,
    pub(crate) restore: ComponentExportIndex,
}

const FAST_LANE: &str = "wasmrun:runtime/calls@0.1.0";

/// The functions of a class as they are found, in no order.
#[derive(Default)]
struct Parts {
    constructor: Option<(ComponentFunc, ComponentExportIndex)>,
    methods: Vec<(String, ComponentFunc, ComponentExportIndex)>,
    restore: Option<(ComponentFunc, ComponentExportIndex)>,
}

impl Exports {
    /// The exports of `component`, whose type is `ty` with what the host offers filled in.
    pub(crate) fn of(
        component: &Component,
        ty: &types::Component,
        engine: &wasmtime::Engine,
    ) -> Self {
        let mut exports = Self {
            fast: FastLane::of(component),
            ..Self::default()
        };
        exports.imports = ty
            .imports(engine)
            .map(|(name, _)| name.to_owned())
            .collect();
        for (name, item) in ty.exports(engine) {
            match item.ty {
                ComponentItem::ComponentFunc(func) => {
                    exports.add_function(component, None, name, &func);
                }
                ComponentItem::ComponentInstance(_) if name == FAST_LANE => {}
                ComponentItem::ComponentInstance(instance) => {
                    exports.add_interface(component, name, &instance, engine);
                }
                _ => {}
            }
        }
        let has_fast = exports.fast.is_some();
        let slow = |plan: &CallPlan| *plan == CallPlan::Dynamic;
        for function in exports
            .functions
            .iter_mut()
            .filter(|it| has_fast && slow(&it.plan))
        {
            function.plan = CallPlan::Fast;
        }
        for class in exports.classes.iter_mut().filter(|_| has_fast) {
            // An instance is in one of the lanes, with all its methods.
            let methods = || class.methods.iter().chain([&class.constructor]);
            if methods().any(|method| slow(&method.plan)) {
                class.lane = Lane::Fast;
            }
        }
        exports
    }

    fn add_interface(
        &mut self,
        component: &Component,
        interface: &str,
        ty: &types::ComponentInstance,
        engine: &wasmtime::Engine,
    ) {
        let instance = component.get_export_index(None, interface);
        let mut classes: BTreeMap<String, Parts> = BTreeMap::new();
        for (name, item) in ty.exports(engine) {
            let func = match item.ty {
                ComponentItem::ComponentFunc(func) => func,
                ComponentItem::Resource(_) => {
                    classes.entry(name.to_owned()).or_default();
                    continue;
                }
                _ => continue,
            };
            let Some(export) = component.get_export_index(instance.as_ref(), name) else {
                continue;
            };
            let Some((kind, rest)) = name.strip_prefix('[').and_then(|it| it.split_once(']'))
            else {
                self.add_function(component, Some(interface), name, &func);
                continue;
            };
            let (class, method) = rest.split_once('.').unwrap_or((rest, ""));
            let parts = classes.entry(class.to_owned()).or_default();
            match kind {
                "constructor" => parts.constructor = Some((func, export)),
                "method" => parts.methods.push((method.to_owned(), func, export)),
                "static" if method == "restore" => parts.restore = Some((func, export)),
                _ => self.skipped.push(Skipped {
                    name: format!("{interface}#{class}.{method}"),
                    reason: "it is a static function of a class; export it outside the class"
                        .into(),
                }),
            }
        }
        // One without functions is another interface's, that this one uses.
        let own = classes.into_iter().filter(|(_, parts)| {
            parts.constructor.is_some() || !parts.methods.is_empty() || parts.restore.is_some()
        });
        for (name, parts) in own {
            self.add_class(interface, name, parts);
        }
    }

    fn add_class(&mut self, interface: &str, name: String, parts: Parts) {
        let full = format!("{interface}#{name}");
        let mut skip = |name: String, reason: String| self.skipped.push(Skipped { name, reason });
        let Some((func, export)) = parts.constructor else {
            let reason = "it has no constructor, so nobody can create an actor of it".into();
            return skip(full, reason);
        };
        let constructor = match constructor_type(&func) {
            Ok(ty) => Method::new("constructor".into(), ty, export, func.async_()),
            Err(reason) => return skip(full, format!("its constructor: {reason}")),
        };
        let mut methods = Vec::new();
        for (method, func, export) in parts.methods {
            match method_type(&func) {
                Ok(ty) => methods.push(Method::new(method, ty, export, func.async_())),
                Err(reason) => skip(format!("{full}.{method}"), reason),
            }
        }
        methods.sort_by(|a, b| a.name.cmp(&b.name));
        let restore = match parts
            .restore
            .map(|(func, export)| (restore_type(&func), export))
        {
            Some((Ok(()), export)) => Some(export),
            Some((Err(reason), _)) => {
                skip(format!("{full}.restore"), reason);
                None
            }
            None => None,
        };
        self.classes.push(Class {
            interface: Some(interface.to_owned()),
            name,
            constructor,
            methods,
            restore,
            lane: Lane::Typed,
        });
    }

    fn add_function(
        &mut self,
        component: &Component,
        interface: Option<&str>,
        name: &str,
        func: &ComponentFunc,
    ) {
        let instance = interface.and_then(|i| component.get_export_index(None, i));
        let Some(export) = component.get_export_index(instance.as_ref(), name) else {
            return;
        };
        if name == "run" && interface.is_some_and(|i| i.starts_with("wasi:cli/run@")) {
            self.run = Some(export);
            return;
        }
        match function_type(func) {
            Ok(ty) => self.functions.push(Function {
                interface: interface.map(str::to_owned),
                name: name.to_owned(),
                plan: CallPlan::for_type(&ty, func.async_()),
                ty,
                export,
            }),
            Err(reason) => {
                let name = interface.map_or(name.to_owned(), |i| format!("{i}#{name}"));
                self.skipped.push(Skipped { name, reason });
            }
        }
    }
}

impl FastLane {
    fn of(component: &Component) -> Option<Self> {
        let instance = component.get_export_index(None, FAST_LANE)?;
        let export = |name: &str| component.get_export_index(Some(&instance), name);
        Some(Self {
            call: export("call")?,
            create: export("create")?,
            invoke: export("invoke")?,
            checkpoint: export("checkpoint")?,
            restore: export("restore")?,
        })
    }
}

impl Method {
    fn new(name: String, ty: FunctionType, export: ComponentExportIndex, is_async: bool) -> Self {
        Self {
            plan: CallPlan::for_type(&ty, is_async),
            name,
            ty,
            export,
        }
    }
}
