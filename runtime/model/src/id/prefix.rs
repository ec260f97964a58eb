//! Prefixes of ids, as people write them.
//!
//! Owns how one is read and compared. Must not: look anything up. Invariant: an id begins with a prefix exactly if its
//! text begins with the prefix's text; nothing is formatted to find that out.

use super::Digest;

/// How many bytes the longest id has.
const MOST: usize = size_of::<Digest>();

/// The first digits of an id: lower-case hexadecimal ones, as ids are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdPrefix {
    /// All digits behind the last one are 0.
    bytes: [u8; MOST],
    digits: u8,
}

impl IdPrefix {
    /// The prefix of every id. It is never what a text stands for.
    pub const ANY: Self = Self {
        bytes: [0; MOST],
        digits: 0,
    };

    /// Reads a prefix; `None` if the text is empty, or no id's text begins so.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text.len() > 2 * MOST {
            return None;
        }
        let mut prefix = Self::ANY;
        for (at, digit) in text.bytes().enumerate() {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            prefix.bytes[at / 2] |= if at % 2 == 0 { value << 4 } else { value };
        }
        prefix.digits = text.len() as u8;
        Some(prefix)
    }

    /// Whether an id begins so.
    pub fn begins(&self, id: &impl AsRef<[u8]>) -> bool {
        let id = id.as_ref();
        let (whole, is_odd) = (usize::from(self.digits / 2), self.digits % 2 == 1);
        id.get(..whole) == Some(&self.bytes[..whole])
            && (!is_odd
                || id
                    .get(whole)
                    .is_some_and(|it| it & 0xf0 == self.bytes[whole]))
    }

    /// The bytes of an id of `N` bytes, if it has as many digits as those have.
    pub fn whole<const N: usize>(&self) -> Option<[u8; N]> {
        (usize::from(self.digits) == 2 * N).then(|| self.first())
    }

    /// The bytes of the lowest id of `N` bytes (at most 32) that begins so. Those that begin so follow each other in the
    /// order of ids.
    pub fn first<const N: usize>(&self) -> [u8; N] {
        *self.bytes.first_chunk().expect("no id is longer")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{ObjectId, TaskId};
    use super::*;

    #[test]
    fn what_begins_no_id_is_no_prefix() {
        for text in ["", "g", "A", "0x1", "é", " 1", &"0".repeat(65)] {
            assert_eq!(IdPrefix::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_whole_id_is_known_by_its_length() {
        let task = TaskId::from_bytes([0xab; 16]);
        let prefix = IdPrefix::parse(&task.to_string()).unwrap();
        assert_eq!(prefix.whole().map(TaskId::from_bytes), Some(task));
        // It begins the ids of what the task makes.
        assert_eq!(prefix.whole::<20>(), None);
        assert!(prefix.begins(&ObjectId::of(task, 7)));
        let longer = IdPrefix::parse(&ObjectId::of(task, 7).to_string()).unwrap();
        assert!(!longer.begins(&task));
        assert!(IdPrefix::ANY.begins(&task));
        assert_eq!(IdPrefix::ANY.whole::<16>(), None);
    }

    proptest! {
        #[test]
        fn it_compares_as_text_does(
            bytes in any::<[u8; 16]>(),
            text in "[0-9a-f]{1,40}",
            own in 1_usize..=32,
            changed in 0_usize..32,
        ) {
            let id = TaskId::from_bytes(bytes);
            let whole = id.to_string();
            let mut other = whole[..own].to_owned();
            if changed < own {
                let flipped = if &other[changed..=changed] == "0" { "1" } else { "0" };
                other.replace_range(changed..=changed, flipped);
            }
            for text in [&text, &whole[..own], &other] {
                let prefix = IdPrefix::parse(text).unwrap();
                prop_assert_eq!(prefix.begins(&id), whole.starts_with(text));
                let is_whole = prefix.whole().map(TaskId::from_bytes);
                prop_assert_eq!(is_whole, text.parse().ok());
            }
        }

        #[test]
        fn ids_that_begin_so_follow_each_other(
            ids in proptest::collection::btree_set("[01]{4}", 1..12),
            text in "[01]{1,5}",
        ) {
            let id = |text: &String| format!("{text:0<32}").parse::<TaskId>().unwrap();
            let ids: std::collections::BTreeSet<TaskId> = ids.iter().map(id).collect();
            let prefix = IdPrefix::parse(&text).unwrap();
            let from = TaskId::from_bytes(prefix.first());
            let range: Vec<_> = ids.range(from..).take_while(|id| prefix.begins(*id)).collect();
            let scan: Vec<_> = ids.iter().filter(|id| id.to_string().starts_with(&text)).collect();
            prop_assert_eq!(range, scan);
        }
    }
}
