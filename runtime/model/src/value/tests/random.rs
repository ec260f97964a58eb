//! The fuzz targets on many inputs without a fuzzer: noise, and damaged valid encodings.

use super::*;
use crate::id::{ActorName, ObjectName};
use crate::value::codec::encode;
use crate::value::json::to_json;

const INPUTS: u64 = 200_000;

/// Marsaglia's xorshift64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 16) as usize % end
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// Runs a target on noise and on damaged encodings; prints the seed of a failing input.
fn run(target: fn(&[u8]), encode: fn(&ValueType, &Value) -> Vec<u8>) {
    for seed in 1..=INPUTS {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        random.next();
        let input = if seed % 4 == 0 {
            let length = random.below(40);
            random.bytes(length)
        } else {
            damaged(&mut random, encode)
        };
        let result = std::panic::catch_unwind(|| target(&input));
        assert!(result.is_ok(), "seed {seed}: input {input:?}");
    }
}

/// A spelled type and a value of it, encoded, with up to three changes.
fn damaged(random: &mut Random, encode: fn(&ValueType, &Value) -> Vec<u8>) -> Vec<u8> {
    let mut spelled = random.bytes(24);
    // Mostly types with parts: the other ones have little to damage.
    if random.below(8) != 0 {
        spelled[0] = 15 + random.below(8) as u8;
    }
    let mut rest = &spelled[..];
    let ty = fuzz::spell_type(&mut rest);
    let used = spelled.len() - rest.len();
    // A type that used every byte would read on into the encoding.
    if used == spelled.len() {
        return spelled;
    }
    let mut input = spelled[..used].to_vec();
    input.extend(encode(&ty, &value(random, &ty)));
    for _ in 0..random.below(4) {
        let at = used + random.below(input.len() - used + 1);
        match random.below(5) {
            0 => input.truncate(at),
            1 => input.insert(at, random.next() as u8),
            2 if at < input.len() => drop(input.remove(at)),
            3 if at < input.len() => input[at] ^= 1 << random.below(8),
            4 if at < input.len() => {
                input[at] = *b"\0\x01\x80\xff{}[]()\"\\,:%-9ne"
                    .get(random.below(19))
                    .expect("19 bytes")
            }
            _ => input.push(random.next() as u8),
        }
    }
    input
}

fn value(random: &mut Random, ty: &ValueType) -> Value {
    let maybe =
        |random: &mut Random, ty: Option<&ValueType>| ty.map(|ty| Box::new(value(random, ty)));
    match ty {
        ValueType::Bool => Value::Bool(random.below(2) == 1),
        ValueType::Char => Value::Char(character(random)),
        ValueType::String => {
            let count = random.below(5);
            Value::String((0..count).map(|_| character(random)).collect())
        }
        ValueType::Handle(kind) => {
            let bytes = random.bytes(ObjectName::BYTES);
            Value::from(match kind {
                HandleKind::Object => {
                    Handle::Object(ObjectName::from_bytes(bytes[..].try_into().unwrap()))
                }
                HandleKind::Actor => Handle::Actor(ActorName::from_bytes(
                    bytes[..ActorName::BYTES].try_into().unwrap(),
                )),
            })
        }
        ValueType::List(list) => {
            let items = (0..random.below(4)).map(|_| value(random, &list.element));
            match ty.buffer_kind() {
                None => Value::List(items.collect()),
                Some(kind) => {
                    let mut list = NumberList::new(kind);
                    items.for_each(|item| list.push(item).unwrap());
                    Value::Numbers(list)
                }
            }
        }
        ValueType::Option(option) => {
            let some = random.below(2) == 1;
            Value::Option(maybe(random, some.then_some(&option.some)))
        }
        ValueType::Result(result) => Value::Result(match random.below(2) {
            0 => Ok(maybe(random, result.ok.as_ref())),
            _ => Err(maybe(random, result.err.as_ref())),
        }),
        ValueType::Record(record) => Value::Record(
            record
                .fields
                .iter()
                .map(|(_, ty)| value(random, ty))
                .collect(),
        ),
        ValueType::Tuple(tuple) => {
            Value::Tuple(tuple.items.iter().map(|ty| value(random, ty)).collect())
        }
        ValueType::Variant(variant) => {
            let case = random.below(variant.cases.len());
            Value::Variant(case as u32, maybe(random, variant.cases[case].1.as_ref()))
        }
        ValueType::Enum(names) => Value::Enum(random.below(names.cases.len()) as u32),
        ValueType::Flags(names) => {
            Value::Flags(names.flags.iter().map(|_| random.below(2) == 1).collect())
        }
        number => {
            let kind = number.number_kind().unwrap();
            let mut bytes = random.bytes(kind.width_bytes());
            // Small magnitudes as often as large ones.
            if random.below(2) == 0 {
                bytes[1..].fill(0);
            }
            NumberList::from_le_bytes(kind, bytes)
                .unwrap()
                .values()
                .next()
                .unwrap()
        }
    }
}

fn character(random: &mut Random) -> char {
    let ascii = (random.next() % 128) as u32;
    let any = (random.next() >> 40) as u32 % 0x11_0000;
    char::from_u32(if random.below(3) == 0 { any } else { ascii }).unwrap_or('\u{fffd}')
}

#[test]
fn decode_survives() {
    run(fuzz::decode, |ty, value| match encode(ty, value).unwrap() {
        Encoded::Postcard(bytes) | Encoded::Buffer { bytes, .. } => bytes,
    });
}

#[test]
fn wave_survives() {
    run(fuzz::wave, |ty, value| {
        crate::value::wave::print(ty, value).unwrap().into_bytes()
    });
}

#[test]
fn json_survives() {
    run(fuzz::json, |ty, value| {
        to_json(ty, value).unwrap().to_string().into_bytes()
    });
}
