//! Reads actor classes: the calls in their `#[actor] impl`.

use proc_macro2::Ident;
use quote::format_ident;
use syn::spanned::Spanned;
use syn::{FnArg, ImplItem, ReturnType, Signature, Type, Visibility};

use super::{Function, Parameter, check_signature, function, parameters};
use crate::errors::Errors;
use crate::settings::ActorSettings;
use crate::types::{Types, is_bytes};

/// An actor class.
pub struct Class {
    pub vis: Visibility,
    pub ident: Ident,
    pub handle: Ident,
    pub wit_name: String,
    pub docs: Vec<String>,
    pub constructor: Vec<Parameter>,
    /// In these, `settings` says nothing.
    pub methods: Vec<Function>,
    /// Whether it has `checkpoint` and `restore`.
    pub is_checkpointed: bool,
    pub settings: ActorSettings,
}

/// The name of a class's handle.
pub(super) fn handle_of(class: &Ident) -> Ident {
    format_ident!("{class}Handle", span = class.span())
}

/// What an `#[actor] impl` has.
pub(super) struct Calls {
    pub constructor: Vec<Parameter>,
    pub methods: Vec<Function>,
    pub is_checkpointed: bool,
}

/// Reads the `impl` of a class.
pub(super) fn calls(
    class: &Ident,
    block: &syn::ItemImpl,
    types: &mut Types,
    errors: &mut Errors,
) -> Option<Calls> {
    let (mut constructor, mut methods) = (None, Vec::new());
    let (mut checkpoint, mut restore) = (None, None);
    for item in &block.items {
        let ImplItem::Fn(item) = item else { continue };
        if !matches!(item.vis, Visibility::Public(_)) {
            continue;
        }
        let name = item.sig.ident.to_string();
        if let "create" | "options" | "find" = name.as_str() {
            let message = format!("`{class}::{name}` is generated: give this another name");
            errors.push(syn::Error::new(item.sig.ident.span(), message));
            continue;
        }
        let has_self = item.sig.receiver().is_some();
        match name.as_str() {
            "new" if !has_self => {
                constructor = errors.take(read_constructor(class, &item.sig, types));
                // Its errors were told: not also that there is none.
                constructor = constructor.or_else(|| Some(Vec::new()));
            }
            "checkpoint" => {
                let ok = is_checkpoint(&item.sig);
                checkpoint = Some(&item.sig.ident);
                errors.take(ok);
            }
            "restore" => {
                let ok = is_restore(class, &item.sig);
                restore = Some(&item.sig.ident);
                errors.take(ok);
            }
            _ => {
                let read = function(&item.vis, &item.sig, &item.attrs, Some(class), types);
                if let Some(method) = errors.take(read.and_then(|method| unlike(method, &methods)))
                {
                    methods.push(method);
                }
            }
        }
    }
    match (checkpoint, restore) {
        (Some(ident), None) => errors.push(syn::Error::new(
            ident.span(),
            "a checkpoint needs its way back: add `pub fn restore(state: Vec<u8>) -> Self`",
        )),
        (None, Some(ident)) => errors.push(syn::Error::new(
            ident.span(),
            "what is restored must be kept first: add `pub fn checkpoint(&self) -> Vec<u8>`",
        )),
        _ => {}
    }
    if constructor.is_none() {
        let message = format!("`{class}` has no constructor: add `pub fn new(…) -> Self`");
        errors.push(syn::Error::new_spanned(&block.self_ty, message));
    }
    Some(Calls {
        constructor: constructor?,
        methods,
        is_checkpointed: checkpoint.is_some() && restore.is_some(),
    })
}

/// The method, if no other has its name in WIT.
fn unlike(method: Function, others: &[Function]) -> syn::Result<Function> {
    match others.iter().any(|other| other.wit_name == method.wit_name) {
        false => Ok(method),
        true => Err(syn::Error::new(
            method.ident.span(),
            format!("two calls are `{}` in WIT: rename one", method.wit_name),
        )),
    }
}

fn read_constructor(
    class: &Ident,
    sig: &Signature,
    types: &mut Types,
) -> syn::Result<Vec<Parameter>> {
    check_signature(sig)?;
    if !returns_self(class, &sig.output) {
        return Err(syn::Error::new(
            sig.output.span(),
            "a constructor returns `Self`; where it cannot, let it panic with a message: the actor is \
             dead then, and its calls tell why",
        ));
    }
    parameters(sig, types)
}

fn returns_self(class: &Ident, output: &ReturnType) -> bool {
    matches!(output, ReturnType::Type(_, ty) if matches!(&**ty, Type::Path(path)
        if path.path.is_ident("Self") || path.path.is_ident(class)))
}

fn is_checkpoint(sig: &Signature) -> syn::Result<()> {
    let borrows = sig
        .receiver()
        .is_some_and(|this| this.reference.is_some() && this.mutability.is_none());
    let returns_bytes = matches!(&sig.output, ReturnType::Type(_, ty) if is_bytes(ty));
    match borrows && sig.inputs.len() == 1 && returns_bytes {
        true => check_signature(sig),
        false => Err(syn::Error::new_spanned(
            sig,
            "a checkpoint is the state as bytes: `pub fn checkpoint(&self) -> Vec<u8>`",
        )),
    }
}

fn is_restore(class: &Ident, sig: &Signature) -> syn::Result<()> {
    let takes_bytes = match sig.inputs.first() {
        Some(FnArg::Typed(typed)) => sig.inputs.len() == 1 && is_bytes(&typed.ty),
        _ => false,
    };
    match takes_bytes && returns_self(class, &sig.output) {
        true => check_signature(sig),
        false => Err(syn::Error::new_spanned(
            sig,
            "a restore makes an instance of a checkpoint: `pub fn restore(state: Vec<u8>) -> Self`",
        )),
    }
}
