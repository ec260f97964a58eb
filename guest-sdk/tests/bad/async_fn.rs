//! A task that is async.

#[wasmrun_guest::module]
mod app {
    use wasmrun_guest::prelude::*;

    #[task]
    pub async fn work() -> u64 { //~ async
        1
    }
}
