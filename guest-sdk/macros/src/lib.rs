//! The attributes of `wasmrun-guest`.
//!
//! Owns the way from a Rust module to a WIT world, a manifest, exports and typed calls. The pieces, in
//! the order in which they work: `parse` reads the module (with `settings` for its attributes and
//! `types` for the types of its signatures), `wit` and `manifest` write the two texts, `emit` writes
//! Rust. `imports` fetches types that are declared elsewhere. Must not do anything at run time:
//! what generated code calls is in `wasmrun-guest`, under `__private`.
//!
//! Invariant: what is wrong in the user's module is an error at the user's tokens, and all such errors
//! of a module are told at once.

mod amounts;
mod emit;
mod errors;
mod imports;
mod manifest;
mod names;
mod parse;
mod settings;
#[cfg(test)]
mod tests;
mod types;
mod wit;

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;

/// Makes of a `mod` a module of tasks and actors. See the crate `wasmrun-guest` for the tour.
#[proc_macro_attribute]
pub fn module(options: TokenStream, item: TokenStream) -> TokenStream {
    finish(imports::start(options.into(), item.into()))
}

/// Lets a type that is declared outside the module stand in signatures: name it in
/// `#[module(types(crate::path::Type))]`.
#[proc_macro_attribute]
pub fn value(options: TokenStream, item: TokenStream) -> TokenStream {
    finish(imports::value(options.into(), item.into()))
}

/// Goes on with a module when one of its imported types is there.
#[doc(hidden)]
#[proc_macro]
pub fn __with_type(input: TokenStream) -> TokenStream {
    finish(imports::go_on(input.into()))
}

/// Marks a function as a task, inside a [`macro@module`].
#[proc_macro_attribute]
pub fn task(_options: TokenStream, item: TokenStream) -> TokenStream {
    finish(Err(outside("task", item.into())))
}

/// Marks a struct and its `impl` as an actor class, inside a [`macro@module`].
#[proc_macro_attribute]
pub fn actor(_options: TokenStream, item: TokenStream) -> TokenStream {
    finish(Err(outside("actor", item.into())))
}

/// The module takes its own attributes away: whoever gets here is outside.
fn outside(attribute: &str, item: Tokens) -> syn::Error {
    let message = format!(
        "`#[{attribute}]` works inside a module only: put this into a `mod` with \
         `#[wasmrun_guest::module]`"
    );
    syn::Error::new_spanned(item.into_iter().next(), message)
}

fn finish(result: syn::Result<Tokens>) -> TokenStream {
    result.unwrap_or_else(syn::Error::into_compile_error).into()
}
