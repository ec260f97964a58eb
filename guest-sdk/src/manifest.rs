//! The [`manifest!`](crate::manifest!) macro: a module's declaration of what it needs.
//!
//! Owns where the declaration is kept: the custom section `wasmrun:manifest`. The host owns what
//! may stand in it and checks it when the module is submitted; here only its form is checked.

/// Declares what this module's functions need, as JSON kept in the module itself.
///
/// Takes one string constant: a literal, or `include_str!("manifest.json")`. The build fails
/// unless it is a JSON object. Use it once in a module, at the top level of the crate that becomes
/// the module; sections of the same name would be joined and then be refused by the host.
///
/// ```
/// wasmrun_guest::manifest!(
///     r#"{
///         "version": 1,
///         "functions": {
///             "*":      {"resources": {"CPU": "1", "memory": "64MiB"}},
///             "render": {"resources": {"CPU": "1", "GPU": "0.25", "memory": "256MiB"},
///                        "retries": 3, "time_limit": "30s"}
///         }
///     }"#
/// );
/// ```
///
/// A mistake stops the build:
///
/// ```compile_fail
/// wasmrun_guest::manifest!(r#"{"version": 1,}"#);
/// ```
#[macro_export]
macro_rules! manifest {
    ($json:expr $(,)?) => {
        const _: () = {
            const TEXT: &str = $json;
            const LENGTH: usize = TEXT.len();
            assert!(
                $crate::json::is_object(TEXT),
                "the manifest is not a JSON object (look for a missing or trailing comma or quote)"
            );
            // A copy, because a custom section holds plain bytes and no pointers. Elsewhere than
            // in WebAssembly section names follow other rules, and nobody would read it.
            #[used]
            #[cfg_attr(target_family = "wasm", unsafe(link_section = "wasmrun:manifest"))]
            static MANIFEST: [u8; LENGTH] = {
                let mut bytes = [0; LENGTH];
                bytes.copy_from_slice(TEXT.as_bytes());
                bytes
            };
        };
    };
}
