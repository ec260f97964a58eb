//! What TypeScript is to know of a module: a `.d.ts` file.
//!
//! Owns how types of WIT are written in TypeScript, as jco maps them, and names in JavaScript, as `js/lib/names.ts` and
//! `js/lib/module.ts` make them. Must not: decide what can be called.

use wit_parser::{Docs, Resolve, Type, TypeDefKind, TypeId};

use crate::exports::{Class, Exported, Exports};
use crate::names::unique;
use crate::types::{self, Kind};

/// Names that the file uses for something else.
const TAKEN: [&str; 12] = [
    "Module",
    "Uint8Array",
    "Int8Array",
    "Uint16Array",
    "Int16Array",
    "Uint32Array",
    "Int32Array",
    "BigUint64Array",
    "BigInt64Array",
    "Float32Array",
    "Float64Array",
    "wasmrun",
];

/// The file for a module by this name.
pub(crate) fn code(name: &str, resolve: &Resolve, exports: &Exports<'_>) -> String {
    let mut ts = Ts::new(resolve, exports);
    ts.line(&format!(
        "/** What `{name}` exports, as `load` gives it. Made by `wasmrun stubs --lang ts`: do not edit. */"
    ));
    ts.line("");
    ts.line("import type * as wasmrun from 'wasmrun';");
    for id in ts.types.clone() {
        ts.definition(id);
    }
    for class in &exports.classes {
        ts.methods(class);
    }
    ts.line("");
    ts.line("/** The module: `node.load<Module>(…)`. */");
    ts.open("export interface Module {");
    ts.members(exports);
    ts.close("}");
    for skipped in &exports.skipped {
        ts.line(&format!("// Not here: {skipped}."));
    }
    ts.out
}

struct Ts<'a> {
    resolve: &'a Resolve,
    out: String,
    depth: usize,
    /// Types that need definitions, in the order of those.
    types: Vec<TypeId>,
    /// What they and classes are called.
    names: Vec<(TypeId, String)>,
}

impl<'a> Ts<'a> {
    fn new(resolve: &'a Resolve, exports: &Exports<'_>) -> Self {
        let types = exports.defined(resolve);
        let mut taken = TAKEN.map(str::to_owned).to_vec();
        let classes = exports.classes.iter().map(|it| it.id);
        let named = types.iter().copied().chain(classes).map(|id| {
            let mut name = pascal(resolve.types[id].name.as_deref().unwrap_or_default());
            let interface = types::interface_of(resolve, id);
            let interface = interface.and_then(|it| resolve.interfaces[it].name.as_deref());
            if taken.contains(&name) {
                name = pascal(interface.unwrap_or_default()) + &name;
            }
            (id, unique(name, &mut taken))
        });
        let names = named.collect();
        Self {
            resolve,
            out: String::new(),
            depth: 0,
            types,
            names,
        }
    }

    fn line(&mut self, text: &str) {
        if !text.is_empty() {
            self.out.extend(std::iter::repeat_n("  ", self.depth));
            self.out.push_str(text);
        }
        self.out.push('\n');
    }

    fn open(&mut self, text: &str) {
        self.line(text);
        self.depth += 1;
    }

    fn close(&mut self, text: &str) {
        self.depth -= 1;
        self.line(text);
    }

    fn docs(&mut self, docs: &Docs) {
        let Some(text) = &docs.contents else { return };
        let text = text.trim().replace("*/", "*\\/");
        if !text.contains('\n') {
            return self.line(&format!("/** {text} */"));
        }
        self.line("/**");
        for line in text.lines() {
            self.line(format!(" * {line}").trim_end());
        }
        self.line(" */");
    }

    fn name(&self, id: TypeId) -> &str {
        let found = self.names.iter().find(|(it, _)| *it == id);
        found.map_or("unknown", |(_, name)| name)
    }

