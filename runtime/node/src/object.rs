//! Objects as a node holds them: values, and references to what is there or will be.
//!
//! Owns [`Value`] and [`Reference`]. A reference is a count: the last one dropped gives the value's
//! memory back, and ends an actor. Values hold references to whatever is named in them, so nothing that
//! can still be named is ever lost.
//!
//! Must not: be dropped under the ledger's lock where it may be the last reference to an actor (see
//! `actor`, which leaves that to a thread of the executor).

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wasmrun_engine::{Pages, Readable, Spares};
use wasmrun_model::id::{NodeId, ObjectId, ObjectName, TaskId};
use wasmrun_model::value::codec::{DecodeError, decode, encode};
use wasmrun_model::value::{
    DecodeLimits, Encoded, EncodedRef, Handle, Value as Decoded, ValueType,
};
use wasmrun_store::{Form, ReadError, View};

use crate::actor::ActorRef;
use crate::ledger::LOCAL;
use crate::task::TaskCell;

/// Values of fewer bytes are not counted among those that wait.
const FEW_BYTES: usize = 256;

/// A value that is there. Cheap to clone: clones share it.
#[derive(Clone)]
pub struct Value(Arc<Kept>);

struct Kept {
    bytes: Bytes,
    /// What the value names, kept as long as the value.
    references: Box<[Reference]>,
    _charge: Option<Charge>,
}

thread_local! {
    /// What the values being dropped on this thread named.
    static LEFT: RefCell<Option<Vec<Reference>>> = const { RefCell::new(None) };
}

impl Drop for Kept {
    /// One after the other, not one inside the other: a value may name one that names another, and so on.
    fn drop(&mut self) {
        let references = std::mem::take(&mut self.references).into_vec();
        if references.is_empty() {
            return;
        }
        let mut references = Some(references);
        let is_outermost = LEFT.try_with(|left| match &mut *left.borrow_mut() {
            Some(left) => {
                left.extend(references.take().into_iter().flatten());
                false
            }
            left => {
                *left = references.take();
                true
            }
        });
        if is_outermost != Ok(true) {
            return;
        }
        let next = || LEFT.with(|left| left.borrow_mut().as_mut().and_then(Vec::pop));
        while let Some(reference) = next() {
            drop(reference);
        }
        LEFT.with(|left| *left.borrow_mut() = None);
    }
}

/// The bytes of arguments that guests gave to tasks which have not ended: they are on the node's own
/// account, not on a guest's.
#[derive(Debug)]
pub(crate) struct WaitingBytes {
    used: AtomicU64,
    limit: u64,
}

/// A part of [`WaitingBytes`].
struct Charge {
    account: Arc<WaitingBytes>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Too many bytes wait.
#[derive(Debug, thiserror::Error)]
#[error(
    "arguments of tasks that have not ended take {used} bytes of this node, and {limit} are the most: \
     start fewer tasks at a time, or put large values and pass the objects"
)]
pub(crate) struct TooManyBytes {
    used: u64,
    limit: u64,
}

impl WaitingBytes {
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        let used = AtomicU64::new(0);
        Arc::new(Self { used, limit })
    }

    fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge, TooManyBytes> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed);
        let charge = Charge {
            account: self.clone(),
            bytes,
        };
        let limit = self.limit;
        match used.saturating_add(bytes) > limit {
            true => Err(TooManyBytes { used, limit }),
            false => Ok(charge),
        }
    }
}

enum Bytes {
    /// In memory of its own.
    Inline(Encoded),
    /// In the store.
    Stored(wasmrun_store::Object),
}

/// A value in memory, ready to be read. As long as it lives it stays there.
#[derive(Clone)]
pub struct Loaded(Memory);

#[derive(Clone)]
enum Memory {
    Inline(Arc<Kept>),
    Stored(View),
}

