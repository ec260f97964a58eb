//! Values: what may cross between tasks, and as which bytes.
//!
//! Owns the encoding (postcard, and raw elements for whole lists of numbers) and the trait that
//! says which Rust types have one. Must not know objects or calls. Invariant: the bytes of a value
//! are those that the host gives the WIT type of the same shape.

pub mod bytes;
pub mod numbers;
#[cfg(test)]
mod tests;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use numbers::Element;

use crate::error::{Error, Failure, FailureKind};

/// A type that can be an argument, a result or an object.
///
/// Numbers, `bool`, `char`, `String`, `Vec`, `Option`, `Result` and tuples are, and
/// [`Future`](crate::Future)s, handles of actors and what a
/// [`#[module]`](macro@crate::module) declares.
/// The attribute implements it; nobody else should.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot cross between tasks",
    label = "not a value",
    note = "values are numbers, bool, char, String, Vec, Option, Result, tuples, futures, handles \
            of actors, and the types that a #[wasmrun_guest::module] declares or imports"
)]
pub trait Value: Serialize + DeserializeOwned {
    /// What [`get`](crate::get) gives: the value, but the `T` of a `Result<T, E>`.
    type Output;

    /// The value, but the ok case of a result; its error case is a failure.
    #[doc(hidden)]
    fn into_output(self) -> Result<Self::Output, Error>;

    /// What a whole value of this type is as bytes.
    #[doc(hidden)]
    const FORM: Form = Form::Postcard;

    /// What a whole list of it is as bytes.
    #[doc(hidden)]
    const LIST_FORM: Form = Form::Postcard;

    #[doc(hidden)]
    fn encode(&self) -> Result<Vec<u8>, Error> {
        to_postcard(self)
    }

    /// Like `encode`, but may keep the value's memory.
    #[doc(hidden)]
    fn encode_owned(self) -> Result<Vec<u8>, Error> {
        self.encode()
    }

    #[doc(hidden)]
    fn decode(bytes: Vec<u8>) -> Result<Self, Error> {
        from_postcard(&bytes)
    }

    #[doc(hidden)]
    fn encode_list(list: &[Self]) -> Result<Vec<u8>, Error> {
        to_postcard(list)
    }

    #[doc(hidden)]
    fn encode_list_owned(list: Vec<Self>) -> Result<Vec<u8>, Error> {
        Self::encode_list(&list)
    }

    #[doc(hidden)]
    fn decode_list(bytes: Vec<u8>) -> Result<Vec<Self>, Error> {
        from_postcard(&bytes)
    }

    /// As it is within other values.
    #[doc(hidden)]
    fn encode_inner(&self) -> Result<Vec<u8>, Error> {
        to_postcard(self)
    }

    #[doc(hidden)]
    fn decode_inner(bytes: &[u8]) -> Result<Self, Error> {
        from_postcard(bytes)
    }

    #[doc(hidden)]
    fn encode_inner_list(list: &[Self]) -> Result<Vec<u8>, Error> {
        to_postcard(list)
    }

    #[doc(hidden)]
    fn decode_inner_list(bytes: &[u8]) -> Result<Vec<Self>, Error> {
        from_postcard(bytes)
    }

    /// Whether the value is the error case of a result: its payload, and a text if it has one.
    #[doc(hidden)]
    fn returned_error(&self) -> Option<ReturnedError> {
        None
    }

    /// The failure of another task that the value tells of, where it is one.
    #[doc(hidden)]
    fn passed(&self) -> Option<Failure> {
        None
    }

    /// The value as a text for an error message, where it is one.
    #[doc(hidden)]
    fn message(&self) -> Option<String> {
        None
    }
}

/// What the bytes of a value are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Postcard, directed by the value's type.
    Postcard,
    /// A list of these numbers, raw and little-endian.
    Buffer(Number),
}

/// The element of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the Rust type of its name")]
pub enum Number {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
}

/// A value as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// What the bytes are.
    pub form: Form,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The error case of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnedError {
    /// The payload, postcard.
    pub payload: Vec<u8>,
    /// What it says, where it is a text.
    pub message: Option<String>,
    /// The failure of another task that is passed on.
    pub passed: Option<Failure>,
}

impl Encoded {
    /// A value, encoded by its type.
    ///
    /// # Errors
    /// [`Error::Refused`] when it holds a future whose task was refused.
    pub fn of<T: Value>(value: T) -> Result<Self, Error> {
        Ok(Self {
            form: T::FORM,
            bytes: value.encode_owned()?,
        })
    }

    /// The value.
    ///
    /// # Errors
    /// [`Error::Refused`] when the bytes are not a `T`.
    pub fn read<T: Value>(self) -> Result<T, Error> {
        if self.form != T::FORM {
            return Err(Error::Refused(format!(
                "the object is not a {}: it is {}; ask for what the task returned or `put` stored",
                std::any::type_name::<T>(),
                self.form.describe(),
            )));
        }
        T::decode(self.bytes)
    }
}

