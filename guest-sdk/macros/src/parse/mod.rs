//! Reads the user's module: its tasks, its actors, and the types that they use.
//!
//! Owns the model that everything after it works from, [`Program`]. Takes its own attributes away and
//! leaves the rest of the module as it was. Invariant: a `Program` has no two exports of one name.

mod actors;

use std::collections::BTreeMap;

use proc_macro2::{Ident, Span};
use syn::spanned::Spanned;
use syn::{Attribute, FnArg, Item, ItemMod, Pat, ReturnType, Signature, Type, Visibility};

use crate::errors::Errors;
use crate::names;
use crate::settings::{self, ModuleSettings, TaskSettings};
use crate::types::{Declaration, Payload, Place, Runtime, Shape, Types, Wit, docs};

pub use actors::Class;
use actors::{calls, handle_of};

/// A module of tasks and actors, understood.
pub struct Program {
    pub settings: ModuleSettings,
    /// `namespace:name`.
    pub package: String,
    /// The name of the interface with all exports.
    pub interface: String,
    /// The module without its content.
    pub shell: ItemMod,
    /// Its content, without our attributes.
    pub items: Vec<Item>,
    pub functions: Vec<Function>,
    pub classes: Vec<Class>,
    pub declarations: Vec<Declaration>,
    /// What is used of `wasmrun:runtime`.
    pub runtime: Vec<Runtime>,
}

/// A task.
pub struct Function {
    pub vis: Visibility,
    pub ident: Ident,
    pub wit_name: String,
    pub docs: Vec<String>,
    pub parameters: Vec<Parameter>,
    /// `None` for nothing.
    pub output: Option<(Type, Wit)>,
    pub settings: TaskSettings,
}

pub struct Parameter {
    pub ident: Ident,
    pub wit_name: String,
    pub ty: Type,
    pub wit: Wit,
}

/// A type from elsewhere.
pub struct Import {
    pub path: syn::Path,
    pub item: Item,
}

/// Reads a module.
///
/// # Errors
/// All that is wrong in it, each at its place.
pub fn program(
    settings: ModuleSettings,
    crate_name: &str,
    imports: Vec<Import>,
    mut shell: ItemMod,
) -> syn::Result<Program> {
    let Some((_, mut items)) = shell.content.take() else {
        return Err(syn::Error::new_spanned(
            &shell,
            "the module's content must stand here: write `mod name { … }`",
        ));
    };
    let package = settings::package(&settings, crate_name)?;
    let interface = match &settings.interface {
        Some(text) => {
            let name = text.value();
            names::check(&name).map_err(|why| syn::Error::new(text.span(), why))?;
            name
        }
        None => names::kebab(&shell.ident)?,
    };
    let mut errors = Errors::default();
    let mut types = Types::default();
    for import in imports {
        types.import(import.path, import.item);
    }
    let mut sources = Sources::default();
    for item in &mut items {
        sources.sort(item, &mut types, &mut errors);
    }
    let functions = sources.functions(&mut types, &mut errors);
    let classes = sources.classes(&mut types, &mut errors);
    types.resolve_futures(|error| errors.push(error));
    if functions.is_empty() && classes.is_empty() && errors.is_empty() {
        errors.push(syn::Error::new(
            shell.ident.span(),
            "this module has no tasks and no actors: put `#[task]` before a function",
        ));
    }
    let runtime = types.runtime.iter().copied().collect();
    let program = Program {
        settings,
        package,
        interface,
        shell,
        items,
        functions,
        classes,
        declarations: types.into_used(),
        runtime,
    };
    program.check_names(&mut errors);
    errors.or(program)
}

/// What was found in the module, before its types are known.
#[derive(Default)]
struct Sources {
    functions: Vec<(Attribute, syn::ItemFn)>,
    classes: Vec<(Attribute, Visibility, Ident, Vec<String>)>,
    impls: BTreeMap<String, syn::ItemImpl>,
}

