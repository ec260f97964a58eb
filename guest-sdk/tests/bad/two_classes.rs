//! Two classes of one name.

#[wasmrun_guest::module]
mod app {
    use wasmrun_guest::prelude::*;

    #[actor]
    pub struct Counter {
        n: u64,
    }

    #[actor]
    impl Counter {
        pub fn new() -> Self {
            Self { n: 0 }
        }
    }

    #[actor]
    pub struct Counter {
        n: u32,
    }

    #[actor]
    impl Counter { //~ has an `#[actor] impl` already
        pub fn new() -> Self {
            Self { n: 0 }
        }
    }
}
