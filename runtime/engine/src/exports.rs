//! What a component exports: tasks, actor classes, a program, the fast lane.

use std::collections::BTreeMap;

use wasmrun_model::value::FunctionType;
use wasmtime::component::types::{self, ComponentFunc, ComponentItem, Type};
use wasmtime::component::{Component, ComponentExportIndex};

use crate::call::CallPlan;
use crate::class::{Class, Lane, Method};
use crate::http_answer::HttpHandler;
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
        let imports = ty.imports(engine);
        let mut exports = Self {
            imports: imports.map(|(name, _)| name.to_owned()).collect(),
            ..Self::default()
        };
        for (name, item) in ty.exports(engine) {
            match item.ty {
                ComponentItem::ComponentFunc(func) => {
                    exports.add_function(component, None, name, &func);
                }
                ComponentItem::ComponentInstance(instance) if name == FAST_LANE => {
                    match FastLane::of(component, &instance, engine) {
                        Ok(lane) => exports.fast = Some(lane),
                        Err(reason) => exports.skipped.push(Skipped {
                            name: FAST_LANE.into(),
                            reason,
                        }),
                    }
                }
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
        if HttpHandler::is_interface(interface) {
            return;
        }
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
    /// The lane, if its functions are of the types that `wit/fast.wit` says; why not if they are others.
    /// Then all is called by its own types.
    fn of(
        component: &Component,
        ty: &types::ComponentInstance,
        engine: &wasmtime::Engine,
    ) -> Result<Self, String> {
        let instance = component.get_export_index(None, FAST_LANE);
        let export = |name: &str, has_type: fn(&ComponentFunc) -> bool| {
            let item = ty.get_export(engine, name).map(|it| it.ty);
            let export = component.get_export_index(instance.as_ref(), name);
            match (item, export) {
                (Some(ComponentItem::ComponentFunc(func)), Some(export)) if has_type(&func) => {
                    Ok(export)
                }
                (Some(_), Some(_)) => Err(format!(
                    "its function {name} is of another type than in wasmrun:runtime, so calls take the \
                     ordinary way; build the module with `include wasmrun:runtime/fast`"
                )),
                _ => Err(format!(
                    "it has no function {name}, so calls take the ordinary way"
                )),
            }
        };
        Ok(Self {
            call: export("call", |it| {
                has_type(it, &[is_string, is_arguments], is_bytes)
            })?,
            create: export("create", |it| {
                has_type(it, &[is_string, is_arguments], is_number)
            })?,
            invoke: export("invoke", |it| {
                has_type(it, &[is_number, is_string, is_arguments], is_bytes)
            })?,
            checkpoint: export("checkpoint", |it| {
                has_type(it, &[is_number], |it| match it {
                    Type::Option(option) => is_bytes(&option.ty()),
                    _ => false,
                })
            })?,
            restore: export("restore", |it| {
                has_type(it, &[is_string, is_bytes], is_number)
            })?,
        })
    }
}

/// Whether a function takes and returns just these.
fn has_type(func: &ComponentFunc, params: &[fn(&Type) -> bool], result: fn(&Type) -> bool) -> bool {
    let (given, returned): (Vec<_>, Vec<_>) = (func.params().collect(), func.results().collect());
    let are_params =
        given.len() == params.len() && given.iter().zip(params).all(|((_, ty), is_it)| is_it(ty));
    let is_result = matches!(&returned[..], [ty] if result(ty));
    are_params && is_result && !func.async_()
}

fn is_string(ty: &Type) -> bool {
    matches!(ty, Type::String)
}

fn is_number(ty: &Type) -> bool {
    matches!(ty, Type::U32)
}

fn is_bytes(ty: &Type) -> bool {
    matches!(ty, Type::List(list) if matches!(list.ty(), Type::U8))
}

fn is_arguments(ty: &Type) -> bool {
    matches!(ty, Type::List(list) if is_bytes(&list.ty()))
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
