//! The types of signatures: from Rust to WIT.
//!
//! Owns which Rust types may stand in a signature, and what to say of the others. Reads declarations
//! only when something uses them: other types of the module are nobody's business. Invariant: every
//! declaration that is given out is one that WIT has: no recursion, no generics, no empty records.

mod advice;
mod attributes;

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::Ident;
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Fields, GenericArgument, Item, PathArguments, Type};

use crate::errors::Errors;
use crate::names;

use advice::{of_reference, unknown};
pub use attributes::{check_attributes, derives, docs, is_bytes};

/// A type of WIT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wit {
    /// One that has a name everywhere: `u32`, `string`.
    Plain(&'static str),
    List(Box<Wit>),
    Option(Box<Wit>),
    /// With the payloads that are not `()`.
    Result(Option<Box<Wit>>, Option<Box<Wit>>),
    Tuple(Vec<Wit>),
    /// A record, enum or variant of the module, by its name.
    Declared(String),
    /// A handle or an error of `wasmrun:runtime`.
    Runtime(Runtime),
}

/// A type of `wasmrun:runtime`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Runtime {
    Object,
    Actor,
    Error,
}

/// A declared type that is used.
#[derive(Debug)]
pub struct Declaration {
    /// How generated code names it.
    pub rust: proc_macro2::TokenStream,
    pub ident: Ident,
    pub wit_name: String,
    pub docs: Vec<String>,
    pub shape: Shape,
    /// Whether it stands outside the module.
    pub is_imported: bool,
}

#[derive(Debug)]
pub enum Shape {
    Record(Vec<Field>),
    /// An enum where no case has a payload.
    Variant(Vec<Case>),
}

#[derive(Debug)]
pub struct Field {
    pub ident: Ident,
    pub wit_name: String,
    pub docs: Vec<String>,
    pub ty: Type,
    pub wit: Wit,
}

#[derive(Debug)]
pub struct Case {
    pub ident: Ident,
    pub wit_name: String,
    pub docs: Vec<String>,
    pub payload: Payload,
}

#[derive(Debug)]
pub enum Payload {
    None,
    /// One type, or several that make a tuple.
    Tuple(Vec<(Type, Wit)>),
    /// A record of the case's own, with its name.
    Record(String, Vec<Field>),
}

/// Something that a name in a signature can stand for.
enum Symbol {
    Type {
        item: Box<Item>,
        path: Option<syn::Path>,
    },
    /// An actor class; its handle's name.
    Class(Ident),
    Handle,
}

/// All that the names of a module stand for.
#[derive(Default)]
pub struct Types {
    symbols: BTreeMap<String, Symbol>,
    /// What is used, in the order of first use, with the WIT name it has.
    used: Vec<Declaration>,
    /// What is being read: a type that meets itself here is recursive.
    open: Vec<String>,
    /// What has an error of its own.
    failed: BTreeSet<String>,
    /// What the futures are of that were met.
    futures_of: Vec<Type>,
    pub runtime: BTreeSet<Runtime>,
}

/// Where a type stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The whole type of a parameter.
    Parameter,
    /// The whole type of a result.
    Output,
    /// Within another type, or in a declaration.
    Inner,
}

impl Types {
    /// A struct, enum or alias of the module.
    pub fn declare(&mut self, ident: &Ident, item: Item) {
        let symbol = Symbol::Type {
            item: Box::new(item),
            path: None,
        };
        self.symbols.insert(ident.unraw().to_string(), symbol);
    }

    /// A type from elsewhere, by its path.
    pub fn import(&mut self, path: syn::Path, item: Item) {
        if let Some(last) = path.segments.last() {
            let name = last.ident.unraw().to_string();
            let (item, path) = (Box::new(item), Some(path));
            self.symbols.insert(name, Symbol::Type { item, path });
        }
    }

    /// An actor class and its handle.
    pub fn declare_class(&mut self, class: &Ident, handle: &Ident) {
        self.symbols.insert(handle.to_string(), Symbol::Handle);
        self.symbols
            .insert(class.unraw().to_string(), Symbol::Class(handle.clone()));
    }

    /// The declarations that were used.
    pub fn into_used(self) -> Vec<Declaration> {
        self.used
    }

