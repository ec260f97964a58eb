//! Memory that objects can be mapped to.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

use crate::bindings::wasmrun::runtime::objects;

const PAGE: usize = 64 << 10;

/// Whole pages of WebAssembly, which an object can be mapped to.
pub struct Window {
    at: *mut u8,
    layout: Layout,
}

impl Window {
    /// One for an object of so many bytes.
    pub fn new(bytes: usize) -> Self {
        let pages = bytes.div_ceil(PAGE).max(1) * PAGE;
        let layout = Layout::from_size_align(pages, PAGE).expect("it fits into memory");
        // SAFETY: the layout is not empty.
        let at = unsafe { alloc(layout) };
        if at.is_null() {
            handle_alloc_error(layout);
        }
        Self { at, layout }
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: it was allocated with this layout, and is zeros or what was mapped.
        unsafe { std::slice::from_raw_parts(self.at, self.layout.size()) }
    }

    /// All of it.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.layout.size()) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // Before the memory is anybody else's; where nothing is mapped there is nothing to take back.
        let _ = objects::unmap(self.bytes_mut());
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(self.at, self.layout) }
    }
}
