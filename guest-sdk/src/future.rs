//! Futures: values that exist now or will exist, and waiting for them.
//!
//! Owns [`Future`] and the functions around it. A future is a handle to an object of the host; it
//! knows by its type what the object's bytes are. Invariant: a future whose task was refused has no
//! object, tells so whenever it is asked, and never becomes an argument or part of a value.

use std::borrow::Borrow;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::de::Error as _;
use serde::ser::{Error as _, SerializeTuple};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Error;
use crate::host::{self, OBJECT_NAME_BYTES, Object};
use crate::mapped::Mapped;
use crate::value::{Element, Encoded, Value};

/// A value that a task or a call makes, or that was stored with [`put`].
///
/// `T` is what the task returns. Where that is a `Result`, [`get`](Future::get) gives its ok value,
/// and the error case is a failure: [`Error::payload`] has it.
///
/// Futures may be arguments, results and parts of values. A clone is another handle to the same
/// object, which is kept as long as there is one anywhere. Dropping a future does not cancel its task.
pub struct Future<T> {
    object: Result<Rc<Object>, Rc<Error>>,
    value: PhantomData<fn() -> T>,
}

/// What came of [`Future::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancellation {
    /// It will have no value: a task that waits ends at once, one that runs at its next turn. A call that an
    /// actor at another node is in the middle of comes to its end there, and nobody hears of that.
    Cancelled,
    /// An actor is in the middle of the call, and could not go on from there: it comes to its own end.
    /// To stop it, [`kill`](crate::ActorHandle) the actor.
    RunsOn,
    /// There is nothing to cancel: it has ended, was refused, or the value was stored.
    Over,
    /// Another node knows, and was asked. What came of it, [`Future::get`] says.
    Asked,
}

impl<T> Future<T> {
    pub(crate) fn new(object: Result<Object, Error>) -> Self {
        Self {
            object: object.map(Rc::new).map_err(Rc::new),
            value: PhantomData,
        }
    }

    pub(crate) fn from_shared(object: Rc<Object>) -> Self {
        Self {
            object: Ok(object),
            value: PhantomData,
        }
    }

    /// The object, for those who keep it.
    pub(crate) fn shared(&self) -> Result<Rc<Object>, Error> {
        match &self.object {
            Ok(object) => Ok(object.clone()),
            Err(error) => Err(error.as_ref().clone()),
        }
    }

    fn object(&self) -> Result<&Object, Error> {
        match &self.object {
            Ok(object) => Ok(object),
            Err(error) => Err(error.as_ref().clone()),
        }
    }

    /// A handle of its own to the object, for a typed call.
    #[cfg(target_family = "wasm")]
    pub(crate) fn into_object(self) -> Object {
        match self.object.map(Rc::try_unwrap) {
            Ok(Ok(object)) => object,
            Ok(Err(shared)) => shared.duplicate(),
            Err(error) => panic!("a future that never will be cannot be passed on: {error}"),
        }
    }

    /// The object's id, as `wasmrun` prints it; `None` where the task was refused.
    pub fn id(&self) -> Option<String> {
        Some(self.object().ok()?.id())
    }

    /// Cancels the task or call that is to make the value, and all that this has started in turn: what
    /// came of that, without waiting for it.
    pub fn cancel(&self) -> Cancellation {
        match self.object() {
            Ok(object) => object.cancel(),
            // It was refused.
            Err(_) => Cancellation::Over,
        }
    }

    /// The size of the encoded value in bytes; waits until it is there.
    ///
    /// # Errors
    /// As [`get`](Future::get).
    pub fn size_bytes(&self) -> Result<u64, Error> {
        self.object()?.size(None)
    }
}

impl<T: Value> Future<T> {
    /// The value; waits until it is there. The task's CPU goes to others meanwhile.
    ///
    /// # Errors
    /// [`Error::Failed`] when what was to make it failed or was cancelled, [`Error::Deadlock`]
    /// when it waits for this very task, [`Error::Refused`] when the task could not be started.
    pub fn get(&self) -> Result<T::Output, Error> {
        self.read(None)
    }

    /// The value, if it is there within this time.
    ///
    /// # Errors
    /// As [`get`](Future::get), and [`Error::TimedOut`].
    pub fn get_timeout(&self, timeout: Duration) -> Result<T::Output, Error> {
        self.read(Some(timeout))
    }

    fn read(&self, timeout: Option<Duration>) -> Result<T::Output, Error> {
        self.object()?.get(timeout)?.read::<T>()?.into_output()
    }
}

impl<T: Element> Future<Vec<T>> {
    /// The list, attached to this task's memory without copying it: the way for large inputs.
    /// Waits until it is there.
    ///
    /// # Errors
    /// As [`get`](Future::get).
    pub fn map(&self) -> Result<Mapped<T>, Error> {
        Mapped::of(self.shared()?)
    }
}

/// The value of a future; waits until it is there.
///
/// # Errors
/// As [`Future::get`].
pub fn get<T: Value>(future: &Future<T>) -> Result<T::Output, Error> {
    future.get()
}

/// The values of all these futures, in their order; waits until they are there.
///
/// # Errors
/// As [`Future::get`], for the first in order that has no value.
pub fn get_all<T: Value>(
    futures: impl IntoIterator<Item = impl Borrow<Future<T>>>,
) -> Result<Vec<T::Output>, Error> {
    read_all(futures, None)
}

/// The values of all these futures, in their order, if all are there within this time.
///
/// # Errors
/// As [`get_all`], and [`Error::TimedOut`] when one is not there in time and none before it has failed.
pub fn get_all_timeout<T: Value>(
    futures: impl IntoIterator<Item = impl Borrow<Future<T>>>,
    timeout: Duration,
) -> Result<Vec<T::Output>, Error> {
    // What no clock reaches is no limit.
    read_all(futures, Instant::now().checked_add(timeout))
}

