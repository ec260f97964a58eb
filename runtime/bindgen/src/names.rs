//! Names of WIT in Rust.

/// The keywords of Rust. All but the first four can be names with `r#`.
const KEYWORDS: &[&str] = &[
    "self", "Self", "super", "crate", "abstract", "as", "async", "await", "become", "box", "break",
    "const", "continue", "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for",
    "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override",
    "priv", "pub", "ref", "return", "static", "struct", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];
/// Types that the code names as Rust has them.
const TYPES: &[&str] = &["Option", "Result", "String", "Vec"];

fn words(name: &str) -> impl Iterator<Item = &str> {
    let words = name.split(|it: char| !it.is_ascii_alphanumeric());
    words.filter(|it| !it.is_empty())
}

/// The name of a function, a parameter, a field or a module.
pub(crate) fn snake(name: &str) -> String {
    let words: Vec<_> = words(name).map(str::to_ascii_lowercase).collect();
    usable(words.join("_"))
}

/// The name of a type or a case.
pub(crate) fn camel(name: &str) -> String {
    let capital = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_ascii_uppercase() + &rest.to_ascii_lowercase()
    };
    let name = usable(words(name).map(capital).collect());
    match TYPES.contains(&&*name) {
        true => name + "_",
        false => name,
    }
}

fn usable(name: String) -> String {
    match KEYWORDS.iter().position(|it| *it == name) {
        Some(..4) => name + "_",
        Some(_) => format!("r#{name}"),
        // The name of a file may begin with anything.
        None if !name.starts_with(|it: char| it.is_ascii_alphabetic()) => format!("m{name}"),
        None => name,
    }
}

/// A name that is not taken yet, and is from now on.
pub(crate) fn unique(mut name: String, taken: &mut Vec<String>) -> String {
    while taken.contains(&name) {
        name.push('_');
    }
    taken.push(name.clone());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_rust() {
        for (wit, value, ty) in [
            ("unit-price", "unit_price", "UnitPrice"),
            ("HTTP-server", "http_server", "HttpServer"),
            ("type", "r#type", "Type"),
            ("self", "self_", "Self_"),
            ("option", "option", "Option_"),
            ("my_module.v2", "my_module_v2", "MyModuleV2"),
            ("7z", "m7z", "m7z"),
        ] {
            assert_eq!((snake(wit), camel(wit)), (value.to_owned(), ty.to_owned()));
        }
        let mut taken = vec!["load".to_owned()];
        assert_eq!(unique("load".to_owned(), &mut taken), "load_");
        assert_eq!(unique("load".to_owned(), &mut taken), "load__");
    }
}
