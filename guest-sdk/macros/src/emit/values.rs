//! Makes values of the types that signatures use.

use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Field, Item, parse_quote};

use crate::parse::Program;
use crate::types;

/// The module's items, with the derives that values need.
pub fn with_derives(program: &Program) -> Vec<TokenStream> {
    let used: BTreeSet<String> = program
        .declarations
        .iter()
        .filter(|declaration| !declaration.is_imported)
        .map(|declaration| declaration.ident.to_string())
        .collect();
    let mut items = program.items.clone();
    for item in &mut items {
        let is_used = match item {
            Item::Struct(item) => used.contains(&item.ident.to_string()),
            Item::Enum(item) => used.contains(&item.ident.to_string()),
            _ => false,
        };
        if is_used {
            add_derives(item);
        }
    }
    items.iter().map(ToTokens::to_token_stream).collect()
}

/// Derives serde's traits for a struct or an enum, where the user does not. The user needs no serde
/// for that.
pub fn add_derives(item: &mut Item) {
    let (attrs, fields): (_, Vec<&mut Field>) = match item {
        Item::Struct(item) => (&mut item.attrs, item.fields.iter_mut().collect()),
        Item::Enum(item) => {
            let fields = item.variants.iter_mut().flat_map(|case| &mut case.fields);
            (&mut item.attrs, fields.collect())
        }
        _ => return,
    };
    if types::derives(attrs, "Serialize") {
        return;
    }
    attrs.push(parse_quote!(#[derive(
        ::wasmrun_guest::__private::serde::Serialize,
        ::wasmrun_guest::__private::serde::Deserialize,
    )]));
    attrs.push(parse_quote!(#[serde(crate = "::wasmrun_guest::__private::serde")]));
    for field in fields {
        if types::is_bytes(&field.ty) {
            field
                .attrs
                .push(parse_quote!(#[serde(with = "::wasmrun_guest::__private::bytes")]));
        }
    }
}

/// The `Value` of each type that is declared in the module.
pub fn impls(program: &Program) -> TokenStream {
    let declared = program
        .declarations
        .iter()
        .filter(|declaration| !declaration.is_imported);
    let impls = declared.map(|declaration| {
        let ident = &declaration.ident;
        quote!(::wasmrun_guest::__plain_value!(#ident);)
    });
    quote!(#(#impls)*)
}
