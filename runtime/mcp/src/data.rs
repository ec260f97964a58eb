//! Dictionaries of texts, in the format in which values cross into Python and out of it.
//!
//! The format is that of `python/wasmrun/_data.py`; here are the few kinds that snippets are wrapped in.

use std::collections::BTreeMap;

/// A dictionary of texts.
pub(crate) fn write(texts: &[(&str, &str)]) -> Vec<u8> {
    let mut out = vec![b'd'];
    number(&mut out, texts.len());
    for text in texts.iter().flat_map(|(name, text)| [name, text]) {
        out.push(b's');
        number(&mut out, text.len());
        out.extend_from_slice(text.as_bytes());
    }
    out
}

fn number(out: &mut Vec<u8>, mut number: usize) {
    while number > 127 {
        out.push((number & 127) as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The texts in a dictionary, whose other values may be bytes or nothing. `None` if it is something else.
pub(crate) fn read(data: &[u8]) -> Option<BTreeMap<String, String>> {
    let mut reader = Reader(data);
    let mut texts = BTreeMap::new();
    if reader.byte()? != b'd' {
        return None;
    }
    for _ in 0..reader.number()? {
        let name = reader.value()??;
        if let Some(text) = reader.value()? {
            texts.insert(name, text);
        }
    }
    reader.0.is_empty().then_some(texts)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<usize> {
        let (mut number, mut shift) = (0usize, 0);
        loop {
            let byte = self.byte()?;
            number |= usize::from(byte & 127).checked_shl(shift)?;
            if byte < 128 {
                return Some(number);
            }
            shift += 7;
        }
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.number()?;
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A text, or `None` inside for bytes and nothing.
    fn value(&mut self) -> Option<Option<String>> {
        match self.byte()? {
            // Python's texts may have halves of surrogate pairs in them, which UTF-8 has not.
            b's' => Some(Some(String::from_utf8_lossy(self.bytes()?).into_owned())),
            b'b' => self.bytes().map(|_| None),
            b'N' => Some(None),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_written_as_python_writes_them() {
        let long = "x".repeat(300);
        let written = write(&[("code", "é"), ("inputs", &long)]);
        let expected = [
            b"d\x02s\x04codes\x02\xc3\xa9s\x06inputss\xac\x02",
            long.as_bytes(),
        ]
        .concat();
        assert_eq!(written, expected);
        let read = read(&written).expect("it is a dictionary");
        assert_eq!(read["inputs"], long);
    }

    #[test]
    fn what_is_no_dictionary_of_these_is_refused() {
        assert_eq!(read(b"d\x02s\x01aNs\x01bb\x01x"), Some(BTreeMap::new()));
        for wrong in [
            &b""[..],
            b"l\x00",
            b"d\x01",
            b"d\x01s\x05a",
            b"d\x00N",
            b"d\x01NN",
            b"d\x01s\x01ai\x01\x01",
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
        let endless = [b"d".as_slice(), &[255; 40]].concat();
        assert_eq!(read(&endless), None);
    }
}
