//! Values of Rust as bytes, and the handles in them.
//!
//! serde passes nothing along that knows of handles, so the handles of the value that is being written or read are in a
//! variable of its thread.

use std::cell::RefCell;
use std::sync::Arc;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{ActorName, ObjectName};
use wasmrun_model::value::{Element, Encoded, EncodedRef, NumberList};

use super::Future;
use crate::actor::Actor;
use crate::error::Error;
use crate::named::{Handles, Named};
use crate::submit::Argument;

thread_local! {
    /// The handles of the value that is being written.
    static WRITTEN: RefCell<Option<Handles>> = const { RefCell::new(None) };
    /// The handles of the value that is being read.
    static READ: RefCell<Option<Arc<Named>>> = const { RefCell::new(None) };
}

/// A value as an argument.
pub(super) fn encode<T: Value>(value: &T) -> Result<Argument, Error> {
    WRITTEN.set(Some(Handles::default()));
    let encoded = value.encode();
    let handles = WRITTEN.take().unwrap_or_default();
    let encoded = encoded
        .map_err(|error| Error::OtherTypes(format!("an argument cannot be written: {error}")))?;
    Ok(match handles.is_empty() {
        true => Argument::Value(encoded),
        false => Argument::Naming(encoded, Arc::new(handles)),
    })
}

/// A value from what the node gave.
pub(super) fn decode<T: Value>(value: &crate::Value) -> Result<T, Error> {
    READ.set(value.named().cloned());
    let decoded = T::decode(value.encoded());
    READ.take();
    decoded.map_err(|error| {
        let ty = std::any::type_name::<T>();
        Error::OtherTypes(format!("the value is no {ty}: {error}"))
    })
}

fn written<T: Serialize + ?Sized>(value: &T) -> Result<Encoded, postcard::Error> {
    postcard::to_stdvec(value).map(Encoded::Postcard)
}

fn read<T: DeserializeOwned>(encoded: EncodedRef<'_>) -> Result<T, postcard::Error> {
    match encoded {
        EncodedRef::Postcard(bytes) => postcard::from_bytes(bytes),
        EncodedRef::Buffer { .. } => Err(postcard::Error::DeserializeBadEncoding),
    }
}

/// A type of Rust that has the bytes of a WIT type. Generated types are; nothing in it is to be called.
pub trait Value: Serialize + DeserializeOwned {
    /// Its bytes.
    ///
    /// # Errors
    /// Those of its `Serialize`.
    fn encode(&self) -> Result<Encoded, postcard::Error> {
        written(self)
    }

    /// The value of bytes.
    ///
    /// # Errors
    /// When they are no such value.
    fn decode(encoded: EncodedRef<'_>) -> Result<Self, postcard::Error> {
        read(encoded)
    }

    /// The bytes of a list of them.
    ///
    /// # Errors
    /// As of `encode`.
    fn encode_list(list: &[Self]) -> Result<Encoded, postcard::Error> {
        written(list)
    }

    /// The list of bytes.
    ///
    /// # Errors
    /// As of `decode`.
    fn decode_list(encoded: EncodedRef<'_>) -> Result<Vec<Self>, postcard::Error> {
        read(encoded)
    }

    /// The value of a function that has failed, if that is because of what it returned.
    fn of_failure(_: &TaskError) -> Option<Self> {
        None
    }
}

macro_rules! values {
    ($($type:ty),*) => { $(impl Value for $type {})* };
}

values!((), bool, char, String, Object, ActorHandle);

macro_rules! numbers {
    ($($type:ty),*) => {
        $(impl Value for $type {
            fn encode_list(list: &[Self]) -> Result<Encoded, postcard::Error> {
                let list = NumberList::from_elements(list.iter().copied());
                Ok(Encoded::Buffer { kind: list.kind(), bytes: list.into_le_bytes() })
            }

            fn decode_list(encoded: EncodedRef<'_>) -> Result<Vec<Self>, postcard::Error> {
                let (expected, width) = (Self::KIND, Self::KIND.width_bytes());
                match encoded {
                    EncodedRef::Buffer { kind, bytes }
                        if kind == expected && bytes.len().is_multiple_of(width) =>
                    {
                        Ok(bytes.chunks_exact(width).map(Self::read_le).collect())
                    }
                    _ => Err(postcard::Error::DeserializeBadEncoding),
                }
            }
        })*
    };
}

numbers!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

impl<T: Value> Value for Vec<T> {
    fn encode(&self) -> Result<Encoded, postcard::Error> {
        T::encode_list(self)
    }

    fn decode(encoded: EncodedRef<'_>) -> Result<Self, postcard::Error> {
        T::decode_list(encoded)
    }
}

impl<T: Value> Value for Option<T> {}

impl<T: Value, E: Value> Value for Result<T, E> {
    fn of_failure(error: &TaskError) -> Option<Self> {
        match error {
            TaskError::Guest { value, .. } => Self::decode(value.into()).ok(),
            _ => None,
        }
    }
}

macro_rules! tuples {
    ($($($name:ident)+;)*) => { $(impl<$($name: Value),+> Value for ($($name,)+) {})* };
}

tuples! {
    A; A B; A B C; A B C D; A B C D E; A B C D E F; A B C D E F G; A B C D E F G H; A B C D E F G H I;
    A B C D E F G H I J; A B C D E F G H I J K; A B C D E F G H I J K L;
}