fn read_all<T: Value>(
    futures: impl IntoIterator<Item = impl Borrow<Future<T>>>,
    deadline: Option<Instant>,
) -> Result<Vec<T::Output>, Error> {
    // All before the first is waited for: the iterator may be what starts the tasks.
    let futures: Vec<_> = futures.into_iter().collect();
    let read = |future: &Future<T>| {
        let now = Instant::now();
        future.read(deadline.map(|deadline| deadline.saturating_duration_since(now)))
    };
    futures.iter().map(|future| read(future.borrow())).collect()
}

/// Waits until `count` of the futures are there (or have failed), or time is up. Returns all that
/// are and the rest, both in their order. A `count` above their number means all.
///
/// # Errors
/// [`Error::Deadlock`] when that could never be. Futures that failed are no error: they are ready,
/// and `get` says why they failed. Time that is up is none either: fewer are ready then.
#[expect(clippy::type_complexity, reason = "two lists of the same kind")]
pub fn wait<T>(
    futures: impl IntoIterator<Item = Future<T>>,
    count: usize,
    timeout: Option<Duration>,
) -> Result<(Vec<Future<T>>, Vec<Future<T>>), Error> {
    let futures: Vec<Future<T>> = futures.into_iter().collect();
    let mut is_ready: Vec<bool> = futures.iter().map(|f| f.object.is_err()).collect();
    let refused = is_ready.iter().filter(|ready| **ready).count();

    let mut positions = Vec::with_capacity(futures.len() - refused);
    let mut objects: Vec<&Object> = Vec::with_capacity(futures.len() - refused);
    for (position, future) in futures.iter().enumerate() {
        if let Ok(object) = &future.object {
            positions.push(position);
            objects.push(object);
        }
    }
    let count = count.saturating_sub(refused).min(objects.len());
    if !objects.is_empty() {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        for index in host::wait(&objects, count, timeout)? {
            is_ready[positions[index as usize]] = true;
        }
    }
    let (mut ready, mut rest) = (Vec::new(), Vec::new());
    for (future, is_ready) in futures.into_iter().zip(is_ready) {
        if is_ready { &mut ready } else { &mut rest }.push(future);
    }
    Ok((ready, rest))
}

/// Stores a value: tasks that are given the future share it. It keeps the objects and actors whose handles are
/// in it.
///
/// # Errors
/// [`Error::Refused`] when there is no room for it, or it holds a future whose task was refused.
pub fn put<T: Value>(value: T) -> Result<Future<T>, Error> {
    let (encoded, names) = noting_names(|| Encoded::of(value));
    let object = host::put(&encoded?, &names)?;
    Ok(Future::new(Ok(object)))
}

/// Cancels the task or call that is to make the value: [`Future::cancel`].
pub fn cancel<T>(future: &Future<T>) -> Cancellation {
    future.cancel()
}

impl<T> Clone for Future<T> {
    fn clone(&self) -> Self {
        Self {
            object: self.object.clone(),
            value: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Future<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.object {
            Ok(object) => write!(f, "Future({})", object.id()),
            Err(error) => write!(f, "Future(refused: {error})"),
        }
    }
}

impl<T> Value for Future<T> {
    type Output = Self;

    fn into_output(self) -> Result<Self, Error> {
        Ok(self)
    }
}

/// A handle inside a value is its name, as so many single bytes.
impl<T> Serialize for Future<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let object = self.object().map_err(S::Error::custom)?;
        serialize_name(&object.name(), serializer)
    }
}

impl<'de, T> Deserialize<'de> for Future<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = deserialize_name::<OBJECT_NAME_BYTES, D>(deserializer)?;
        // Now, not when it is used: the host knows the name as long as the value that holds it.
        let object = Object::named(&name).map_err(D::Error::custom)?;
        Ok(Self::new(Ok(object)))
    }
}

thread_local! {
    /// The names of handles in the value that is being encoded, while somebody asks for them. Serde's serializers
    /// do not tell a name from other bytes.
    static NAMES: RefCell<Option<Vec<Vec<u8>>>> = const { RefCell::new(None) };
}

/// What comes of encoding something, and the names of the handles in it.
pub(crate) fn noting_names<T>(encode: impl FnOnce() -> T) -> (T, Vec<Vec<u8>>) {
    NAMES.set(Some(Vec::new()));
    let encoded = encode();
    (encoded, NAMES.take().unwrap_or_default())
}

pub(crate) fn serialize_name<S: Serializer>(name: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    NAMES.with_borrow_mut(|names| {
        if let Some(names) = names {
            names.push(name.to_vec());
        }
    });
    let mut tuple = serializer.serialize_tuple(name.len())?;
    for byte in name {
        tuple.serialize_element(byte)?;
    }
    tuple.end()
}

pub(crate) fn deserialize_name<'de, const N: usize, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<[u8; N], D::Error> {
    struct Name<const N: usize>;

    impl<'de, const N: usize> serde::de::Visitor<'de> for Name<N> {
        type Value = [u8; N];

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "the {N} bytes of a handle's name")
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<[u8; N], A::Error> {
            let mut name = [0; N];
            for (at, byte) in name.iter_mut().enumerate() {
                let next = seq.next_element()?;
                *byte = next.ok_or_else(|| A::Error::invalid_length(at, &self))?;
            }
            Ok(name)
        }
    }

    deserializer.deserialize_tuple(N, Name::<N>)
}
