//! Rust code of two guests, for `it/typed.rs`. It is made of their WIT, because they are built later.

fn main() {
    for wit in ["guests/fixture/wit/fixture.wit", "it/typed/graph.wit"] {
        wasmrun_bindgen::build(wit).unwrap_or_else(|error| panic!("{error}"));
    }
}
