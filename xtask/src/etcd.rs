//! An etcd server for the tests of the control store.
//!
//! Owns where it comes from: the path, or Debian's package, unpacked under `target/` through apt with apt's
//! signature checks. Nothing is installed on the system, and no root is needed. Where neither works the
//! tests skip it, unless CI says that they must not.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::shell::{self, command, target_dir};

/// Names the server to the tests, and to us, if somebody has set it.
pub const PROGRAM: &str = "WASMRUN_ETCD";

/// Says that tests without a server must fail.
const REQUIRED: &str = "WASMRUN_REQUIRE_ETCD";

const PACKAGE: &str = "etcd-server";

/// The server's program, or nothing where there is none and none is required.
pub fn find_or_fetch() -> Result<Option<OsString>> {
    if let Some(program) = std::env::var_os(PROGRAM) {
        return Ok(Some(program));
    }
    let unpacked = folder().join("usr/bin/etcd");
    for program in [PathBuf::from("etcd"), unpacked.clone()] {
        if shell::succeeds(command(&program).arg("--version")) {
            return Ok(Some(program.into()));
        }
    }
    if fetch().is_some() && shell::succeeds(command(&unpacked).arg("--version")) {
        return Ok(Some(unpacked.into()));
    }
    if std::env::var_os(REQUIRED).is_some() {
        bail!(
            "no etcd server on this machine, and {REQUIRED} is set: install Debian's {PACKAGE}, or name the program in {PROGRAM}"
        );
    }
    Ok(None)
}

fn folder() -> PathBuf {
    target_dir().join("etcd")
}

/// Downloads and unpacks Debian's package; nothing, where there is no such thing.
fn fetch() -> Option<()> {
    let folder = folder();
    // What is left of an earlier try could be any version.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).ok()?;
    let mut download = command("apt-get");
    download
        .args(["-qq", "download", PACKAGE])
        .current_dir(&folder);
    if !shell::succeeds(&mut download) {
        return None;
    }
    let files = fs::read_dir(&folder).ok()?.flatten();
    let package = files.map(|file| file.path()).next()?;
    shell::succeeds(command("dpkg-deb").arg("-x").arg(package).arg(&folder)).then_some(())
}
