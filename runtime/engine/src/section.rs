//! The custom section `wasmrun:manifest`: reading it out of a module and writing it into one.

use wasmparser::{Parser, Payload};

/// The section's name.
pub const NAME: &str = "wasmrun:manifest";

/// The bytes of the manifest sections in a module: those at its top level, or where there is
/// none, those of the modules inside it (a linker may leave a guest's sections there).
///
/// # Errors
/// When the bytes are not wasm as far as they were read.
pub fn read(module: &[u8]) -> Result<Vec<&[u8]>, wasmparser::BinaryReaderError> {
    let (mut outer, mut inner, mut depth) = (Vec::new(), Vec::new(), 0);
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::CustomSection(section) if section.name() == NAME => {
                if depth == 0 { &mut outer } else { &mut inner }.push(section.data());
            }
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            _ => {}
        }
    }
    Ok(if outer.is_empty() { inner } else { outer })
}

/// The module with `manifest` as its manifest, instead of any it had at its top level.
///
/// # Errors
/// When the bytes are not wasm.
pub fn write(module: &[u8], manifest: &[u8]) -> Result<Vec<u8>, wasmparser::BinaryReaderError> {
    let (mut out, mut copied, mut depth) = (Vec::with_capacity(module.len()), 0, 0);
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::CustomSection(section) if depth == 0 && section.name() == NAME => {
                // The section's range leaves out its id (one byte) and its size (a LEB128).
                let content = section.range();
                let header = 1 + leb128((content.end - content.start) as u64).len();
                let start = header_start(module, content.start, header);
                out.extend_from_slice(&module[copied..start]);
                copied = content.end;
            }
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            _ => {}
        }
    }
    out.extend_from_slice(&module[copied..]);
    let name = [leb128(NAME.len() as u64), NAME.as_bytes().to_vec()].concat();
    out.push(0);
    out.extend(leb128((name.len() + manifest.len()) as u64));
    out.extend(name);
    out.extend_from_slice(manifest);
    Ok(out)
}

/// Where a custom section begins: a producer may have padded its size to up to five bytes.
fn header_start(module: &[u8], content: usize, least: usize) -> usize {
    let is_header = |length: &usize| {
        let header = &module[content - length..content];
        header[0] == 0 && header[1..length - 1].iter().all(|byte| byte & 0x80 != 0)
    };
    content - (least..=6).find(is_header).unwrap_or(least)
}

fn leb128(mut n: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let byte = (n & 0x7f) as u8;
        n >>= 7;
        bytes.push(if n > 0 { byte | 0x80 } else { byte });
        if n == 0 {
            return bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: &str = r#"(module (@custom "before" "x") (func (export "f")))"#;

    #[test]
    fn written_is_read_and_replaces() {
        let plain = wat::parse_str(CORE).unwrap();
        assert!(read(&plain).unwrap().is_empty());
        let once = write(&plain, b"one").unwrap();
        assert_eq!(read(&once).unwrap(), [b"one"]);
        let long = vec![b'z'; 300];
        let twice = write(&once, &long).unwrap();
        assert_eq!(read(&twice).unwrap(), [&long[..]]);
        assert_eq!(write(&twice, b"one").unwrap(), once);
        wasmparser::validate(&twice).unwrap();
    }

    #[test]
    fn padded_sizes_are_removed_whole() {
        let plain = wat::parse_str(CORE).unwrap();
        let mut padded = plain.clone();
        let content = [&[16][..], NAME.as_bytes(), b"old"].concat();
        padded.extend([0, content.len() as u8 | 0x80, 0x80, 0x80, 0x80, 0]);
        padded.extend(&content);
        assert_eq!(read(&padded).unwrap(), [b"old"]);
        assert_eq!(
            write(&padded, b"new").unwrap(),
            write(&plain, b"new").unwrap()
        );
    }

    #[test]
    fn inner_sections_count_only_without_an_outer_one() {
        let inner = r#"(component (core module (@custom "wasmrun:manifest" "in")))"#;
        let inner = wat::parse_str(inner).unwrap();
        assert_eq!(read(&inner).unwrap(), [b"in"]);
        assert_eq!(read(&write(&inner, b"out").unwrap()).unwrap(), [b"out"]);
    }

    #[test]
    fn what_is_not_wasm_is_an_error() {
        assert!(read(b"not wasm").is_err());
        assert!(write(b"\0asm\x01\0\0\0\xff", b"x").is_err());
    }
}
