//! What is only on WebAssembly: the typed exports, and the fast lane.
//!
//! wit-bindgen makes the exports of the module's WIT; here are the conversions between its types and the
//! user's, and the two traits that it asks for. All of it is in a module of its own, so that only the
//! names of the user's types come in.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use crate::names::{bindgen_case, bindgen_type, bindgen_value};
use crate::parse::{Class, Function, Parameter, Program};
use crate::types::{Case, Declaration, Field, Payload, Runtime, Shape};
use crate::wit;

/// The module with the exports.
pub fn exports(program: &Program) -> TokenStream {
    let bindings = bindings(program);
    let interface = interface_path(program);
    let types = program.declarations.iter().map(declaration);
    let handles = program.classes.iter().map(|class| handle(&class.handle));
    let resources = program.classes.iter().map(resource);
    let class_types = program.classes.iter().map(|class| {
        let (name, instance) = (bindgen_case(&class.wit_name), instance_ident(class));
        quote!(type #name = #instance;)
    });
    let functions = program.functions.iter().map(function);
    let fast = fast();
    quote! {
        #[cfg(target_family = "wasm")]
        #[doc(hidden)]
        #[allow(missing_docs, unused_imports, dead_code, clippy::all, clippy::pedantic)]
        mod __wasmrun_exports {
            use super::*;
            use ::wasmrun_guest::__private::Typed as __Typed;

            #bindings

            use __bindings::#interface as __wit;

            struct __Component;

            #(#types)*
            #(#handles)*
            #(#resources)*

            impl __wit::Guest for __Component {
                #(#class_types)*
                #(#functions)*
            }

            #fast

            __bindings::export!(__Component with_types_in __bindings);
        }
    }
}

fn bindings(program: &Program) -> TokenStream {
    let text = wit::text(program);
    let world = wit::WORLD;
    let uses_actors = program.runtime.contains(&Runtime::Actor);
    let interfaces: &[&str] = match (uses_actors, program.runtime.is_empty()) {
        (true, _) => &["objects", "tasks", "actors"],
        (false, false) => &["objects"],
        (false, true) => &[],
    };
    let with = interfaces.iter().map(|interface| {
        let key = wit::contract_interface(interface);
        let module = format_ident!("{interface}");
        quote!(#key: ::wasmrun_guest::__private::bindings::wasmrun::runtime::#module)
    });
    quote! {
        mod __bindings {
            ::wasmrun_guest::__private::wit_bindgen::generate!({
                inline: #text,
                // Nothing of the user's own.
                path: [],
                world: #world,
                runtime_path: "::wasmrun_guest::__private::wit_bindgen::rt",
                generate_unused_types: true,
                with: { #(#with),* },
            });
        }
    }
}

/// Where wit-bindgen puts the interface.
fn interface_path(program: &Program) -> TokenStream {
    let (namespace, name) = program
        .package
        .split_once(':')
        .expect("checked when it was read");
    let [namespace, name, interface] = [namespace, name, &program.interface].map(bindgen_value);
    quote!(exports::#namespace::#name::#interface)
}

fn declaration(declaration: &Declaration) -> TokenStream {
    let rust = &declaration.rust;
    let name = bindgen_type(&declaration.wit_name);
    let (from, into) = match &declaration.shape {
        Shape::Record(fields) => {
            let (names, theirs) = field_names(fields);
            let from = from_fields(fields);
            let into = into_fields(fields);
            (
                quote!({ let __wit::#name { #(#theirs: #names),* } = wit; #rust { #from } }),
                quote!({ let #rust { #(#names),* } = self; __wit::#name { #into } }),
            )
        }
        Shape::Variant(cases) => {
            let from = cases.iter().map(|case| case_from(rust, &name, case));
            let into = cases.iter().map(|case| case_into(rust, &name, case));
            (
                quote!(match wit { #(#from)* }),
                quote!(match self { #(#into)* }),
            )
        }
    };
    quote! {
        impl __Typed for #rust {
            type Wit = __wit::#name;

            fn from_wit(wit: Self::Wit) -> Self {
                #from
            }

            fn into_wit(self) -> Self::Wit {
                #into
            }
        }
    }
}

/// The user's names of fields and those of wit-bindgen.
fn field_names(fields: &[Field]) -> (Vec<&Ident>, Vec<Ident>) {
    fields
        .iter()
        .map(|field| (&field.ident, bindgen_value(&field.wit_name)))
        .unzip()
}

/// The user's fields, where wit-bindgen's values are in variables of the user's names.
fn from_fields(fields: &[Field]) -> TokenStream {
    let fields = fields.iter().map(|field| {
        let (ident, ty) = (&field.ident, &field.ty);
        quote!(#ident: <#ty as __Typed>::from_wit(#ident))
    });
    quote!(#(#fields),*)
}

fn into_fields(fields: &[Field]) -> TokenStream {
    let fields = fields.iter().map(|field| {
        let (ident, ty, theirs) = (&field.ident, &field.ty, bindgen_value(&field.wit_name));
        quote!(#theirs: <#ty as __Typed>::into_wit(#ident))
    });
    quote!(#(#fields),*)
}

fn case_from(rust: &TokenStream, name: &Ident, case: &Case) -> TokenStream {
    let (ours, theirs) = (&case.ident, bindgen_case(&case.wit_name));
    match &case.payload {
        Payload::None => quote!(__wit::#name::#theirs => #rust::#ours,),
        Payload::Tuple(types) => {
            let variables = variables(types.len());
            let pattern = payload_tuple(&variables);
            let parts = types
                .iter()
                .zip(&variables)
                .map(|((ty, _), variable)| quote!(<#ty as __Typed>::from_wit(#variable)));
            quote!(__wit::#name::#theirs(#pattern) => #rust::#ours(#(#parts),*),)
        }
        Payload::Record(record, fields) => {
            let record = bindgen_type(record);
            let (names, theirs_fields) = field_names(fields);
            let from = from_fields(fields);
            quote! {
                __wit::#name::#theirs(__wit::#record { #(#theirs_fields: #names),* }) => {
                    #rust::#ours { #from }
                }
            }
        }
    }
}

fn case_into(rust: &TokenStream, name: &Ident, case: &Case) -> TokenStream {
    let (ours, theirs) = (&case.ident, bindgen_case(&case.wit_name));
    match &case.payload {
        Payload::None => quote!(#rust::#ours => __wit::#name::#theirs,),
        Payload::Tuple(types) => {
            let variables = variables(types.len());
            let parts: Vec<TokenStream> = types
                .iter()
                .zip(&variables)
                .map(|((ty, _), variable)| quote!(<#ty as __Typed>::into_wit(#variable)))
                .collect();
            let payload = payload_tuple(&parts);
            quote!(#rust::#ours(#(#variables),*) => __wit::#name::#theirs(#payload),)
        }
        Payload::Record(record, fields) => {
            let record = bindgen_type(record);
            let (names, _) = field_names(fields);
            let into = into_fields(fields);
            quote! {
                #rust::#ours { #(#names),* } => __wit::#name::#theirs(__wit::#record { #into }),
            }
        }
    }
}

fn variables(count: usize) -> Vec<Ident> {
    (0..count).map(|at| format_ident!("__part_{at}")).collect()
}

/// One part stands for itself, several are a tuple.
fn payload_tuple<T: quote::ToTokens>(parts: &[T]) -> TokenStream {
    match parts {
        [one] => quote!(#one),
        several => quote!((#(#several),*)),
    }
}

fn handle(handle: &Ident) -> TokenStream {
    quote! {
        impl __Typed for #handle {
            type Wit = <::wasmrun_guest::ActorHandle as __Typed>::Wit;

            fn from_wit(wit: Self::Wit) -> Self {
                #handle(__Typed::from_wit(wit))
            }

            fn into_wit(self) -> Self::Wit {
                __Typed::into_wit(self.0)
            }
        }
    }
}

fn function(function: &Function) -> TokenStream {
    let name = bindgen_value(&function.wit_name);
    let ident = &function.ident;
    let parameters = typed_parameters(&function.parameters);
    let arguments = from_typed(&function.parameters);
    let (arrow, returned) = output(function, quote!(super::#ident(#(#arguments),*)));
    quote! {
        fn #name(#(#parameters),*) #arrow {
            #returned
        }
    }
}

fn typed_parameters(parameters: &[Parameter]) -> Vec<TokenStream> {
    let each = parameters.iter().map(|parameter| {
        let (ident, ty) = (&parameter.ident, &parameter.ty);
        quote!(#ident: <#ty as __Typed>::Wit)
    });
    each.collect()
}

fn from_typed(parameters: &[Parameter]) -> Vec<TokenStream> {
    let each = parameters.iter().map(|parameter| {
        let (ident, ty) = (&parameter.ident, &parameter.ty);
        quote!(<#ty as __Typed>::from_wit(#ident))
    });
    each.collect()
}

/// The result's type for a signature, and the call with its conversion.
fn output(function: &Function, call: TokenStream) -> (TokenStream, TokenStream) {
    match &function.output {
        Some((ty, _)) => (
            quote!(-> <#ty as __Typed>::Wit),
            quote!(<#ty as __Typed>::into_wit(#call)),
        ),
        None => (quote!(), quote!(#call)),
    }
}

fn instance_ident(class: &Class) -> Ident {
    format_ident!("__{}Instance", class.ident)
}

fn resource(class: &Class) -> TokenStream {
    let (ident, instance) = (&class.ident, instance_ident(class));
    let name = bindgen_type(&class.wit_name);
    let guest = format_ident!("Guest{}", bindgen_case(&class.wit_name));
    let parameters = typed_parameters(&class.constructor);
    let arguments = from_typed(&class.constructor);
    let methods = class.methods.iter().map(|method| {
        let (name, method_ident) = (bindgen_value(&method.wit_name), &method.ident);
        let parameters = typed_parameters(&method.parameters);
        let arguments = from_typed(&method.parameters);
        let call = quote!(#ident::#method_ident(&mut self.0.borrow_mut(), #(#arguments),*));
        let (arrow, returned) = output(method, call);
        quote! {
            fn #name(&self, #(#parameters),*) #arrow {
                #returned
            }
        }
    });
    let checkpoints = class.is_checkpointed.then(|| {
        quote! {
            fn checkpoint(&self) -> ::std::vec::Vec<u8> {
                #ident::checkpoint(&self.0.borrow())
            }

            fn restore(state: ::std::vec::Vec<u8>) -> __wit::#name {
                __wit::#name::new(#instance(::core::cell::RefCell::new(#ident::restore(state))))
            }
        }
    });
    quote! {
        /// The host makes one call at a time: nothing is ever borrowed twice.
        struct #instance(::core::cell::RefCell<#ident>);

        impl __wit::#guest for #instance {
            fn new(#(#parameters),*) -> Self {
                Self(::core::cell::RefCell::new(#ident::new(#(#arguments),*)))
            }

            #(#methods)*

            #checkpoints
        }
    }
}

fn fast() -> TokenStream {
    quote! {
        impl __bindings::exports::wasmrun::runtime::calls::Guest for __Component {
            fn call(
                function: ::std::string::String,
                arguments: ::std::vec::Vec<::std::vec::Vec<u8>>,
            ) -> ::std::vec::Vec<u8> {
                super::__WASMRUN_MODULE.fast_call(&function, arguments)
            }

            fn create(
                class: ::std::string::String,
                arguments: ::std::vec::Vec<::std::vec::Vec<u8>>,
            ) -> u32 {
                super::__WASMRUN_MODULE.fast_create(&class, arguments)
            }

            fn invoke(
                instance: u32,
                method: ::std::string::String,
                arguments: ::std::vec::Vec<::std::vec::Vec<u8>>,
            ) -> ::std::vec::Vec<u8> {
                ::wasmrun_guest::__private::Module::fast_invoke(instance, &method, arguments)
            }

            fn checkpoint(instance: u32) -> ::core::option::Option<::std::vec::Vec<u8>> {
                ::wasmrun_guest::__private::Module::fast_checkpoint(instance)
            }

            fn restore(class: ::std::string::String, state: ::std::vec::Vec<u8>) -> u32 {
                super::__WASMRUN_MODULE.fast_restore(&class, state)
            }
        }
    }
}
