//! Handles in arguments that people type: an actor by its name or id, an object that is kept by its id.
//!
//! Owns what was found, so that the node knows it for as long as [`Names`] lives: until the task has been submitted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use wasmrun_client::blocking::Client;
use wasmrun_client::wire::INLINE_BYTES;
use wasmrun_client::{Actor, Error, Future};
use wasmrun_model::value::codec::encode;
use wasmrun_model::value::wave::{self, Invocation};
use wasmrun_model::value::{Encoded, FunctionType, Handle, HandleKind, Value, ValueType};

use crate::fail::Failure;
use crate::remote;

/// What texts stand for at a node; nothing where none runs.
pub struct Names {
    client: Option<Arc<Client>>,
    found: RefCell<BTreeMap<(HandleKind, String), Thing>>,
}

enum Thing {
    Actor(Actor),
    Object(Future),
}

/// Which value a bare word of a call stands for, if it is one of its own.
type Word<'a> = dyn Fn(&str, &ValueType) -> Option<Result<Value, Failure>> + 'a;

impl Thing {
    fn handle(&self) -> Handle {
        match self {
            Self::Actor(actor) => actor.handle(),
            Self::Object(object) => object.handle(),
        }
    }
}

impl Names {
    pub fn of(client: Option<Arc<Client>>) -> Self {
        Self {
            client,
            found: RefCell::default(),
        }
    }

    /// The arguments of a call that was typed, as values of the parameter types. `whole`: the function that it calls,
    /// some arguments of which may come from elsewhere.
    pub fn arguments(
        &self,
        call: &Invocation,
        ty: &FunctionType,
        whole: &FunctionType,
    ) -> Result<Vec<Value>, Failure> {
        self.arguments_with(call, ty, whole, &|_, _| None)
    }

    /// The same, where `word` says which value a bare word stands for, if it is one of its own.
    pub fn arguments_with(
        &self,
        call: &Invocation,
        ty: &FunctionType,
        whole: &FunctionType,
        word: &Word<'_>,
    ) -> Result<Vec<Value>, Failure> {
        let failed = RefCell::new(None);
        let find = |kind: HandleKind, text: &str| note_failure(&failed, self.find(kind, text));
        let word = |name: &str, ty: &ValueType| note_failure(&failed, word(name, ty)?);
        let values = call.arguments_with(ty, &find, &word);
        match failed.into_inner() {
            Some(why) => Err(why),
            None => {
                Ok(values.with_context(|| format!("cannot call {}", shown(call.name(), whole)))?)
            }
        }
    }

    /// One value that was typed: the text of a string, the name or id of a handle, else WAVE.
    pub fn value(&self, ty: &ValueType, text: &str) -> Result<Value, Failure> {
        let failed = RefCell::new(None);
        let find = |kind: HandleKind, text: &str| note_failure(&failed, self.find(kind, text));
        let value = match ty {
            ValueType::String => return Ok(Value::String(text.to_owned())),
            ValueType::Handle(kind) => return Ok(self.find(*kind, text)?.into()),
            _ => wave::parse_with(ty, text, &find),
        };
        match failed.into_inner() {
            Some(why) => Err(why),
            None => Ok(value?),
        }
    }

    /// A value's bytes. What was found for it must be held until it is with the node: keep us.
    pub fn encode(&self, ty: &ValueType, value: &Value) -> Result<Encoded, Failure> {
        let encoded = encode(ty, value)?;
        match encoded.size_bytes() {
            bytes if bytes > INLINE_BYTES && ty.has_handles() => Err(Failure::usage(format!(
                "an argument with handles in it has {bytes} bytes, and may have {INLINE_BYTES}: store what is large \
                     by itself and name that, or submit it from Rust, with the crate wasmrun-client"
            ))),
            _ => Ok(encoded),
        }
    }

    fn find(&self, kind: HandleKind, text: &str) -> Result<Handle, Failure> {
        let key = (kind, text.to_owned());
        if let Some(thing) = self.found.borrow().get(&key) {
            return Ok(thing.handle());
        }
        let Some(client) = &self.client else {
            let what = match kind {
                HandleKind::Actor => "actor",
                HandleKind::Object => "object",
            };
            return Err(Failure::usage(format!(
                "there is no {what} '{text}': no node is running here, and a new one has none; start one with \
                 `wasmrun node start`"
            )));
        };
        // As `ID@OWNER` it stands in results.
        let name = match Handle::parse(kind, text) {
            Ok(Handle::Actor(name)) => name.id.to_string(),
            Ok(Handle::Object(name)) => name.id.to_string(),
            Err(_) => text.to_owned(),
        };
        let found: Result<_, Error> = client.wait(async {
            Ok(match kind {
                HandleKind::Actor => Thing::Actor(client.find_actor(&name).await?),
                HandleKind::Object => Thing::Object(client.find_object(&name).await?),
            })
        });
        let thing = found.map_err(remote::failed)?;
        let handle = thing.handle();
        self.found.borrow_mut().insert(key, thing);
        Ok(handle)
    }
}

/// A function as errors show it: its name, parameters and result.
pub fn shown(name: &str, ty: &FunctionType) -> String {
    let ty = ty.to_string();
    format!("{name}{}", shorten(ty.trim_start_matches("func")))
}

/// What was found. Of what was not, the first reason is kept.
fn note_failure<T>(failed: &RefCell<Option<Failure>>, found: Result<T, Failure>) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(why) => {
            failed.borrow_mut().get_or_insert(why);
            None
        }
    }
}

/// The beginning of a text, where it is long.
pub fn shorten(text: &str) -> String {
    match text.char_indices().nth(100) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
