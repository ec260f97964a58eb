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
use pyo3::types::PyList;
use wasmrun_client::{Error, GetError};

use crate::failure;
use crate::module::seconds;
use crate::refs::Ref;
use crate::session::{self, Outcome, Shared};

/// What has come of something that was waited for.
enum Found {
    Values(Vec<Py<Ref>>, Result<Vec<Outcome>, GetError>),
    Ready(Result<Vec<usize>, Error>),
}

struct Inner {
    done: Mutex<Vec<(u64, Found)>>,
    bell: UnixStream,
}

impl Inner {
    fn push(&self, id: u64, found: Found) {
        let mut done = self.done.lock();
        let is_first = done.is_empty();
        done.push((id, found));
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

#[pymethods]
impl Completions {
    /// What can be read when something is done.
    fn fileno(&self) -> i32 {
        self.bell.as_raw_fd()
    }

    /// Asks for the values of these, all of them.
    fn get(&self, id: u64, refs: Vec<Py<Ref>>, timeout: Option<f64>) -> PyResult<()> {
        self.shared.check()?;
        let timeout = timeout.map(seconds).transpose()?;
        let values = self.shared.clone().values(session::slots(&refs), timeout);
        let inner = self.inner.clone();
        self.shared.spawn(async move {
            let found = values.await;
            inner.push(id, Found::Values(refs, found));
        });
        Ok(())
    }

    /// Asks which of these are there, once so many are.
    fn wait(
        &self,
        id: u64,
        refs: Vec<Py<Ref>>,
        count: usize,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        self.shared.check()?;
        let timeout = timeout.map(seconds).transpose()?;
        let ready = session::ready(self.shared.clone(), session::slots(&refs), count, timeout);
        let inner = self.inner.clone();
        self.shared.spawn(async move {
            let found = ready.await;
            inner.push(id, Found::Ready(found));
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
        let taken = done.into_iter().map(|(id, found)| {
            let found = match found {
                Found::Values(refs, found) => self.values(py, &refs, found),
                Found::Ready(found) => found
                    .map_err(|error| failure::of_request(py, &error))
                    .and_then(|ready| Ok(ready.into_pyobject(py)?.into_any().unbind())),
            };
            match found {
                Ok(value) => (id, Some(value), None),
                Err(error) => (id, None, Some(failure::value_of(py, error))),
            }
        });
        taken.collect()
    }
}

/// What was waited for, its value, or else its error.
type Taken = (u64, Option<Py<PyAny>>, Option<Py<PyAny>>);

impl Completions {
    fn values(
        &self,
        py: Python<'_>,
        refs: &[Py<Ref>],
        found: Result<Vec<Outcome>, GetError>,
    ) -> PyResult<Py<PyAny>> {
        let outcomes = match found {
            Ok(outcomes) => outcomes,
            Err(GetError::TimedOut) => {
                return Err(failure::timed_out(py, "timed out: not all are there yet"));
            }
            Err(GetError::Request(error)) => return Err(failure::of_request(py, &error)),
            Err(error) => return Err(failure::other(py, &error.to_string())),
        };
        let values = PyList::empty(py);
        for (object, outcome) in refs.iter().zip(outcomes) {
            match outcome {
                Ok(found) => values.append(self.shared.python(py, object.get(), found)?)?,
                Err(error) => {
                    let error = failure::of_get(py, object.get(), &error);
                    return Err(PyErr::from_value(error.into_bound(py)));
                }
            }
        }
        Ok(values.into_any().unbind())
    }
}
