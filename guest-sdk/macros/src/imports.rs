//! Types of signatures that are declared outside the module.
//!
//! A macro sees only the tokens that it is given. So `#[value]` keeps its type's tokens in a macro of
//! the type's name, and a module that names such a type goes to that macro first, which passes the
//! tokens on to `__with_type!`: once for each type, then the module is read.
//!
//! Owns that round trip. Invariant: the user's tokens keep their places all the way.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Ident, Item, ItemMod, Path, Token, braced, parenthesized};

use crate::emit;
use crate::parse::{self, Import};
use crate::settings::ModuleSettings;
use crate::types;

/// Begins with a module: fetches its types, if it names any.
pub fn start(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let module: Item = syn::parse2(item)?;
    let Item::Mod(module) = module else {
        return Err(syn::Error::new_spanned(
            module,
            "this belongs before a `mod name { … }` that holds the tasks, actors and types",
        ));
    };
    let (types, options) = split_types.parse2(options)?;
    next(Journey {
        wanted: types,
        fetched: Vec::new(),
        options,
        module: module.into_token_stream(),
    })
}

/// What travels from type to type.
struct Journey {
    /// The first one is being fetched.
    wanted: Vec<Path>,
    fetched: Vec<(Path, Item)>,
    options: TokenStream,
    module: TokenStream,
}

/// Fetches the next type, or reads the module if all are there.
fn next(journey: Journey) -> syn::Result<TokenStream> {
    let Some(first) = journey.wanted.first() else {
        return finish(journey);
    };
    if first
        .segments
        .first()
        .is_none_or(|segment| segment.ident != "crate")
    {
        return Err(syn::Error::new_spanned(
            first,
            "write the path from the crate's root: `crate::path::Type`",
        ));
    }
    let Journey {
        wanted,
        fetched,
        options,
        module,
    } = &journey;
    let (paths, items): (Vec<_>, Vec<_>) = fetched.iter().map(|(path, item)| (path, item)).unzip();
    Ok(quote! {
        #first! { { #(#wanted),* } { #( (#paths) { #items } )* } { #options } { #module } }
    })
}

impl Parse for Journey {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let (item, wanted, fetched_tokens, options, module);
        braced!(item in input);
        braced!(wanted in input);
        braced!(fetched_tokens in input);
        braced!(options in input);
        braced!(module in input);
        let item: Item = item.parse()?;
        let wanted = Punctuated::<Path, Token![,]>::parse_terminated(&wanted)?;
        let mut wanted: Vec<Path> = wanted.into_iter().collect();
        let mut fetched = Vec::new();
        while !fetched_tokens.is_empty() {
            let (path, item);
            parenthesized!(path in fetched_tokens);
            braced!(item in fetched_tokens);
            fetched.push((path.parse()?, item.parse()?));
        }
        fetched.push((wanted.remove(0), item));
        Ok(Self {
            wanted,
            fetched,
            options: options.parse()?,
            module: module.parse()?,
        })
    }
}

/// A type has come: `__with_type!`.
pub fn go_on(input: TokenStream) -> syn::Result<TokenStream> {
    next(syn::parse2(input)?)
}

fn finish(journey: Journey) -> syn::Result<TokenStream> {
    let settings: ModuleSettings = syn::parse2(journey.options)?;
    let module: ItemMod = syn::parse2(journey.module)?;
    let crate_name = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "guest".to_owned());
    let imports = journey
        .fetched
        .into_iter()
        .map(|(path, item)| Import { path, item })
        .collect();
    let program = parse::program(settings, &crate_name, imports, module)?;
    Ok(emit::module(&program))
}

/// Takes `types(…)` out of the module's options.
fn split_types(input: ParseStream) -> syn::Result<(Vec<Path>, TokenStream)> {
    let mut types = Vec::new();
    let mut rest = TokenStream::new();
    while !input.is_empty() {
        if input.peek(Ident) && input.fork().parse::<Ident>()? == "types" {
            input.parse::<Ident>()?;
            let content;
            parenthesized!(content in input);
            types.extend(Punctuated::<Path, Token![,]>::parse_terminated(&content)?);
            input.parse::<Option<Token![,]>>()?;
        } else {
            // One option, with the comma after it.
            while !input.is_empty() {
                let token: proc_macro2::TokenTree = input.parse()?;
                let is_comma =
                    matches!(&token, proc_macro2::TokenTree::Punct(p) if p.as_char() == ',');
                rest.extend([token]);
                if is_comma {
                    break;
                }
            }
        }
    }
    Ok((types, rest))
}

/// `#[value]`: a type outside the module, and the macro that passes it on.
pub fn value(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    if !options.is_empty() {
        return Err(syn::Error::new_spanned(
            options,
            "this attribute takes no options",
        ));
    }
    let original: Item = syn::parse2(item)?;
    let mut declared = original.clone();
    let (ident, attrs) = match &original {
        Item::Struct(item) => (&item.ident, &item.attrs),
        Item::Enum(item) => (&item.ident, &item.attrs),
        other => {
            let message = "only structs and enums are types of values";
            return Err(syn::Error::new_spanned(other, message));
        }
    };
    types::check_attributes(attrs)?;
    emit::values::add_derives(&mut declared);
    let keeper = format_ident!("__wasmrun_value_{ident}");
    Ok(quote! {
        #declared

        ::wasmrun_guest::__plain_value!(#ident);

        #[doc(hidden)]
        #[allow(unused_macros)]
        macro_rules! #keeper {
            ($($journey:tt)*) => {
                ::wasmrun_guest::__private::__with_type! { { #original } $($journey)* }
            };
        }

        #[doc(hidden)]
        #[allow(unused_imports)]
        pub(crate) use #keeper as #ident;
    })
}