impl Loaded {
    /// Its bytes in the store, if they are there.
    pub(crate) fn view(&self) -> Option<&View> {
        match &self.0 {
            Memory::Inline(_) => None,
            Memory::Stored(view) => Some(view),
        }
    }
}

impl Readable for Loaded {
    fn encoded(&self) -> EncodedRef<'_> {
        match &self.0 {
            Memory::Inline(kept) => match &kept.bytes {
                Bytes::Inline(encoded) => encoded.into(),
                Bytes::Stored(_) => unreachable!("what is stored is viewed"),
            },
            Memory::Stored(view) => match view.object().form() {
                Form::Postcard => EncodedRef::Postcard(view),
                Form::Buffer(kind) => EncodedRef::Buffer { kind, bytes: view },
            },
        }
    }

    fn pages(&self) -> Option<Pages<'_>> {
        match &self.0 {
            Memory::Inline(_) => None,
            Memory::Stored(view) => view.pages().map(|pages| Pages {
                file: pages.fd,
                offset: pages.offset_bytes,
                len: pages.len_bytes,
                spares: view.companion(Spares::default),
            }),
        }
    }
}

impl Value {
    pub(crate) fn inline(encoded: Encoded, references: Vec<Reference>) -> Self {
        Self(Arc::new(Kept {
            bytes: Bytes::Inline(encoded),
            references: references.into(),
            _charge: None,
        }))
    }

    /// One whose bytes count among those that wait, as long as it lives.
    pub(crate) fn charged(
        encoded: Encoded,
        references: Vec<Reference>,
        account: &Arc<WaitingBytes>,
    ) -> Result<Self, TooManyBytes> {
        let charge = match encoded.size_bytes() {
            // Not worth the counting; the number of tasks is limited.
            0..FEW_BYTES => None,
            bytes => Some(account.charge(bytes as u64)?),
        };
        Ok(Self(Arc::new(Kept {
            bytes: Bytes::Inline(encoded),
            references: references.into(),
            _charge: charge,
        })))
    }

    pub(crate) fn stored(object: wasmrun_store::Object, references: Vec<Reference>) -> Self {
        Self(Arc::new(Kept {
            bytes: Bytes::Stored(object),
            references: references.into(),
            _charge: None,
        }))
    }

    /// How many bytes it has.
    pub fn size_bytes(&self) -> u64 {
        match &self.0.bytes {
            Bytes::Inline(encoded) => encoded.size_bytes() as u64,
            Bytes::Stored(object) => object.len(),
        }
    }

    /// The value in memory. Blocks this thread while it is read back from disk, if it is there.
    ///
    /// # Errors
    /// When it is on disk and cannot be read back.
    pub fn load(&self) -> Result<Loaded, ReadError> {
        Ok(Loaded(match &self.0.bytes {
            Bytes::Inline(_) => Memory::Inline(self.0.clone()),
            Bytes::Stored(object) => Memory::Stored(object.view()?),
        }))
    }

    /// As [`Value::load`], for tasks: waits for room without a thread.
    pub(crate) async fn read(&self) -> Result<Loaded, ReadError> {
        Ok(Loaded(match &self.0.bytes {
            Bytes::Inline(_) => Memory::Inline(self.0.clone()),
            Bytes::Stored(object) => Memory::Stored(match object.try_view() {
                Some(view) => view,
                None => object.restore().await?,
            }),
        }))
    }

    pub(crate) fn references(&self) -> &[Reference] {
        &self.0.references
    }
}

impl From<Encoded> for Value {
    /// A value that names nothing.
    fn from(encoded: Encoded) -> Self {
        Self::inline(encoded, Vec::new())
    }
}

