//! Arguments: values, or futures of them.
//!
//! Owns which Rust values may be given for a parameter of which type. Must not start anything.

use std::rc::Rc;

use crate::error::Error;
use crate::future::Future;
use crate::host::Object;
use crate::mapped::Mapped;
use crate::value::{Element, Value};

/// An argument, ready for the host.
pub enum Argument {
    /// A value, encoded by its parameter's type.
    Value(Vec<u8>),
    /// An object: the task starts when it is there.
    Object(ObjectArgument),
    /// There is none, so there will be no task either.
    Refused(Error),
}

/// An object that is an argument.
pub struct ObjectArgument {
    object: Rc<Object>,
    /// Makes of the object's value the argument, where the node would do that itself.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) read: Read,
}

impl std::ops::Deref for ObjectArgument {
    type Target = Object;

    fn deref(&self) -> &Object {
        &self.object
    }
}

/// What may be given for a parameter of type `P`: a `P`, a `&P`, a [`Future<P>`](Future) or a
/// reference to one, or the future of a task that returns `Result<P, _>`.
///
/// A task with a future among its arguments starts when the value is there; if there will be none,
/// it fails, and its failure tells the cause. A `&str` may be given for a `String`, an array or a slice for a
/// `Vec`, and for a [`Mapped<T>`](Mapped) whatever may be given for a `Vec<T>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be given for a parameter of type `{P}`",
    note = "give a `{P}`, or a future of one: `Future<{P}>` or `&Future<{P}>`"
)]
pub trait IntoArgument<P> {
    #[doc(hidden)]
    fn into_argument(self) -> Argument;
}

fn encoded(bytes: Result<Vec<u8>, Error>) -> Argument {
    match bytes {
        Ok(bytes) => Argument::Value(bytes),
        Err(error) => Argument::Refused(error),
    }
}

/// The object of a future, whose value is of the parameter's type or the ok case of it.
#[cfg_attr(target_family = "wasm", allow(unused_variables))]
fn object<T>(future: &Future<T>, read: Read) -> Argument {
    match future.shared() {
        Ok(object) => Argument::Object(ObjectArgument {
            object,
            #[cfg(not(target_family = "wasm"))]
            read,
        }),
        Err(error) => Argument::Refused(error),
    }
}

/// Makes of an object the bytes of an argument.
#[cfg(not(target_family = "wasm"))]
type Read = fn(&Object) -> Result<Vec<u8>, Error>;
/// The node knows the types and does it.
#[cfg(target_family = "wasm")]
struct Read;

#[cfg(not(target_family = "wasm"))]
mod read {
    use super::{Read, Value};

    pub(super) fn whole() -> Read {
        |object| Ok(object.get(None)?.bytes)
    }

    pub(super) fn ok_case<T: Value, E: Value>() -> Read {
        |object| {
            let result = object.get(None)?.read::<Result<T, E>>()?;
            result.into_output()?.encode_owned()
        }
    }

    pub(super) fn handle() -> Read {
        |object| Ok(object.name().to_vec())
    }
}

#[cfg(target_family = "wasm")]
mod read {
    use super::Read;

    pub(super) fn whole() -> Read {
        Read
    }

    #[expect(clippy::extra_unused_type_parameters, reason = "as natively")]
    pub(super) fn ok_case<T, E>() -> Read {
        Read
    }

    pub(super) fn handle() -> Read {
        Read
    }
}

impl<P: Value> IntoArgument<P> for P {
    fn into_argument(self) -> Argument {
        encoded(self.encode_owned())
    }
}

impl<P: Value> IntoArgument<P> for &P {
    fn into_argument(self) -> Argument {
        encoded(self.encode())
    }
}

impl IntoArgument<String> for &str {
    fn into_argument(self) -> Argument {
        encoded(crate::value::to_postcard(self))
    }
}

impl<T: Value> IntoArgument<Vec<T>> for &[T] {
    fn into_argument(self) -> Argument {
        encoded(T::encode_list(self))
    }
}

impl<T: Value, const N: usize> IntoArgument<Vec<T>> for [T; N] {
    fn into_argument(self) -> Argument {
        encoded(T::encode_list(&self))
    }
}

impl<T: Value, const N: usize> IntoArgument<Vec<T>> for &[T; N] {
    fn into_argument(self) -> Argument {
        encoded(T::encode_list(self))
    }
}

impl<P: Value> IntoArgument<P> for Future<P> {
    fn into_argument(self) -> Argument {
        object(&self, read::whole())
    }
}

impl<P: Value> IntoArgument<P> for &Future<P> {
    fn into_argument(self) -> Argument {
        object(self, read::whole())
    }
}

impl<P: Value, E: Value> IntoArgument<P> for Future<Result<P, E>> {
    fn into_argument(self) -> Argument {
        object(&self, read::ok_case::<P, E>())
    }
}

impl<P: Value, E: Value> IntoArgument<P> for &Future<Result<P, E>> {
    fn into_argument(self) -> Argument {
        object(self, read::ok_case::<P, E>())
    }
}

/// A mapped parameter takes an object: its value stays where it is.
fn stored<T: Element>(list: Result<Future<Vec<T>>, Error>) -> Argument {
    match list {
        Ok(future) => object(&future, read::handle()),
        Err(error) => Argument::Refused(error),
    }
}

impl<T: Element> IntoArgument<Mapped<T>> for Vec<T> {
    fn into_argument(self) -> Argument {
        stored(crate::future::put(self))
    }
}

impl<T: Element> IntoArgument<Mapped<T>> for &[T] {
    fn into_argument(self) -> Argument {
        stored(crate::future::put(self.to_vec()))
    }
}

impl<T: Element> IntoArgument<Mapped<T>> for Future<Vec<T>> {
    fn into_argument(self) -> Argument {
        stored(Ok(self))
    }
}

impl<T: Element> IntoArgument<Mapped<T>> for &Future<Vec<T>> {
    fn into_argument(self) -> Argument {
        stored(Ok(self.clone()))
    }
}
