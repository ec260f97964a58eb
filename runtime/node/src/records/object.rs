//! Objects as a node holds them: values, and references to what is there or will be.
//!
//! Owns [`Value`] and [`Reference`]. A reference is a count: the last one dropped gives the value's
//! memory back, and ends an actor. Values hold references to whatever is named in them, so nothing that
//! can still be named is ever lost.
//!
//! Must not: be dropped under the ledger's lock where it may be the last reference to an actor (see
//! `actor`, which leaves that to a thread of the executor).

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use wasmrun_engine::{Pages, Readable, Spares};
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{NodeId, ObjectId, ObjectName};
use wasmrun_model::value::codec::{DecodeError, decode, encode};
use wasmrun_model::value::{
    DecodeLimits, Encoded, EncodedRef, Handle, Value as Decoded, ValueType,
};
use wasmrun_store::{Form, ReadError, View};

use crate::records::actor_ref::ActorRef;
use crate::records::lineage::Origin;
use crate::records::task::TaskCell;
use crate::records::waiting_bytes::{Charge, TooManyBytes, WaitingBytes};

/// Values of fewer bytes are not counted among those that wait.
const FEW_BYTES: usize = 256;

/// A value that is there. Cheap to clone: clones share it.
#[derive(Clone)]
pub struct Value(Arc<ValueData>);

/// A value that somebody else keeps.
pub(crate) struct WeakValue(Weak<ValueData>);

impl WeakValue {
    /// It, if it is still kept. Not to be dropped under a lock: it may be the last.
    pub(crate) fn upgrade(&self) -> Option<Value> {
        self.0.upgrade().map(Value)
    }

    /// Whether nobody keeps it any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

struct ValueData {
    bytes: Bytes,
    /// What the value names, kept as long as the value.
    references: Box<[Reference]>,
    _charge: Option<Charge>,
}

thread_local! {
    /// What the values being dropped on this thread named.
    static LEFT: RefCell<Option<Vec<Reference>>> = const { RefCell::new(None) };
}

impl Drop for ValueData {
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

enum Bytes {
    /// In memory of its own.
    Inline(Encoded),
    /// In the store.
    Stored(wasmrun_store::Object),
    /// At other nodes, and here once it was read. Boxed: most values are inline, and small.
    Remote(Box<dyn RemoteBytes>),
}

/// The bytes of a value that are at other nodes. Who brings them here knows more of them.
pub(crate) trait RemoteBytes: Any + fmt::Debug + Send + Sync {
    /// What they are called in a store.
    fn id(&self) -> ObjectId;

    /// How many they are.
    fn size_bytes(&self) -> u64;

    /// Which other nodes have them, as far as is known.
    fn holders(&self) -> Vec<NodeId>;

    /// They in the store of this node, if they were brought.
    fn here(&self) -> Option<wasmrun_store::Object>;

    /// They, brought here if need be.
    fn view(&self) -> BoxFuture<'_, Result<View, LoadError>>;

