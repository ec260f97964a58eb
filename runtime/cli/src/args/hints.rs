//! Hints for words in the wrong place, which clap can only call unexpected.

use std::net::{IpAddr, SocketAddr};

/// What may have been meant. `unexpected` is the word, `all` are those that were typed.
pub fn hint(unexpected: &str, all: &[String]) -> Option<String> {
    let typed = all.split(|word| word == "--").next().unwrap_or_default();
    let mut pairs = typed.windows(2);
    if let Some([option, value]) = pairs.find(|pair| is_value_of(&pair[0], &pair[1])) {
        return Some(format!(
            "a value of {option} stands behind an equals sign: {option}={value}"
        ));
    }
    let mut pairs = typed.windows(2);
    if let Some([option, value]) = pairs.find(|pair| is_negative(&pair[0], &pair[1])) {
        return Some(format!(
            "a value that begins with a hyphen stands behind an equals sign: {option}={value}"
        ));
    }
    let mut pairs = typed.windows(2);
    if let Some([_, of]) = pairs.find(|pair| is_of_one_job(&pair[0], &pair[1]))
        && !unexpected.starts_with('-')
    {
        return Some(format!(
            "`job {of}` takes one job: run it once for each; `job wait` and `job cancel` take several"
        ));
    }
    let is_submit = typed.iter().any(|word| word == "submit");
    (is_submit && is_call(unexpected))
        .then(|| format!("to call a function, use --invoke '{unexpected}'"))
}

/// Whether a word is meant for the option before it, which takes none without an equals sign.
fn is_value_of(option: &str, word: &str) -> bool {
    match option {
        "--net" | "--metrics" | "--dashboard" => word.split(',').all(is_like_address),
        "--retry-on-error" => matches!(word, "true" | "false"),
        _ => false,
    }
}

/// Whether a word is meant for an address, though it may be none: its port may be too large, or its host a name.
fn is_like_address(word: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|it| it.is_ascii_digit());
    let parts = word.rsplit_once(':');
    let is_like = parts.is_some_and(|(host, port)| !host.contains('/') && is_port(port));
    is_like || word.parse::<IpAddr>().is_ok()
}

/// Whether these two words are a command for one job alone.
fn is_of_one_job(command: &str, of: &str) -> bool {
    command == "job" && matches!(of, "show" | "logs" | "results" | "rerun" | "graph")
}

/// Whether a word looks like a negative amount of the option before it, such as `-5MiB`.
fn is_negative(option: &str, word: &str) -> bool {
    let is_option = option.starts_with("--") && !option.contains('=');
    let rest = word.strip_prefix('-');
    is_option && rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether a text is addresses with ports, as of `--net=`.
pub fn are_addresses(text: &str) -> bool {
    text.split(',')
        .all(|address| address.parse::<SocketAddr>().is_ok())
}

/// Whether a text looks like a call: `name(…)`.
fn is_call(text: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_:/@.#".contains(c);
    let name = text.strip_suffix(')').and_then(|text| text.split_once('('));
    name.is_some_and(|(name, _)| !name.is_empty() && name.chars().all(is_of_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_been_meant() {
        let hint = |unexpected: &str, typed: &str| {
            let all: Vec<String> = typed.split(' ').map(ToOwned::to_owned).collect();
            hint(unexpected, &all).unwrap_or_default()
        };
        for (unexpected, typed, expected) in [
            (
                "m.wasm",
                "submit --net 10.0.0.1:80 m.wasm",
                "--net=10.0.0.1:80",
            ),
            ("[::1]:0", "run --net [::1]:0", "--net=[::1]:0"),
            (
                "0.0.0.0:1",
                "node start --metrics 0.0.0.0:1",
                "--metrics=0.0.0.0:1",
            ),
            (
                "0.0.0.0:1",
                "node start --dashboard 0.0.0.0:1",
                "--dashboard=0.0.0.0:1",
            ),
            (
                "false",
                "submit m --retry-on-error false",
                "--retry-on-error=false",
            ),
            (
                "127.0.0.1:99999",
                "node start --metrics 127.0.0.1:99999",
                "--metrics=127.0.0.1:99999",
            ),
            (
                "localhost:80",
                "node start --dashboard localhost:80",
                "--dashboard=localhost:80",
            ),
            ("10.0.0.1", "submit m --net 10.0.0.1", "--net=10.0.0.1"),
            (
                "b",
                "wasmrun job show a b",
                "`job wait` and `job cancel` take several",
            ),
            ("-5", "submit m --memory -5MiB", "--memory=-5MiB"),
            ("add(1,2)", "submit m.wasm add(1,2)", "--invoke 'add(1,2)'"),
            ("a:b/c@1.0#f()", "submit m", "--invoke 'a:b/c@1.0#f()'"),
        ] {
            let hint = hint(unexpected, typed);
            assert!(hint.ends_with(expected), "{typed}: {hint}");
        }
        for (unexpected, typed) in [
            ("one", "submit m.wasm one"),
            ("m.wasm", "submit x.wasm --net m.wasm"),
            ("add(1)", "run x.py add(1)"),
            ("(1)", "submit m (1)"),
            ("m.wasm", "submit --net https://a:80 m.wasm"),
            ("--all", "job show a --all"),
            ("-5", "submit -5s"),
            ("-x", "submit m --memory -x"),
            ("x", "submit m -- --net 10.0.0.1:80"),
        ] {
            assert_eq!(hint(unexpected, typed), "", "{typed}");
        }
    }
}
