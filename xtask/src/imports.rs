//! What a source file names of its crate: the paths in its `use` items and in its bodies.
//!
//! Owns the reading of one file, by its tokens. Must not: know other files, or what a path leads to. Items under
//! `#[cfg(test)]` are left out, as if they were not there.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::str::FromStr;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree, token_stream};

/// What a file says, apart from its tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The modules that are files of their own: `mod name;`.
    pub modules: BTreeSet<String>,
    /// What it defines, by name. Items of functions are among them, which does no harm.
    pub items: BTreeSet<String>,
    pub imports: Vec<Import>,
    /// The paths outside of `use` items.
    pub paths: Vec<Mention>,
}

/// One name that a `use` item brings in.
#[derive(Debug, PartialEq, Eq)]
pub struct Import {
    pub mention: Mention,
    /// The name here, `*` for all.
    pub name: String,
    /// Whether it is a re-export.
    pub is_public: bool,
}

/// A path as it is written, without the modules inside the file that it is in: `super` leads out of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mention {
    pub path: Vec<String>,
    pub line: usize,
}

/// Words after which a name follows that is defined there.
const DEFINITIONS: &[&str] = &[
    "fn", "struct", "enum", "trait", "type", "const", "static", "union", "mod",
];

type Tokens = Peekable<token_stream::IntoIter>;

/// Reads a file.
pub fn read(text: &str) -> Result<Source> {
    let tokens = TokenStream::from_str(text).map_err(|error| anyhow!("{error}"))?;
    let mut source = Source::default();
    source.read(tokens, 0);
    Ok(source)
}

impl Source {
    /// Reads what is so many modules deep inside the file.
    fn read(&mut self, tokens: TokenStream, depth: usize) {
        let mut tokens = tokens.into_iter().peekable();
        let mut is_public = false;
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(it) if it.as_char() == '#' => {
                    if let Some(attribute) = next_group(&mut tokens, Delimiter::Bracket)
                        && is_test(&attribute)
                    {
                        skip_item(&mut tokens);
                    }
                    continue;
                }
                TokenTree::Ident(it) if it == "pub" => {
                    next_group(&mut tokens, Delimiter::Parenthesis);
                    is_public = true;
                    continue;
                }
                TokenTree::Ident(it) if it == "use" => {
                    self.read_use(&mut tokens, &mut Vec::new(), is_public, depth);
                }
                TokenTree::Ident(it) if it == "mod" => self.read_module(&mut tokens, depth),
                TokenTree::Ident(it) if DEFINITIONS.contains(&it.to_string().as_str()) => {
                    if let Some(TokenTree::Ident(name)) = tokens.peek() {
                        self.items.insert(name.to_string());
                    }
                }
                TokenTree::Ident(it) => {
                    let line = it.span().start().line;
                    let path = rest_of_path(it.to_string(), &mut tokens);
                    if path.len() > 1 {
                        self.paths.extend(outside(path, line, depth));
                    }
                }
                TokenTree::Group(it) => self.read(it.stream(), depth),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            is_public = false;
        }
    }

    fn read_module(&mut self, tokens: &mut Tokens, depth: usize) {
        let Some(TokenTree::Ident(name)) = tokens.next() else {
            return;
        };
        match next_group(tokens, Delimiter::Brace) {
            Some(body) => {
                self.items.insert(name.to_string());
                self.read(body.stream(), depth + 1);
            }
            None => drop(self.modules.insert(name.to_string())),
        }
    }

    /// Reads a tree of `use` up to its end: `;`, `,` or the end of its group.
    fn read_use(
        &mut self,
        tokens: &mut Tokens,
        path: &mut Vec<String>,
        is_public: bool,
        depth: usize,
    ) {
        let start = path.len();
        let mut line = 0;
        let mut alias = None;
        let mut is_group = false;
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(it) if it == "as" => {
                    alias = tokens.next().map(|name| name.to_string());
                }
                TokenTree::Ident(it) => {
                    line = it.span().start().line;
                    path.push(it.to_string());
                }
                TokenTree::Punct(it) if it.as_char() == '*' => {
                    line = it.span().start().line;
                    path.push("*".to_owned());
                }
                TokenTree::Punct(it) if it.as_char() == ':' => {}
                TokenTree::Group(it) => {
                    is_group = true;
                    let mut inside = it.stream().into_iter().peekable();
                    while inside.peek().is_some() {
                        self.read_use(&mut inside, path, is_public, depth);
                    }
                }
                _ => break,
            }
        }
        if !is_group && path.len() > start {
            let mut full = path.clone();
            if full.last().is_some_and(|last| last == "self") {
                full.pop();
            }
            let name = alias.or_else(|| full.last().cloned());
            if let (Some(mention), Some(name)) = (outside(full, line, depth), name) {
                self.imports.push(Import {
                    mention,
                    name,
                    is_public,
                });
            }
        }
        path.truncate(start);
    }
}

/// The path as it would stand at the top of the file. `None` if it leads to something in the file.
fn outside(mut path: Vec<String>, line: usize, depth: usize) -> Option<Mention> {
    let ups = path.iter().take_while(|part| *part == "super").count();
    let leads_out = match path.first().map(String::as_str) {
        Some("super") => ups > depth || ups == depth && path.len() > ups + 1,
        Some("self") => depth == 0,
        _ => true,
    };
    if ups > 0 {
        path.drain(..ups.min(depth));
    }
    leads_out.then_some(Mention { path, line })
}

