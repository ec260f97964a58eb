//! Assembles the guests that `wasmrun bench` and `wasmrun doctor` use when none is given.

fn main() {
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    for name in ["guest", "flood"] {
        let text = format!("src/bench/{name}.wat");
        println!("cargo::rerun-if-changed={text}");
        let guest = wat::parse_file(text).expect("the guest is well formed");
        let path = std::path::Path::new(&out).join(name).with_extension("wasm");
        std::fs::write(path, guest).expect("OUT_DIR can be written");
    }
    // Unoptimised it has 370,000 relocations, and would begin with them each time: tests start it thousands of times.
    if std::env::var("PROFILE").as_deref() == Ok("debug") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
