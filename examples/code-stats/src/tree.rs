//! Walks directories and adds up what is in them.
//!
//! An entry that cannot be read is remembered and left out; it never stops the rest.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::language::{self, OTHER};
use crate::lines::{self, Lines};

/// What was counted of one language.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub files: u64,
    pub lines: Lines,
    pub bytes: u64,
}

/// What was found so far.
#[derive(Default)]
pub struct Findings {
    /// By name of the language.
    pub languages: BTreeMap<&'static str, Counts>,
    /// What could not be read, and why.
    pub errors: Vec<String>,
    /// The file being read: kept, so that a thousand files need one buffer.
    buffer: Vec<u8>,
}

impl Findings {
    /// Adds a directory and all below it, or a single file.
    pub fn add(&mut self, root: &Path) {
        match fs::metadata(root) {
            Ok(about) if about.is_dir() => self.add_dir(root),
            Ok(about) => self.add_file(root, about.len()),
            Err(error) => {
                let path = root.display();
                self.errors.push(format!(
                    "{path}: {error} (a guest sees only what it is granted: \
                     `wasmrun submit … --dir HOST_DIR::{path}`)"
                ));
            }
        }
    }

    fn add_dir(&mut self, root: &Path) {
        // A stack of our own: a tree deeper than the guest's stack is no reason to trap.
        let mut dirs = vec![root.to_path_buf()];
        while let Some(dir) = dirs.pop() {
            if let Err(error) = self.read_dir(&dir, &mut dirs) {
                self.errors.push(format!("{}: {error}", dir.display()));
            }
        }
    }

    fn read_dir(&mut self, dir: &Path, dirs: &mut Vec<PathBuf>) -> io::Result<()> {
        if fs::exists(dir.join("CACHEDIR.TAG")).unwrap_or(false) {
            return Ok(());
        }
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let hidden = name.as_encoded_bytes().starts_with(b".");
            let kind = entry.file_type()?;
            if kind.is_dir() && !hidden && name != "node_modules" {
                dirs.push(entry.path());
            } else if kind.is_file() && !hidden {
                match entry.metadata() {
                    Ok(about) => self.add_file(&entry.path(), about.len()),
                    Err(error) => self
                        .errors
                        .push(format!("{}: {error}", entry.path().display())),
                }
            }
        }
        Ok(())
    }

    fn add_file(&mut self, path: &Path, length: u64) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let language = language::of(&name);
        let mut added = Counts {
            files: 1,
            bytes: length,
            ..Counts::default()
        };
        if language.name != OTHER.name {
            self.buffer.clear();
            let read = File::open(path).and_then(|mut file| file.read_to_end(&mut self.buffer));
            if let Err(error) = read {
                self.errors.push(format!("{}: {error}", path.display()));
                return;
            }
            added.bytes = self.buffer.len() as u64;
            added.lines = lines::count(&self.buffer, &language.syntax);
        }
        self.languages.entry(language.name).or_default().add(&added);
    }
}

impl Counts {
    /// Adds another's counts to these.
    pub fn add(&mut self, other: &Counts) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.lines.code += other.lines.code;
        self.lines.comments += other.lines.comments;
        self.lines.blank += other.lines.blank;
    }
}