fn rest_of_path(first: String, tokens: &mut Tokens) -> Vec<String> {
    let mut path = vec![first];
    let is_colon = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(it)) if it.as_char() == ':');
    loop {
        let mut ahead = tokens.clone();
        let has_colons = is_colon(ahead.next().as_ref()) && is_colon(ahead.next().as_ref());
        let Some(TokenTree::Ident(next)) = ahead.next().filter(|_| has_colons) else {
            return path;
        };
        path.push(next.to_string());
        *tokens = ahead;
    }
}

/// Takes the next token, if it is such a group.
fn next_group(tokens: &mut Tokens, delimiter: Delimiter) -> Option<Group> {
    // The attributes of a whole file have `!` before theirs.
    if delimiter == Delimiter::Bracket {
        tokens.next_if(|it| matches!(it, TokenTree::Punct(it) if it.as_char() == '!'));
    }
    let is_meant =
        |it: &TokenTree| matches!(it, TokenTree::Group(it) if it.delimiter() == delimiter);
    match tokens.next_if(is_meant)? {
        TokenTree::Group(group) => Some(group),
        _ => None,
    }
}

/// Whether an attribute is `cfg(test)`, or `cfg(all(test, …))`.
fn is_test(attribute: &Group) -> bool {
    let text = attribute.stream().to_string().replace(' ', "");
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// Skips an item, field, arm or statement with the rest of its attributes.
fn skip_item(tokens: &mut Tokens) {
    while tokens
        .next_if(|it| matches!(it, TokenTree::Punct(it) if it.as_char() == '#'))
        .is_some()
    {
        next_group(tokens, Delimiter::Bracket);
    }
    let (mut is_use, mut depth, mut before) = (false, 0_i32, ' ');
    for token in tokens.by_ref() {
        let mut now = ' ';
        match &token {
            TokenTree::Ident(it) => is_use |= it == "use",
            TokenTree::Group(it) if it.delimiter() == Delimiter::Brace && !is_use => return,
            TokenTree::Punct(it) => now = it.as_char(),
            TokenTree::Group(_) | TokenTree::Literal(_) => {}
        }
        match now {
            ';' => return,
            ',' if depth == 0 => return,
            '<' => depth += 1,
            // No arrow.
            '>' if !matches!(before, '-' | '=') => depth -= 1,
            _ => {}
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let source = read(text).unwrap();
        let of_uses = source.imports.iter().map(|it| &it.mention);
        let all = of_uses.chain(&source.paths);
        all.map(|it| format!("{}: {}", it.line, it.path.join("::")))
            .collect()
    }

    #[test]
    fn trees_of_uses_are_taken_apart() {
        let text = "\
use std::fmt;
use crate::a::{self, b::{C, D as E}, f::*,
    G};
pub(crate) use self::h::I;
";
        let source = read(text).unwrap();
        let found: Vec<_> = source
            .imports
            .iter()
            .map(|it| {
                let path = it.mention.path.join("::");
                (it.mention.line, path, it.name.as_str(), it.is_public)
            })
            .collect();
        let expected = [
            (1, "std::fmt", "fmt", false),
            (2, "crate::a", "a", false),
            (2, "crate::a::b::C", "C", false),
            (2, "crate::a::b::D", "E", false),
            (2, "crate::a::f::*", "*", false),
            (3, "crate::a::G", "G", false),
            (4, "self::h::I", "I", true),
        ];
        let expected = expected.map(|(line, path, name, is)| (line, path.to_owned(), name, is));
        assert_eq!(found, expected);
    }

    #[test]
    fn bodies_and_macros_are_read_and_text_is_not() {
        let text = r#"
// crate::no::A
/// crate::no::B
fn f(it: &crate::a::B) -> Vec<super::c::D> {
    let text = "crate::no::C";
    assert!(crate::e::is(it), "{}", self::g::H);
    i::j::<K>(it);
    Self::f(it)
}
"#;
        let found = paths(text);
        let expected = [
            "4: crate::a::B",
            "4: super::c::D",
            "6: crate::e::is",
            "6: self::g::H",
            "7: i::j",
            "8: Self::f",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn tests_are_left_out() {
        let text = "
mod a;
#[cfg(test)]
mod b;
#[cfg(test)]
#[allow(unused)]
mod c { use crate::no::C; }
#[cfg(test)]
use crate::no::{D, E};
struct F {
    #[cfg(test)]
    g: Vec<crate::no::G<u8, u8>>,
    h: crate::h::H,
}
#[cfg(all(test, unix))]
fn i<J, K>() -> crate::no::I { crate::no::J }
#[cfg(not(test))]
fn l() -> crate::l::L {}
";
        assert_eq!(paths(text), ["13: crate::h::H", "18: crate::l::L"]);
        let modules = read(text).unwrap().modules;
        assert_eq!(modules, BTreeSet::from(["a".to_owned()]));
    }

    #[test]
    fn modules_inside_of_a_file_are_the_file() {
        let text =
            "mod a { use super::B; use super::c::D; use super::super::e::F; use crate::g::H; }";
        let found = paths(text);
        assert_eq!(found, ["1: c::D", "1: super::e::F", "1: crate::g::H"]);
    }
}