impl Sources {
    fn sort(&mut self, item: &mut Item, types: &mut Types, errors: &mut Errors) {
        match item {
            Item::Fn(function) => {
                if let Some(attr) = take_attribute(&mut function.attrs, "task") {
                    self.functions.push((attr, function.clone()));
                }
            }
            Item::Struct(item) => match take_attribute(&mut item.attrs, "actor") {
                Some(attr) => {
                    let class = (&item.vis, &item.ident, &item.generics, &*item.attrs);
                    self.class(attr, class, types, errors);
                }
                None => types.declare(&item.ident.clone(), Item::Struct(item.clone())),
            },
            Item::Enum(item) => match take_attribute(&mut item.attrs, "actor") {
                Some(attr) => {
                    let class = (&item.vis, &item.ident, &item.generics, &*item.attrs);
                    self.class(attr, class, types, errors);
                }
                None => types.declare(&item.ident.clone(), Item::Enum(item.clone())),
            },
            Item::Type(alias) => types.declare(&alias.ident.clone(), Item::Type(alias.clone())),
            Item::Impl(block) => {
                if let Some(attr) = take_attribute(&mut block.attrs, "actor") {
                    let added = self.add_impl(&attr, block);
                    errors.take(added);
                }
            }
            Item::Mod(_) | Item::Trait(_) | Item::Const(_) | Item::Static(_) => {
                let attrs = match item {
                    Item::Mod(item) => &item.attrs,
                    Item::Trait(item) => &item.attrs,
                    Item::Const(item) => &item.attrs,
                    Item::Static(item) => &item.attrs,
                    _ => return,
                };
                let ours = |attr: &&Attribute| is_ours(attr, "task") || is_ours(attr, "actor");
                if let Some(attr) = attrs.iter().find(ours) {
                    errors.push(syn::Error::new_spanned(
                        attr,
                        "only functions are tasks, and only structs and their `impl` are actors",
                    ));
                }
            }
            _ => {}
        }
    }

    fn class(
        &mut self,
        attr: Attribute,
        (vis, ident, generics, attrs): (&Visibility, &Ident, &syn::Generics, &[Attribute]),
        types: &mut Types,
        errors: &mut Errors,
    ) {
        if !generics.params.is_empty() {
            errors.push(syn::Error::new_spanned(
                generics,
                "an actor class cannot be generic: WIT has no type parameters",
            ));
        }
        types.declare_class(ident, &handle_of(ident));
        self.classes
            .push((attr, vis.clone(), ident.clone(), docs(attrs)));
    }

    fn add_impl(&mut self, attr: &Attribute, block: &syn::ItemImpl) -> syn::Result<()> {
        if !matches!(attr.meta, syn::Meta::Path(_)) {
            let message = "what an actor needs stands at its struct: write `#[actor]` here";
            return Err(syn::Error::new_spanned(attr, message));
        }
        if let Some((_, path, _)) = &block.trait_ {
            let message = "an actor's calls are in its own `impl`, not in a trait's";
            return Err(syn::Error::new_spanned(path, message));
        }
        let name = match &*block.self_ty {
            Type::Path(path) => path.path.get_ident(),
            _ => None,
        };
        let Some(name) = name else {
            let message = "`impl` the actor's struct by its name";
            return Err(syn::Error::new_spanned(&block.self_ty, message));
        };
        match self.impls.insert(name.to_string(), block.clone()) {
            None => Ok(()),
            Some(_) => Err(syn::Error::new_spanned(
                &block.self_ty,
                format!("`{name}` has an `#[actor] impl` already: put all its calls into that one"),
            )),
        }
    }

    fn functions(&mut self, types: &mut Types, errors: &mut Errors) -> Vec<Function> {
        let mut functions = Vec::new();
        for (attr, source) in std::mem::take(&mut self.functions) {
            let settings = errors.take(settings_of(&attr));
            let read = function(&source.vis, &source.sig, &source.attrs, None, types);
            if let (Some(mut function), Some(settings)) = (errors.take(read), settings) {
                function.settings = settings;
                functions.push(function);
            }
        }
        functions
    }