    /// What a type of a signature is in WIT.
    pub fn resolve(&mut self, ty: &Type, place: Place) -> syn::Result<Wit> {
        match ty {
            Type::Path(path) if path.qself.is_none() => self.path(ty, &path.path, place),
            Type::Tuple(tuple) if tuple.elems.is_empty() => err(
                ty,
                "`()` is no value: it may only be a whole result, or a part of a `Result`",
            ),
            Type::Tuple(tuple) if tuple.elems.len() > 12 => {
                err(ty, "a tuple may have 12 parts at most: declare a struct")
            }
            Type::Tuple(tuple) => {
                let parts = tuple.elems.iter();
                let parts = parts.map(|part| self.resolve(part, Place::Inner));
                Ok(Wit::Tuple(parts.collect::<syn::Result<_>>()?))
            }
            Type::Paren(inner) => self.resolve(&inner.elem, place),
            Type::Group(inner) => self.resolve(&inner.elem, place),
            Type::Reference(reference) => err(ty, &of_reference(&reference.elem)),
            Type::Array(array) => {
                let element = array.elem.to_token_stream();
                err(
                    ty,
                    &format!("arrays have no type in WIT: use `Vec<{element}>`, or a tuple"),
                )
            }
            Type::ImplTrait(_) | Type::TraitObject(_) => err(
                ty,
                "a task's signature says exactly what crosses: write a concrete type in place of the trait",
            ),
            _ => err(
                ty,
                "this type cannot cross between tasks: use values such as numbers, `String`, `Vec` and structs",
            ),
        }
    }

    fn path(&mut self, ty: &Type, path: &syn::Path, place: Place) -> syn::Result<Wit> {
        let Some(last) = path.segments.last() else {
            return err(ty, "this path names no type");
        };
        let name = last.ident.unraw().to_string();
        let arguments = arguments(&last.arguments);
        if self.symbols.contains_key(&name) {
            if !arguments.is_empty() {
                return err(
                    ty,
                    &format!(
                        "`{name}` is declared without parameters here: types of signatures cannot be generic"
                    ),
                );
            }
            return self.symbol_type(ty, &name);
        }
        match (name.as_str(), arguments.as_slice()) {
            ("Vec", [element]) => Ok(Wit::List(Box::new(self.resolve(element, Place::Inner)?))),
            ("Option", [some]) => Ok(Wit::Option(Box::new(self.resolve(some, Place::Inner)?))),
            ("Result", [ok, error]) => {
                let (ok, error) = (self.payload(ok)?, self.payload(error)?);
                Ok(Wit::Result(ok, error))
            }
            ("Result", _) => err(ty, "write both types here: `Result<T, E>`"),
            ("Future", [value]) => {
                self.futures_of.push(value.clone());
                Ok(self.runtime(Runtime::Object))
            }
            ("Mapped", [element]) => self.mapped(ty, element, place),
            ("ActorHandle", []) => Ok(self.runtime(Runtime::Actor)),
            ("Error", []) => Ok(self.runtime(Runtime::Error)),
            (_, []) => match plain(&name) {
                Some(plain) => Ok(Wit::Plain(plain)),
                None => err(ty, &unknown(&name)),
            },
            _ => err(ty, &unknown(&name)),
        }
    }

    fn runtime(&mut self, ty: Runtime) -> Wit {
        self.runtime.insert(ty);
        Wit::Runtime(ty)
    }

    /// A part of a result: `()` is none.
    fn payload(&mut self, ty: &Type) -> syn::Result<Option<Box<Wit>>> {
        match ty {
            Type::Tuple(tuple) if tuple.elems.is_empty() => Ok(None),
            _ => Ok(Some(Box::new(self.resolve(ty, Place::Inner)?))),
        }
    }

    /// Looks at what futures are of. Apart from the rest, because a type may hold futures of itself.
    pub fn resolve_futures(&mut self, mut failed: impl FnMut(syn::Error)) {
        while let Some(ty) = self.futures_of.pop() {
            let is_unit = matches!(&ty, Type::Tuple(tuple) if tuple.elems.is_empty());
            if !is_unit && let Err(error) = self.resolve(&ty, Place::Output) {
                failed(error);
            }
        }
    }

    fn mapped(&mut self, ty: &Type, element: &Type, place: Place) -> syn::Result<Wit> {
        if place != Place::Parameter {
            return err(
                ty,
                "a `Mapped<T>` may only be a whole parameter: pass a `Future<Vec<T>>` on and `map()` it",
            );
        }
        match self.resolve(element, Place::Inner)? {
            Wit::Plain("bool" | "char" | "string") | Wit::Declared(_) | Wit::List(_) => {
                err(element, "only numbers can be mapped: u8 to i64, f32 or f64")
            }
            Wit::Plain(_) => Ok(self.runtime(Runtime::Object)),
            _ => err(element, "only numbers can be mapped: u8 to i64, f32 or f64"),
        }
    }

