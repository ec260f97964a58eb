//! An argument that is a reference: the task runs elsewhere.

#[wasmrun_guest::module]
mod app {
    use wasmrun_guest::prelude::*;

    #[task]
    pub fn count(
        text: &str, //~ String
    ) -> u64 {
        text.len() as u64
    }
}