impl PartialEq for Value {
    /// Whether both have the same bytes; one that cannot be read differs from all.
    fn eq(&self, other: &Self) -> bool {
        match (self.load(), other.load()) {
            (Ok(one), Ok(other)) => one.encoded() == other.encoded(),
            _ => false,
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.bytes {
            Bytes::Inline(encoded) => encoded.fmt(f),
            Bytes::Stored(object) => object.fmt(f),
        }
    }
}

/// A value that somebody stored, without a task that made it.
pub(crate) struct PutObject {
    pub(crate) name: ObjectName,
    pub(crate) value: Value,
}

/// What keeps an object or an actor.
#[derive(Clone)]
pub(crate) enum Reference {
    /// What a task or a call makes.
    Task(Arc<TaskCell>),
    /// What was stored.
    Put(Arc<PutObject>),
    /// An actor.
    Actor(ActorRef),
}

impl Reference {
    /// Its name, as a handle in values.
    pub(crate) fn handle(&self) -> Handle {
        match self {
            Self::Task(cell) => Handle::Object(object_of(cell.id)),
            Self::Put(object) => Handle::Object(object.name),
            Self::Actor(actor) => Handle::Actor(actor.name()),
        }
    }

    /// The type of the object's value, if that is known.
    pub(crate) fn ty(&self) -> Option<&ValueType> {
        match self {
            Self::Task(cell) => cell.work.result_type(),
            Self::Put(_) | Self::Actor(_) => None,
        }
    }
}

/// An object that is there or will be. Cheap to clone; it is kept as long as there is one.
#[derive(Clone)]
pub struct Object(pub(crate) Reference);

impl Object {
    /// Its id.
    pub fn id(&self) -> ObjectId {
        match self.0.handle() {
            Handle::Object(name) => name.id,
            Handle::Actor(_) => unreachable!("an actor is no object"),
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({})", self.id())
    }
}

impl PartialEq for Object {
    /// Whether it is the same object.
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

/// The name of what a task of this node makes.
pub(crate) fn object_of(task: TaskId) -> ObjectName {
    ObjectName {
        id: ObjectId::of(task, 0),
        owner: OWNER,
    }
}

/// Who owns what is submitted here.
pub(crate) const OWNER: NodeId = LOCAL;

/// The bytes that a parameter of this type gets for an object.
pub(crate) enum Fitted {
    /// The object's own.
    Whole(Loaded),
    /// Others: a handle, or what the ok case of a `result` holds.
    Made(Encoded),
}

impl Fitted {
    pub(crate) fn encoded(&self) -> EncodedRef<'_> {
        match self {
            Self::Whole(loaded) => loaded.encoded(),
            Self::Made(encoded) => encoded.into(),
        }
    }

    /// What an object that was made as a value of one type is for a parameter of another.
    ///
    /// # Errors
    /// When the value is not of the type that it is said to be.
    pub(crate) fn new(
        loaded: Loaded,
        made_as: Option<&ValueType>,
        wanted: &ValueType,
    ) -> Result<Self, DecodeError> {
        let made_as = made_as.filter(|ty| *ty != wanted && matches!(ty, ValueType::Result(_)));
        let Some((made_as, ok)) = made_as.and_then(|ty| Some((ty, ty.when_ok()?))) else {
            return Ok(Self::Whole(loaded));
        };
        if ok.buffer_kind().is_none()
            && let EncodedRef::Postcard([0, payload @ ..]) = loaded.encoded()
        {
            return Ok(Self::Made(Encoded::Postcard(payload.to_vec())));
        }
        // Elements that are not one after the other in postcard: a buffer is made of them.
        match decode(made_as, loaded.encoded(), DecodeLimits::default())? {
            Decoded::Result(Ok(Some(payload))) => match encode(ok, &payload) {
                Ok(encoded) => Ok(Self::Made(encoded)),
                Err(_) => Ok(Self::Whole(loaded)),
            },
            _ => Ok(Self::Whole(loaded)),
        }
    }
}

/// Whether an object made as a value of one type can be the argument of a parameter of another.
pub(crate) fn is_fit(made_as: &ValueType, wanted: &ValueType) -> bool {
    made_as == wanted || made_as.when_ok() == Some(wanted)
}