    fn definition(&mut self, id: TypeId) {
        let resolve = self.resolve;
        let definition = &resolve.types[id];
        let name = self.name(id).to_owned();
        self.line("");
        self.docs(&definition.docs);
        match &definition.kind {
            TypeDefKind::Record(record) => {
                self.open(&format!("export interface {name} {{"));
                for field in &record.fields {
                    self.docs(&field.docs);
                    let ty = self.ts(field.ty);
                    let mark = optional(resolve, field.ty);
                    self.line(&format!("{}{mark}: {ty};", camel(&field.name)));
                }
                self.close("}");
            }
            TypeDefKind::Flags(flags) => {
                self.open(&format!("export interface {name} {{"));
                for flag in &flags.flags {
                    self.docs(&flag.docs);
                    self.line(&format!("{}?: boolean;", camel(&flag.name)));
                }
                self.close("}");
            }
            TypeDefKind::Enum(names) => {
                let names = names.cases.iter().map(|it| format!("'{}'", it.name));
                let names: Vec<_> = names.collect();
                self.line(&format!("export type {name} = {};", names.join(" | ")));
            }
            TypeDefKind::Variant(variant) => {
                self.open(&format!("export type {name} ="));
                for (at, case) in variant.cases.iter().enumerate() {
                    self.docs(&case.docs);
                    let val = case.ty.map(|ty| format!("; val: {}", self.ts(ty)));
                    let val = val.unwrap_or_default();
                    let end = if at + 1 == variant.cases.len() {
                        ";"
                    } else {
                        ""
                    };
                    self.line(&format!("| {{ tag: '{}'{val} }}{end}", case.name));
                }
                self.depth -= 1;
            }
            _ => {}
        }
    }

    /// The methods of a class's actors.
    fn methods(&mut self, class: &Class<'_>) {
        let resolve = self.resolve;
        self.line("");
        self.docs(&resolve.types[class.id].docs);
        let name = self.name(class.id).to_owned();
        self.open(&format!("export interface {name} {{"));
        for it in &class.methods {
            self.docs(&it.function.docs);
            let (params, result) = (self.params(it), self.result(it));
            let name = camel(it.name);
            self.line(&format!(
                "readonly {name}: wasmrun.Method<{params}, {result}>;"
            ));
        }
        self.close("}");
    }

    /// All exports: in their interfaces, and by their own names where those are of one alone.
    fn members(&mut self, exports: &Exports<'_>) {
        let functions = exports.functions.iter().map(|it| (it, None));
        let classes = exports.classes.iter();
        let classes = classes.map(|it| (&it.constructor, Some(it)));
        let all: Vec<_> = functions.chain(classes).collect();
        let names: Vec<_> = all
            .iter()
            .map(|(it, class)| {
                let name = match class {
                    Some(_) => pascal(it.name),
                    None => camel(it.name),
                };
                (interface_of(&it.full), name)
            })
            .collect();
        let count = |name: &str| names.iter().filter(|(_, it)| it == name).count();
        let mut interfaces: Vec<String> = Vec::new();
        for (interface, _) in &names {
            if !interface.is_empty() && !interfaces.contains(interface) {
                interfaces.push(interface.clone());
            }
        }
        for ((interface, name), (it, class)) in names.iter().zip(&all) {
            if count(name.as_str()) > 1 {
                continue;
            }
            match interfaces.contains(interface) && count(interface.as_str()) == 0 {
                true => self.line(&format!(
                    "readonly {name}: Module['{interface}']['{name}'];"
                )),
                false => self.member(name, it, *class),
            }
        }
        for interface in interfaces.iter().filter(|it| count(it.as_str()) == 0) {
            self.open(&format!("readonly {interface}: {{"));
            for ((of, name), (it, class)) in names.iter().zip(&all) {
                if of == interface {
                    self.member(name, it, *class);
                }
            }
            self.close("};");
        }
    }

    fn member(&mut self, name: &str, it: &Exported<'_>, class: Option<&Class<'_>>) {
        self.docs(&it.function.docs);
        let params = self.params(it);
        let ty = match class {
            Some(class) => format!("wasmrun.Class<{params}, {}>", self.name(class.id)),
            None => format!("wasmrun.Fn<{params}, {}>", self.result(it)),
        };
        self.line(&format!("readonly {name}: {ty};"));
    }

    /// The parameters as a tuple. Those at the end that may be undefined may be left out.
    fn params(&self, it: &Exported<'_>) -> String {
        let params: Vec<_> = it.params().collect();
        let needed = params
            .iter()
            .rposition(|(_, ty)| optional(self.resolve, *ty).is_empty())
            .map_or(0, |at| at + 1);
        let params = params.iter().enumerate().map(|(at, (name, ty))| {
            let mark = if at < needed { "" } else { "?" };
            format!("{}{mark}: {}", camel(name), self.ts(*ty))
        });
        format!("[{}]", params.collect::<Vec<_>>().join(", "))
    }

    /// What a call gives: an error of a `result` is thrown.
    fn result(&self, it: &Exported<'_>) -> String {
        let Some(ty) = it.function.result else {
            return "void".into();
        };
        match kind_of(self.resolve, ty) {
            Some(TypeDefKind::Result(result)) => result.ok.map_or("void".into(), |ok| self.ts(ok)),
            _ => self.ts(ty),
        }
    }

