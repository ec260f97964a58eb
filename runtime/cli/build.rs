//! Assembles the guest that `wasmrun bench` and `wasmrun doctor` use when none is given.

fn main() {
    println!("cargo::rerun-if-changed=src/bench/guest.wat");
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let guest = wat::parse_file("src/bench/guest.wat").expect("the guest is well formed");
    let path = std::path::Path::new(&out).join("guest.wasm");
    std::fs::write(path, guest).expect("OUT_DIR can be written");
}
