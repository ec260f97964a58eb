//! The addon stays in memory once it is loaded, whichever worker thread ends.

fn main() {
    napi_build::setup();
}
