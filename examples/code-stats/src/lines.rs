//! Counts the lines of a file: code, comments and blank ones.
//!
//! A line with any code is code; one with only a comment is a comment. Works on bytes, in one
//! pass, and never fails: on a file that is not what its name says the numbers are merely odd.

use crate::language::Syntax;

/// How many lines of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// With code on them.
    pub code: u64,
    /// With nothing but a comment.
    pub comments: u64,
    /// With nothing, or only space.
    pub blank: u64,
}

impl Lines {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.code + self.comments + self.blank
    }
}

/// What the reader is in the middle of, from one line to the next.
#[derive(Clone, Copy)]
enum Inside {
    Code,
    /// Block comments, so many deep, and what ends the innermost.
    Comment {
        depth: usize,
        end: &'static str,
    },
    /// A string and the quote that ends it. A raw one has no escapes, and ends with this many `#`.
    Quoted {
        end: &'static str,
        raw: Option<usize>,
    },
}

/// Counts the lines of a file in a language with this syntax.
pub fn count(file: &[u8], syntax: &Syntax) -> Lines {
    let mut lines = Lines::default();
    let mut inside = Inside::Code;
    let file = file.strip_suffix(b"\n").unwrap_or(file);
    if file.is_empty() {
        return lines;
    }
    for line in file.split(|&byte| byte == b'\n') {
        let line = line.trim_ascii();
        if line.is_empty() {
            lines.blank += 1;
            continue;
        }
        let has_code;
        (inside, has_code) = read_line(line, inside, syntax);
        match has_code {
            true => lines.code += 1,
            false => lines.comments += 1,
        }
    }
    lines
}

/// Reads a line from its first to its last visible byte. Returns what goes on after it, and
/// whether there was code on it.
fn read_line(line: &[u8], mut inside: Inside, syntax: &Syntax) -> (Inside, bool) {
    let mut has_code = false;
    let mut at = 0;
    while at < line.len() {
        let rest = &line[at..];
        let length;
        (inside, length) = match inside {
            Inside::Comment { depth, end } => in_comment(rest, depth, end, syntax),
            Inside::Quoted { end, raw } => {
                has_code = true;
                in_string(rest, end, raw)
            }
            Inside::Code => {
                if syntax
                    .line
                    .iter()
                    .any(|mark| rest.starts_with(mark.as_bytes()))
                {
                    return (Inside::Code, has_code);
                }
                let (next, length) = in_code(line, at, syntax);
                let is_code = !matches!(next, Inside::Comment { .. });
                has_code |= is_code && !rest[0].is_ascii_whitespace();
                (next, length)
            }
        };
        at += length;
    }
    // A string of one quote that is still open is a mistake of ours more often than one that
    // really goes on: an apostrophe in a shell-like file, say. Rust's do go on.
    if matches!(
        inside,
        Inside::Quoted {
            end: "\"" | "'",
            raw: None
        }
    ) && !syntax.rust
    {
        inside = Inside::Code;
    }
    (inside, has_code)
}

fn in_comment(rest: &[u8], depth: usize, end: &'static str, syntax: &Syntax) -> (Inside, usize) {
    if rest.starts_with(end.as_bytes()) {
        let inside = match depth {
            1 => Inside::Code,
            _ => Inside::Comment {
                depth: depth - 1,
                end,
            },
        };
        return (inside, end.len());
    }
    match syntax.block {
        Some((start, _)) if syntax.nested && rest.starts_with(start.as_bytes()) => (
            Inside::Comment {
                depth: depth + 1,
                end,
            },
            start.len(),
        ),
        _ => (Inside::Comment { depth, end }, 1),
    }
}

fn in_string(rest: &[u8], end: &'static str, raw: Option<usize>) -> (Inside, usize) {
    let goes_on = Inside::Quoted { end, raw };
    match raw {
        None if rest[0] == b'\\' => (goes_on, 2),
        None if rest.starts_with(end.as_bytes()) => (Inside::Code, end.len()),
        Some(hashes) if rest.starts_with(end.as_bytes()) => {
            let found = rest[end.len()..]
                .iter()
                .take_while(|&&byte| byte == b'#')
                .count();
            match found >= hashes {
                true => (Inside::Code, end.len() + hashes),
                false => (goes_on, end.len()),
            }
        }
        _ => (goes_on, 1),
    }
}

