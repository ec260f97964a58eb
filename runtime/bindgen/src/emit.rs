//! The text of the code.
//!
//! Owns what the code looks like: as `rustfmt` formats it, with the documentation that the WIT has. The types and classes of an
//! interface are in a module of its name; functions are methods of the struct that stands for the module. Must not: decide what
//! can be called.

use wit_parser::{Docs, InterfaceId, Resolve, Type, TypeDefKind, TypeId};

use crate::exports::{Class, Exported, Exports};
use crate::names::{camel, snake, unique};
use crate::types::{self, Kind};

/// How long a line may be.
const WIDTH: usize = 100;
/// Programs need not use all of it, and it has the documentation that the WIT has.
const ALLOW: &str = "#[allow(dead_code, missing_docs, clippy::all)]";
const DERIVE: &str = "#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]";
const DERIVE_COPY: &str =
    "#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]";
const DERIVE_FLAGS: &str =
    "#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]";

/// The code of a module's exports. `name` is the module's name for people, `stem` its name in Rust.
pub(crate) fn code(name: &str, stem: &str, resolve: &Resolve, exports: &Exports<'_>) -> String {
    let mut emit = Emit::new(stem, resolve, exports);
    emit.line(&format!(
        "// What `{name}` exports, for drivers in Rust. Made by wasmrun-bindgen: do not edit."
    ));
    emit.line("");
    emit.line("use wasmrun_client::typed;");
    emit.line("");
    emit.line("/// Functions and classes of the module, with their types.");
    let classes = exports.classes.iter().map(|it| &it.constructor);
    let all: Vec<_> = exports.functions.iter().chain(classes).collect();
    emit.table("const EXPORTS: &str", &all);
    emit.line("");
    emit.module(name, exports);
    emit.definitions(None);
    for (interface, module) in emit.modules.clone() {
        emit.line("");
        emit.docs(&resolve.interfaces[interface].docs);
        emit.line(ALLOW);
        emit.open(&format!("pub mod {module} {{"));
        emit.line("use wasmrun_client::typed;");
        emit.definitions(Some(interface));
        for class in &exports.classes {
            if class.constructor.interface == Some(interface) {
                emit.class(class);
            }
        }
        emit.close();
    }
    for skipped in &exports.skipped {
        emit.line("");
        emit.line(&format!("// Not here: {skipped}."));
    }
    emit.out
}

struct Emit<'a> {
    resolve: &'a Resolve,
    out: String,
    depth: usize,
    /// The struct that stands for the module.
    own: String,
    /// Types that need definitions, in the order of those.
    types: Vec<TypeId>,
    /// The interfaces that become modules, and their names.
    modules: Vec<(InterfaceId, String)>,
}

impl<'a> Emit<'a> {
    fn new(stem: &str, resolve: &'a Resolve, exports: &Exports<'_>) -> Self {
        let types = exports.defined(resolve);
        let of_types = types
            .iter()
            .filter_map(|id| types::interface_of(resolve, *id));
        let of_classes = exports
            .classes
            .iter()
            .filter_map(|it| it.constructor.interface);
        let mut modules: Vec<(InterfaceId, String)> = Vec::new();
        let mut taken = vec!["typed".to_owned(), "serde".to_owned()];
        for interface in of_types.chain(of_classes) {
            if modules.iter().all(|(it, _)| *it != interface) {
                let name = snake(interface_name(resolve, exports, interface));
                modules.push((interface, unique(name, &mut taken)));
            }
        }
        Self {
            resolve,
            out: String::new(),
            depth: 0,
            own: camel(stem),
            types,
            modules,
        }
    }

    fn line(&mut self, text: &str) {
        if !text.is_empty() {
            self.out.extend(std::iter::repeat_n("    ", self.depth));
            self.out.push_str(text);
        }
        self.out.push('\n');
    }

