//! CSV in pieces, and its rows as JSON.

use std::fmt;

use csv_core::{ReadRecordResult, Reader};
use serde_json::{Map, Value};

/// The most that a row may have, in bytes.
const MOST_ROW_BYTES: usize = 1 << 20;

/// A table of which some has been read.
pub struct Table {
    reader: Reader,
    names: Option<Vec<String>>,
    rows: u64,
    /// What of the next row has been read: its fields one after the other, and where each ends.
    bytes: Vec<u8>,
    len: usize,
    ends: Vec<usize>,
    fields: usize,
}

/// What is no table.
#[derive(Debug, PartialEq)]
pub struct NoTable {
    row: u64,
    why: &'static str,
}

impl fmt::Display for NoTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {}: {}", self.row, self.why)
    }
}

impl std::error::Error for NoTable {}

impl Default for Table {
    fn default() -> Self {
        Self {
            reader: Reader::new(),
            names: None,
            rows: 0,
            bytes: vec![0; 4096],
            len: 0,
            ends: vec![0; 64],
            fields: 0,
        }
    }
}

impl Table {
    /// Reads a piece: a line for each row that ends in it.
    pub fn read(&mut self, mut piece: &[u8]) -> Result<Vec<u8>, NoTable> {
        let mut lines = Vec::new();
        // An empty piece would be the end.
        while !piece.is_empty() {
            let taken = self.step(piece, &mut lines)?;
            piece = &piece[taken..];
        }
        Ok(lines)
    }

    /// The line of the last row, if that has no end of its own.
    pub fn end(&mut self) -> Result<Vec<u8>, NoTable> {
        let mut lines = Vec::new();
        self.step(&[], &mut lines)?;
        Ok(lines)
    }

    /// Reads up to the end of a row, or of the piece: how many bytes that were.
    fn step(&mut self, piece: &[u8], lines: &mut Vec<u8>) -> Result<usize, NoTable> {
        let mut taken = 0;
        loop {
            let (bytes, ends) = (&mut self.bytes[self.len..], &mut self.ends[self.fields..]);
            let (result, read, wrote, ended) =
                self.reader.read_record(&piece[taken..], bytes, ends);
            taken += read;
            self.len += wrote;
            self.fields += ended;
            match result {
                ReadRecordResult::InputEmpty | ReadRecordResult::End => return Ok(taken),
                ReadRecordResult::Record => {
                    self.row(lines)?;
                    return Ok(taken);
                }
                ReadRecordResult::OutputFull if self.len >= MOST_ROW_BYTES => {
                    return Err(self.no_table("it is too long"));
                }
                ReadRecordResult::OutputFull => self.bytes.resize(self.len * 2, 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.fields * 2, 0),
            }
        }
    }

    /// The row that is read is whole.
    fn row(&mut self, lines: &mut Vec<u8>) -> Result<(), NoTable> {
        let Ok(text) = std::str::from_utf8(&self.bytes[..self.len]) else {
            return Err(self.no_table("it is not UTF-8"));
        };
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        let fields = starts.zip(&self.ends[..self.fields]);
        let fields = fields.map(|(start, end)| text[start..*end].to_owned());
        match &self.names {
            None => self.names = Some(fields.collect()),
            Some(names) if names.len() != self.fields => {
                return Err(self.no_table("it has not as many fields as the first"));
            }
            Some(names) => {
                let fields = names.iter().cloned().zip(fields.map(Value::String));
                let row = Value::Object(Map::from_iter(fields));
                lines.extend(format!("{row}\n").into_bytes());
            }
        }
        (self.len, self.fields) = (0, 0);
        self.rows += 1;
        Ok(())
    }

    fn no_table(&self, why: &'static str) -> NoTable {
        let row = self.rows + 1;
        NoTable { row, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a table that comes in pieces of this size.
    fn lines(text: &str, size: usize) -> Result<String, NoTable> {
        let mut table = Table::default();
        let mut lines = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            lines.extend(table.read(piece)?);
        }
        lines.extend(table.end()?);
        Ok(String::from_utf8(lines).unwrap())
    }

    #[test]
    fn rows_are_lines_however_they_come() {
        let text = "who,\"said, often\"\nAda,\"she said \"\"hi\"\"\n\"\r\nÉva,";
        let expected = "{\"who\":\"Ada\",\"said, often\":\"she said \\\"hi\\\"\\n\"}\n\
                        {\"who\":\"Éva\",\"said, often\":\"\"}\n";
        for size in 1..text.len() {
            assert_eq!(lines(text, size).unwrap(), expected, "{size}");
        }
        assert_eq!(lines("", 1).unwrap(), "");
        let long = "x".repeat(100_000);
        let line = format!("{{\"a\":\"{long}\"}}\n");
        assert_eq!(lines(&format!("a\n{long}\n"), 1000).unwrap(), line);
        let many = vec!["1"; 1000].join(",");
        assert_eq!(lines(&format!("{many}\n"), 7).unwrap(), "");
    }

    #[test]
    fn what_is_no_table_says_which_row() {
        let wrong = |text: &str| lines(text, 10_000).unwrap_err().to_string();
        let fields = "row 3: it has not as many fields as the first";
        assert_eq!(wrong("a,b\n1,2\n3\n"), fields);
        assert_eq!(wrong(&"x".repeat(2 << 20)), "row 1: it is too long");
        let mut table = Table::default();
        let error = table.read(b"a\n\xff\n").unwrap_err();
        assert_eq!(error.to_string(), "row 2: it is not UTF-8");
    }
}
