//! What a client has handles of, and how often it was given each.
//!
//! A client gets a handle with the answer to a request and with every value that names the thing, and gives back as
//! many. What is on its way to the client when it drops the last one it knows of counts, so nothing is forgotten that
//! the client has yet to hear of. Must not: drop anything itself; whoever takes something out does, outside its lock.

use std::collections::HashMap;
use std::hash::Hash;

/// Things by their ids.
#[derive(Debug)]
pub(super) struct Handed<K, T>(HashMap<K, (T, u64)>);

impl<K, T> Default for Handed<K, T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, T> Handed<K, T> {
    /// How many things these are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, id: &K) -> Option<&T> {
        self.0.get(id).map(|(it, _)| it)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.values().map(|(it, _)| it)
    }

    /// The client is given one more handle. What the thing was until now, if that is to be dropped.
    pub(super) fn give(&mut self, id: K, thing: T) -> Option<T> {
        match self.0.get_mut(&id) {
            Some((it, times)) => {
                *times += 1;
                Some(std::mem::replace(it, thing))
            }
            None => {
                self.0.insert(id, (thing, 1));
                None
            }
        }
    }

    /// The client has given a handle back. The thing, if that was the last.
    pub(super) fn release(&mut self, id: &K) -> Option<T> {
        let (_, times) = self.0.get_mut(id)?;
        *times -= 1;
        match *times {
            0 => self.0.remove(id).map(|(it, _)| it),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_twice_is_released_twice() {
        let mut handed = Handed::default();
        assert_eq!(handed.give(1, "a"), None);
        assert_eq!(handed.give(1, "a"), Some("a"));
        assert_eq!((handed.release(&1), handed.get(&1)), (None, Some(&"a")));
        assert_eq!((handed.release(&1), handed.get(&1)), (Some("a"), None));
        assert_eq!((handed.release(&1), handed.len()), (None, 0));
    }
}