    fn classes(mut self, types: &mut Types, errors: &mut Errors) -> Vec<Class> {
        let mut classes = Vec::new();
        for (attr, vis, ident, docs) in self.classes {
            let Some(block) = self.impls.remove(&ident.to_string()) else {
                let message =
                    format!("this actor has no calls: add `#[actor] impl {ident} {{ … }}`");
                errors.push(syn::Error::new(ident.span(), message));
                continue;
            };
            let settings = errors.take(settings_of(&attr));
            let calls = calls(&ident, &block, types, errors);
            let wit_name = errors.take(names::kebab(&ident));
            if let (Some(settings), Some(calls), Some(wit_name)) = (settings, calls, wit_name) {
                classes.push(Class {
                    vis,
                    handle: handle_of(&ident),
                    ident,
                    wit_name,
                    docs,
                    constructor: calls.constructor,
                    methods: calls.methods,
                    is_checkpointed: calls.is_checkpointed,
                    settings,
                });
            }
        }
        for (_, block) in self.impls {
            errors.push(syn::Error::new_spanned(
                &block.self_ty,
                "this is no actor: put `#[actor]` before its struct, in this module",
            ));
        }
        classes
    }
}

/// Reads a task, or a method of `class`.
fn function(
    vis: &Visibility,
    sig: &Signature,
    attrs: &[Attribute],
    class: Option<&Ident>,
    types: &mut Types,
) -> syn::Result<Function> {
    check_signature(sig)?;
    if let Some(attr) = attrs.iter().find(|attr| attr.path().is_ident("cfg")) {
        let message = "a module's exports are the same in every build: remove the condition";
        return Err(syn::Error::new_spanned(attr, message));
    }
    match (class, sig.receiver()) {
        (Some(_), None) => {
            return Err(syn::Error::new(
                sig.ident.span(),
                "a call takes `&self` or `&mut self`: add it, or move this out of the `#[actor] impl`",
            ));
        }
        (Some(_), Some(this)) if this.reference.is_none() => {
            let message = "an actor outlives its calls: take `&self` or `&mut self`";
            return Err(syn::Error::new_spanned(this, message));
        }
        (None, Some(this)) => {
            return Err(syn::Error::new_spanned(this, "a task has no `self`"));
        }
        _ => {}
    }
    let mut errors = Errors::default();
    let parameters = errors.take(parameters(sig, types));
    let output = match &sig.output {
        ReturnType::Default => None,
        ReturnType::Type(_, ty) => match &**ty {
            Type::Tuple(tuple) if tuple.elems.is_empty() => None,
            _ => errors
                .take(types.resolve(ty, Place::Output))
                .map(|wit| ((**ty).clone(), wit)),
        },
    };
    let wit_name = errors.take(names::kebab(&sig.ident));
    errors.or(())?;
    Ok(Function {
        vis: vis.clone(),
        ident: sig.ident.clone(),
        wit_name: wit_name.unwrap_or_default(),
        docs: docs(attrs),
        parameters: parameters.unwrap_or_default(),
        output,
        settings: TaskSettings::default(),
    })
}

fn check_signature(sig: &Signature) -> syn::Result<()> {
    let error = |span: Span, message: &str| Err(syn::Error::new(span, message));
    if let Some(keyword) = &sig.asyncness {
        return error(
            keyword.span(),
            "tasks are not async: `get` and `wait` block the task, and its CPU goes to others meanwhile",
        );
    }
    if let Some(keyword) = &sig.unsafety {
        return error(keyword.span(), "others call this: it cannot be unsafe");
    }
    if !sig.generics.params.is_empty() {
        return error(
            sig.generics.span(),
            "what others call cannot be generic: WIT has no type parameters; write concrete types",
        );
    }
    match &sig.variadic {
        Some(variadic) => error(variadic.span(), "a task takes a fixed number of arguments"),
        None => Ok(()),
    }
}

