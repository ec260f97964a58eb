//! A type that the module does not declare.

#[wasmrun_guest::module]
mod app {
    use wasmrun_guest::prelude::*;

    #[task]
    pub fn area(
        shape: Shape, //~ Shape
    ) -> f64 {
        shape.area()
    }
}