/// A handle to an object, whatever its value is: a future that stands in a value, or is given for an `object`.
#[derive(Debug, Clone)]
pub struct Object(crate::Future);

impl Object {
    /// The future of its value, if that is of this type, which is found out when it is got.
    pub fn typed<T>(&self) -> Future<T> {
        Future::of(self.0.clone())
    }

    pub(super) fn into_future(self) -> crate::Future {
        self.0
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

impl<T> From<&Future<T>> for Object {
    fn from(future: &Future<T>) -> Self {
        Self(future.untyped().clone())
    }
}

impl From<&Self> for Object {
    fn from(object: &Self) -> Self {
        object.clone()
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WRITTEN.with_borrow_mut(|handles| {
            if let Some(handles) = handles {
                handles.future(&self.0);
            }
        });
        self.0.name().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = ObjectName::deserialize(deserializer)?;
        let future = READ.with_borrow(|named| named.as_ref()?.future(&name).cloned());
        let unknown = || D::Error::custom("handles are read from what a node gives");
        future.map(Self).ok_or_else(unknown)
    }
}

/// A handle to an actor, whatever its class is, as it stands in a value.
#[derive(Debug, Clone)]
pub struct ActorHandle(HandleTarget);

#[derive(Debug, Clone)]
enum HandleTarget {
    Actor(Actor),
    /// It came in a value.
    Named(ActorName, Arc<Named>),
}

impl ActorHandle {
    /// The actor; [`super::actor()`] makes one of its class of it.
    ///
    /// # Errors
    /// When the node is gone.
    pub async fn actor(&self) -> Result<Actor, Error> {
        match &self.0 {
            HandleTarget::Actor(actor) => Ok(actor.clone()),
            HandleTarget::Named(name, named) => {
                let missing = || Error::Unexpected(format!("the value does not name actor {name}"));
                named.actor(name).await?.ok_or_else(missing)
            }
        }
    }

    fn name(&self) -> ActorName {
        match &self.0 {
            HandleTarget::Actor(actor) => actor.name(),
            HandleTarget::Named(name, _) => *name,
        }
    }
}

impl PartialEq for ActorHandle {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl From<&Actor> for ActorHandle {
    fn from(actor: &Actor) -> Self {
        Self(HandleTarget::Actor(actor.clone()))
    }
}

impl Serialize for ActorHandle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WRITTEN.with_borrow_mut(|handles| match (handles, &self.0) {
            (Some(handles), HandleTarget::Actor(actor)) => drop(handles.actor(actor)),
            (Some(handles), HandleTarget::Named(name, named)) => handles.again(*name, named),
            (None, _) => {}
        });
        self.name().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ActorHandle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = ActorName::deserialize(deserializer)?;
        let named = READ.with_borrow(|named| named.clone());
        let unknown = || D::Error::custom("handles are read from what a node gives");
        let named = named.ok_or_else(unknown)?;
        Ok(Self(HandleTarget::Named(name, named)))
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_model::value::{Value as Spelled, ValueType, codec};

    use super::*;

    /// The value has the bytes of its WIT type, and is read from them.
    fn has_bytes<T: Value + PartialEq + std::fmt::Debug>(
        value: &T,
        ty: &ValueType,
        spelled: &Spelled,
    ) {
        let expected = codec::encode(ty, spelled).unwrap();
        assert!(matches!(encode(value).unwrap(), Argument::Value(found) if found == expected));
        assert_eq!(T::decode((&expected).into()).unwrap(), *value);
    }

    #[test]
    fn values_have_the_bytes_of_their_types() {
        let list = |ty| ValueType::list(ty).unwrap();
        let numbers = Spelled::Numbers(NumberList::from_elements([1.5, -2.0]));
        has_bytes(&vec![1.5, -2.0], &list(ValueType::F64), &numbers);
        let ty = ValueType::tuple([
            ValueType::Bool,
            ValueType::Char,
            ValueType::option(ValueType::S32).unwrap(),
            ValueType::result(None, Some(ValueType::String)).unwrap(),
            list(list(ValueType::U16)),
        ]);
        let spelled = Spelled::Tuple(vec![
            Spelled::Bool(true),
            Spelled::Char('é'),
            Spelled::Option(Some(Box::new(Spelled::S32(-3)))),
            Spelled::Result(Err(Some(Box::new(Spelled::String("no".into()))))),
            Spelled::List(vec![Spelled::Numbers(NumberList::from_elements([300_u16]))]),
        ]);
        let value = (
            true,
            'é',
            Some(-3_i32),
            Err::<(), _>("no".to_owned()),
            vec![vec![300_u16]],
        );
        has_bytes(&value, &ty.unwrap(), &spelled);
        let floats = encode(&vec![1.5]).unwrap();
        let Argument::Value(floats) = floats else {
            panic!("{floats:?}");
        };
        assert!(Vec::<u64>::decode((&floats).into()).is_err());
    }

    #[test]
    fn what_a_function_returns_as_its_error_is_a_value() {
        let returned: Result<u64, String> = Err("odd".into());
        let failed = |value| TaskError::Guest {
            text: "odd".into(),
            value,
            passed: None,
        };
        let error = failed(returned.encode().unwrap());
        let again: Option<Result<u64, String>> = Value::of_failure(&error);
        assert_eq!(again, Some(returned));
        assert_eq!(u64::of_failure(&error), None);
        let cancelled: Option<Result<u64, String>> = Value::of_failure(&TaskError::Cancelled);
        assert_eq!(cancelled, None);
    }
}
