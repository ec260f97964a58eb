//! An actor that nobody can create.

#[wasmrun_guest::module]
mod app {
    use wasmrun_guest::prelude::*;

    #[actor]
    pub struct Counter {
        n: u64,
    }

    #[actor]
    impl Counter { //~ has no constructor
        pub fn count(&mut self) -> u64 {
            self.n += 1;
            self.n
        }
    }
}
