//! Lists of numbers: what has the buffer protocol, given and got.
//!
//! Owns [`Bytes`], a buffer that may lie in the node's store, and which is there as long as Python looks at it. Must not: know
//! NumPy: `wasmrun/_values.py` makes an array of a buffer where there is NumPy.

use std::io::{self, Read};
use std::os::raw::c_int;

use pyo3::buffer::{ElementType, PyUntypedBuffer};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PySequence, PyString};
use wasmrun_model::value::{Element, NumberKind, NumberList};

use crate::convert::{Fault, narrow, read_all, shown};

/// Runs something with the Rust type of a kind.
macro_rules! with_kind {
    (@among [$($number:ident $of:ident)*] $kind:expr, $name:ident => $body:expr) => {
        match $kind {
            $(NumberKind::$of => {
                type $name = $number;
                $body
            })*
        }
    };
    ($kind:expr, $name:ident => $body:expr) => {
        with_kind!(
            @among [u8 U8 i8 S8 u16 U16 i16 S16 u32 U32 i32 S32 u64 U64 i64 S64 f32 F32 f64 F64]
            $kind, $name => $body
        )
    };
}

/// What NumPy calls numbers of a kind.
fn dtype(kind: NumberKind) -> &'static str {
    match kind {
        NumberKind::U8 => "uint8",
        NumberKind::S8 => "int8",
        NumberKind::U16 => "uint16",
        NumberKind::S16 => "int16",
        NumberKind::U32 => "uint32",
        NumberKind::S32 => "int32",
        NumberKind::U64 => "uint64",
        NumberKind::S64 => "int64",
        NumberKind::F32 => "float32",
        NumberKind::F64 => "float64",
    }
}

/// What the `struct` module calls them.
fn format(kind: NumberKind) -> &'static str {
    match kind {
        NumberKind::U8 => "B",
        NumberKind::S8 => "b",
        NumberKind::U16 => "H",
        NumberKind::S16 => "h",
        NumberKind::U32 => "I",
        NumberKind::S32 => "i",
        NumberKind::U64 => "Q",
        NumberKind::S64 => "q",
        NumberKind::F32 => "f",
        NumberKind::F64 => "d",
    }
}

/// What their items are, whatever the order of the bytes.
fn element(kind: NumberKind) -> ElementType {
    let bytes = kind.width_bytes();
    match kind {
        NumberKind::U8 | NumberKind::U16 | NumberKind::U32 | NumberKind::U64 => {
            ElementType::UnsignedInteger { bytes }
        }
        NumberKind::S8 | NumberKind::S16 | NumberKind::S32 | NumberKind::S64 => {
            ElementType::SignedInteger { bytes }
        }
        NumberKind::F32 | NumberKind::F64 => ElementType::Float { bytes },
    }
}

/// The buffer that an object has, and a view of it. The view tells the strides also where the object does not, as those of
/// ctypes.
fn buffer<'py>(given: &Bound<'py, PyAny>) -> Option<(Bound<'py, PyMemoryView>, PyUntypedBuffer)> {
    let view = PyMemoryView::from(given).ok()?;
    let buffer = PyUntypedBuffer::get(view.as_any()).ok()?;
    Some((view, buffer))
}

/// Whether a buffer has numbers of a kind, little-endian as in a sandbox. PyO3's own check takes big-endian ones for native.
fn check(kind: NumberKind, buffer: &PyUntypedBuffer) -> Result<(), Fault> {
    let (wanted, width) = (dtype(kind), kind.width_bytes());
    let format = buffer.format();
    let found = format.to_string_lossy();
    if ElementType::from_format(format) != element(kind) || buffer.item_size() != width {
        return Err(Fault::text(format!(
            "expected numbers of {wanted}, got a buffer of format '{found}': convert it first, such as by \
             numpy.asarray(x, '{wanted}')"
        )));
    }
    let is_little_endian = match format.to_bytes() {
        [b'<', _] => true,
        [b'>' | b'!', _] => false,
        _ => cfg!(target_endian = "little"),
    };
    if !is_little_endian && width > 1 {
        return Err(Fault::text(format!(
            "expected numbers of {wanted}, got a buffer of format '{found}', whose byte order is big-endian: convert it \
             first, such as by x.astype(x.dtype.newbyteorder('='))"
        )));
    }
    Ok(())
}

