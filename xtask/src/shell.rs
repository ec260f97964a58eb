//! Where things are, and how other programs are run and shown.
//!
//! Every command runs in the root of the checkout. Its failure is an error that shows the command
//! as a person would type it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The root of the checkout.
pub fn root() -> &'static Path {
    static ROOT: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    ROOT.get_or_init(|| {
        // `cargo run` says where the package is now; the built-in path is for running the binary
        // by itself.
        let package = std::env::var("CARGO_MANIFEST_DIR")
            .unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
        let package = PathBuf::from(package);
        package.parent().map(Path::to_path_buf).unwrap_or(package)
    })
}

/// A folder that only this user may enter, as nodes want it for their sockets.
pub fn private_dir(dir: &Path) -> Result<()> {
    let mut own = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut own, 0o700);
    own.recursive(true)
        .create(dir)
        .with_context(|| format!("cannot create {}", dir.display()))
}

/// Cargo's output folder for the main workspace.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// A command to run in the root of the checkout.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// The cargo that runs us, so that `cargo +nightly xtask` stays on one toolchain.
pub fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The compiler that cargo would use.
pub fn rustc() -> Command {
    command(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
}

/// Runs a command with its output shown, and fails if it does.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run `{}`", show(command)))?;
    if !status.success() {
        bail!("`{}` failed ({status})", show(command));
    }
    Ok(())
}

/// Runs a command and returns its stdout. Its stderr is shown only if it fails, with the error.
pub fn read(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run `{}`", show(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "`{}` failed ({}):\n{}",
            show(command),
            output.status,
            said.trim_end()
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{}` printed no text", show(command)))
}

/// Whether a command can be run and succeeds, quietly.
pub fn succeeds(command: &mut Command) -> bool {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Copies a program, or what one loads, without what only a debugger reads where there is `strip`.
pub fn strip(from: &Path, to: &Path) -> Result<()> {
    let _ = std::fs::remove_file(to);
    let mut strip = command("strip");
    strip.args(["--strip-debug", "-o"]).arg(to).arg(from);
    if !succeeds(&mut strip) {
        std::fs::copy(from, to)
            .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    }
    Ok(())
}

/// The command as it would be typed, programs by their name alone.
pub fn show(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program());
    let words = std::iter::once(name).chain(command.get_args());
    words
        .map(|word| quote(&word.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(" ")
}

/// A word as a shell would need it.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A time for people: `0.42 s`, `1 min 5 s`.
pub fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{:.2} s", time.as_secs_f64()),
        whole => format!("{} min {} s", whole / 60, whole % 60),
    }
}

/// A size for people: `512 B`, `1.4 MiB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let mut command = Command::new("/some/where/wasmrun");
        command.args(["submit", "--invoke", "band($i, 32)", "it's", ""]);
        assert_eq!(
            show(&command),
            r"wasmrun submit --invoke 'band($i, 32)' 'it'\''s' ''"
        );
    }

    #[test]
    fn sizes_and_times_are_short() {
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(3 << 20), "3.0 MiB");
        assert_eq!(seconds(Duration::from_millis(420)), "0.42 s");
        assert_eq!(seconds(Duration::from_secs(65)), "1 min 5 s");
    }
}