impl Form {
    fn describe(self) -> String {
        match self {
            Form::Postcard => "not a list of numbers".to_owned(),
            Form::Buffer(number) => format!("a list of {number:?}").to_lowercase(),
        }
    }
}

/// A value within others, or one that is not a whole list of numbers.
pub fn to_postcard<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    postcard::to_allocvec(value).map_err(|_| {
        // Postcard keeps no text of an error.
        Error::Refused(
            "the value cannot be encoded: it holds a future whose task was refused (`get` that future \
             to learn why), or a `Serialize` of your own failed"
                .to_owned(),
        )
    })
}

/// The value that these bytes are, all of them.
pub fn from_postcard<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(not_a::<T>(format!("{} bytes are left over", rest.len()))),
        Err(error) => Err(not_a::<T>(error.to_string())),
    }
}

fn not_a<T>(why: String) -> Error {
    Error::Refused(format!(
        "the bytes are not a {}: {why}",
        std::any::type_name::<T>()
    ))
}

macro_rules! plain_values {
    ($($type:ty),* $(,)?) => {
        $(impl Value for $type {
            type Output = Self;

            fn into_output(self) -> Result<Self, Error> {
                Ok(self)
            }
        })*
    };
}

plain_values!((), bool, char);

impl Value for String {
    type Output = Self;

    fn into_output(self) -> Result<Self, Error> {
        Ok(self)
    }

    fn message(&self) -> Option<String> {
        Some(self.clone())
    }
}

impl Value for Error {
    type Output = Self;

    fn into_output(self) -> Result<Self, Error> {
        Ok(self)
    }

    fn passed(&self) -> Option<Failure> {
        self.failure().cloned()
    }

    fn message(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl<T: Value> Value for Vec<T> {
    type Output = Self;
    const FORM: Form = T::LIST_FORM;

    fn into_output(self) -> Result<Self, Error> {
        Ok(self)
    }

    fn encode(&self) -> Result<Vec<u8>, Error> {
        T::encode_list(self)
    }

    fn encode_owned(self) -> Result<Vec<u8>, Error> {
        T::encode_list_owned(self)
    }

    fn decode(bytes: Vec<u8>) -> Result<Self, Error> {
        T::decode_list(bytes)
    }

    fn encode_inner(&self) -> Result<Vec<u8>, Error> {
        T::encode_inner_list(self)
    }

    fn decode_inner(bytes: &[u8]) -> Result<Self, Error> {
        T::decode_inner_list(bytes)
    }
}

impl<T: Value> Value for Option<T> {
    type Output = Self;

    fn into_output(self) -> Result<Self, Error> {
        Ok(self)
    }
}

impl<T: Value, E: Value> Value for Result<T, E> {
    type Output = T;

    fn into_output(self) -> Result<T, Error> {
        self.map_err(|error| {
            if let Some(passed) = error.passed() {
                return Error::Failed(passed);
            }
            let message = match error.message() {
                Some(text) => format!("the value is an error: {text}"),
                None => "the value is an error; its payload says which".to_owned(),
            };
            Error::Failed(Failure {
                kind: FailureKind::Guest,
                message,
                origin: String::new(),
                payload: to_postcard(&error).ok(),
            })
        })
    }

    /// Not left to serde, so that a large list in it is copied whole.
    fn encode(&self) -> Result<Vec<u8>, Error> {
        let (case, mut bytes) = match self {
            Ok(value) => (0, value.encode_inner()?),
            Err(error) => (1, error.encode_inner()?),
        };
        bytes.insert(0, case);
        Ok(bytes)
    }

    fn decode(bytes: Vec<u8>) -> Result<Self, Error> {
        match bytes.split_first() {
            Some((0, value)) => T::decode_inner(value).map(Ok),
            Some((1, error)) => E::decode_inner(error).map(Err),
            _ => Err(not_a::<Self>("it begins with neither 0 nor 1".to_owned())),
        }
    }

    fn encode_inner(&self) -> Result<Vec<u8>, Error> {
        self.encode()
    }

    fn returned_error(&self) -> Option<ReturnedError> {
        let error = self.as_ref().err()?;
        Some(ReturnedError {
            payload: to_postcard(error).unwrap_or_default(),
            message: error.message(),
            passed: error.passed(),
        })
    }
}

macro_rules! tuples {
    ($(($($name:ident),+))*) => {
        $(impl<$($name: Value),+> Value for ($($name,)+) {
            type Output = Self;

            fn into_output(self) -> Result<Self, Error> {
                Ok(self)
            }
        })*
    };
}

tuples! {
    (A)
    (A, B)
    (A, B, C)
    (A, B, C, D)
    (A, B, C, D, E)
    (A, B, C, D, E, F)
    (A, B, C, D, E, F, G)
    (A, B, C, D, E, F, G, H)
    (A, B, C, D, E, F, G, H, I)
    (A, B, C, D, E, F, G, H, I, J)
    (A, B, C, D, E, F, G, H, I, J, K)
    (A, B, C, D, E, F, G, H, I, J, K, L)
}
