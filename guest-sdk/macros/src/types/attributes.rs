//! The attributes of declarations: derives, documentation, and those that a value cannot have.

use quote::ToTokens;
use syn::{Ident, Type};

use super::err;

/// Whether `#[derive(…)]` among these attributes names a trait.
pub fn derives(attrs: &[syn::Attribute], name: &str) -> bool {
    attrs
        .iter()
        .filter(|attr| attr.path().is_ident("derive"))
        .any(|attr| {
            let mut found = false;
            // A derive that cannot be read is the compiler's to complain of.
            let _ = attr.parse_nested_meta(|meta| {
                found |= meta
                    .path
                    .segments
                    .last()
                    .is_some_and(|last| last.ident == name);
                Ok(())
            });
            found
        })
}

/// Whether a type is `Vec<u8>`.
pub fn is_bytes(ty: &Type) -> bool {
    ty.to_token_stream().to_string() == "Vec < u8 >"
}

/// The lines of a documentation.
pub fn docs(attrs: &[syn::Attribute]) -> Vec<String> {
    let text = |attr: &syn::Attribute| match &attr.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit {
                lit: syn::Lit::Str(text),
                ..
            }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    };
    attrs
        .iter()
        .filter_map(text)
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// Refuses what would make the bytes differ from the type's shape.
pub fn check_attributes(attrs: &[syn::Attribute]) -> syn::Result<()> {
    if derives(attrs, "Serialize") != derives(attrs, "Deserialize") {
        let derive = attrs.iter().find(|attr| attr.path().is_ident("derive"));
        return err(
            &derive.to_token_stream(),
            "a value is written and read: derive both `Serialize` and `Deserialize`, or neither",
        );
    }
    for attr in attrs {
        if attr.path().is_ident("cfg") || attr.path().is_ident("cfg_attr") {
            return err(
                attr,
                "what crosses between tasks is the same in every build: remove the condition",
            );
        }
        if !attr.path().is_ident("serde") {
            continue;
        }
        const CHANGES: [&str; 12] = [
            "skip",
            "skip_serializing",
            "skip_deserializing",
            "skip_serializing_if",
            "flatten",
            "tag",
            "content",
            "untagged",
            "with",
            "serialize_with",
            "deserialize_with",
            "from",
        ];
        let words = attr.meta.to_token_stream().into_iter();
        for word in words.flat_map(flatten) {
            if CHANGES.iter().any(|change| word == change) {
                let message = format!(
                    "`{word}` changes the bytes of the value, which follow its type: remove it"
                );
                return Err(syn::Error::new(word.span(), message));
            }
        }
    }
    Ok(())
}

/// The words of a token and of what is in it.
fn flatten(token: proc_macro2::TokenTree) -> Vec<Ident> {
    match token {
        proc_macro2::TokenTree::Ident(word) => vec![word],
        proc_macro2::TokenTree::Group(group) => {
            group.stream().into_iter().flat_map(flatten).collect()
        }
        _ => Vec::new(),
    }
}
