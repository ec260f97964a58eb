//! Values as bytes: postcard, directed by the WIT type.
//!
//! Owns reading and writing the types that this module's signatures have; `docs/values.md` has the table for
//! all. The host checks what it passes, so what cannot be read here is a broken contract, and traps.

use crate::bindings::exports::example::by_hand::survey::Summary;
use crate::bindings::exports::example::by_hand::tour::{Holding, Identity, Refusal};
use crate::bindings::wasmrun::runtime::objects::{Error, FailureKind};

/// How long the name of an object is.
pub const OBJECT_NAME: usize = 36;
/// How long the name of an actor is.
pub const ACTOR_NAME: usize = 32;

/// What is left to read of a value.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next so many bytes, as they are. A handle is read so: its name has no length before it.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    /// A boolean, the case of an option or a result, a `u8`.
    pub fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    /// An unsigned integer of more than 8 bits, a length, the case of a variant: seven bits a byte, the lowest
    /// first, and the eighth bit says that more follow.
    pub fn number(&mut self) -> u64 {
        let mut number = 0;
        for shift in (0..).step_by(7) {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        number
    }

    /// The same, where the type has 32 bits.
    pub fn short(&mut self) -> u32 {
        u32::try_from(self.number()).expect("the host has checked it")
    }

    /// A float: 8 bytes, little-endian.
    pub fn float(&mut self) -> f64 {
        f64::from_le_bytes(self.take(8).try_into().expect("8 bytes"))
    }

    /// A string.
    pub fn text(&mut self) -> String {
        let length = self.number() as usize;
        let bytes = self.take(length).to_vec();
        String::from_utf8(bytes).expect("the host has checked it")
    }

    /// A list: its length, and its elements.
    pub fn list<T>(&mut self, mut element: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.number()).map(|_| element(self)).collect()
    }

    /// An option: 0, or 1 and the value.
    pub fn option<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.byte() == 1).then(|| value(self))
    }

    /// A `result<u64, _>` that is known to be ok. Objects of tasks that returned errors have no value.
    pub fn ok(&mut self) -> u64 {
        assert_eq!(self.byte(), 0, "an error has no value");
        self.number()
    }

    /// A record: its fields in their order.
    pub fn summary(&mut self) -> Summary {
        Summary {
            count: self.number(),
            sum: self.float(),
            least: self.float(),
            most: self.float(),
        }
    }

    /// As above.
    pub fn identity(&mut self) -> Identity {
        Identity {
            task: self.text(),
            attempt: self.short(),
            node: self.text(),
            array_index: self.option(Self::number),
            holdings: self.list(|it| Holding {
                name: it.text(),
                amount: it.number(),
                units: it.list(Self::short),
            }),
        }
    }

    /// A variant: the number of its case, from 0, and what that has.
    pub fn refusal(&mut self) -> Refusal {
        match self.number() {
            0 => Refusal::Odd,
            _ => Refusal::TooLarge(self.number()),
        }
    }
}

