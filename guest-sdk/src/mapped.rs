//! Lists that are attached to a task's memory instead of being copied into it.
//!
//! Owns the window of memory and its life: it is this module's alone from before the host attaches the
//! object until after it took it back. Invariants: a window starts at a multiple of 64 KiB and is as
//! long as the object rounded up to one; it is freed only when it is plain memory again. Those of large
//! objects start at a multiple of 2 MiB, so that the host can map huge pages there.

use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Error;
use crate::future::{Future, serialize_name};
use crate::host::Object;
use crate::value::{Element, Value};

/// A large list of numbers that lies in this task's memory without having been copied there.
///
/// As a parameter's type it lets callers give whatever they would give for a `Vec<T>`; a
/// [`Future<Vec<T>>`](Future) is the point of it. [`Future::map`] makes one of any future. It derefs to
/// a slice. The object that it shows never changes.
///
/// Behind a handle there are only bytes: a number type of the same size would be read without complaint.
pub struct Mapped<T: Element> {
    list: List<T>,
    object: Rc<Object>,
}

impl<T: Element> Mapped<T> {
    pub(crate) fn of(object: Rc<Object>) -> Result<Self, Error> {
        let list = List::of(&object)?;
        Ok(Self { list, object })
    }

    /// The object that is mapped, as a future that is there.
    pub fn future(&self) -> Future<Vec<T>> {
        Future::from_shared(self.object.clone())
    }

    /// From the handle that a typed call brought.
    #[cfg(target_family = "wasm")]
    pub(crate) fn from_object(object: Object) -> Self {
        Self::of(Rc::new(object)).unwrap_or_else(|error| panic!("cannot map an argument: {error}"))
    }
}

impl<T: Element> Deref for Mapped<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.list.elements()
    }
}

impl<T: Element + fmt::Debug> fmt::Debug for Mapped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapped({} elements)", self.len())
    }
}

impl<T: Element> Value for Mapped<T> {
    type Output = Self;

    fn into_output(self) -> Result<Self, Error> {
        Ok(self)
    }
}

impl<T: Element> Serialize for Mapped<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_name(&self.object.name(), serializer)
    }
}

impl<'de, T: Element> Deserialize<'de> for Mapped<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let future = Future::<Vec<T>>::deserialize(deserializer)?;
        future.map().map_err(D::Error::custom)
    }
}

#[cfg(target_family = "wasm")]
use window::List;

#[cfg(target_family = "wasm")]
mod window {
    use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
    use std::hint::black_box;
    use std::marker::PhantomData;
    use std::ptr::NonNull;

    use crate::error::Error;
    use crate::host::{self, Object};
    use crate::value::Element;
    use crate::value::numbers::whole_elements;

    /// Where windows start and end: a page of WebAssembly memory.
    const PAGE_BYTES: usize = 64 << 10;

    /// Where the windows of large objects start: at a huge page of most machines.
    const HUGE_PAGE_BYTES: usize = 2 << 20;
    /// Objects of this length are large: the memory that is lost before the window is little to that.
    const LARGE_BYTES: usize = 32 << 20;

    /// A window with an object attached to it. None for an empty object.
    pub(super) struct List<T> {
        window: Option<(NonNull<u8>, Layout)>,
        bytes: usize,
        elements: PhantomData<T>,
    }

    impl<T: Element> List<T> {
        pub(super) fn of(object: &Object) -> Result<Self, Error> {
            let bytes = object.size(None)?;
            let layout = usize::try_from(bytes)
                .ok()
                .and_then(|bytes| bytes.checked_next_multiple_of(PAGE_BYTES))
                .and_then(|length| Layout::from_size_align(length, alignment(length)).ok())
                .ok_or_else(|| {
                    Error::Refused(format!(
                        "an object of {bytes} bytes does not fit a guest's memory: store it in parts"
                    ))
                })?;
            let bytes = bytes as usize;
            whole_elements::<T>(bytes)?;
            if bytes == 0 {
                return Ok(Self {
                    window: None,
                    bytes,
                    elements: PhantomData,
                });
            }
            // SAFETY: the layout has a size above 0.
            let start = unsafe { alloc(layout) };
            let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
            // From here on `drop` frees the window. It takes back what was never attached too:
            // that is an error of the host, which it ignores.
            let list = Self {
                window: Some((start, layout)),
                bytes,
                elements: PhantomData,
            };
            // SAFETY: the window was just allocated with this size, and nothing else refers to it. The
            // slice only tells the host where it is: no Rust code reads it, so it does not matter
            // that nothing was written there, and it is gone before what the host put there is read.
            let window = unsafe { std::slice::from_raw_parts(start.as_ptr(), layout.size()) };
            let mapped = object.map(window, None)?;
            if mapped != bytes as u64 {
                return Err(Error::Refused(format!(
                    "the host broke its contract: it mapped {mapped} bytes of an object of {bytes}"
                )));
            }
            Ok(list)
        }

        pub(super) fn elements(&self) -> &[T] {
            let Some((start, _)) = self.window else {
                return &[];
            };
            // The host filled the window behind the compiler's back.
            let start = black_box(start.as_ptr());
            // SAFETY: the window is at least so long, the host attached so many bytes to it, and
            // neither side writes there before `drop`.
            let bytes = unsafe { std::slice::from_raw_parts(start, self.bytes) };
            // A page's alignment is enough for any number, and the length was checked.
            bytemuck::cast_slice(bytes)
        }
    }

    fn alignment(length: usize) -> usize {
        match length {
            LARGE_BYTES.. => HUGE_PAGE_BYTES,
            _ => PAGE_BYTES,
        }
    }

    impl<T> Drop for List<T> {
        fn drop(&mut self) {
            let Some((start, layout)) = self.window else {
                return;
            };
            // SAFETY: as in `of`; the slices that `elements` gave are gone, since they borrow this.
            let window = unsafe { std::slice::from_raw_parts(start.as_ptr(), layout.size()) };
            // What cannot be taken back was not attached; it is plain memory either way.
            let _ = host::unmap(window);
            // SAFETY: allocated by `of` with this layout, and not used any more.
            unsafe { dealloc(black_box(start.as_ptr()), layout) };
        }
    }
}

#[cfg(not(target_family = "wasm"))]
use copy::List;

#[cfg(not(target_family = "wasm"))]
mod copy {
    use crate::error::Error;
    use crate::host::Object;
    use crate::value::Element;

    /// There is no node to map: a copy shows the same.
    pub(super) struct List<T>(Vec<T>);

    impl<T: Element> List<T> {
        pub(super) fn of(object: &Object) -> Result<Self, Error> {
            Ok(Self(object.get(None)?.read()?))
        }

        pub(super) fn elements(&self) -> &[T] {
            &self.0
        }
    }
}
