//! Rust code of a module's types and functions, for drivers that use `wasmrun-client`, and their types for TypeScript.
//!
//! Owns how WIT becomes Rust and TypeScript, and where the code is written. Must not: run or check modules, or use other crates of wasmrun: it
//! is a dependency of build scripts. In one,
//!
//! ```no_run
//! // build.rs; then `include!(concat!(env!("OUT_DIR"), "/orders.rs"))` in a module of the program.
//! wasmrun_bindgen::build("orders.wasm").unwrap();
//! ```
//!
//! `wasmrun stubs orders.wasm --lang rust` does the same without a build script. The code uses `wasmrun_client::typed`.

mod emit;
mod exports;
mod names;
#[cfg(test)]
mod tests;
mod ts;
mod types;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use wit_component::DecodedWasm;
use wit_parser::{Resolve, WorldId};

/// Why there is no code. `Debug` says the same as `Display`: build scripts end with it.
#[derive(thiserror::Error)]
pub enum BindgenError {
    /// The module cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// It has no types.
    #[error(
        "{name} has no types to make code of: {why}; give a component, a core module with the section `component-type`, \
         or a .wit file"
    )]
    Untyped {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// A driver can call nothing of it.
    #[error(
        "{name} exports no function or class that a driver can call{}",
        list(skipped)
    )]
    Nothing {
        /// Its name.
        name: String,
        /// What it exports, and why that cannot be called.
        skipped: Vec<String>,
    },
    /// `OUT_DIR` is not set.
    #[error(
        "OUT_DIR is not set: call this from a build script, or write the code with Module::write_to"
    )]
    NoOutDir,
    /// The code cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
}

impl fmt::Debug for BindgenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn list(skipped: &[String]) -> String {
    skipped.iter().map(|it| format!("; {it}")).collect()
}

/// What a module exports.
#[derive(Debug)]
pub struct Module {
    resolve: Resolve,
    world: WorldId,
    /// Its name, for people.
    name: String,
    /// Its name in Rust.
    stem: String,
}

impl Module {
    /// Of a file: a module, or the text of a world if its name ends with `.wit`. The struct that stands for the module has the
    /// name of the file.
    ///
    /// # Errors
    /// When it cannot be read, or has no types.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, BindgenError> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|error| BindgenError::Read {
            path: path.to_owned(),
            error,
        })?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match path.extension().is_some_and(|it| it == "wit") {
            true => Self::from_wit(&name, &String::from_utf8_lossy(&bytes)),
            false => Self::from_bytes(&name, &bytes),
        }
    }

    /// Of a component, or of a core module with a `component-type` section.
    ///
    /// # Errors
    /// When it has no types.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Self, BindgenError> {
        let untyped = |why: String| BindgenError::Untyped {
            name: name.to_owned(),
            why,
        };
        let (resolve, world) = match bytes {
            [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => {
                let decoded = wit_component::metadata::decode(bytes);
                let (_, decoded) = decoded.map_err(|error| untyped(format!("{error:#}")))?;
                (decoded.resolve, decoded.world)
            }
            // The error of the decoder shows both beginnings as bytes.
            _ if !bytes.starts_with(b"\0asm") => {
                return Err(untyped("it is no wasm module".into()));
            }
            _ => match wit_component::decode(bytes) {
                Ok(DecodedWasm::Component(resolve, world)) => (resolve, world),
                Ok(DecodedWasm::WitPackage(..)) => {
                    return Err(untyped("it is a package of WIT, and no module".into()));
                }
                Err(error) => return Err(untyped(format!("{error:#}"))),
            },
        };
        Ok(Self::new(name, resolve, world))
    }

    /// Of a world as text, with the packages that it uses.
    ///
    /// # Errors
    /// When it is no WIT, or does not have just one world.
    pub fn from_wit(name: &str, text: &str) -> Result<Self, BindgenError> {
        let mut resolve = Resolve::default();
        let package = resolve.push_str(name, text);
        let world = package.and_then(|package| resolve.select_world(&[package], None));
        match world {
            Ok(world) => Ok(Self::new(name, resolve, world)),
            Err(error) => Err(BindgenError::Untyped {
                name: name.to_owned(),
                why: format!("{error:#}"),
            }),
        }
    }

    fn new(name: &str, resolve: Resolve, world: WorldId) -> Self {
        Self {
            resolve,
            world,
            name: name.to_owned(),
            stem: name.split('.').next().unwrap_or(name).to_owned(),
        }
    }

    /// The code, as `rustfmt` would have it.
    ///
    /// # Errors
    /// [`BindgenError::Nothing`].
    pub fn generate(&self) -> Result<String, BindgenError> {
        let exports = self.exports()?;
        Ok(emit::code(&self.name, &self.stem, &self.resolve, &exports))
    }

    /// What TypeScript is to know of the module as the npm package gives it: the text of a `.d.ts` file.
    ///
    /// # Errors
    /// [`BindgenError::Nothing`].
    pub fn typescript(&self) -> Result<String, BindgenError> {
        let exports = self.exports()?;
        Ok(ts::code(&self.name, &self.resolve, &exports))
    }

    fn exports(&self) -> Result<exports::Exports<'_>, BindgenError> {
        let exports = exports::Exports::of(&self.resolve, self.world);
        if exports.functions.is_empty() && exports.classes.is_empty() {
            return Err(BindgenError::Nothing {
                name: self.name.clone(),
                skipped: exports.skipped,
            });
        }
        Ok(exports)
    }

    /// Writes the code.
    ///
    /// # Errors
    /// As of [`Module::generate`], and when the file cannot be written.
    pub fn write_to(&self, path: impl AsRef<Path>) -> Result<(), BindgenError> {
        let path = path.as_ref();
        let code = self.generate()?;
        std::fs::write(path, code).map_err(|error| BindgenError::Write {
            path: path.to_owned(),
            error,
        })
    }
}

/// For build scripts: writes the code of a file into `OUT_DIR`, under its name with `.rs`, and has cargo do that again when
/// the file changes.
///
/// # Errors
/// As of [`Module::from_file`] and [`Module::write_to`], and outside a build script.
pub fn build(path: impl AsRef<Path>) -> Result<(), BindgenError> {
    let path = path.as_ref();
    println!("cargo::rerun-if-changed={}", path.display());
    let out = std::env::var_os("OUT_DIR").ok_or(BindgenError::NoOutDir)?;
    let out = PathBuf::from(out);
    let name = Path::new(path.file_name().unwrap_or_default());
    Module::from_file(path)?.write_to(out.join(name.with_extension("rs")))
}
