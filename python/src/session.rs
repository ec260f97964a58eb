//! A session with a node.
//!
//! Owns [`Session`], which others share as [`Shared`]: the connection, its thread, and how a thread of Python waits. Must not:
//! hold the interpreter while it waits.
//!
//! Invariant: a child of a fork never touches the connection of its parent: it says so instead.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use wasmrun_client::blocking::Client;
use wasmrun_client::queue::{self, Outcome, Queue, Slot};
use wasmrun_client::wire::{self, Form};
use wasmrun_client::{ConnectError, Error, Future, GetError, Handles, PutOptions, Value, identity};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::value::codec::{decode, encode};
use wasmrun_model::value::{DecodeLimits, NumberKind, Value as Decoded, ValueType};

use crate::asynchronous::Completions;
use crate::convert;
use crate::failure;
use crate::module::Module;
use crate::names::{Names, unnamed};
use crate::numbers;
use crate::options::seconds;
use crate::refs::{Actor, Decoder, Expected, OfValue, Ref, Typed};
use crate::types::PyType;

/// How soon a signal is seen while nothing else happens.
const SIGNALS: Duration = Duration::from_millis(50);

/// See the [module](self).
pub(crate) struct Shared {
    /// Another than of any other session of this process.
    number: u64,
    client: Client,
    pub(crate) queue: Arc<Queue>,
    is_forked: AtomicBool,
    is_closed: AtomicBool,
    /// Makes the classes of values.
    factory: Py<PyAny>,
}

impl Shared {
    pub(crate) fn client(&self) -> wasmrun_client::Client {
        (*self.client).clone()
    }

    /// Whether this process is a child of the one whose session it is.
    pub(crate) fn is_forked(&self) -> bool {
        self.is_forked.load(Ordering::Relaxed)
    }

