//! Placeholders in what people type for all tasks of an array: `$i`, `${line}`; `$$` is a dollar sign.
//!
//! Owns how they are written. Must not: know what stands for what.

/// The text with each `$name` and `${name}` replaced by what `find` has for the name; where that is nothing, it stays.
pub fn fill(text: &str, mut find: impl FnMut(&str) -> Option<String>) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len() + 8), text);
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = name(rest)
            && let Some(value) = find(name)
        {
            out.push_str(&value);
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

/// The same, where `$i` alone stands for something.
pub fn with_index(text: &str, index: u64) -> String {
    fill(text, |name| (name == "i").then(|| index.to_string()))
}

/// Whether the index is part of a text.
pub fn has_index(text: &str) -> bool {
    names_one(text, &["i"])
}

/// Whether the text has a placeholder with one of these names.
pub fn names_one(text: &str, names: &[&str]) -> bool {
    let mut found = false;
    fill(text, |name| {
        found |= names.contains(&name);
        None
    });
    found
}

/// A name in the text that is none of these, and the one of them that it is a slip away from.
pub fn mistyped<'a>(text: &str, names: &[&'a str]) -> Option<(String, &'a str)> {
    let mut found = None;
    fill(text, |name| {
        let typed = name.to_lowercase();
        let is_near = |known: &&&str| strsim::damerau_levenshtein(&typed, known) <= 1;
        if found.is_none() && !names.contains(&name) {
            let near = names.iter().find(is_near);
            found = near.map(|near| (name.to_owned(), *near));
        }
        None
    });
    found
}

/// The name that follows a dollar sign, and what comes after it.
fn name(rest: &str) -> Option<(&str, &str)> {
    if let Some(rest) = rest.strip_prefix('{') {
        return rest.split_once('}');
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    Some(rest.split_at(end.unwrap_or(rest.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_filled_in() {
        assert_eq!(with_index("f($i, \"$i\", ${i}0)", 7), "f(7, \"7\", 70)");
        assert_eq!(with_index("$index $$i $", 7), "$index $i $");
        assert_eq!(with_index("part-$i.bin", 7), "part-7.bin");
    }

    #[test]
    fn only_known_names_stand_for_something() {
        let find = |name: &str| (name == "line").then(|| "$i $line".to_owned());
        // What is filled in is not looked through.
        assert_eq!(fill("<$line>", find), "<$i $line>");
        assert_eq!(
            fill("${line}s $lines $line_", find),
            "$i $lines $lines $line_"
        );
        assert_eq!(
            fill("$$line ${line ${$line}", find),
            "$line ${line ${$i $line}"
        );
        assert_eq!(fill("ä$line-ä${}$", find), "ä$i $line-ä${}$");
    }

    #[test]
    fn a_slip_is_found() {
        let slip = |text: &str| mistyped(text, &["file", "stem"]);
        for name in ["files", "fil", "flie", "File"] {
            assert_eq!(
                slip(&format!("a${name}.b")),
                Some((name.to_owned(), "file"))
            );
        }
        assert_eq!(slip("$HOME ${stems}"), Some(("stems".to_owned(), "stem")));
        assert_eq!(slip("$$files $file ${stem}s $HOME $i"), None);
    }

    #[test]
    fn whether_a_name_is_there() {
        let names = ["file", "stem"];
        assert!(names_one("a-${stem}.txt", &names) && names_one("$file", &names));
        assert!(!names_one("$$file $files file $i", &names));
    }
}
