//! An amount that cannot be read.

#[wasmrun_guest::module]
mod app {
    use wasmrun_guest::prelude::*;

    #[task(
        retries = 1,
        memory = "64 bananas" //~ memory
    )]
    pub fn work() {}
}
