//! Values that have come from the node.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

use wasmrun_model::value::{Encoded, EncodedRef, Handle};
use wasmrun_model::wire::Form;
use wasmrun_store::PrivateView;

use crate::actor::Actor;
use crate::connection::Connection;
use crate::error::Error;
use crate::future::Future;
use crate::named::Named;
use crate::routes::View;

/// A value: bytes in memory of this process, or in that of the node, mapped to be read. Cheap to clone.
///
/// While there is one that is mapped, the node keeps its bytes in their place, and the session goes on. If
/// the connection breaks and the node goes on without us it uses the room again: then other bytes
/// of the same tenant may be seen, as they are written. [`crate::Client::is_connected`] says so.
///
/// Handles in it are [`Value::future`] and [`Value::actor`]: what it names is kept as long as there is one of it.
#[derive(Clone)]
pub struct Value {
    form: Form,
    bytes: Bytes,
    named: Option<Arc<Named>>,
}

#[derive(Clone)]
enum Bytes {
    Own(Arc<Vec<u8>>),
    Mapped(Arc<Mapping>),
}

struct Mapping {
    view: View,
    /// After the view: the connection ends last.
    _connection: Arc<Connection>,
    /// And after that what it lives on.
    _runtime: Option<Arc<crate::blocking::SharedRuntime>>,
}

impl Value {
    pub(crate) fn own(form: Form, bytes: Vec<u8>) -> Self {
        Self {
            form,
            bytes: Bytes::Own(Arc::new(bytes)),
            named: None,
        }
    }

    pub(crate) fn mapped(form: Form, view: View, connection: Arc<Connection>) -> Self {
        let mapping = Mapping {
            view,
            _runtime: connection.runtime.get().and_then(Weak::upgrade),
            _connection: connection,
        };
        Self {
            form,
            bytes: Bytes::Mapped(Arc::new(mapping)),
            named: None,
        }
    }

    pub(crate) fn with(self, named: Option<Arc<Named>>) -> Self {
        Self { named, ..self }
    }

    pub(crate) fn named(&self) -> Option<&Arc<Named>> {
        self.named.as_ref()
    }

    /// The future that a handle in the value stands for. `None` if the value does not name it.
    pub fn future(&self, handle: &Handle) -> Option<Future> {
        match handle {
            Handle::Object(name) => self.named.as_ref()?.future(name).cloned(),
            Handle::Actor(_) => None,
        }
    }

    /// The actor that a handle in the value stands for. `None` if the value does not name it.
    ///
    /// # Errors
    /// When the node is gone.
    pub async fn actor(&self, handle: &Handle) -> Result<Option<Actor>, Error> {
        match (&self.named, handle) {
            (Some(named), Handle::Actor(name)) => named.actor(name).await,
            _ => Ok(None),
        }
    }

    /// What its bytes are.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Whether its bytes are in the node's memory.
    pub fn is_mapped(&self) -> bool {
        matches!(self.bytes, Bytes::Mapped(_))
    }

    /// The value, to be decoded.
    pub fn encoded(&self) -> EncodedRef<'_> {
        match self.form {
            Form::Postcard => EncodedRef::Postcard(self),
            Form::Buffer(kind) => EncodedRef::Buffer { kind, bytes: self },
        }
    }

    /// A copy of the value, which keeps nothing in the node. None is made of one that is in memory of this
    /// process and has no clones.
    pub fn into_encoded(self) -> Encoded {
        let bytes = match self.bytes {
            Bytes::Own(bytes) => Arc::try_unwrap(bytes).unwrap_or_else(|it| (*it).clone()),
            Bytes::Mapped(mapping) => mapping.view.bytes.to_vec(),
        };
        self.form.encoded(bytes)
    }
}

/// The bytes of a value for somebody who may write to them: made by [`Value::into_writable`].
pub struct Writable(Writes);

#[expect(dead_code, reason = "what the node keeps is held, not read")]
enum Writes {
    Own(Vec<u8>),
    /// Pages that are written to are copied.
    Private(PrivateView, Arc<Mapping>),
}

impl Value {
    /// Its bytes, which may be written to without a change of the object. Those of a mapped value are not copied before that,
    /// unless there is no room for another mapping.
    pub fn into_writable(self) -> Writable {
        Writable(match self.bytes {
            Bytes::Own(bytes) => {
                Writes::Own(Arc::try_unwrap(bytes).unwrap_or_else(|it| (*it).clone()))
            }
            Bytes::Mapped(mapping) => match mapping.view.bytes.private() {
                Ok(private) => Writes::Private(private, mapping),
                Err(_) => Writes::Own(mapping.view.bytes.to_vec()),
            },
        })
    }
}

impl Deref for Writable {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Writes::Own(bytes) => bytes,
            Writes::Private(bytes, _) => bytes,
        }
    }
}

impl DerefMut for Writable {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Writes::Own(bytes) => bytes,
            Writes::Private(bytes, _) => bytes,
        }
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Own(bytes) => bytes,
            Bytes::Mapped(mapping) => &mapping.view.bytes,
        }
    }
}

impl<'a> From<&'a Value> for EncodedRef<'a> {
    fn from(value: &'a Value) -> Self {
        value.encoded()
    }
}

impl PartialEq<Encoded> for Value {
    fn eq(&self, other: &Encoded) -> bool {
        self.encoded() == EncodedRef::from(other)
    }
}

impl fmt::Debug for Value {
    /// How long, not what: it may be large.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.is_mapped() { ", mapped" } else { "" };
        write!(f, "Value({:?}, {} bytes{place})", self.form, self.len())
    }
}
