//! Names: from Rust to WIT, and to what wit-bindgen makes of that.
//!
//! Owns the rules of both. Invariant: two Rust names that WIT cannot tell apart are an error elsewhere
//! (`parse`), never a silent clash.

use heck::{ToKebabCase, ToSnakeCase, ToUpperCamelCase};
use proc_macro2::{Ident, Span};
use quote::format_ident;
use syn::ext::IdentExt;

/// The WIT name of a Rust one: `snake_case` and `CamelCase` become `kebab-case`.
///
/// # Errors
/// When WIT has no such name.
pub fn kebab(ident: &Ident) -> syn::Result<String> {
    let text = ident.unraw().to_string();
    let name = text.to_kebab_case();
    match check(&name) {
        Ok(()) => Ok(name),
        Err(why) => Err(syn::Error::new(
            ident.span(),
            format!("`{text}` cannot be a name in WIT: {why}"),
        )),
    }
}

/// Whether a text is a name in WIT, in lower case.
pub fn check(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("it has no letters; choose another".to_owned());
    }
    for word in name.split('-') {
        match word.chars().next() {
            Some('a'..='z') => {}
            Some('0'..='9') => {
                return Err(format!(
                    "a word there begins with a letter, and `{word}` does not; join it to the word before"
                ));
            }
            _ => return Err("it needs words of ASCII letters and digits".to_owned()),
        }
        if !word
            .bytes()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        {
            return Err("only ASCII letters and digits may stand there".to_owned());
        }
    }
    Ok(())
}

/// A name in WIT text. The `%` says that it is a name even where it is a keyword.
pub fn wit_id(name: &str) -> String {
    format!("%{name}")
}

/// Whether Rust has a WIT name for itself. wit-bindgen knows how to avoid that, but not in packages.
pub fn is_keyword(name: &str) -> bool {
    syn::parse_str::<Ident>(&name.to_snake_case()).is_err()
}

/// What wit-bindgen calls a function, a field, a parameter or an interface.
pub fn bindgen_value(name: &str) -> Ident {
    let snake = name.to_snake_case();
    match is_keyword(name) {
        true => format_ident!("{snake}_"),
        false => format_ident!("{snake}"),
    }
}

/// What wit-bindgen calls a type.
pub fn bindgen_type(name: &str) -> Ident {
    match name {
        // Its own trait has this name.
        "guest" => Ident::new("Guest_", Span::call_site()),
        other => Ident::new(&other.to_upper_camel_case(), Span::call_site()),
    }
}

/// What wit-bindgen calls a case of a variant.
pub fn bindgen_case(name: &str) -> Ident {
    Ident::new(&name.to_upper_camel_case(), Span::call_site())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ident(text: &str) -> Ident {
        syn::parse_str(text).unwrap()
    }

    #[test]
    fn rust_names_become_wit_names() {
        for (rust, wit) in [
            ("sample", "sample"),
            ("word_count", "word-count"),
            ("HttpServer", "http-server"),
            ("HTTPServer", "http-server"),
            ("r#type", "type"),
            ("x1", "x1"),
        ] {
            assert_eq!(kebab(&ident(rust)).unwrap(), wit);
        }
        assert_eq!(bindgen_value("type"), "type_");
        assert_eq!(bindgen_value("word-count"), "word_count");
        assert_eq!(bindgen_type("http-server"), "HttpServer");
    }

    #[test]
    fn other_names_are_refused() {
        let error = kebab(&ident("get_2")).unwrap_err().to_string();
        assert!(error.contains("join it to the word before"), "{error}");
        assert!(kebab(&ident("größe")).is_err());
        assert!(kebab(&ident("__")).is_err());
    }
}