    /// Whether this process may use it.
    pub(crate) fn check(&self) -> PyResult<()> {
        if self.is_forked() {
            return Err(PyValueError::new_err(
                "this session is of the process that this one was forked from: call wasmrun.init() here",
            ));
        }
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(PyValueError::new_err(
                "this session was shut down: call wasmrun.init() for another",
            ));
        }
        Ok(())
    }

    /// Lets something go on beside Python.
    pub(crate) fn spawn(
        &self,
        future: impl std::future::Future<Output = ()> + Send + 'static,
    ) -> tokio::task::AbortHandle {
        self.client.handle().spawn(future).abort_handle()
    }

    /// Waits for something, without the interpreter. A signal ends that.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        py: Python<'_>,
        future: impl std::future::Future<Output = T> + Send + 'static,
    ) -> PyResult<T> {
        self.check()?;
        let done = Arc::new((Mutex::new(None), Condvar::new()));
        let teller = done.clone();
        let task = self.spawn(async move {
            let value = future.await;
            let (state, is_done) = &*teller;
            *state.lock().unwrap_or_else(|it| it.into_inner()) = Some(value);
            is_done.notify_one();
        });
        loop {
            let found = py.detach(|| {
                let (state, is_done) = &*done;
                let state = state.lock().unwrap_or_else(|it| it.into_inner());
                let waited = is_done.wait_timeout_while(state, SIGNALS, |it| it.is_none());
                waited.unwrap_or_else(|it| it.into_inner()).0.take()
            });
            if let Some(found) = found {
                return Ok(found);
            }
            if let Err(signal) = py.check_signals() {
                task.abort();
                return Err(signal);
            }
        }
    }

    /// A value as Python has it.
    pub(crate) fn python(
        self: &Arc<Self>,
        py: Python<'_>,
        object: &Ref,
        found: (Value, Option<ValueType>),
    ) -> PyResult<Py<PyAny>> {
        let value = self.typed(py, object, found)?;
        match &object.decoder {
            Some(decoder) => decoder.call1(py, (value,)),
            None => Ok(value),
        }
    }

    fn typed(
        self: &Arc<Self>,
        py: Python<'_>,
        object: &Ref,
        (value, ty): (Value, Option<ValueType>),
    ) -> PyResult<Py<PyAny>> {
        let (ty, types) = match (&object.expected, ty) {
            (Expected::Nothing, _) => return Ok(py.None()),
            (Expected::Value(typed), _) => (typed.ty.clone(), typed.py.clone()),
            (Expected::Unknown, Some(ty)) => {
                let types = unnamed(self.factory.bind(py), &ty)?;
                (ty, types)
            }
            (Expected::Unknown, None) => match value.form() {
                Form::Buffer(kind) => return numbers::in_place(py, kind, value),
                Form::Postcard if value.is_empty() => return Ok(py.None()),
                Form::Postcard => {
                    return Err(failure::other(
                        py,
                        "the type of this object is not known, so it cannot be read here; pass it to a task",
                    ));
                }
            },
        };
        if let (PyType::Numbers(kind), Form::Buffer(found)) = (&*types, value.form())
            && *kind == found
        {
            return numbers::in_place(py, found, value);
        }
        let limits = DecodeLimits {
            memory_bytes: usize::MAX,
        };
        let decoded = decode(&ty, &value, limits);
        let decoded = decoded.map_err(|error| failure::other(py, &error.to_string()))?;
        let named = OfValue {
            shared: self,
            value: &value,
        };
        match (&*types, decoded) {
            // An error would have been raised.
            (PyType::Result(ok, _), Decoded::Result(Ok(value))) => match (ok, value) {
                (Some(ok), Some(value)) => convert::to_python(py, ok, *value, &named),
                _ => Ok(py.None()),
            },
            (types, decoded) => convert::to_python(py, types, decoded, &named),
        }
    }

    /// The slots of these, and whether the types of their values are known.
    pub(crate) fn slots(&self, refs: &[Py<Ref>]) -> PyResult<Vec<(Arc<Slot>, bool)>> {
        let slots = refs.iter().map(|it| {
            let it = it.get();
            if it.shared.number != self.number {
                return Err(PyValueError::new_err(
                    "these are objects of different sessions: ask for those of one at a time",
                ));
            }
            let is_known = !matches!(it.expected, Expected::Unknown);
            Ok((it.slot.clone(), is_known))
        });
        slots.collect()
    }

    /// The values that were found, as a list; or the error of the first that has none.
    pub(crate) fn list(
        self: &Arc<Self>,
        py: Python<'_>,
        refs: &[Py<Ref>],
        found: Result<Vec<Outcome>, GetError>,
    ) -> PyResult<Py<PyList>> {
        let outcomes = found.map_err(|error| match error {
            GetError::TimedOut => failure::timed_out(
                py,
                "timed out: not all are there yet; wait for longer, or cancel what makes them",
            ),
            GetError::Request(error) => failure::of_request(py, &error),
            error => failure::other(py, &error.to_string()),
        })?;
        let values = PyList::empty(py);
        for (object, outcome) in refs.iter().zip(outcomes) {
            let object = object.get();
            let found = outcome.map_err(|error| {
                let error = failure::of_get(py, object, &error);
                PyErr::from_value(error.into_bound(py))
            })?;
            values.append(self.python(py, object, found)?)?;
        }
        Ok(values.unbind())
    }

    /// Stores a value of a type.
    pub(crate) fn put(
        self: &Arc<Self>,
        given: &Bound<'_, PyAny>,
        typed: &Typed,
        decoder: Option<Decoder>,
    ) -> PyResult<Ref> {
        let py = given.py();
        let mut handles = Handles::default();
        let value = convert::to_value(&typed.py, given, &mut handles);
        let value = value.map_err(|fault| fault.raised(py, "put() argument value"))?;
        let encoded = encode(&typed.ty, &value);
        let encoded = encoded.map_err(|error| failure::other(py, &error.to_string()))?;
        let client = self.client();
        let stored = self.wait(py, async move {
            let options = PutOptions::default();
            client.put_with(&encoded, &handles, options).await
        })?;
        self.stored(py, stored, typed.clone(), decoder)
    }

    fn stored(
        self: &Arc<Self>,
        py: Python<'_>,
        stored: Result<Future, Error>,
        typed: Typed,
        decoder: Option<Decoder>,
    ) -> PyResult<Ref> {
        let stored = stored.map_err(|error| failure::of_request(py, &error))?;
        Ok(Ref {
            shared: self.clone(),
            slot: Slot::filled(stored),
            expected: Expected::Value(Arc::new(typed)),
            decoder,
            name: "put".into(),
        })
    }

    /// An actor as Python has it.
    pub(crate) fn actor(
        self: &Arc<Self>,
        py: Python<'_>,
        actor: wasmrun_client::Actor,
    ) -> PyResult<Actor> {
        let names = Names::unknown(self.factory.clone_ref(py));
        let methods = names.methods(py, &actor)?;
        Ok(Actor {
            shared: self.clone(),
            actor,
            methods,
        })
    }
}

/// The name of the job of this process: its script's, else `python`.
fn script(py: Python<'_>) -> String {
    let first =
        || -> PyResult<String> { py.import("sys")?.getattr("argv")?.get_item(0)?.extract() };
    // An embedded interpreter may have none.
    let path = PathBuf::from(first().unwrap_or_default());
    let name = path.file_name().and_then(|name| name.to_str());
    match name {
        Some(name) if !matches!(name, "-c" | "-m") => name.to_owned(),
        _ => "python".to_owned(),
    }
}

