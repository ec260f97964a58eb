//! Writes the Rust that goes with a module.
//!
//! Owns what is the same for all of it: the paths into `wasmrun-guest`, and the order of the pieces. Each
//! piece is a file: `values`, `functions`, `actors`, and `exports` for what is only on WebAssembly.
//! Invariant: a generated name that the user did not choose begins with `__`, so nothing clashes.

mod actors;
mod exports;
mod functions;
pub mod values;

use proc_macro2::TokenStream;
use quote::quote;

use crate::manifest;
use crate::parse::{Parameter, Program};

/// The module as it is compiled.
pub fn module(program: &Program) -> TokenStream {
    let shell = &program.shell;
    let (vis, ident) = (&shell.vis, &shell.ident);
    let is_outer = |attr: &&syn::Attribute| matches!(attr.style, syn::AttrStyle::Outer);
    let (outer, inner): (Vec<_>, Vec<_>) = shell.attrs.iter().partition(is_outer);
    let items = values::with_derives(program);
    let values = values::impls(program);
    let table = functions::table(program);
    let calls = program.functions.iter().map(functions::caller);
    let classes = program.classes.iter().map(actors::class);
    let exports = exports::exports(program);
    let manifest = manifest::text(program).map(|json| quote!(::wasmrun_guest::manifest!(#json);));
    quote! {
        #(#outer)*
        #vis mod #ident {
            #(#inner)*
            #(#items)*
            #values
            #table
            #(#calls)*
            #(#classes)*
            #exports
            #manifest
        }
    }
}

/// `name: impl IntoArgument<T>` for each parameter.
fn any_arguments(parameters: &[Parameter]) -> Vec<TokenStream> {
    let each = parameters.iter().map(|parameter| {
        let (ident, ty) = (&parameter.ident, &parameter.ty);
        quote!(#ident: impl ::wasmrun_guest::IntoArgument<#ty>)
    });
    each.collect()
}

/// The list of arguments of which `any_arguments` are the parameters.
fn argument_list(parameters: &[Parameter]) -> TokenStream {
    let each = parameters.iter().map(|parameter| {
        let (ident, ty) = (&parameter.ident, &parameter.ty);
        quote!(::wasmrun_guest::IntoArgument::<#ty>::into_argument(#ident))
    });
    quote!(::std::vec![#(#each),*])
}

/// Calls `callee` with arguments that are decoded, in order, after `this` if it is a method.
fn decoded_call(
    name: &str,
    callee: &TokenStream,
    this: Option<TokenStream>,
    parameters: &[Parameter],
) -> TokenStream {
    let count = parameters.len();
    let types = parameters.iter().map(|parameter| &parameter.ty);
    let next = types.map(|ty| quote!(__arguments.take::<#ty>()?));
    let arguments = this.into_iter().chain(next);
    // Without parameters nothing is taken out.
    let mutability = (count > 0).then(|| quote!(mut));
    quote! {{
        #[allow(unused_variables)]
        let #mutability __arguments = __arguments.expect(#name, #count)?;
        #callee(#(#arguments),*)
    }}
}
