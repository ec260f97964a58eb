//! Pieces of text files and the words in them.
//!
//! A piece has the lines that begin in it: pieces that follow each other have every line once, wherever
//! the cuts are. Lines are read one at a time, so the longest of them is what memory must hold.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

/// A file with a zero byte among so many first ones is no text.
const PEEK_BYTES: u64 = 1024;

/// Whether a name is of something that is made, not written.
pub fn is_skipped(name: &str) -> bool {
    name.starts_with('.') || name == "target" || name == "node_modules"
}

/// Whether a file looks like text.
pub fn is_text(path: &Path) -> io::Result<bool> {
    let mut first = Vec::new();
    File::open(path)?.take(PEEK_BYTES).read_to_end(&mut first)?;
    Ok(!first.contains(&0))
}

/// Every word of a piece of a file, in lower case.
pub fn words(path: &Path, piece: Range<u64>, mut each: impl FnMut(String)) -> io::Result<()> {
    lines(BufReader::new(File::open(path)?), piece, |line| {
        let line = String::from_utf8_lossy(line);
        let words = line.split(|c: char| !c.is_alphabetic());
        words
            .filter(|word| !word.is_empty())
            .for_each(|word| each(word.to_lowercase()));
    })
}

/// Every line that begins in the piece.
fn lines(
    mut text: impl BufRead + Seek,
    piece: Range<u64>,
    mut each: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut line = Vec::new();
    let mut at = piece.start;
    if at > 0 {
        // The rest of a line that began before; nothing if the byte before is its end.
        text.seek(SeekFrom::Start(at - 1))?;
        at += text.read_until(b'\n', &mut line)? as u64 - 1;
    }
    while at < piece.end {
        line.clear();
        let read = text.read_until(b'\n', &mut line)?;
        if read == 0 {
            break;
        }
        at += read as u64;
        each(&line);
    }
    Ok(())
}

/// The same for the same word on every machine: FNV-1a.
pub fn hash(word: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    word.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_every_line_once() {
        let text = "one\n\ntwo and a half\nthree\nfour";
        let whole: Vec<&str> = text.split_inclusive('\n').collect();
        for size in 1..=text.len() as u64 {
            let mut found = Vec::new();
            for start in (0..text.len() as u64).step_by(size as usize) {
                let each = |line: &[u8]| found.push(String::from_utf8(line.to_vec()).unwrap());
                lines(io::Cursor::new(text), start..start + size, each).unwrap();
            }
            assert_eq!(found, whole, "in pieces of {size}");
        }
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn what_is_made_is_skipped() {
        assert!(is_skipped(".git") && is_skipped("target"));
        assert!(!is_skipped("targets.md"));
    }
}