/// A session with a node. It ends when it is closed, or the process does.
#[pyclass(frozen, module = "wasmrun._wasmrun")]
pub(crate) struct Session(pub(crate) Arc<Shared>);

#[pymethods]
impl Session {
    /// Connects to the node at an address. `factory` makes the classes of values.
    #[staticmethod]
    #[pyo3(signature = (address, tenant, identity, factory))]
    fn connect(
        py: Python<'_>,
        address: Option<&str>,
        tenant: Option<&str>,
        identity: Option<PathBuf>,
        factory: Py<PyAny>,
    ) -> PyResult<Self> {
        let invalid = |error: &dyn std::fmt::Display| PyValueError::new_err(error.to_string());
        let address = match address {
            Some(address) => address.parse(),
            None => wasmrun_client::default_address(),
        };
        let address = address.map_err(|error| invalid(&error))?;
        let tenant = match tenant {
            Some(tenant) => tenant
                .parse::<TenantName>()
                .map_err(|error| invalid(&error))?,
            None => TenantName::default(),
        };
        let identity = match &identity {
            Some(folder) => identity::load(folder).map_err(|error| invalid(&error))?,
            None => None,
        };
        let job = script(py);
        let connected = py.detach(|| Client::connect_for(&address, tenant, identity, &job));
        let client = connected.map_err(|error: ConnectError| failure::of_connecting(py, &error))?;
        let queue = Arc::<Queue>::default();
        client
            .handle()
            .spawn(queue::send_all(queue.clone(), (*client).clone()));
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Ok(Self(Arc::new(Shared {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            client,
            queue,
            is_forked: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            factory,
        })))
    }

    /// What the node is called.
    #[getter]
    fn node(&self) -> &str {
        self.0.client.node()
    }

    /// Another than of any other session of this process.
    #[getter]
    fn number(&self) -> u64 {
        self.0.number
    }

    #[getter]
    fn is_connected(&self) -> bool {
        let is_open = self.0.check().is_ok();
        is_open && self.0.client.is_connected()
    }

    /// From now on this process is a child that must not use it.
    fn was_forked(&self) {
        self.0.is_forked.store(true, Ordering::Relaxed);
        // What lives in threads that are not here must not be dropped either.
        std::mem::forget(self.0.clone());
    }

    /// Ends it, and with it all that was submitted and is not detached.
    fn close(&self, py: Python<'_>) {
        if self.0.check().is_err() || self.0.is_closed.swap(true, Ordering::Relaxed) {
            return;
        }
        let shared = self.0.clone();
        py.detach(|| {
            let ended = shared.client.wait(async {
                tokio::time::timeout(Duration::from_secs(1), shared.client.cancel_all()).await
            });
            // It ends in any case.
            drop(ended);
            shared.client.leave();
        });
    }

    /// Loads a module. `factory` makes the classes of its values.
    fn load(&self, bytes: Vec<u8>, factory: &Bound<'_, PyAny>) -> PyResult<Module> {
        let py = factory.py();
        let client = self.0.client();
        let loaded = self.0.wait(py, async move {
            let module = client.load(&bytes).await;
            module.map(|module| (module, bytes))
        })?;
        let (module, bytes) = loaded.map_err(|error| failure::of_request(py, &error))?;
        Module::new(&self.0, &module, &bytes, factory)
    }

