//! A task with a type parameter.

#[wasmrun_guest::module]
mod app {
    use wasmrun_guest::prelude::*;

    #[task]
    pub fn first<T>(items: Vec<T>) -> Option<T> { //~ generic
        items.into_iter().next()
    }
}