    fn open(&mut self, text: &str) {
        self.line(text);
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    fn docs(&mut self, docs: &Docs) {
        for line in docs.contents.iter().flat_map(|it| it.trim().lines()) {
            self.line(format!("/// {line}").trim_end());
        }
    }

    fn fits(&self, text: &str) -> bool {
        self.depth * 4 + text.len() <= WIDTH
    }

    /// `what = "text";`, on two lines where it must be.
    fn text(&mut self, what: &str, text: &str) {
        let whole = format!("{what} = \"{text}\";");
        if self.fits(&whole) {
            return self.line(&whole);
        }
        self.open(&format!("{what} ="));
        self.line(&format!("\"{text}\";"));
        self.depth -= 1;
    }

    /// Names and types, a line for each.
    fn table(&mut self, what: &str, all: &[&Exported<'_>]) {
        self.line(&format!("{what} = \""));
        for it in all {
            self.out.push_str(&format!("{} {}\n", it.full, it.ty));
        }
        self.out.push_str("\";\n");
    }

    /// The beginning of a function.
    fn head(&mut self, name: &str, params: &[String], result: &str) {
        let whole = format!("{name}({}) -> {result} {{", params.join(", "));
        if self.fits(&whole) {
            return self.open(&whole);
        }
        self.open(&format!("{name}("));
        for param in params {
            self.line(&format!("{param},"));
        }
        self.depth -= 1;
        self.open(&format!(") -> {result} {{"));
    }

    /// The name of a type in an interface's module, or at the top.
    fn rust(&self, ty: Type, within: Option<InterfaceId>) -> String {
        types::rust(self.resolve, ty, &|id: TypeId| {
            let definition = &self.resolve.types[id];
            let name = camel(definition.name.as_deref().unwrap_or_default());
            let owner = types::interface_of(self.resolve, id);
            let up = if within.is_some() { "super::" } else { "" };
            match owner {
                owner if owner == within => self.top_name(name, owner),
                None => format!("{up}{}", self.top_name(name, None)),
                Some(owner) => format!("{up}{}::{name}", self.module_of(owner)),
            }
        })
    }

    /// At the top a type cannot have the name of the struct.
    fn top_name(&self, name: String, owner: Option<InterfaceId>) -> String {
        match owner.is_none() && name == self.own {
            true => name + "_",
            false => name,
        }
    }

    fn module_of(&self, interface: InterfaceId) -> &str {
        let found = self.modules.iter().find(|(it, _)| *it == interface);
        found.map_or("", |(_, name)| name)
    }

    /// The struct that stands for the module, and its functions.
    fn module(&mut self, name: &str, exports: &Exports<'_>) {
        let own = self.own.clone();
        self.line(&format!("/// The module `{name}`, which a node has."));
        self.line("#[derive(Debug, Clone)]");
        self.line(&format!("pub struct {own}(typed::Module);"));
        self.line("");
        self.line(ALLOW);
        self.open(&format!("impl {own} {{"));
        self.line("/// Gives the module to the node, and checks that it exports what is here.");
        self.line("///");
        self.line("/// # Errors");
        self.line("/// When the node cannot run it, or it exports something else.");
        let params = ["client: &typed::Client", "bytes: &[u8]"].map(str::to_owned);
        self.head("pub async fn load", &params, "Result<Self, typed::Error>");
        self.line("let module = typed::Module::load(client, bytes, EXPORTS).await?;");
        self.line("Ok(Self(module))");
        self.close();
        let mut taken = vec!["load".to_owned()];
        for it in &exports.functions {
            let same = exports.functions.iter();
            let is_alone = same.filter(|other| other.name == it.name).count() == 1;
            let name = match it.interface {
                Some(interface) if !is_alone => {
                    let interface = interface_name(self.resolve, exports, interface);
                    snake(&format!("{interface}-{}", it.name))
                }
                _ => snake(it.name),
            };
            let name = unique(name, &mut taken);
            self.line("");
            self.docs(&it.function.docs);
            let mut params = vec!["&self".to_owned()];
            params.extend(self.params(it, None));
            let result = it
                .function
                .result
                .map_or("()".into(), |ty| self.rust(ty, None));
            self.head(
                &format!("pub fn {name}"),
                &params,
                &format!("typed::Call<{result}>"),
            );
            let args = self.args(it);
            self.text("let name", &it.full);
            self.line(&format!("self.0.call(name, {args})"));
            self.close();
        }
        self.close();
    }

    /// Parameters as they are written.
    fn params(&self, of: &Exported<'_>, within: Option<InterfaceId>) -> Vec<String> {
        let params = of.params().map(|(name, ty)| {
            let name = param(name);
            match types::kind(self.resolve, ty) {
                Some(Kind::Object) => format!("{name}: impl Into<typed::Object>"),
                _ => format!("{name}: impl Into<typed::Arg<{}>>", self.rust(ty, within)),
            }
        });
        params.collect()
    }

    /// Gathers the arguments, and returns their name.
    fn args(&mut self, of: &Exported<'_>) -> &'static str {
        if of.params().next().is_none() {
            return "typed::Args::default()";
        }
        self.line("let mut args = typed::Args::default();");
        for (name, ty) in of.params() {
            let push = match types::kind(self.resolve, ty) {
                Some(Kind::Object) => "push_object",
                _ => "push",
            };
            self.line(&format!("args.{push}({}.into());", param(name)));
        }
        "args"
    }

    /// The types that an interface owns, or the world.
    fn definitions(&mut self, within: Option<InterfaceId>) {
        for id in self.types.clone() {
            if types::interface_of(self.resolve, id) == within {
                self.definition(id, within);
            }
        }
    }

    fn definition(&mut self, id: TypeId, within: Option<InterfaceId>) {
        let resolve = self.resolve;
        let definition = &resolve.types[id];
        let name = self.rust(Type::Id(id), within);
        let (derive, kind) = match &definition.kind {
            TypeDefKind::Record(_) => (DERIVE, "struct"),
            TypeDefKind::Flags(_) => (DERIVE_FLAGS, "struct"),
            TypeDefKind::Enum(_) => (DERIVE_COPY, "enum"),
            _ => (DERIVE, "enum"),
        };
        self.line("");
        self.docs(&definition.docs);
        if within.is_none() {
            self.line(ALLOW);
        }
        self.line(derive);
        self.open(&format!("pub {kind} {name} {{"));
        match &definition.kind {
            TypeDefKind::Record(record) => {
                for field in &record.fields {
                    self.docs(&field.docs);
                    let ty = self.rust(field.ty, within);
                    self.line(&format!("pub {}: {ty},", snake(&field.name)));
                }
            }
            TypeDefKind::Flags(flags) => {
                for flag in &flags.flags {
                    self.docs(&flag.docs);
                    self.line(&format!("pub {}: bool,", snake(&flag.name)));
                }
            }
            TypeDefKind::Enum(names) => {
                for case in &names.cases {
                    self.docs(&case.docs);
                    self.line(&format!("{},", camel(&case.name)));
                }
            }
            TypeDefKind::Variant(variant) => {
                for case in &variant.cases {
                    self.docs(&case.docs);
                    let payload = case.ty.map(|ty| format!("({})", self.rust(ty, within)));
                    let payload = payload.unwrap_or_default();
                    self.line(&format!("{}{payload},", camel(&case.name)));
                }
            }
            _ => {}
        }
        self.close();
        self.line("");
        self.line(&format!("impl typed::Value for {name} {{}}"));
    }

    /// A class, whose instances are actors.
    fn class(&mut self, class: &Class<'_>) {
        let within = class.constructor.interface;
        let name = camel(class.constructor.name);
        self.line("");
        let resolve = self.resolve;
        self.docs(&resolve.types[class.id].docs);
        self.line("#[derive(Debug, Clone)]");
        self.line(&format!("pub struct {name}(typed::Instance);"));
        self.line("");
        self.open(&format!("impl {name} {{"));
        self.line("/// Creates an actor, when it is awaited.");
        let mut params = vec![format!("module: &super::{}", self.own)];
        params.extend(self.params(&class.constructor, within));
        self.head("pub fn create", &params, "typed::Create<Self>");
        let args = self.args(&class.constructor);
        self.line(&format!("module.0.create({args})"));
        self.close();
        let mut taken = ["create", "with", "actor"].map(str::to_owned).to_vec();
        for it in &class.methods {
            let method = unique(snake(it.name), &mut taken);
            self.line("");
            self.docs(&it.function.docs);
            let mut params = vec!["&self".to_owned()];
            params.extend(self.params(it, within));
            let result = it
                .function
                .result
                .map_or("()".into(), |ty| self.rust(ty, within));
            let result = format!("Result<typed::Future<{result}>, typed::Error>");
            self.head(&format!("pub async fn {method}"), &params, &result);
            let args = self.args(it);
            self.text("let name", &it.full);
            self.line(&format!("self.0.call(name, {args}).await"));
            self.close();
        }
        self.line("");
        self.line("/// The same actor, whose calls have these options.");
        self.open("pub fn with(&self, options: typed::CallOptions) -> Self {");
        self.line("Self(self.0.with(options))");
        self.close();
        self.line("");
        self.line("/// The actor, to be passed on or killed.");
        self.open("pub fn actor(&self) -> &typed::Actor {");
        self.line("self.0.actor()");
        self.close();
        self.close();
        self.line("");
        self.open(&format!("impl typed::Class for {name} {{"));
        self.text("const NAME: &'static str", &class.constructor.full);
        let methods: Vec<_> = class.methods.iter().collect();
        self.table("const METHODS: &'static str", &methods);
        self.line("");
        self.open("fn new(instance: typed::Instance) -> Self {");
        self.line("Self(instance)");
        self.close();
        self.close();
    }
}

/// The name of a parameter, unlike those of the code around it.
fn param(name: &str) -> String {
    let mut taken = ["args", "name", "module"].map(str::to_owned).to_vec();
    unique(snake(name), &mut taken)
}

/// The name of an interface alone.
fn interface_name<'a>(
    resolve: &'a Resolve,
    exports: &Exports<'a>,
    interface: InterfaceId,
) -> &'a str {
    let named = exports.named.iter().find(|(it, _)| *it == interface);
    let own = resolve.interfaces[interface].name.as_deref();
    own.or(named.map(|(_, name)| *name)).unwrap_or_default()
}
