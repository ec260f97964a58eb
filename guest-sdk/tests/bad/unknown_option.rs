//! An option that there is not.

#[wasmrun_guest::module]
mod app {
    use wasmrun_guest::prelude::*;

    #[task(cpu = 2)] //~ cpus
    pub fn work() {}
}
