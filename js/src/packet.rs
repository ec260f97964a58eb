//! What JavaScript asks for: many commands in one packet, in their order.
//!
//! Owns the layout of a packet; `lib/packet.ts` writes it. Numbers are little-endian; `bytes` are a length (u32) and so many
//! bytes, `number` stands for an item (f64), `values` for a count (u32) and so many values:
//!
//! ```text
//! call    flags (u8), number, function (number), values; those behind the last parameter are objects that it waits for
//! method  flags (u8), number, actor (number), which (u32), time limit in ms or NaN (f64), values
//! create  number, class (number), values
//! put     number, type as JSON (bytes), value
//! get     flags (u8), number, object (number)
//! wait    number, how many (u32), ms or NaN (f64), count (u32), each: object (number)
//! cancel  number, count (u32), each: object (number)
//! forget  number of a get or call that waits alone
//! release number of an item
//! kill    number, actor (number)
//! type    object (number), its type as JSON (bytes): of one whose type is not known
//! refuse  number of a call that cannot be made, why (bytes)
//!
//! value   postcard  0, bytes
//!         numbers   1, kind (u8), bytes
//!         buffer    2, kind (u8), which buffer beside the packet (u32)
//!         object    3, number
//!         draft     4, count (u32), each: where in the bytes (u32), object or actor (number); bytes
//! ```

use napi::bindgen_prelude::Uint8ArraySlice;
use wasmrun_client::Argument;
use wasmrun_client::queue::{Draft, QueuedArgument};
use wasmrun_model::value::{Encoded, NumberKind};

use crate::items::{Item, Items};

pub(crate) const CALL: u8 = 1;
pub(crate) const METHOD: u8 = 2;
pub(crate) const CREATE: u8 = 3;
pub(crate) const PUT: u8 = 4;
pub(crate) const GET: u8 = 5;
pub(crate) const WAIT: u8 = 6;
pub(crate) const CANCEL: u8 = 7;
pub(crate) const FORGET: u8 = 8;
pub(crate) const RELEASE: u8 = 9;
pub(crate) const KILL: u8 = 10;
pub(crate) const TYPE: u8 = 11;
pub(crate) const REFUSE: u8 = 12;

/// Of a call: its value is waited for, and the object is not kept.
pub(crate) const IS_WANTED: u8 = 1;
/// It can be told not to wait any more.
pub(crate) const IS_ALONE: u8 = 2;

const POSTCARD: u8 = 0;
const NUMBERS: u8 = 1;
const BUFFER: u8 = 2;
const OBJECT: u8 = 3;
const DRAFT: u8 = 4;

/// What is left of a packet.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    buffers: &'a [Uint8ArraySlice<'a>],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], buffers: &'a [Uint8ArraySlice<'a>]) -> Self {
        Self { bytes, buffers }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let taken = self.bytes.split_off(..count);
        taken.ok_or_else(|| "a packet is cut off".to_owned())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, String> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn f64(&mut self) -> Result<f64, String> {
        Ok(f64::from_le_bytes(self.array()?))
    }

    /// The number of an item.
    pub(crate) fn id(&mut self) -> Result<u64, String> {
        Ok(self.f64()? as u64)
    }

    pub(crate) fn ids(&mut self) -> Result<Vec<u64>, String> {
        let count = self.u32()?;
        (0..count).map(|_| self.id()).collect()
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], String> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    pub(crate) fn values(&mut self, items: &Items) -> Result<Vec<QueuedArgument>, String> {
        let count = self.u32()?;
        (0..count).map(|_| self.value(items)).collect()
    }

    pub(crate) fn value(&mut self, items: &Items) -> Result<QueuedArgument, String> {
        let value = match self.u8()? {
            POSTCARD => Encoded::Postcard(self.bytes()?.to_vec()),
            NUMBERS => {
                let kind = self.kind()?;
                let bytes = self.bytes()?.to_vec();
                Encoded::Buffer { kind, bytes }
            }
            BUFFER => {
                let kind = self.kind()?;
                let buffer = self.buffers.get(self.u32()? as usize);
                let buffer = buffer.ok_or("there is no such buffer")?;
                let bytes = buffer.to_vec();
                Encoded::Buffer { kind, bytes }
            }
            OBJECT => return Ok(QueuedArgument::Made(items.object(self.id()?)?.slot.clone())),
            DRAFT => return Ok(QueuedArgument::Draft(self.draft(items)?)),
            other => return Err(format!("there is no form {other} of a value")),
        };
        Ok(QueuedArgument::Value(Argument::Value(value)))
    }

    fn kind(&mut self) -> Result<NumberKind, String> {
        let kind = NumberKind::ALL.get(usize::from(self.u8()?));
        kind.copied()
            .ok_or_else(|| "there is no such kind".to_owned())
    }

    fn draft(&mut self, items: &Items) -> Result<Draft, String> {
        let mut draft = Draft::default();
        let mut actors = Vec::new();
        for _ in 0..self.u32()? {
            let at = self.u32()? as usize;
            let id = self.id()?;
            match items.get(id)? {
                Item::Object(object) => draft.objects.push((at, object.slot.clone())),
                Item::Actor(living) => {
                    let _ = draft.handles.actor(&living.actor);
                    actors.push((at, living.actor.name().to_bytes()));
                }
                _ => return Err(format!("item {id} has no name")),
            }
        }
        draft.bytes = self.bytes()?.to_vec();
        for (at, name) in actors {
            let room = draft.bytes.get_mut(at..at + name.len());
            room.ok_or("there is no room for a name")?
                .copy_from_slice(&name);
        }
        Ok(draft)
    }
}
