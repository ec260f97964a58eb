//! Is a text a JSON object? Answered at compile time, for [`manifest!`](crate::manifest!).
//!
//! Owns the grammar of RFC 8259 and nothing else: no values come out. A `const fn`, so plain
//! loops and indices. Not part of the public interface.

/// Nesting beyond this is refused rather than risking the compiler's stack.
const DEPTH_MAX: usize = 32;

/// Whether `text` is exactly one JSON object, with optional space around it.
pub const fn is_object(text: &str) -> bool {
    let bytes = text.as_bytes();
    let start = skip_space(bytes, 0);
    if !matches!(peek(bytes, start), Some(b'{')) {
        return false;
    }
    match value(bytes, start, DEPTH_MAX) {
        Some(end) => skip_space(bytes, end) == bytes.len(),
        None => false,
    }
}

/// Each reader below takes where its item starts and returns where it ends, or `None`.
const fn value(bytes: &[u8], at: usize, depth_left: usize) -> Option<usize> {
    match peek(bytes, at) {
        Some(b'{') => collection(bytes, at, depth_left, true),
        Some(b'[') => collection(bytes, at, depth_left, false),
        Some(b'"') => string(bytes, at),
        Some(b't') => word(bytes, at, b"true"),
        Some(b'f') => word(bytes, at, b"false"),
        Some(b'n') => word(bytes, at, b"null"),
        Some(b'-' | b'0'..=b'9') => number(bytes, at),
        _ => None,
    }
}

const fn collection(
    bytes: &[u8],
    open: usize,
    depth_left: usize,
    is_object: bool,
) -> Option<usize> {
    if depth_left == 0 {
        return None;
    }
    let close = if is_object { b'}' } else { b']' };
    let mut at = skip_space(bytes, open + 1);
    if matches!(peek(bytes, at), Some(byte) if byte == close) {
        return Some(at + 1);
    }
    loop {
        if is_object {
            let Some(after_key) = string(bytes, at) else {
                return None;
            };
            let colon = skip_space(bytes, after_key);
            if !matches!(peek(bytes, colon), Some(b':')) {
                return None;
            }
            at = skip_space(bytes, colon + 1);
        }
        let Some(after_value) = value(bytes, at, depth_left - 1) else {
            return None;
        };
        at = skip_space(bytes, after_value);
        match peek(bytes, at) {
            Some(b',') => at = skip_space(bytes, at + 1),
            Some(byte) if byte == close => return Some(at + 1),
            _ => return None,
        }
    }
}

const fn string(bytes: &[u8], quote: usize) -> Option<usize> {
    if !matches!(peek(bytes, quote), Some(b'"')) {
        return None;
    }
    let mut at = quote + 1;
    loop {
        match peek(bytes, at) {
            Some(b'"') => return Some(at + 1),
            Some(b'\\') => match peek(bytes, at + 1) {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => at += 2,
                Some(b'u') => {
                    let mut digit = at + 2;
                    while digit < at + 6 {
                        if !matches!(peek(bytes, digit), Some(b) if b.is_ascii_hexdigit()) {
                            return None;
                        }
                        digit += 1;
                    }
                    at += 6;
                }
                _ => return None,
            },
            Some(0x20..) => at += 1,
            _ => return None,
        }
    }
}

const fn number(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    if matches!(peek(bytes, at), Some(b'-')) {
        at += 1;
    }
    at = match peek(bytes, at) {
        Some(b'0') => at + 1,
        _ => match digits(bytes, at) {
            Some(end) => end,
            None => return None,
        },
    };
    if matches!(peek(bytes, at), Some(b'.')) {
        at = match digits(bytes, at + 1) {
            Some(end) => end,
            None => return None,
        };
    }
    if matches!(peek(bytes, at), Some(b'e' | b'E')) {
        at += 1;
        if matches!(peek(bytes, at), Some(b'+' | b'-')) {
            at += 1;
        }
        return digits(bytes, at);
    }
    Some(at)
}

/// One digit or more.
const fn digits(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    while matches!(peek(bytes, at), Some(b'0'..=b'9')) {
        at += 1;
    }
    if at == start { None } else { Some(at) }
}

const fn word(bytes: &[u8], start: usize, expected: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < expected.len() {
        if !matches!(peek(bytes, start + at), Some(b) if b == expected[at]) {
            return None;
        }
        at += 1;
    }
    Some(start + at)
}

const fn skip_space(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while matches!(peek(bytes, at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

const fn peek(bytes: &[u8], at: usize) -> Option<u8> {
    if at < bytes.len() {
        Some(bytes[at])
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::is_object;

    #[test]
    fn objects_are_accepted() {
        for text in [
            "{}",
            " {\n} ",
            r#"{"a":1}"#,
            r#"{"a": [1, -0.5e+3, true, false, null, "x\u00e9\n\"", {"b": []}]}"#,
            r#"{"müsli": "ü"}"#,
        ] {
            assert!(is_object(text), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let deep = format!("{}1{}", "{\"a\":".repeat(100), "}".repeat(100));
        for text in [
            "",
            " ",
            "[]",
            "1",
            "{",
            "}",
            "{}}",
            "{} x",
            "{,}",
            "{1:2}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":01}",
            "{\"a\":.5}",
            "{\"a\":1.}",
            "{\"a\":-}",
            "{\"a\":1e}",
            "{\"a\":tru}",
            "{\"a\":[1,]}",
            "{\"a\":[1}",
            "{\"a\":\"\n\"}",
            "{\"a\":\"\\x\"}",
            "{\"a\":\"\\u12g4\"}",
            "{\"a\":\"b}",
            "{'a':1}",
            &deep,
        ] {
            assert!(!is_object(text), "{text}");
        }
    }
}