fn in_code(line: &[u8], at: usize, syntax: &Syntax) -> (Inside, usize) {
    let rest = &line[at..];
    if let Some((start, end)) = syntax.block
        && rest.starts_with(start.as_bytes())
    {
        return (Inside::Comment { depth: 1, end }, start.len());
    }
    if syntax.rust {
        if let Some(length) = character_literal(rest) {
            return (Inside::Code, length);
        }
        let in_word = at > 0 && (line[at - 1].is_ascii_alphanumeric() || line[at - 1] == b'_');
        if let Some(hashes) = raw_string(rest)
            && (!in_word || line[at - 1] == b'b')
        {
            return (
                Inside::Quoted {
                    end: "\"",
                    raw: Some(hashes),
                },
                hashes + 2,
            );
        }
    }
    for quote in syntax.quotes {
        if rest.starts_with(quote.as_bytes()) {
            let inside = match syntax.docstrings && at == 0 && quote.len() == 3 {
                true => Inside::Comment {
                    depth: 1,
                    end: quote,
                },
                false => Inside::Quoted {
                    end: quote,
                    raw: None,
                },
            };
            return (inside, quote.len());
        }
    }
    (Inside::Code, 1)
}

/// The length of Rust's `'x'` or `'\…'` at the start; `None` for a lifetime and all else.
fn character_literal(rest: &[u8]) -> Option<usize> {
    match rest {
        [b'\'', b'\\', _, tail @ ..] => tail
            .iter()
            .position(|&byte| byte == b'\'')
            .map(|more| more + 4),
        [b'\'', _, b'\'', ..] => Some(3),
        _ => None,
    }
}

/// The number of `#` in Rust's `r##"` at the start.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let after = rest.strip_prefix(b"r")?;
    let hashes = after.iter().take_while(|&&byte| byte == b'#').count();
    (after.get(hashes) == Some(&b'"')).then_some(hashes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language;

    /// Marks each line of `file` as (c)ode, co(m)ment or (b)lank by counting ever longer starts.
    fn kinds(name: &str, file: &str) -> String {
        let syntax = &language::of(name).syntax;
        let mut kinds = String::new();
        let mut before = Lines::default();
        let ends = file.match_indices('\n').map(|(at, _)| at + 1);
        for end in ends {
            let now = count(&file.as_bytes()[..end], syntax);
            kinds.push(match now {
                now if now.code > before.code => 'c',
                now if now.comments > before.comments => 'm',
                _ => 'b',
            });
            assert_eq!(now.total(), before.total() + 1);
            before = now;
        }
        kinds
    }

    #[test]
    fn empty_files_have_no_lines() {
        let syntax = &language::of("a.rs").syntax;
        assert_eq!(count(b"", syntax).total(), 0);
        assert_eq!(
            count(b"\n\n", syntax),
            Lines {
                blank: 2,
                ..Lines::default()
            }
        );
        assert_eq!(count(b"x", syntax).total(), 1);
        assert_eq!(
            count(b"x\r\n\r\n", syntax),
            Lines {
                code: 1,
                blank: 1,
                ..Lines::default()
            }
        );
    }

    #[test]
    fn rust() {
        let file = "//! doc\n\nfn a() {} // code\n/* one /* two */\nstill */ \n/* x */ let y;\n";
        assert_eq!(kinds("a.rs", file), "mbcmmc");
        let file = "let a = \"// no comment\n/* nor this\";\nlet b = '\"'; // x\n// c\n";
        assert_eq!(kinds("a.rs", file), "cccm");
        let file = "let a = r#\"a \" // \"\n\"#;\n// c\nfn f<'a>(b: &'a str) {} /* x\n*/\n";
        assert_eq!(kinds("a.rs", file), "ccmcm");
        assert_eq!(
            kinds("a.rs", "let a = br\"\\\";\n// c\nlet c = '\\'';\n// d\n"),
            "cmcm"
        );
    }

    #[test]
    fn python() {
        let file = "#!/bin/python\n\"\"\"Doc\nmore\"\"\"\nx = \"\"\"a\n# text\n\"\"\" # c\n# c\n";
        assert_eq!(kinds("a.py", file), "mmmcccm");
        assert_eq!(
            kinds(
                "a.py",
                "x = 'it\\'s # no'\n# c\n\"\"\"one line\"\"\"\ny = 1\n"
            ),
            "cmmc"
        );
    }

    #[test]
    fn others() {
        assert_eq!(kinds("a.sh", "echo don't\n# c\n"), "cm");
        assert_eq!(kinds("a.html", "<p>\n<!-- a\nb -->\n</p>\n"), "cmmc");
        assert_eq!(kinds("a.js", "x = `a\n// b`\n// c\n"), "ccm");
        assert_eq!(kinds("a.c", "/* a /* b */\nint c; // d\n"), "mc");
        assert_eq!(kinds("a.json", "{\n\n}\n"), "cbc");
    }

    #[test]
    fn any_bytes_will_do() {
        let bytes: Vec<u8> = (0..=255).cycle().take(4096).collect();
        for name in ["a.rs", "a.py", "a.c", "a.wat", "a.html"] {
            assert_eq!(count(&bytes, &language::of(name).syntax).total(), 17);
        }
    }
}
