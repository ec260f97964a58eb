//! Numbers, and lists of them: what is copied whole and never element by element.
//!
//! Owns the elements of buffers and their bytes, as whole values (raw) and within others (postcard,
//! where that has them raw too). All of it for machines whose numbers are little-endian, as WebAssembly
//! is; on others, natively, both sides are the same process.

use super::{Form, Number, Value, from_postcard, not_a, to_postcard};
use crate::error::Error;

/// A number that buffers are made of: `u8` to `i64`, `f32` and `f64`.
pub trait Element: Value + bytemuck::Pod + sealed::Sealed {
    #[doc(hidden)]
    const NUMBER: Number;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! numbers {
    ($($type:ty: $number:ident),* $(,)?) => {
        $(
            impl sealed::Sealed for $type {}

            impl Element for $type {
                const NUMBER: Number = Number::$number;
            }

            impl Value for $type {
                type Output = Self;
                const LIST_FORM: Form = Form::Buffer(Number::$number);

                fn into_output(self) -> Result<Self, Error> {
                    Ok(self)
                }

                fn encode_list(list: &[Self]) -> Result<Vec<u8>, Error> {
                    Ok(bytemuck::cast_slice(list).to_vec())
                }

                fn encode_list_owned(list: Vec<Self>) -> Result<Vec<u8>, Error> {
                    // Bytes stay where they are; wider elements have memory of another alignment.
                    bytemuck::try_cast_vec(list).or_else(|(_, list)| Self::encode_list(&list))
                }

                fn decode_list(bytes: Vec<u8>) -> Result<Vec<Self>, Error> {
                    whole_elements::<Self>(bytes.len())?;
                    Ok(bytemuck::try_cast_vec(bytes).unwrap_or_else(|(_, bytes)| elements(&bytes)))
                }

                fn encode_inner_list(list: &[Self]) -> Result<Vec<u8>, Error> {
                    match Number::$number.is_raw_in_postcard() {
                        true => Ok(raw_inner_list(list)),
                        false => to_postcard(list),
                    }
                }

                fn decode_inner_list(bytes: &[u8]) -> Result<Vec<Self>, Error> {
                    match Number::$number.is_raw_in_postcard() {
                        true => read_raw_inner_list(bytes),
                        false => from_postcard(bytes),
                    }
                }
            }
        )*
    };
}

numbers!(
    u8: U8, i8: I8, u16: U16, i16: I16, u32: U32,
    i32: I32, u64: U64, i64: I64, f32: F32, f64: F64,
);

/// How many elements so many bytes are.
///
/// # Errors
/// [`Error::Refused`] when they are not a whole number of elements.
pub fn whole_elements<T: Element>(bytes: usize) -> Result<usize, Error> {
    let size = size_of::<T>();
    if bytes.is_multiple_of(size) {
        Ok(bytes / size)
    } else {
        Err(not_a::<Vec<T>>(format!(
            "{bytes} bytes are no whole number of elements of {size} bytes"
        )))
    }
}

impl Number {
    /// Whether postcard has the bytes of a number as they are in memory: then a list of them is copied
    /// whole, also within other values.
    const fn is_raw_in_postcard(self) -> bool {
        match self {
            Number::U8 | Number::I8 | Number::F32 | Number::F64 => true,
            Number::U16 | Number::I16 | Number::U32 => false,
            Number::I32 | Number::U64 | Number::I64 => false,
        }
    }
}

/// A whole number of elements, wherever their bytes lie.
fn elements<T: Element>(bytes: &[u8]) -> Vec<T> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(aligned) => aligned.to_vec(),
        Err(_) => bytemuck::pod_collect_to_vec(bytes),
    }
}

/// Postcard of a list of numbers that it has as they are: the length, and the elements.
fn raw_inner_list<T: Element>(list: &[T]) -> Vec<u8> {
    let elements: &[u8] = bytemuck::cast_slice(list);
    let mut bytes = Vec::with_capacity(elements.len() + VARINT_BYTES_MAX);
    let mut length = list.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(elements);
    bytes
}

/// The longest length.
const VARINT_BYTES_MAX: usize = 10;

fn read_raw_inner_list<T: Element>(bytes: &[u8]) -> Result<Vec<T>, Error> {
    let (length, rest) = postcard::take_from_bytes::<u64>(bytes)
        .map_err(|error| not_a::<Vec<T>>(error.to_string()))?;
    if whole_elements::<T>(rest.len())? as u64 == length {
        Ok(elements(rest))
    } else {
        Err(not_a::<Vec<T>>(format!(
            "{length} elements are announced, and there are {} bytes",
            rest.len()
        )))
    }
}