    fn ts(&self, ty: Type) -> String {
        let of = |ty: &Option<Type>| ty.map_or("undefined".into(), |ty| self.ts(ty));
        let kind = match (ty, kind_of(self.resolve, ty)) {
            (Type::Id(_), Some(kind)) => kind,
            (Type::Bool, _) => return "boolean".into(),
            (Type::U64 | Type::S64, _) => return "bigint".into(),
            (Type::Char | Type::String, _) => return "string".into(),
            _ => return "number".into(),
        };
        match kind {
            TypeDefKind::Type(ty) => self.ts(*ty),
            TypeDefKind::List(item) => match numbers(self.resolve, *item) {
                Some(array) => array.into(),
                None => match self.ts(*item) {
                    item if item.contains(' ') => format!("({item})[]"),
                    item => format!("{item}[]"),
                },
            },
            TypeDefKind::Option(some) if is_nullable(self.resolve, *some) => {
                format!("wasmrun.Option<{}>", self.ts(*some))
            }
            TypeDefKind::Option(some) => format!("{} | undefined", self.ts(*some)),
            TypeDefKind::Result(it) => format!("wasmrun.Result<{}, {}>", of(&it.ok), of(&it.err)),
            TypeDefKind::Tuple(tuple) => {
                let items: Vec<_> = tuple.types.iter().map(|it| self.ts(*it)).collect();
                format!("[{}]", items.join(", "))
            }
            TypeDefKind::Handle(_) => match types::kind(self.resolve, ty) {
                Some(Kind::Object) => "wasmrun.Ref<any>".into(),
                _ => "wasmrun.Actor".into(),
            },
            _ => match ty {
                Type::Id(id) => self.name(types::behind(self.resolve, id)).into(),
                _ => "unknown".into(),
            },
        }
    }
}

/// What a type is, behind aliases, if it is not plain.
fn kind_of(resolve: &Resolve, ty: Type) -> Option<&TypeDefKind> {
    match ty {
        Type::Id(id) => Some(&resolve.types[types::behind(resolve, id)].kind),
        _ => None,
    }
}

/// A type that is plain behind aliases.
fn plain(resolve: &Resolve, ty: Type) -> Type {
    match kind_of(resolve, ty) {
        Some(TypeDefKind::Type(ty)) => *ty,
        _ => ty,
    }
}

/// The typed array for a list of numbers.
fn numbers(resolve: &Resolve, item: Type) -> Option<&'static str> {
    Some(match plain(resolve, item) {
        Type::U8 => "Uint8Array",
        Type::S8 => "Int8Array",
        Type::U16 => "Uint16Array",
        Type::S16 => "Int16Array",
        Type::U32 => "Uint32Array",
        Type::S32 => "Int32Array",
        Type::U64 => "BigUint64Array",
        Type::S64 => "BigInt64Array",
        Type::F32 => "Float32Array",
        Type::F64 => "Float64Array",
        _ => return None,
    })
}

/// Whether `undefined` is a value of a type: of an option, unless it is of one for which that holds.
fn is_nullable(resolve: &Resolve, ty: Type) -> bool {
    match kind_of(resolve, ty) {
        Some(TypeDefKind::Option(some)) => !is_nullable(resolve, *some),
        _ => false,
    }
}

/// What marks a field or parameter that may be left out.
fn optional(resolve: &Resolve, ty: Type) -> &'static str {
    if is_nullable(resolve, ty) { "?" } else { "" }
}

fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(word.len().min(1));
    first.to_ascii_uppercase() + &rest.to_ascii_lowercase()
}

/// A function, a parameter or a field.
fn camel(name: &str) -> String {
    let (first, rest) = name.split_once('-').unwrap_or((name, ""));
    let made = first.to_ascii_lowercase() + &pascal(rest);
    // An object with a function of this name would be taken for a promise.
    if made == "then" { "then_".into() } else { made }
}

/// A type or a class.
fn pascal(name: &str) -> String {
    name.split('-').map(capital).collect()
}

/// What JavaScript calls the interface of an export: of `ns:package/interface@1.0.0#name` that is `interface`.
fn interface_of(full: &str) -> String {
    let path = full.split_once('#').map_or("", |(path, _)| path);
    let path = path.split('@').next().unwrap_or_default();
    camel(path.rsplit('/').next().unwrap_or_default())
}
