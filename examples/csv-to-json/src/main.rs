//! A service that makes lines of JSON of CSV: an object for each row, by the names in the first.
//!
//! Rows are answered as they come, so files of any size need the memory of one row.

// Natively there are its tests alone.
#[cfg(any(test, target_family = "wasm"))]
mod table;

#[cfg(target_family = "wasm")]
mod service;

#[cfg(target_family = "wasm")]
#[wstd::http_server]
async fn main(
    request: wstd::http::Request<wstd::http::Body>,
) -> wstd::http::Result<wstd::http::Response<wstd::http::Body>> {
    service::answer(request)
}

#[cfg(not(target_family = "wasm"))]
fn main() {
    eprintln!("build it with --target wasm32-wasip2, and serve it: wasmrun serve csv-to-json.wasm");
}