    /// The values of all of these, or what the first that failed failed with.
    pub(crate) fn get(
        &self,
        py: Python<'_>,
        refs: Vec<Py<Ref>>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyList>> {
        self.0.check()?;
        let timeout = timeout.map(seconds).transpose()?;
        let slots = self.0.slots(&refs)?;
        let found = self
            .0
            .wait(py, self.0.clone().values(slots.clone(), timeout, None));
        let found = found.inspect_err(|_| {
            // Ctrl-C: nobody waits for these any more.
            self.0.spawn(async move {
                for (slot, _) in slots {
                    if let Ok(future) = slot.future().await {
                        let _ = future.cancel().await;
                    }
                }
            });
        })?;
        self.0.list(py, &refs, found)
    }

    /// The indexes of those that are there or have failed, once so many are, or time is up.
    fn wait(
        &self,
        py: Python<'_>,
        refs: Vec<Py<Ref>>,
        count: usize,
        timeout: Option<f64>,
    ) -> PyResult<Vec<usize>> {
        let timeout = timeout.map(seconds).transpose()?;
        let slots: Vec<_> = self.0.slots(&refs)?.into_iter().map(|it| it.0).collect();
        let client = self.0.client();
        let ready = async move { queue::ready(&client, &slots, count, timeout).await };
        let ready = self.0.wait(py, ready)?;
        ready.map_err(|error| failure::of_request(py, &error))
    }

    /// Stores numbers or text.
    fn put(&self, py: Python<'_>, kind: &str, given: &Bound<'_, PyAny>) -> PyResult<Ref> {
        let ty = match kind {
            "string" => ValueType::String,
            "bool" => ValueType::Bool,
            "float" => ValueType::F64,
            other => {
                let kinds = NumberKind::ALL;
                let kind = kinds
                    .into_iter()
                    .find(|kind| kind.element_type().to_string() == other);
                let kind = kind.ok_or_else(|| PyValueError::new_err("no such kind"))?;
                ValueType::list(kind.element_type()).expect("a list of numbers is a type")
            }
        };
        let types = unnamed(self.0.factory.bind(py), &ty)?;
        let typed = Typed { ty, py: types };
        let reader = typed.ty.buffer_kind().and_then(|kind| {
            let reader = numbers::BufferReader::of(kind, given)?;
            Some((kind, reader))
        });
        let Some((kind, reader)) = reader else {
            return self.0.put(given, &typed, None);
        };
        let client = self.0.client();
        let stored = self.0.wait(py, async move {
            let len = reader.len() as u64;
            let options = PutOptions::default();
            client
                .put_from(Form::Buffer(kind), len, options, reader)
                .await
        })?;
        self.0.stored(py, stored, typed, None)
    }

    /// Cancels what is to make these.
    fn cancel(&self, py: Python<'_>, refs: Vec<Py<Ref>>) -> PyResult<()> {
        let slots = self.0.slots(&refs)?;
        let cancelled = self.0.wait(py, async move {
            for (slot, _) in slots {
                if let Ok(future) = slot.future().await {
                    future.cancel().await?;
                }
            }
            Ok(())
        })?;
        cancelled.map_err(|error| failure::of_request(py, &error))
    }

    /// Why something does not go on, for people.
    fn explain(&self, py: Python<'_>, id: String) -> PyResult<String> {
        let client = self.0.client();
        let why = self.0.wait(py, async move { client.explain(&id).await })?;
        why.map_err(|error| failure::of_request(py, &error))
    }

    /// The nodes of the cluster, as far as the one that is asked knows.
    fn members(&self, py: Python<'_>) -> PyResult<Vec<Py<PyDict>>> {
        let client = self.0.client();
        let list = wire::List::of(wire::What::Members);
        let listed = self.0.wait(py, async move { client.list(list).await })?;
        let listed = listed.map_err(|error| failure::of_request(py, &error))?;
        let wire::Rows::Members(rows) = listed.rows else {
            return Err(failure::other(py, "the node has listed something else"));
        };
        rows.iter().map(|row| member(py, row)).collect()
    }

    /// An actor by its name.
    fn find_actor(&self, py: Python<'_>, name: String) -> PyResult<Actor> {
        let client = self.0.client();
        let found = self
            .0
            .wait(py, async move { client.find_actor(&name).await })?;
        let found = found.map_err(|error| failure::of_request(py, &error))?;
        self.0.actor(py, found)
    }

    /// Ends an actor.
    fn kill(&self, py: Python<'_>, actor: Py<Actor>) -> PyResult<()> {
        let actor = actor.get().actor().clone();
        let killed = self.0.wait(py, async move { actor.kill().await })?;
        killed.map_err(|error| failure::of_request(py, &error))
    }

    /// Where what was waited for without blocking comes to.
    fn completions(&self) -> PyResult<Completions> {
        Completions::new(&self.0)
    }
}

fn member(py: Python<'_>, row: &wire::MemberRow) -> PyResult<Py<PyDict>> {
    let amounts = |amounts: &wire::Amounts| -> PyResult<Py<PyDict>> {
        let all = PyDict::new(py);
        for (name, amount) in amounts {
            let text = name.to_string();
            match name.is_memory() {
                true => all.set_item(text, amount.whole_units())?,
                false => all.set_item(text, amount.to_string().parse::<f64>()?)?,
            }
        }
        Ok(all.unbind())
    };
    let all = PyDict::new(py);
    all.set_item("name", &row.name)?;
    all.set_item("id", row.id.to_string())?;
    all.set_item("state", &row.state)?;
    all.set_item("address", row.address.map(|it| it.to_string()))?;
    all.set_item("is_head", row.is_head)?;
    all.set_item("is_own", row.is_own)?;
    all.set_item("version", &row.version)?;
    all.set_item("total", amounts(&row.total)?)?;
    all.set_item("available", amounts(&row.available)?)?;
    Ok(all.unbind())
}