    fn symbol_type(&mut self, ty: &Type, name: &str) -> syn::Result<Wit> {
        match &self.symbols[name] {
            Symbol::Handle => Ok(self.runtime(Runtime::Actor)),
            Symbol::Class(handle) => {
                let message = format!(
                    "`{name}` is an actor and stays where it is: what crosses is its handle, `{handle}`"
                );
                err(ty, &message)
            }
            Symbol::Type { item, path } => {
                if let Some(used) = self.used.iter().find(|used| used.ident.unraw() == *name) {
                    return Ok(Wit::Declared(used.wit_name.clone()));
                }
                if self.open.iter().any(|open| open == name) {
                    let message = format!(
                        "`{name}` holds itself, and WIT has no recursive types: keep the parts in a list \
                         and let them name each other by index"
                    );
                    return err(ty, &message);
                }
                if self.failed.contains(name) {
                    // It was told why.
                    return Ok(Wit::Declared(String::new()));
                }
                let (item, path) = (item.clone(), path.clone());
                self.open.push(name.to_owned());
                let wit = self.declaration(*item, path);
                self.open.pop();
                if wit.is_err() {
                    self.failed.insert(name.to_owned());
                }
                wit
            }
        }
    }

    fn declaration(&mut self, item: Item, path: Option<syn::Path>) -> syn::Result<Wit> {
        let (ident, generics, attrs) = match &item {
            Item::Type(alias) => {
                no_generics(&alias.generics)?;
                return self.resolve(&alias.ty, Place::Inner);
            }
            Item::Struct(item) => (&item.ident, &item.generics, &item.attrs),
            Item::Enum(item) => (&item.ident, &item.generics, &item.attrs),
            other => return err(other, "only structs and enums are types of values"),
        };
        no_generics(generics)?;
        check_attributes(attrs)?;
        let shape = match &item {
            Item::Struct(item) => Shape::Record(self.record(&item.ident, &item.fields)?),
            Item::Enum(item) => Shape::Variant(self.cases(item)?),
            _ => unreachable!("other items were refused above"),
        };
        let wit_name = names::kebab(ident)?;
        self.used.push(Declaration {
            rust: path
                .as_ref()
                .map_or_else(|| quote!(#ident), |path| quote!(#path)),
            ident: ident.clone(),
            wit_name: wit_name.clone(),
            docs: docs(attrs),
            shape,
            is_imported: path.is_some(),
        });
        Ok(Wit::Declared(wit_name))
    }

    fn record(&mut self, ident: &Ident, fields: &Fields) -> syn::Result<Vec<Field>> {
        match fields {
            Fields::Named(named) if !named.named.is_empty() => self.fields(fields),
            Fields::Unnamed(unnamed) if !unnamed.unnamed.is_empty() => err(
                fields,
                "the fields of a record have names: write `struct S { first: T, … }`",
            ),
            _ => Err(syn::Error::new(
                ident.span(),
                format!(
                    "`{ident}` has no fields, and WIT has no empty records: give it one, or do without it"
                ),
            )),
        }
    }

    fn fields(&mut self, fields: &Fields) -> syn::Result<Vec<Field>> {
        let mut errors = Errors::default();
        let mut read: Vec<Field> = Vec::new();
        for field in fields {
            let field = self.field(field, &read);
            read.extend(errors.take(field));
        }
        errors.or(read)
    }

    fn field(&mut self, field: &syn::Field, earlier: &[Field]) -> syn::Result<Field> {
        check_attributes(&field.attrs)?;
        let Some(ident) = &field.ident else {
            return err(field, "the fields of a record have names");
        };
        let wit_name = names::kebab(ident)?;
        if earlier.iter().any(|other| other.wit_name == wit_name) {
            let message = format!("two fields are `{wit_name}` in WIT: rename one");
            return Err(syn::Error::new(ident.span(), message));
        }
        Ok(Field {
            ident: ident.clone(),
            wit_name,
            docs: docs(&field.attrs),
            ty: field.ty.clone(),
            wit: self.resolve(&field.ty, Place::Inner)?,
        })
    }

    fn cases(&mut self, item: &syn::ItemEnum) -> syn::Result<Vec<Case>> {
        if item.variants.is_empty() {
            let message = format!(
                "`{}` has no cases, and WIT has no empty variants",
                item.ident
            );
            return Err(syn::Error::new(item.ident.span(), message));
        }
        let mut errors = Errors::default();
        let mut cases: Vec<Case> = Vec::new();
        for variant in &item.variants {
            let case = self.case(&item.ident, variant, &cases);
            cases.extend(errors.take(case));
        }
        errors.or(cases)
    }

    fn case(&mut self, of: &Ident, variant: &syn::Variant, earlier: &[Case]) -> syn::Result<Case> {
        check_attributes(&variant.attrs)?;
        let wit_name = names::kebab(&variant.ident)?;
        if earlier.iter().any(|other| other.wit_name == wit_name) {
            let message = format!("two cases are `{wit_name}` in WIT: rename one");
            return Err(syn::Error::new(variant.ident.span(), message));
        }
        let payload = match &variant.fields {
            Fields::Unit => Payload::None,
            Fields::Unnamed(fields) => {
                let types = fields.unnamed.iter().map(|field| {
                    check_attributes(&field.attrs)?;
                    Ok((field.ty.clone(), self.resolve(&field.ty, Place::Inner)?))
                });
                let types: Vec<_> = types.collect::<syn::Result<_>>()?;
                match types.len() {
                    0 => return err(variant, "a case without a payload has no parentheses"),
                    1..=12 => Payload::Tuple(types),
                    _ => {
                        return err(
                            variant,
                            "a payload may have 12 parts at most: declare a struct",
                        );
                    }
                }
            }
            Fields::Named(fields) if fields.named.is_empty() => {
                return err(variant, "a case without a payload has no braces");
            }
            Fields::Named(_) => Payload::Record(
                format!("{}-{wit_name}", names::kebab(of)?),
                self.fields(&variant.fields)?,
            ),
        };
        Ok(Case {
            ident: variant.ident.clone(),
            wit_name,
            docs: docs(&variant.attrs),
            payload,
        })
    }
}

impl Wit {
    /// Its text, where `name` says what a type of `wasmrun:runtime` is called.
    pub fn text(&self, name: &impl Fn(Runtime) -> String) -> String {
        let part = |part: &Option<Box<Wit>>| match part {
            Some(part) => part.text(name),
            None => "_".to_owned(),
        };
        match self {
            Wit::Plain(text) => (*text).to_owned(),
            Wit::List(element) => format!("list<{}>", element.text(name)),
            Wit::Option(some) => format!("option<{}>", some.text(name)),
            Wit::Result(None, None) => "result".to_owned(),
            Wit::Result(ok @ Some(_), None) => format!("result<{}>", part(ok)),
            Wit::Result(ok, error) => format!("result<{}, {}>", part(ok), part(error)),
            Wit::Tuple(parts) => {
                let parts: Vec<String> = parts.iter().map(|part| part.text(name)).collect();
                format!("tuple<{}>", parts.join(", "))
            }
            Wit::Declared(declared) => names::wit_id(declared),
            Wit::Runtime(ty) => name(*ty),
        }
    }
}

fn no_generics(generics: &syn::Generics) -> syn::Result<()> {
    match generics.params.is_empty() {
        true => Ok(()),
        false => err(
            generics,
            "types of signatures cannot be generic: WIT has no type parameters; write one type for each use",
        ),
    }
}

fn arguments(arguments: &PathArguments) -> Vec<Type> {
    let PathArguments::AngleBracketed(angle) = arguments else {
        return Vec::new();
    };
    let types = angle.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty.clone()),
        _ => None,
    });
    types.collect()
}

/// The WIT type of a Rust type without parameters.
fn plain(name: &str) -> Option<&'static str> {
    Some(match name {
        "bool" => "bool",
        "char" => "char",
        "String" => "string",
        "u8" => "u8",
        "i8" => "s8",
        "u16" => "u16",
        "i16" => "s16",
        "u32" => "u32",
        "i32" => "s32",
        "u64" => "u64",
        "i64" => "s64",
        "f32" => "f32",
        "f64" => "f64",
        _ => return None,
    })
}

fn err<T>(tokens: &(impl ToTokens + Spanned), message: &str) -> syn::Result<T> {
    Err(syn::Error::new_spanned(tokens, message))
}
