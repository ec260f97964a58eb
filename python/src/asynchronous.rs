//! Waiting without blocking a thread of Python.
//!
//! Owns [`Completions`]: what was waited for comes into a list, and a socket that an event loop watches says so. Nothing here
//! needs the interpreter until somebody takes from the list: a thread of the session that waited for it would hold up all
//! others. Must not: know event loops: that is `wasmrun/_asyncio.py`.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use wasmrun_client::GetError;
use wasmrun_client::queue::{Outcome, Wanted};

use crate::failure;
use crate::refs::Ref;
use crate::session::Shared;

/// What was waited for by a number, and what has come of it.
type Found = (u64, Vec<Py<Ref>>, Result<Vec<Outcome>, GetError>);

struct Inner {
    done: Mutex<Vec<Found>>,
    bell: UnixStream,
}

impl Inner {
    fn push(&self, found: Found) {
        let mut done = self.done.lock();
        let is_first = done.is_empty();
        done.push(found);
        drop(done);
        if is_first {
            // Full only if nobody has listened for long: it rings already.
            let _ = (&self.bell).write(&[1]);
        }
    }
}

/// See the [module](self).
#[pyclass(frozen, module = "wasmrun._wasmrun")]
pub(crate) struct Completions {
    shared: Arc<Shared>,
    inner: Arc<Inner>,
    bell: UnixStream,
}

impl Completions {
    pub(crate) fn new(shared: &Arc<Shared>) -> PyResult<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        Ok(Self {
            shared: shared.clone(),
            inner: Arc::new(Inner {
                done: Mutex::default(),
                bell: ours,
            }),
            bell: theirs,
        })
    }
}

/// A value that is awaited, before its loop is known: its call is about to be sent, and the value is asked for together with that.
#[pyclass(frozen, module = "wasmrun._wasmrun")]
pub(crate) struct Early(Mutex<Option<Wanted>>);

impl Early {
    pub(crate) fn new(object: &Ref) -> Self {
        let wanted = Wanted::new(object.slot.clone(), None);
        Self(Mutex::new(Some(wanted)))
    }
}

#[pymethods]
impl Completions {
    /// What can be read when something is done.
    fn fileno(&self) -> i32 {
        self.bell.as_raw_fd()
    }

    /// Asks for the value of this, unless that was asked for already.
    #[pyo3(signature = (id, object, early = None))]
    fn get(&self, id: u64, object: Py<Ref>, early: Option<&Bound<'_, Early>>) -> PyResult<()> {
        self.shared.check()?;
        let refs = vec![object];
        let slots = self.shared.slots(&refs)?;
        let early = early.and_then(|early| early.get().0.lock().take());
        let values = self.shared.clone().values(slots, None, early);
        let inner = self.inner.clone();
        self.shared.spawn(async move {
            let found = values.await;
            inner.push((id, refs, found));
        });
        Ok(())
    }

    /// What is done: the id, and either what it gave or an error.
    fn take(&self, py: Python<'_>) -> Vec<Taken> {
        // Whatever rang before this is among what is taken now.
        let mut rung = [0; 16];
        while (&self.bell)
            .read(&mut rung)
            .is_ok_and(|it| it == rung.len())
        {}
        let done = std::mem::take(&mut *self.inner.done.lock());
        let taken =
            done.into_iter().map(
                |(id, refs, found)| match self.shared.list(py, &refs, found) {
                    Ok(values) => (id, Some(values.into_any()), None),
                    Err(error) => (id, None, Some(failure::value_of(py, error))),
                },
            );
        taken.collect()
    }
}

/// What was waited for, its values, or else an error.
type Taken = (u64, Option<Py<PyAny>>, Option<Py<PyAny>>);
