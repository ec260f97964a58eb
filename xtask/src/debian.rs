//! Programs for tests that Debian packages: an etcd server for the control store, promtool for metrics and alerts.
//!
//! Owns where they come from: the path, or Debian's package, unpacked under `target/` through apt with apt's
//! signature checks. Nothing is installed on the system, and no root is needed. Where neither works their
//! tests are skipped, unless CI says that they must not be.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::shell::{self, command, target_dir};

/// A program that some tests need.
struct Program {
    /// Names it to the tests, and to us, if somebody has set it.
    variable: &'static str,
    name: &'static str,
    /// Says that tests without it must fail.
    required: &'static str,
    package: &'static str,
    /// What is not tried without it.
    without: &'static str,
}

const PROGRAMS: [Program; 2] = [
    Program {
        variable: "WASMRUN_ETCD",
        name: "etcd",
        required: "WASMRUN_REQUIRE_ETCD",
        package: "etcd-server",
        without: "no etcd server here: the control store is not tried on etcd",
    },
    Program {
        variable: "WASMRUN_PROMTOOL",
        name: "promtool",
        required: "WASMRUN_REQUIRE_PROMTOOL",
        package: "prometheus",
        without: "no promtool here: metrics and alerts are not read as Prometheus reads them",
    },
];

impl Program {
    /// Where it is, or nothing where there is none and none is required.
    fn find_or_fetch(&self) -> Result<Option<OsString>> {
        if let Some(program) = std::env::var_os(self.variable) {
            return Ok(Some(program));
        }
        let unpacked = self.folder().join("usr/bin").join(self.name);
        let works = |program: &PathBuf| shell::succeeds(command(program).arg("--version"));
        for program in [PathBuf::from(self.name), unpacked.clone()] {
            if works(&program) {
                return Ok(Some(program.into()));
            }
        }
        if self.fetch().is_some() && works(&unpacked) {
            return Ok(Some(unpacked.into()));
        }
        if std::env::var_os(self.required).is_some() {
            bail!(
                "no {} on this machine, and {} is set: install Debian's {}, or name the program in {}",
                self.name,
                self.required,
                self.package,
                self.variable
            );
        }
        Ok(None)
    }

    fn folder(&self) -> PathBuf {
        target_dir().join(self.name)
    }

    /// Downloads and unpacks Debian's package; nothing, where there is no such thing.
    fn fetch(&self) -> Option<()> {
        let folder = self.folder();
        // What is left of an earlier try could be any version.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).ok()?;
        let mut download = command("apt-get");
        download
            .args(["-qq", "download", self.package])
            .current_dir(&folder);
        if !shell::succeeds(&mut download) {
            return None;
        }
        let files = fs::read_dir(&folder).ok()?.flatten();
        let package = files.map(|file| file.path()).next()?;
        shell::succeeds(command("dpkg-deb").arg("-x").arg(package).arg(&folder)).then_some(())
    }
}

/// Tells a command where these programs are, and people what is missing.
pub fn name_to(command: &mut Command) -> Result<()> {
    for program in PROGRAMS {
        match program.find_or_fetch()? {
            Some(found) => {
                command.env(program.variable, found);
            }
            // Each of its tests says so too, but nobody sees that of tests that pass.
            None => eprintln!("   {}", program.without),
        }
    }
    Ok(())
}