    /// From now on it is known what made them.
    fn set_origin(&self, origin: Origin);
}

/// Why a value cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoadError {
    /// The store does not give it.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There is no room for it here.
    #[error("it is at another node, and there is no room for it here: {0}")]
    Room(Arc<wasmrun_store::CreateError>),
    /// No node has it any more.
    #[error("{0}")]
    Lost(TaskError),
}

/// A value in memory, ready to be read. As long as it lives it stays there.
#[derive(Clone)]
pub struct Loaded(Memory);

#[derive(Clone)]
enum Memory {
    Inline(Arc<ValueData>),
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
            Memory::Inline(data) => match &data.bytes {
                Bytes::Inline(encoded) => encoded.into(),
                Bytes::Stored(_) | Bytes::Remote(_) => unreachable!("what is stored is viewed"),
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
        Self(Arc::new(ValueData {
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
        tenant: &TenantName,
    ) -> Result<Self, TooManyBytes> {
        let charge = match encoded.size_bytes() {
            // Not worth the counting; the number of tasks is limited.
            0..FEW_BYTES => None,
            bytes => Some(account.charge(tenant, bytes as u64)?),
        };
        Ok(Self(Arc::new(ValueData {
            bytes: Bytes::Inline(encoded),
            references: references.into(),
            _charge: charge,
        })))
    }

    pub(crate) fn stored(object: wasmrun_store::Object, references: Vec<Reference>) -> Self {
        Self(Arc::new(ValueData {
            bytes: Bytes::Stored(object),
            references: references.into(),
            _charge: None,
        }))
    }

    /// One whose bytes are at other nodes.
    pub(crate) fn remote(remote: Box<dyn RemoteBytes>, references: Vec<Reference>) -> Self {
        Self(Arc::new(ValueData {
            bytes: Bytes::Remote(remote),
            references: references.into(),
            _charge: None,
        }))
    }

    /// How many bytes it has.
    pub fn size_bytes(&self) -> u64 {
        match &self.0.bytes {
            Bytes::Inline(encoded) => encoded.size_bytes() as u64,
            Bytes::Stored(object) => object.len(),
            Bytes::Remote(remote) => remote.size_bytes(),
        }
    }

    /// Where it is, besides here.
    pub(crate) fn as_remote(&self) -> Option<&dyn RemoteBytes> {
        match &self.0.bytes {
            Bytes::Remote(remote) => Some(&**remote),
            Bytes::Inline(_) | Bytes::Stored(_) => None,
        }
    }

    /// Its bytes, where it has them in memory of its own.
    pub(crate) fn as_inline(&self) -> Option<&Encoded> {
        match &self.0.bytes {
            Bytes::Inline(encoded) => Some(encoded),
            Bytes::Stored(_) | Bytes::Remote(_) => None,
        }
    }

    /// It in the store of this node, if it is there.
    pub(crate) fn in_store(&self) -> Option<wasmrun_store::Object> {
        match &self.0.bytes {
            Bytes::Inline(_) => None,
            Bytes::Stored(object) => Some(object.clone()),
            Bytes::Remote(remote) => remote.here(),
        }
    }

    /// What it is called in a store.
    pub(crate) fn stored_id(&self) -> Option<ObjectId> {
        match &self.0.bytes {
            Bytes::Inline(_) => None,
            Bytes::Stored(object) => Some(object.id()),
            Bytes::Remote(remote) => Some(remote.id()),
        }
    }

    /// Whether it can be read without another node.
    pub(crate) fn is_here(&self) -> bool {
        match &self.0.bytes {
            Bytes::Inline(_) | Bytes::Stored(_) => true,
            Bytes::Remote(remote) => remote.here().is_some(),
        }
    }

    /// How many bytes a task would have to wait for, and which other nodes have them. A value that every
    /// message carries counts for nothing.
    pub(crate) fn whereabouts(&self) -> (u64, Vec<NodeId>) {
        match &self.0.bytes {
            Bytes::Inline(_) => (0, Vec::new()),
            Bytes::Stored(object) => (object.len(), Vec::new()),
            Bytes::Remote(remote) => (remote.size_bytes(), remote.holders()),
        }
    }

    /// The value in memory. Blocks this thread while it is read back from disk, if it is there.
    ///
    /// # Errors
    /// When it is on disk and cannot be read back, or at other nodes and nobody has needed it here yet.
    pub fn load(&self) -> Result<Loaded, LoadError> {
        Ok(Loaded(match &self.0.bytes {
            Bytes::Inline(_) => Memory::Inline(self.0.clone()),
            Bytes::Stored(object) => Memory::Stored(object.view()?),
            Bytes::Remote(remote) => match remote.here() {
                Some(object) => Memory::Stored(object.view()?),
                None => return Err(ReadError::Dropped { id: remote.id() }.into()),
            },
        }))
    }

    /// As [`Value::load`], for tasks: waits for room without a thread.
    pub(crate) async fn read(&self) -> Result<Loaded, LoadError> {
        Ok(Loaded(match &self.0.bytes {
            Bytes::Inline(_) => Memory::Inline(self.0.clone()),
            Bytes::Stored(object) => Memory::Stored(viewed(object).await?),
            Bytes::Remote(remote) => Memory::Stored(remote.view().await?),
        }))
    }

    pub(crate) fn references(&self) -> &[Reference] {
        &self.0.references
    }

    /// It, without keeping it.
    pub(crate) fn downgrade(&self) -> WeakValue {
        WeakValue(Arc::downgrade(&self.0))
    }

    /// Which it is: clones share it.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// How many clones there are, with what is loaded of it.
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
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
            Bytes::Remote(remote) => remote.fmt(f),
        }
    }
}

/// The bytes of an object in our store, which stay as long as this does. Waits for room as long as the store says.
pub(crate) async fn viewed(
    object: &wasmrun_store::Object,
) -> Result<wasmrun_store::View, ReadError> {
    if let Some(view) = object.try_view() {
        return Ok(view);
    }
    let mut restoring = object.restore();
    loop {
        match tokio::time::timeout(object.patience(), &mut restoring).await {
            Ok(result) => return result,
            // Else it is being read, however long the disk takes.
            Err(_) => {
                if let Some(error) = restoring.lacks_room() {
                    return Err(error);
                }
            }
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
            Self::Task(cell) => Handle::Object(cell.object()),
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
        self.name().id
    }

    /// Its handle in values.
    pub fn handle(&self) -> Handle {
        Handle::Object(self.name())
    }

    /// Its id and who owns it.
    pub(crate) fn name(&self) -> ObjectName {
        match self.0.handle() {
            Handle::Object(name) => name,
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

/// The bytes that a parameter of this type gets for an object.
pub(crate) enum Fitted {
    /// The object's own.
    Whole(Loaded),
    /// Others: a handle, or what the ok case of a `result` holds.
    Made(Encoded),
}

impl Fitted {
    /// Whether it holds the value that it was made of.
    pub(crate) fn holds_value(&self) -> bool {
        matches!(self, Self::Whole(Loaded(Memory::Inline(_))))
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use wasmrun_model::id::TaskId;

    #[test]
    fn a_long_chain_of_values_is_dropped_on_a_small_stack() {
        let name = |n: u32| ObjectName {
            id: ObjectId::put_by(TaskId::from_bytes([1; 16]), n),
            owner: NodeId::from_bytes([0; 16]),
        };
        let first = Value::from(Encoded::Postcard(Vec::new()));
        let chain = (0..200_000).fold(first, |value, n| {
            let object = PutObject {
                name: name(n),
                value,
            };
            Value::inline(
                Encoded::Postcard(Vec::new()),
                vec![Reference::Put(Arc::new(object))],
            )
        });
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        thread.spawn(move || drop(chain)).unwrap().join().unwrap();
    }
}