/// Numbers of a kind: a buffer of just those, in the order of C, or a sequence.
pub(crate) fn from_python(kind: NumberKind, given: &Bound<'_, PyAny>) -> Result<NumberList, Fault> {
    let Some((view, buffer)) = buffer(given) else {
        return match kind {
            NumberKind::F32 => sequence(kind, given, |it| narrow(it.extract::<f64>().ok()?)),
            _ => with_kind!(kind, T => sequence(kind, given, |it| it.extract::<T>().ok())),
        };
    };
    check(kind, &buffer)?;
    let bytes = if buffer.is_c_contiguous() && buffer.len_bytes() > 0 {
        // SAFETY: it is contiguous and has so many bytes, which stay while `buffer` is held. Others may write to them
        // meanwhile, as in any use of the protocol: they are copied once, and every byte is one.
        let bytes = unsafe {
            std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes())
        };
        bytes.to_vec()
    } else {
        view.call_method0("tobytes")?.extract::<Vec<u8>>()?
    };
    let list = NumberList::from_le_bytes(kind, bytes);
    list.ok_or_else(|| Fault::text("it has no whole number of items"))
}

fn sequence<T: Element>(
    kind: NumberKind,
    given: &Bound<'_, PyAny>,
    read: impl Fn(&Bound<'_, PyAny>) -> Option<T>,
) -> Result<NumberList, Fault> {
    let is_text = given.is_instance_of::<PyString>();
    let items = given.cast::<PySequence>().ok().filter(|_| !is_text);
    let wanted = || format!("a buffer or sequence of numbers ({})", dtype(kind));
    let items = items.ok_or_else(|| Fault::expected(&wanted(), given))?;
    let values = read_all(items, kind.width_bytes(), |item| {
        read(item).ok_or_else(|| {
            let ty = kind.element_type();
            Fault::text(format!("{} is no {} ({ty})", shown(item), dtype(kind)))
        })
    })?;
    Ok(NumberList::from_elements(values))
}

/// A buffer of Python's that is sent from where it lies, part by part. It keeps what has the buffer.
pub(crate) struct BufferReader {
    buffer: PyUntypedBuffer,
    sent: usize,
}

impl BufferReader {
    /// The buffer of these numbers, if it is one of just those and lies in one piece.
    pub(crate) fn of(kind: NumberKind, given: &Bound<'_, PyAny>) -> Option<Self> {
        let (_, buffer) = buffer(given)?;
        let is_of_kind = check(kind, &buffer).is_ok();
        let is_whole = is_of_kind && buffer.is_c_contiguous() && buffer.len_bytes() > 0;
        is_whole.then_some(Self { buffer, sent: 0 })
    }

    pub(crate) fn len(&self) -> usize {
        self.buffer.len_bytes()
    }
}

impl Read for BufferReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = into.len().min(self.len() - self.sent);
        // SAFETY: it is contiguous and has so many bytes, which stay while `buffer` is held. Others may write to them
        // meanwhile, as in any use of the protocol: they are copied once, and every byte is one.
        let part = unsafe {
            let start = self.buffer.buf_ptr().cast::<u8>().add(self.sent);
            std::slice::from_raw_parts(start, count)
        };
        into[..count].copy_from_slice(part);
        self.sent += count;
        Ok(count)
    }
}

/// Where numbers lie.
pub(crate) enum Bytes {
    Own(Vec<u8>),
    /// In the node's store, if they are many. They stay there as long as this does.
    Got(wasmrun_client::Value),
}

impl Bytes {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Got(value) => value,
        }
    }
}

/// Numbers of a kind, to be read.
#[pyclass(frozen, module = "wasmrun._wasmrun")]
pub(crate) struct Buffer(Bytes);

#[pymethods]
impl Buffer {
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = slf.get().0.bytes();
        let (start, len) = (bytes.as_ptr(), bytes.len());
        let len = ffi::Py_ssize_t::try_from(len)?;
        // SAFETY: Python gives a view to be filled. The bytes live as long as this object, which the view keeps, and do not
        // move: it is frozen.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast_mut().cast(), len, 1, flags)
        };
        match filled {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

/// A value that is numbers, which are not decoded: bytes are copied once, others lie where they are.
pub(crate) fn in_place(
    py: Python<'_>,
    kind: NumberKind,
    value: wasmrun_client::Value,
) -> PyResult<Py<PyAny>> {
    match kind {
        NumberKind::U8 => Ok(PyBytes::new(py, &value).into_any().unbind()),
        _ => got(py, kind, Bytes::Got(value)),
    }
}

/// Numbers as Python has them: an array where there is NumPy, else a view of memory.
pub(crate) fn got(py: Python<'_>, kind: NumberKind, bytes: Bytes) -> PyResult<Py<PyAny>> {
    let buffer = Bound::new(py, Buffer(bytes))?;
    let make = py.import("wasmrun._values")?.getattr("numbers")?;
    Ok(make.call1((buffer, dtype(kind), format(kind)))?.unbind())
}
