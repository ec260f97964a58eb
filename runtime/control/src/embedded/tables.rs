//! The tables of the embedded store's file and the bytes in them.
//!
//! Owns every byte layout of the file, in this one place, with golden tests. Must not: decide
//! anything. A change here that old files do not survive raises [`FORMAT`].
//!
//! | table | key | value |
//! |---|---|---|
//! | `entries` | the key | header (see [`encode_entry`]), then the value |
//! | `log` | revision | postcard of the revision's events |
//! | `leases` | lease | time to live in seconds |
//! | `lease_keys` | (lease, key) | nothing |
//! | `clients` | client | (order of arrival, floor): see `apply` |
//! | `client_order` | order of arrival | client |
//! | `answers` | (client, number of its request) | postcard of the answer |
//! | `meta` | name | number |

use bytes::Bytes;
use redb::TableDefinition;

use crate::error::Error;
use crate::types::{Entry, Event, LeaseId, Revision};

/// The version of all this.
pub const FORMAT: u64 = 1;

pub const ENTRIES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("entries");
pub const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
pub const LEASES: TableDefinition<'_, u64, u64> = TableDefinition::new("leases");
pub const LEASE_KEYS: TableDefinition<'_, (u64, &[u8]), ()> = TableDefinition::new("lease_keys");
pub const CLIENTS: TableDefinition<'_, &[u8; 16], (u64, u64)> = TableDefinition::new("clients");
pub const CLIENT_ORDER: TableDefinition<'_, u64, &[u8; 16]> = TableDefinition::new("client_order");
pub const ANSWERS: TableDefinition<'_, (&[u8; 16], u64), &[u8]> = TableDefinition::new("answers");
pub const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// The numbers of `meta`. All others follow from the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meta {
    /// The last revision that was made.
    pub revision: u64,
    /// The last revision that is no longer in the log.
    pub compacted: u64,
    /// How many bytes the log's values have.
    pub log_bytes: u64,
    /// The last lease that was given.
    pub leases: u64,
    /// How many clients have come.
    pub clients: u64,
    /// How many batches were committed: tells whether one that failed was.
    pub batches: u64,
}

impl Meta {
    /// The names of the numbers, with where they are.
    pub fn fields(&mut self) -> [(&'static str, &mut u64); 6] {
        [
            ("revision", &mut self.revision),
            ("compacted", &mut self.compacted),
            ("log_bytes", &mut self.log_bytes),
            ("leases", &mut self.leases),
            ("clients", &mut self.clients),
            ("batches", &mut self.batches),
        ]
    }
}

/// How many bytes stand before a value.
const HEADER_BYTES: usize = 32;

/// An entry's value with its header: the revision that made it, the one that changed it last, its
/// version, its lease (0 for none), each as 8 bytes, little-endian.
pub fn encode_entry(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + entry.value.len());
    let lease = entry.lease.map_or(0, |lease| lease.0);
    for number in [entry.created.0, entry.modified.0, entry.version, lease] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&entry.value);
    bytes
}

/// The entry of a key, from what [`encode_entry`] made.
pub fn decode_entry(key: &[u8], bytes: &[u8]) -> Result<Entry, Error> {
    let Some((header, value)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(Error::corrupt("an entry is too short"));
    };
    let number = |at: usize| {
        let bytes = header[at * 8..][..8].try_into().expect("eight bytes");
        u64::from_le_bytes(bytes)
    };
    Ok(Entry {
        key: Bytes::copy_from_slice(key),
        value: Bytes::copy_from_slice(value),
        created: Revision(number(0)),
        modified: Revision(number(1)),
        version: number(2),
        lease: Some(number(3)).filter(|lease| *lease != 0).map(LeaseId),
    })
}

/// The events of one revision as they are in the log.
pub fn encode_events(events: &[Event]) -> Vec<u8> {
    postcard::to_allocvec(events).expect("events have an encoding")
}

/// The events of one revision, from the log.
pub fn decode_events(bytes: &[u8]) -> Result<Vec<Event>, Error> {
    postcard::from_bytes(bytes)
        .map_err(|error| Error::corrupt(format_args!("the log cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            key: "k".into(),
            value: "vw".into(),
            created: Revision(1),
            modified: Revision(0x0203),
            version: 4,
            lease: Some(LeaseId(5)),
        }
    }

    #[test]
    fn entries_have_these_bytes() {
        let bytes = encode_entry(&entry());
        let mut expected = Vec::new();
        for number in [1_u64, 0x0203, 4, 5] {
            expected.extend(number.to_le_bytes());
        }
        expected.extend(b"vw");
        assert_eq!(bytes, expected);
        assert_eq!(decode_entry(b"k", &bytes), Ok(entry()));
        assert!(decode_entry(b"k", &bytes[..31]).is_err());
    }

    #[test]
    fn events_have_these_bytes() {
        let events = [Event::Put(entry()), Event::Delete { key: "d".into() }];
        let bytes = encode_events(&events);
        assert_eq!(
            bytes,
            b"\x02\x00\x01k\x02vw\x01\x83\x04\x04\x01\x05\x01\x01d"
        );
        assert_eq!(decode_events(&bytes).as_deref(), Ok(events.as_slice()));
        assert!(decode_events(&bytes[..4]).is_err());
    }
}
