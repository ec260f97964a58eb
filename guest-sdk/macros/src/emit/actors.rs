//! Actors: typed handles, and the calls of an instance from bytes.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use crate::emit::{any_arguments, argument_list, decoded_call};
use crate::parse::{Class, Function};

/// All that goes with an actor class.
pub fn class(class: &Class) -> TokenStream {
    let creation = creation(class);
    let handle = handle(class);
    let instance = instance(class);
    quote!(#creation #handle #instance)
}

/// `Counter::create(…)`, `Counter::options()` and `Counter::find(name)`.
fn creation(class: &Class) -> TokenStream {
    let (vis, ident, handle, name) = (&class.vis, &class.ident, &class.handle, &class.wit_name);
    let options = format_ident!("{ident}Options");
    let parameters = any_arguments(&class.constructor);
    let arguments = argument_list(&class.constructor);
    let create_docs = format!(
        "Creates an actor of class `{ident}` somewhere. Never waits for it: its calls do.\n\n# Errors\n\
         When the host refuses it, for example because its name is taken."
    );
    let options_docs =
        format!("What an actor of class `{ident}` asks for in place of what is declared.");
    let find_docs = format!(
        "The actor of class `{ident}` with this name.\n\n# Errors\nWhen no actor of the tenant has this name."
    );
    quote! {
        #[allow(dead_code, private_interfaces, private_bounds, clippy::all, clippy::pedantic)]
        impl #ident {
            #[doc = #create_docs]
            pub fn create(#(#parameters),*) -> ::core::result::Result<#handle, ::wasmrun_guest::Error> {
                ::wasmrun_guest::ActorHandle::create(
                    &__WASMRUN_MODULE,
                    #name,
                    #arguments,
                    ::core::option::Option::None,
                )
                .map(#handle)
            }

            #[doc = #options_docs]
            pub fn options() -> #options {
                #options { settings: ::core::default::Default::default() }
            }

            #[doc = #find_docs]
            pub fn find(name: &str) -> ::core::result::Result<#handle, ::wasmrun_guest::Error> {
                ::wasmrun_guest::ActorHandle::find(name).map(#handle)
            }
        }

        #[doc = #options_docs]
        #[derive(Clone, Debug)]
        #[must_use = "options create nothing: call `create`"]
        #[allow(dead_code)]
        #vis struct #options {
            settings: ::wasmrun_guest::__private::ActorSettings,
        }

        #[allow(dead_code, private_interfaces, private_bounds, clippy::all, clippy::pedantic)]
        const _: () = {
            ::wasmrun_guest::__actor_setters!(#options);

            impl #options {
                #[doc = #create_docs]
                pub fn create(
                    self,
                    #(#parameters),*
                ) -> ::core::result::Result<#handle, ::wasmrun_guest::Error> {
                    ::wasmrun_guest::ActorHandle::create(
                        &__WASMRUN_MODULE,
                        #name,
                        #arguments,
                        ::core::option::Option::Some(&self.settings),
                    )
                    .map(#handle)
                }
            }
        };
    }
}

/// `CounterHandle`, with a method for each call.
fn handle(class: &Class) -> TokenStream {
    let (vis, ident, handle) = (&class.vis, &class.ident, &class.handle);
    let docs = format!(
        "A handle to an actor of class [`{ident}`]. It may be an argument, a result or a part of a value."
    );
    let methods = class.methods.iter().map(call);
    quote! {
        #[doc = #docs]
        #[derive(
            Clone,
            Debug,
            ::wasmrun_guest::__private::serde::Serialize,
            ::wasmrun_guest::__private::serde::Deserialize,
        )]
        #[serde(crate = "::wasmrun_guest::__private::serde")]
        #[allow(dead_code)]
        #vis struct #handle(::wasmrun_guest::ActorHandle);

        ::wasmrun_guest::__plain_value!(#handle);

        #[allow(dead_code, private_interfaces, private_bounds, clippy::all, clippy::pedantic)]
        impl #handle {
            #(#methods)*
        }

        impl ::wasmrun_guest::LimitCalls for #handle {
            fn with_time_limit(&self, limit: ::core::time::Duration) -> Self {
                #handle(::wasmrun_guest::LimitCalls::with_time_limit(&self.0, limit))
            }
        }

        impl ::core::ops::Deref for #handle {
            type Target = ::wasmrun_guest::ActorHandle;

            fn deref(&self) -> &::wasmrun_guest::ActorHandle {
                &self.0
            }
        }
    }
}

fn call(method: &Function) -> TokenStream {
    let (ident, name) = (&method.ident, &method.wit_name);
    let parameters = any_arguments(&method.parameters);
    let arguments = argument_list(&method.parameters);
    let output = match &method.output {
        Some((ty, _)) => quote!(#ty),
        None => quote!(()),
    };
    let docs = format!(
        "Calls `{ident}`: the future of what it returns. Never waits. Calls made through this handle run \
         in the order in which they were made."
    );
    quote! {
        #[doc = #docs]
        pub fn #ident(&self, #(#parameters),*) -> ::wasmrun_guest::Future<#output> {
            ::wasmrun_guest::ActorHandle::call(&self.0, #name, #arguments)
        }
    }
}

/// The calls of an instance, from bytes.
fn instance(class: &Class) -> TokenStream {
    let ident = &class.ident;
    let calls = class.methods.iter().map(|method| {
        let (name, method_ident) = (&method.wit_name, &method.ident);
        // By its path: the class's own methods come before those of the trait.
        let callee = quote!(#ident::#method_ident);
        let call = decoded_call(name, &callee, Some(quote!(self)), &method.parameters);
        quote!(#name => __private::Returned::new(#call),)
    });
    let checkpoint = class.is_checkpointed.then(|| {
        quote! {
            fn checkpoint(&self) -> ::core::option::Option<::std::vec::Vec<u8>> {
                ::core::option::Option::Some(#ident::checkpoint(self))
            }
        }
    });
    quote! {
        #[allow(clippy::all, clippy::pedantic)]
        const _: () = {
            use ::wasmrun_guest::__private;

            impl __private::Instance for #ident {
                fn invoke(
                    &mut self,
                    __method: &str,
                    __arguments: __private::Arguments,
                ) -> __private::Called {
                    match __method {
                        #(#calls)*
                        __other => {
                            ::core::result::Result::Err(__private::CallError::unknown("method", __other))
                        }
                    }
                }

                #checkpoint
            }
        };
    }
}