/// What has been written of a value.
#[derive(Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Bytes as they are: the name of a handle, or a value that has been written already.
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// See [`Reader::number`].
    pub fn number(mut self, n: impl Into<u64>) -> Self {
        let mut n = n.into();
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
        self
    }

    /// A string, or a list of bytes inside of another value: the length, and the bytes.
    pub fn bytes(self, bytes: &[u8]) -> Self {
        self.number(bytes.len() as u64).raw(bytes)
    }

    /// A list.
    pub fn list<T>(self, all: &[T], element: impl Fn(Self, &T) -> Self) -> Self {
        all.iter().fold(self.number(all.len() as u64), element)
    }

    /// An option.
    pub fn option<T>(self, it: Option<T>, value: impl FnOnce(Self, T) -> Self) -> Self {
        match it {
            None => self.raw(&[0]),
            Some(it) => value(self.raw(&[1]), it),
        }
    }

    /// A result.
    pub fn result<T, E>(
        self,
        it: Result<T, E>,
        ok: impl FnOnce(Self, T) -> Self,
        err: impl FnOnce(Self, E) -> Self,
    ) -> Self {
        match it {
            Ok(it) => ok(self.raw(&[0]), it),
            Err(it) => err(self.raw(&[1]), it),
        }
    }

    /// A record.
    pub fn summary(self, it: &Summary) -> Self {
        let floats = [it.sum, it.least, it.most].map(f64::to_le_bytes);
        self.number(it.count).raw(&floats.concat())
    }

    /// A record.
    pub fn identity(self, it: &Identity) -> Self {
        self.bytes(it.task.as_bytes())
            .number(it.attempt)
            .bytes(it.node.as_bytes())
            .option(it.array_index, Self::number)
            .list(&it.holdings, |to, holding| {
                to.bytes(holding.name.as_bytes())
                    .number(holding.amount)
                    .list(&holding.units, |to, unit| to.number(*unit))
            })
    }

    /// A variant.
    pub fn refusal(self, it: Refusal) -> Self {
        match it {
            Refusal::Odd => self.number(0_u64),
            Refusal::TooLarge(most) => self.number(1_u64).number(most),
        }
    }

    /// A variant with a record in it, and in that an enum: the number of its case.
    pub fn error(self, it: Error) -> Self {
        match it {
            Error::Failed(failure) => {
                let kind = match failure.kind {
                    FailureKind::Guest => 0_u64,
                    FailureKind::Trap => 1,
                    FailureKind::Exit => 2,
                    FailureKind::Limit => 3,
                    FailureKind::Arguments => 4,
                    FailureKind::Cancelled => 5,
                    FailureKind::Dependency => 6,
                    FailureKind::ActorDied => 7,
                    FailureKind::System => 8,
                };
                self.number(0_u64)
                    .number(kind)
                    .bytes(failure.message.as_bytes())
                    .bytes(failure.origin.as_bytes())
                    .option(failure.payload, |to, payload| to.bytes(&payload))
            }
            Error::TimedOut => self.number(1_u64),
            Error::Deadlock(why) => self.number(2_u64).bytes(why.as_bytes()),
            Error::Refused(why) => self.number(3_u64).bytes(why.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_varints() {
        assert_eq!(Writer::default().number(0_u64).0, [0]);
        assert_eq!(Writer::default().number(300_u64).0, [0xac, 2]);
        for n in [0, 0x7f, 0x80, 300, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(Reader(&Writer::default().number(n).0).number(), n);
        }
    }

    #[test]
    fn summaries_are_read_as_they_are_written() {
        let floats = [4.5_f64, -1.0, 3.0].map(f64::to_le_bytes).concat();
        let bytes = [&[0xac, 2][..], &floats].concat();
        let read = Reader(&bytes).summary();
        assert_eq!(
            (read.count, read.sum, read.least, read.most),
            (300, 4.5, -1.0, 3.0)
        );
        assert_eq!(Writer::default().summary(&read).0, bytes);
    }

    #[test]
    fn lists_options_and_results_are_read_as_they_are_written() {
        let identity = Identity {
            task: "t".into(),
            attempt: 2,
            node: "here".into(),
            array_index: Some(300),
            holdings: vec![Holding {
                name: "GPU".into(),
                amount: 20_000,
                units: vec![1, 3],
            }],
        };
        let bytes = Writer::default().identity(&identity).0;
        assert_eq!(
            bytes,
            *b"\x01t\x02\x04here\x01\xac\x02\x01\x03GPU\xa0\x9c\x01\x02\x01\x03"
        );
        let mut reader = Reader(&bytes);
        let read = reader.identity();
        assert!(reader.0.is_empty());
        assert_eq!(Writer::default().identity(&read).0, bytes);
        let too_large = Writer::default().result(
            Err::<u64, _>(Refusal::TooLarge(9)),
            Writer::number,
            Writer::refusal,
        );
        assert_eq!(too_large.0, [1, 1, 9]);
        assert_eq!(Reader(&[0, 5]).ok(), 5);
    }
}
