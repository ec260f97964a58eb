//! Percent-encoding (RFC 3986, section 2.1), of segments of a path and of the pairs of a query.

use std::fmt::{self, Write};

/// The text that is encoded. `None`: a `%` without two digits after it, or bytes that are not UTF-8.
pub(super) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => hex(rest.next()?)? << 4 | hex(rest.next()?)?,
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok()
}

/// The same of a name or a value of a query, where `+` is a space.
pub(super) fn decode_form(text: &str) -> Option<String> {
    decode(&text.replace('+', " "))
}

/// Writes a text as a segment of a path: what may stand there stays as it is.
pub(super) fn write_segment(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte) {
            true => f.write_char(char::from(byte))?,
            false => write!(f, "%{byte:02X}")?,
        }
    }
    Ok(())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}
