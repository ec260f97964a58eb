//! Between this crate's types and those that wit-bindgen makes for typed exports.
//!
//! Owns the conversions of what has no name in WIT; `#[module]` makes those of records and variants.
//! Not part of the public interface, and only there on WebAssembly.

use crate::actor::ActorHandle;
use crate::error::Error;
use crate::future::Future;
use crate::host::bindings::wasmrun::runtime::{actors, objects};
use crate::host::{Actor, Object};
use crate::mapped::Mapped;
use crate::value::Element;

/// A type of a signature.
pub trait Typed: Sized {
    /// What wit-bindgen has in its place.
    type Wit;

    /// From wit-bindgen's type.
    fn from_wit(wit: Self::Wit) -> Self;

    /// To wit-bindgen's type.
    fn into_wit(self) -> Self::Wit;

    /// A list of them, as it is where both types are the same.
    fn list_from_wit(list: Vec<Self::Wit>) -> Vec<Self> {
        list.into_iter().map(Self::from_wit).collect()
    }

    /// A list of them, as it is where both types are the same.
    fn list_into_wit(list: Vec<Self>) -> Vec<Self::Wit> {
        list.into_iter().map(Self::into_wit).collect()
    }
}

macro_rules! the_same {
    ($($type:ty),* $(,)?) => {
        $(impl Typed for $type {
            type Wit = Self;

            fn from_wit(wit: Self) -> Self {
                wit
            }

            fn into_wit(self) -> Self {
                self
            }

            fn list_from_wit(list: Vec<Self>) -> Vec<Self> {
                list
            }

            fn list_into_wit(list: Vec<Self>) -> Vec<Self> {
                list
            }
        })*
    };
}

the_same!(
    (),
    bool,
    char,
    String,
    u8,
    i8,
    u16,
    i16,
    u32,
    i32,
    u64,
    i64,
    f32,
    f64
);

impl<T: Typed> Typed for Vec<T> {
    type Wit = Vec<T::Wit>;

    fn from_wit(wit: Self::Wit) -> Self {
        T::list_from_wit(wit)
    }

    fn into_wit(self) -> Self::Wit {
        T::list_into_wit(self)
    }
}

impl<T: Typed> Typed for Option<T> {
    type Wit = Option<T::Wit>;

    fn from_wit(wit: Self::Wit) -> Self {
        wit.map(T::from_wit)
    }

    fn into_wit(self) -> Self::Wit {
        self.map(T::into_wit)
    }
}

impl<T: Typed, E: Typed> Typed for Result<T, E> {
    type Wit = Result<T::Wit, E::Wit>;

    fn from_wit(wit: Self::Wit) -> Self {
        wit.map(T::from_wit).map_err(E::from_wit)
    }

    fn into_wit(self) -> Self::Wit {
        self.map(T::into_wit).map_err(E::into_wit)
    }
}

macro_rules! tuples {
    ($(($($name:ident $value:ident),+))*) => {
        $(impl<$($name: Typed),+> Typed for ($($name,)+) {
            type Wit = ($($name::Wit,)+);

            fn from_wit(($($value,)+): Self::Wit) -> Self {
                ($($name::from_wit($value),)+)
            }

            fn into_wit(self) -> Self::Wit {
                let ($($value,)+) = self;
                ($($value.into_wit(),)+)
            }
        })*
    };
}

tuples! {
    (A a)
    (A a, B b)
    (A a, B b, C c)
    (A a, B b, C c, D d)
    (A a, B b, C c, D d, E e)
    (A a, B b, C c, D d, E e, F f)
    (A a, B b, C c, D d, E e, F f, G g)
    (A a, B b, C c, D d, E e, F f, G g, H h)
    (A a, B b, C c, D d, E e, F f, G g, H h, I i)
    (A a, B b, C c, D d, E e, F f, G g, H h, I i, J j)
    (A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k)
    (A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k, L l)
}

impl<T> Typed for Future<T> {
    type Wit = objects::Object;

    fn from_wit(wit: Self::Wit) -> Self {
        Future::new(Ok(Object::from_resource(wit)))
    }

    fn into_wit(self) -> Self::Wit {
        self.into_object().into_resource()
    }
}

impl<T: Element> Typed for Mapped<T> {
    type Wit = objects::Object;

    fn from_wit(wit: Self::Wit) -> Self {
        Mapped::from_object(Object::from_resource(wit))
    }

    fn into_wit(self) -> Self::Wit {
        self.future().into_object().into_resource()
    }
}

impl Typed for ActorHandle {
    type Wit = actors::Actor;

    fn from_wit(wit: Self::Wit) -> Self {
        ActorHandle::from_actor(Actor::from_resource(wit))
    }

    fn into_wit(self) -> Self::Wit {
        self.into_actor().into_resource()
    }
}

impl Typed for Error {
    type Wit = objects::Error;

    fn from_wit(wit: Self::Wit) -> Self {
        wit.into()
    }

    fn into_wit(self) -> Self::Wit {
        self.into()
    }
}
