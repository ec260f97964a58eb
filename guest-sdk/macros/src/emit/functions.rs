//! Tasks: the table by which they are called, and the modules that start them.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use crate::emit::{any_arguments, argument_list, decoded_call};
use crate::parse::{Function, Program};

/// What calls functions and makes actors by name, from bytes.
pub fn table(program: &Program) -> TokenStream {
    let interface = program.full_interface();
    let calls = program.functions.iter().map(|function| {
        let (name, ident) = (&function.wit_name, &function.ident);
        let call = decoded_call(name, &quote!(#ident), None, &function.parameters);
        quote!(#name => __private::Returned::new(#call),)
    });
    let constructors = program.classes.iter().map(|class| {
        let (name, ident) = (&class.wit_name, &class.ident);
        let call = decoded_call(name, &quote!(#ident::new), None, &class.constructor);
        quote!(#name => ::core::result::Result::Ok(::std::boxed::Box::new(#call)),)
    });
    let restores = program.classes.iter().map(|class| {
        let (name, ident) = (&class.wit_name, &class.ident);
        match class.is_checkpointed {
            true => quote! {
                #name => ::core::result::Result::Ok(::std::boxed::Box::new(#ident::restore(__state))),
            },
            false => quote! {
                #name => ::core::result::Result::Err(__private::CallError::no_restore(#name)),
            },
        }
    });
    quote! {
        #[doc(hidden)]
        #[allow(clippy::all, clippy::pedantic)]
        pub(crate) static __WASMRUN_MODULE: ::wasmrun_guest::__private::Module = {
            use ::wasmrun_guest::__private;

            fn __call(
                __function: &str,
                __arguments: __private::Arguments,
            ) -> __private::Called {
                match __function {
                    #(#calls)*
                    __other => ::core::result::Result::Err(__private::CallError::unknown("function", __other)),
                }
            }

            fn __create(
                __class: &str,
                __arguments: __private::Arguments,
            ) -> __private::Made {
                match __class {
                    #(#constructors)*
                    __other => ::core::result::Result::Err(__private::CallError::unknown("actor class", __other)),
                }
            }

            fn __restore(
                __class: &str,
                __state: ::std::vec::Vec<u8>,
            ) -> __private::Made {
                match __class {
                    #(#restores)*
                    __other => ::core::result::Result::Err(__private::CallError::unknown("actor class", __other)),
                }
            }

            __private::Module {
                interface: #interface,
                call: __call,
                create: __create,
                restore: __restore,
            }
        };

        // What only the host calls is not dead.
        const _: &::wasmrun_guest::__private::Module = &__WASMRUN_MODULE;
    }
}

/// `sample::remote(…)` and `sample::options()`.
pub fn caller(function: &Function) -> TokenStream {
    let (vis, ident, name) = (&function.vis, &function.ident, &function.wit_name);
    let parameters = any_arguments(&function.parameters);
    let arguments = argument_list(&function.parameters);
    let output = match &function.output {
        Some((ty, _)) => quote!(#ty),
        None => quote!(()),
    };
    // So that an editor goes from a call to the function.
    let remote = format_ident!("remote", span = ident.span());
    let module_docs = format!("Starts [`{ident}`](fn@{ident}) as a task.");
    let remote_docs = format!(
        "Starts `{ident}` somewhere: the future of what it returns. Never waits for it to run."
    );
    quote! {
        #[doc = #module_docs]
        #[allow(dead_code, unused_imports, private_interfaces, private_bounds, clippy::all, clippy::pedantic)]
        #vis mod #ident {
            use super::*;

            #[doc = #remote_docs]
            pub fn #remote(#(#parameters),*) -> ::wasmrun_guest::Future<#output> {
                ::wasmrun_guest::__private::spawn(
                    &super::__WASMRUN_MODULE,
                    #name,
                    #arguments,
                    ::core::option::Option::None,
                )
            }

            /// What a task asks for in place of what its function declares.
            pub fn options() -> __Options {
                __Options { settings: ::core::default::Default::default() }
            }

            /// What a task asks for in place of what its function declares.
            #[derive(Clone, Debug)]
            #[must_use = "options start nothing: call `remote`"]
            pub struct __Options {
                settings: ::wasmrun_guest::__private::TaskSettings,
            }

            ::wasmrun_guest::__task_setters!(__Options);

            impl __Options {
                #[doc = #remote_docs]
                pub fn #remote(self, #(#parameters),*) -> ::wasmrun_guest::Future<#output> {
                    ::wasmrun_guest::__private::spawn(
                        &super::__WASMRUN_MODULE,
                        #name,
                        #arguments,
                        ::core::option::Option::Some(&self.settings),
                    )
                }
            }
        }
    }
}
