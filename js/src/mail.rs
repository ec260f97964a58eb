//! What came of what JavaScript asked for, gathered until it looks.
//!
//! Owns [`Mailbox`] and the layout of what is in it; `lib/mail.ts` reads it. JavaScript is told once that there is something,
//! however much comes before it looks. Numbers are little-endian:
//!
//! ```text
//! frame   number of the request (f64), kind (u8), body
//! nothing
//! value   handles, bytes           handles  count (u32), each: number (f64), description of an actor (bytes, JSON)
//! numbers kind (u8), bytes         bytes    length (u32), so many bytes
//! shared  kind (u8), which buffer (u32)
//! failed  JSON (bytes), result of the function (bytes)
//! json    JSON (bytes)
//! indexes count (u32), each: index (u32)
//! typed   type as JSON (bytes), kind (u8), body
//! ```

use std::mem;

use napi::Status;
use napi::threadsafe_function::{
    ThreadsafeFunction, ThreadsafeFunctionCallMode, UnknownReturnValue,
};
use parking_lot::Mutex;
use serde_json::Value as Json;
use wasmrun_client::wire::Form;
use wasmrun_client::{Value, Writable};
use wasmrun_model::value::{NumberKind, ValueType};

use crate::failure::Failure;

/// What tells JavaScript to look. It does not keep the process going: who waits does.
pub(crate) type Bell = ThreadsafeFunction<(), UnknownReturnValue, (), Status, false, true>;

const NOTHING: u8 = 0;
const VALUE: u8 = 1;
const NUMBERS: u8 = 2;
const SHARED: u8 = 3;
const FAILED: u8 = 4;
const JSON: u8 = 5;
const INDEXES: u8 = 6;
const TYPED: u8 = 7;

/// Numbers up to so many bytes are copied into the frame; more become a buffer of their own.
const COPIED_BYTES: usize = 4096;

/// An object or actor that a value names: its number, and what is to be known of an actor.
pub(crate) type Named = (u64, Option<Json>);

/// What is to be looked at.
#[derive(Default)]
pub(crate) struct Mail {
    pub(crate) frames: Vec<u8>,
    pub(crate) buffers: Vec<Writable>,
}

/// See the [module](self).
pub(crate) struct Mailbox {
    mail: Mutex<Mail>,
    bell: Bell,
}

impl Mailbox {
    pub(crate) fn new(bell: Bell) -> Self {
        Self {
            mail: Mutex::default(),
            bell,
        }
    }

    pub(crate) fn take(&self) -> Mail {
        mem::take(&mut *self.mail.lock())
    }

    fn post(&self, id: u64, write: impl FnOnce(&mut Mail)) {
        let mut mail = self.mail.lock();
        let is_first = mail.frames.is_empty();
        mail.frames.extend((id as f64).to_le_bytes());
        write(&mut mail);
        drop(mail);
        if is_first {
            // JavaScript may be gone, and this nobody's any more.
            self.bell.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }

    pub(crate) fn nothing(&self, id: u64) {
        self.post(id, |mail| mail.frames.push(NOTHING));
    }

    pub(crate) fn json(&self, id: u64, json: &Json) {
        self.post(id, |mail| {
            mail.frames.push(JSON);
            mail.bytes(json.to_string().as_bytes());
        });
    }

    pub(crate) fn failed(&self, id: u64, failure: impl Into<Failure>) {
        let failure = failure.into();
        self.post(id, |mail| {
            mail.frames.push(FAILED);
            mail.bytes(failure.json.to_string().as_bytes());
            mail.bytes(&failure.result);
        });
    }

    pub(crate) fn indexes(&self, id: u64, indexes: &[usize]) {
        self.post(id, |mail| {
            mail.frames.push(INDEXES);
            mail.length(indexes.len());
            for index in indexes {
                mail.length(*index);
            }
        });
    }

    /// A value, with its type if JavaScript does not know that.
    pub(crate) fn value(&self, id: u64, ty: Option<&ValueType>, named: &[Named], value: Value) {
        let ty = ty.map(|ty| serde_json::to_vec(ty).unwrap_or_default());
        // Outside the lock: it may have to map memory.
        let (kind, inline, shared) = match value.form() {
            Form::Buffer(kind) if value.len() > COPIED_BYTES => {
                (Some(kind), None, Some(value.into_writable()))
            }
            Form::Buffer(kind) => (Some(kind), Some(value), None),
            Form::Postcard => (None, Some(value), None),
        };
        self.post(id, |mail| {
            if let Some(ty) = ty {
                mail.frames.push(TYPED);
                mail.bytes(&ty);
            }
            match (kind, inline, shared) {
                (Some(kind), _, Some(shared)) => {
                    mail.frames.extend([SHARED, number_of(kind)]);
                    mail.length(mail.buffers.len());
                    mail.buffers.push(shared);
                }
                (Some(kind), inline, None) => {
                    mail.frames.extend([NUMBERS, number_of(kind)]);
                    mail.bytes(inline.as_deref().unwrap_or_default());
                }
                (None, inline, _) => {
                    mail.frames.push(VALUE);
                    mail.length(named.len());
                    for (id, actor) in named {
                        mail.frames.extend((*id as f64).to_le_bytes());
                        let actor = actor.as_ref().map(Json::to_string);
                        mail.bytes(actor.unwrap_or_default().as_bytes());
                    }
                    mail.bytes(inline.as_deref().unwrap_or_default());
                }
            }
        });
    }
}

impl Mail {
    fn length(&mut self, length: usize) {
        let length = u32::try_from(length).expect("what is not shared is small");
        self.frames.extend(length.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.frames.extend_from_slice(bytes);
    }
}

/// A kind of numbers by its place among all of them.
fn number_of(kind: NumberKind) -> u8 {
    let at = NumberKind::ALL.iter().position(|it| *it == kind);
    at.expect("all kinds are there") as u8
}