fn parameters(sig: &Signature, types: &mut Types) -> syn::Result<Vec<Parameter>> {
    let mut parameters: Vec<Parameter> = Vec::new();
    let mut errors = Errors::default();
    for input in &sig.inputs {
        let FnArg::Typed(typed) = input else { continue };
        let Pat::Ident(pattern) = &*typed.pat else {
            errors.push(syn::Error::new_spanned(
                &typed.pat,
                "a parameter has a name here: take it apart in the function's body",
            ));
            continue;
        };
        let wit = errors.take(types.resolve(&typed.ty, Place::Parameter));
        let wit_name = errors.take(parameter_name(&pattern.ident, &parameters));
        if let (Some(wit), Some(wit_name)) = (wit, wit_name) {
            parameters.push(Parameter {
                ident: pattern.ident.clone(),
                wit_name,
                ty: (*typed.ty).clone(),
                wit,
            });
        }
    }
    errors.or(parameters)
}

fn parameter_name(ident: &Ident, earlier: &[Parameter]) -> syn::Result<String> {
    let name = names::kebab(ident)?;
    match earlier.iter().any(|other| other.wit_name == name) {
        false => Ok(name),
        true => Err(syn::Error::new(
            ident.span(),
            format!("two parameters are `{name}` in WIT: rename one"),
        )),
    }
}

fn settings_of<S: syn::parse::Parse>(attr: &Attribute) -> syn::Result<S> {
    match &attr.meta {
        syn::Meta::Path(_) => syn::parse_str(""),
        _ => attr.parse_args(),
    }
}

/// Takes `#[name]`, `#[name(…)]` or `#[wasmrun_guest::name]` out of the attributes.
fn take_attribute(attrs: &mut Vec<Attribute>, name: &str) -> Option<Attribute> {
    let at = attrs.iter().position(|attr| is_ours(attr, name))?;
    Some(attrs.remove(at))
}

fn is_ours(attr: &Attribute, name: &str) -> bool {
    let segments = &attr.path().segments;
    let is_named = segments.last().is_some_and(|last| last.ident == name);
    is_named && (segments.len() == 1 || segments[0].ident == "wasmrun_guest")
}

impl Program {
    /// Functions and types of an interface share their names in WIT.
    fn check_names(&self, errors: &mut Errors) {
        let mut taken: BTreeMap<&str, &Ident> = BTreeMap::new();
        let mut names: Vec<(&str, &Ident)> = Vec::new();
        for declaration in &self.declarations {
            names.push((&declaration.wit_name, &declaration.ident));
            if let Shape::Variant(cases) = &declaration.shape {
                for case in cases {
                    if let Payload::Record(name, _) = &case.payload {
                        names.push((name, &case.ident));
                    }
                }
            }
        }
        names.extend(
            self.classes
                .iter()
                .map(|class| (class.wit_name.as_str(), &class.ident)),
        );
        names.extend(
            self.functions
                .iter()
                .map(|f| (f.wit_name.as_str(), &f.ident)),
        );
        for (name, ident) in names {
            if let Some(other) = taken.insert(name, ident) {
                errors.push(syn::Error::new(
                    ident.span(),
                    format!(
                        "`{ident}` and `{other}` are both `{name}` in WIT, where functions and types \
                         share their names: rename one"
                    ),
                ));
            }
        }
    }

    /// The interface with its package.
    pub fn full_interface(&self) -> String {
        format!("{}/{}", self.package, self.interface)
    }

    /// Whether an export of the module's own has this name.
    pub fn has_name(&self, name: &str) -> bool {
        self.declarations.iter().any(|d| d.wit_name == name)
            || self.functions.iter().any(|f| f.wit_name == name)
            || self.classes.iter().any(|c| c.wit_name == name)
    }
}
