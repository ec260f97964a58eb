//! Values between Python and WIT.
//!
//! Owns [`to_value`] and [`to_python`]. Must not: know how a value travels.
//!
//! What does not fit is told in Python's words and with the way to the part that does not: `order.items[0].quantity: expected
//! int of 0 to 4294967295 (u32), got str`. Nothing that came from a sandbox is ever more than data: classes are those that
//! were made when the module was loaded.

use pyo3::exceptions::{PyException, PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyFloat, PyInt, PyList, PyMapping, PySequence, PyString, PyTuple,
};
use wasmrun_client::Handles;
use wasmrun_model::value::{Handle, HandleKind, NumberKind, Value, ValueType};

use crate::numbers;
use crate::refs::{Actor, Ref};
use crate::types::{Enum, PyType, Record, Variant};

/// What does not fit, and where it is.
pub(crate) struct Fault {
    /// The innermost part first.
    path: Vec<String>,
    why: Why,
}

enum Why {
    Text(String),
    /// Python code of the value failed.
    Raised(PyErr),
}

impl Fault {
    pub(crate) fn text(why: impl Into<String>) -> Self {
        Self {
            path: Vec::new(),
            why: Why::Text(why.into()),
        }
    }

    pub(crate) fn expected(what: &str, got: &Bound<'_, PyAny>) -> Self {
        let name = got.get_type().qualname();
        let name = name.map_or_else(|_| "something else".into(), |name| name.to_string());
        Self::text(format!("expected {what}, got {name}"))
    }

    pub(crate) fn within(mut self, part: String) -> Self {
        self.path.push(part);
        self
    }

    /// As Python's own functions say it, of a value by this name.
    pub(crate) fn raised(self, py: Python<'_>, name: &str) -> PyErr {
        let path: String = self.path.into_iter().rev().collect();
        match self.why {
            Why::Text(why) => PyTypeError::new_err(format!("{name}{path}: {why}")),
            // An interrupt is not about the value.
            Why::Raised(error) if !error.is_instance_of::<PyException>(py) => error,
            Why::Raised(error) => {
                let new = PyTypeError::new_err(format!("{name}{path}: it cannot be read"));
                new.set_cause(py, Some(error));
                new
            }
        }
    }
}

impl From<PyErr> for Fault {
    fn from(error: PyErr) -> Self {
        Self {
            path: Vec::new(),
            why: Why::Raised(error),
        }
    }
}

/// A Python object as a value of a type. What it names goes to `handles`. It is no deeper than its type.
pub(crate) fn to_value(
    ty: &PyType,
    given: &Bound<'_, PyAny>,
    handles: &mut Handles,
) -> Result<Value, Fault> {
    let inner = to_value;
    Ok(match ty {
        PyType::Bool => match given.cast::<PyBool>() {
            Ok(it) => Value::Bool(it.is_true()),
            Err(_) if is_numpy_bool(given) => Value::Bool(given.is_truthy()?),
            Err(_) => return Err(Fault::expected("bool", given)),
        },
        PyType::Integer(ty) => integer(ty, given)?,
        PyType::F32 => Value::F32(narrow(float(given)?).ok_or_else(|| {
            let (most, given) = (f32::MAX, shown(given));
            Fault::text(format!(
                "expected float of -{most:e} to {most:e} (f32), got {given}"
            ))
        })?),
        PyType::F64 => Value::F64(float(given)?),
        PyType::Char => {
            let text = given.cast::<PyString>();
            let text = text.map_err(|_| Fault::expected("a str of one character", given))?;
            let mut chars = text.to_str()?.chars();
            match (chars.next(), chars.next()) {
                (Some(char), None) => Value::Char(char),
                _ => return Err(Fault::text("expected a str of one character")),
            }
        }
        PyType::String => match given.cast::<PyString>() {
            Ok(text) => Value::String(text.to_str()?.to_owned()),
            Err(_) => return Err(Fault::expected("str", given)),
        },
        PyType::Handle(HandleKind::Object) => match given.cast::<Ref>() {
            Ok(it) => handles.future(&it.get().future(given.py())?),
            Err(_) => return Err(Fault::expected("ObjectRef", given)),
        },
        PyType::Handle(HandleKind::Actor) => match actor(given) {
            Some(it) => handles.actor(it.get().actor()),
            None => return Err(Fault::expected("an actor", given)),
        },
        PyType::Numbers(kind) => Value::Numbers(numbers::from_python(*kind, given)?),
        PyType::List(item) => {
            let items = given.cast::<PySequence>().ok();
            let items = items.filter(|_| !given.is_instance_of::<PyString>());
            let items = items.ok_or_else(|| Fault::expected("a sequence", given))?;
            Value::List(read_all(items, 1, |given| inner(item, given, handles))?)
        }
        PyType::Option(_) if given.is_none() => Value::Option(None),
        PyType::Option(some) => {
            // One option in another: only a wrapper can tell them apart.
            let wrapped = match **some {
                PyType::Option(_) => Some(payload(given, "Some")?),
                _ => None,
            };
            let some = inner(some, wrapped.as_ref().unwrap_or(given), handles)?;
            Value::Option(Some(Box::new(some)))
        }
        PyType::Result(ok, err) => {
            let name = given.get_type().name()?.to_string();
            let (side, is_ok) = match &name[..] {
                "Ok" => (ok, true),
                "Err" => (err, false),
                _ => return Err(Fault::expected("wasmrun.Ok or wasmrun.Err", given)),
            };
            let payload = payload(given, &name)?;
            let value = match side {
                Some(ty) => {
                    let value = inner(ty, &payload, handles);
                    Some(Box::new(value.map_err(|it| it.within(".value".into()))?))
                }
                None if payload.is_none() => None,
                None => return Err(Fault::text(format!("{name} has no value here"))),
            };
            Value::Result(if is_ok { Ok(value) } else { Err(value) })
        }
        PyType::Record(record) => record_value(record, given, |ty, it| inner(ty, it, handles))?,
        PyType::Tuple(items) => {
            let count = items.len();
            let given = given
                .cast::<PySequence>()
                .ok()
                .filter(|_| !given.is_instance_of::<PyString>())
                .ok_or_else(|| Fault::expected(&format!("a tuple of {count}"), given))?;
            if given.len()? != count {
                let found = given.len()?;
                return Err(Fault::text(format!(
                    "expected a tuple of {count}, got {found} items"
                )));
            }
            let mut values = Vec::with_capacity(count);
            for (at, ty) in items.iter().enumerate() {
                let value = inner(ty, &given.get_item(at)?, handles);
                values.push(value.map_err(|fault| fault.within(format!("[{at}]")))?);
            }
            Value::Tuple(values)
        }
        PyType::Variant(variant) => variant_value(variant, given, |ty, it| inner(ty, it, handles))?,
        PyType::Enum(it) => Value::Enum(member(it, given)?),
        PyType::Flags(it) => flags(it, given)?,
    })
}

/// The items of a sequence, each of which takes so many bytes in a sandbox, or more. Its length is what its class says, so
/// no memory is taken by that.
pub(crate) fn read_all<T>(
    items: &Bound<'_, PySequence>,
    item_bytes: usize,
    mut read: impl FnMut(&Bound<'_, PyAny>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    /// What a sandbox can address.
    const MOST_BYTES: usize = u32::MAX as usize;
    const FEW: usize = 1024;
    let most = MOST_BYTES / item_bytes;
    let too_long = || {
        Fault::text(format!(
            "it has more items than fit into a sandbox, {most} at most: pass parts of it"
        ))
    };
    let len = items.len()?;
    if len > most {
        return Err(too_long());
    }
    let mut values = Vec::with_capacity(len.min(FEW));
    for (at, item) in items.try_iter()?.enumerate() {
        if at == most {
            return Err(too_long());
        }
        if (at + 1).is_multiple_of(FEW) {
            items.py().check_signals()?;
        }
        values.try_reserve(1).map_err(|_| {
            let why = format!("there is no memory for more than {at} of its items");
            Fault::text(format!("{why}: pass parts of it"))
        })?;
        let value = read(&item?);
        values.push(value.map_err(|fault| fault.within(format!("[{at}]")))?);
    }
    Ok(values)
}

/// What is in a wrapper of ours by this name.
fn payload<'py>(given: &Bound<'py, PyAny>, name: &str) -> Result<Bound<'py, PyAny>, Fault> {
    let is_it = given.get_type().name()? == name;
    let value = is_it.then(|| given.getattr("value").ok()).flatten();
    value.ok_or_else(|| {
        Fault::expected(
            &format!("None or wasmrun.{name}(…), since None is a value here, too"),
            given,
        )
    })
}

fn actor<'py>(given: &Bound<'py, PyAny>) -> Option<Bound<'py, Actor>> {
    if let Ok(it) = given.cast::<Actor>() {
        return Some(it.clone());
    }
    let inner = given.getattr("_actor").ok()?;
    inner.cast_into::<Actor>().ok()
}

fn is_numpy_bool(given: &Bound<'_, PyAny>) -> bool {
    let name = given.get_type().fully_qualified_name();
    name.is_ok_and(|name| name == "numpy.bool" || name == "numpy.bool_")
}

fn float(given: &Bound<'_, PyAny>) -> Result<f64, Fault> {
    let is_bool = given.is_instance_of::<PyBool>();
    let read = (!is_bool).then(|| given.extract::<f64>().ok()).flatten();
    read.ok_or_else(|| match given.is_instance_of::<PyInt>() && !is_bool {
        true => Fault::text(format!("{} is too large for a float", shown(given))),
        false => Fault::expected("float", given),
    })
}

/// A number with fewer digits; none if it is out of their range.
pub(crate) fn narrow(number: f64) -> Option<f32> {
    let narrowed = number as f32;
    (narrowed.is_finite() || !number.is_finite()).then_some(narrowed)
}

/// As Python writes it, or the beginning of that.
pub(crate) fn shown(given: &Bound<'_, PyAny>) -> String {
    const MOST: usize = 40;
    // Python does not write an int of thousands of digits.
    let Ok(text) = given.repr() else {
        return "what cannot be shown".into();
    };
    let text = text.to_string();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn integer(ty: &ValueType, given: &Bound<'_, PyAny>) -> Result<Value, Fault> {
    /// As `extract`, with what the type takes.
    fn read<'py, T>(
        given: &Bound<'py, PyAny>,
        ty: &ValueType,
        from: impl std::fmt::Display,
        to: impl std::fmt::Display,
    ) -> Result<T, Fault>
    where
        T: for<'a> FromPyObject<'a, 'py>,
    {
        let is_bool = given.is_instance_of::<PyBool>();
        let read = (!is_bool).then(|| given.extract::<T>().ok()).flatten();
        read.ok_or_else(|| {
            let what = format!("int of {from} to {to} ({ty})");
            match given.cast::<PyInt>() {
                Ok(_) if !is_bool => Fault::text(format!("expected {what}, got {}", shown(given))),
                _ => Fault::expected(&what, given),
            }
        })
    }
    macro_rules! read {
        ($case:ident, $int:ty) => {
            Value::$case(read::<$int>(given, ty, <$int>::MIN, <$int>::MAX)?)
        };
    }
    Ok(match ty {
        ValueType::S8 => read!(S8, i8),
        ValueType::U8 => read!(U8, u8),
        ValueType::S16 => read!(S16, i16),
        ValueType::U16 => read!(U16, u16),
        ValueType::S32 => read!(S32, i32),
        ValueType::U32 => read!(U32, u32),
        ValueType::S64 => read!(S64, i64),
        ValueType::U64 => read!(U64, u64),
        other => unreachable!("{other} is no integer"),
    })
}

/// One of the record's class, or a mapping with its fields.
fn record_value(
    record: &Record,
    given: &Bound<'_, PyAny>,
    mut inner: impl FnMut(&PyType, &Bound<'_, PyAny>) -> Result<Value, Fault>,
) -> Result<Value, Fault> {
    let py = given.py();
    let is_it = given.is_instance(record.class.bind(py))?;
    let mapping = given.cast::<PyMapping>().ok().filter(|_| !is_it);
    if !is_it && mapping.is_none() {
        return Err(Fault::expected(&record.name, given));
    }
    if let Some(mapping) = mapping {
        for key in mapping.keys()?.iter() {
            let is_known = record.fields.iter().any(|it| {
                let name = it.name.bind(py);
                key.eq(name).unwrap_or(false)
            });
            if !is_known {
                let names: Vec<_> = record.fields.iter().map(|it| it.name.to_string()).collect();
                return Err(Fault::text(format!(
                    "{} has no field {key}; it has {}",
                    record.name,
                    names.join(", ")
                )));
            }
        }
    }
    let mut values = Vec::with_capacity(record.fields.len());
    for field in &record.fields {
        let name = field.name.bind(py);
        let value = match mapping {
            None => given.getattr(name)?,
            Some(mapping) => match mapping.get_item(name) {
                Ok(value) => value,
                Err(error) if !error.is_instance_of::<PyKeyError>(py) => return Err(error.into()),
                Err(_) if matches!(*field.ty, PyType::Option(_)) => py.None().into_bound(py),
                Err(_) => {
                    return Err(Fault::text(format!(
                        "{} needs the field {name}",
                        record.name
                    )));
                }
            },
        };
        let value = inner(&field.ty, &value);
        values.push(value.map_err(|fault| fault.within(format!(".{name}")))?);
    }
    Ok(Value::Record(values))
}

fn variant_value(
    variant: &Variant,
    given: &Bound<'_, PyAny>,
    mut inner: impl FnMut(&PyType, &Bound<'_, PyAny>) -> Result<Value, Fault>,
) -> Result<Value, Fault> {
    let py = given.py();
    let class = given.get_type();
    let at = variant
        .cases
        .iter()
        .position(|case| class.is(case.class.bind(py)));
    let Some(at) = at else {
        let cases: Vec<_> = variant
            .cases
            .iter()
            .filter_map(|case| {
                case.class
                    .getattr(py, "__qualname__")
                    .ok()
                    .map(|it| it.to_string())
            })
            .collect();
        return Err(Fault::expected(
            &format!("one of {}", cases.join(", ")),
            given,
        ));
    };
    let case = &variant.cases[at];
    let payload = match &case.payload {
        Some(ty) => {
            let value = inner(ty, &given.getattr("value")?);
            Some(Box::new(value.map_err(|it| it.within(".value".into()))?))
        }
        None => None,
    };
    Ok(Value::Variant(number(at), payload))
}

/// A member, or its name.
fn member(it: &Enum, given: &Bound<'_, PyAny>) -> Result<u32, Fault> {
    let py = given.py();
    let mut at = it
        .members
        .iter()
        .position(|member| given.is(member.bind(py)));
    if at.is_none()
        && let Ok(text) = given.cast::<PyString>()
    {
        let text = text.to_str()?;
        at = it.names.iter().position(|name| **name == *text);
    }
    at.map(number).ok_or_else(|| {
        let names = it.names.join(", ");
        match given.cast::<PyString>() {
            Ok(text) => Fault::text(format!(
                "{} has no member '{text}'; it has {names}",
                it.name
            )),
            Err(_) => Fault::expected(&format!("{} ({names})", it.name), given),
        }
    })
}

/// A set of flags, or of their names.
fn flags(it: &Enum, given: &Bound<'_, PyAny>) -> Result<Value, Fault> {
    let py = given.py();
    let mut set = vec![false; it.names.len()];
    if given.is_instance(it.class.bind(py))? {
        for (is_set, member) in set.iter_mut().zip(&it.members) {
            *is_set = given.contains(member.bind(py))?;
        }
        return Ok(Value::Flags(set));
    }
    let is_text = given.is_instance_of::<PyString>();
    let names = given.try_iter().ok().filter(|_| !is_text);
    let names = names.ok_or_else(|| Fault::expected(&it.name, given))?;
    for name in names {
        set[member(it, &name?)? as usize] = true;
    }
    Ok(Value::Flags(set))
}

fn number(at: usize) -> u32 {
    u32::try_from(at).expect("types are small")
}

/// What stands for the handles in a value that has come.
pub(crate) trait Named {
    /// The object or actor, as Python has it.
    fn handle(&self, py: Python<'_>, handle: &Handle) -> PyResult<Py<PyAny>>;
}

/// A value as Python has it.
pub(crate) fn to_python(
    py: Python<'_>,
    ty: &PyType,
    value: Value,
    named: &dyn Named,
) -> PyResult<Py<PyAny>> {
    fn any<'py, T>(py: Python<'py>, value: T) -> PyResult<Py<PyAny>>
    where
        T: pyo3::IntoPyObjectExt<'py>,
    {
        value.into_py_any(py)
    }
    let inner = |ty: &PyType, value: Value| to_python(py, ty, value, named);
    match (ty, value) {
        (PyType::Bool, Value::Bool(it)) => any(py, it),
        (PyType::Integer(_), value) => match value {
            Value::S8(it) => any(py, it),
            Value::U8(it) => any(py, it),
            Value::S16(it) => any(py, it),
            Value::U16(it) => any(py, it),
            Value::S32(it) => any(py, it),
            Value::U32(it) => any(py, it),
            Value::S64(it) => any(py, it),
            Value::U64(it) => any(py, it),
            _ => Err(misfit()),
        },
        (PyType::F32, Value::F32(it)) => any(py, it),
        (PyType::F64, Value::F64(it)) => Ok(PyFloat::new(py, it).into_any().unbind()),
        (PyType::Char, Value::Char(it)) => any(py, it),
        (PyType::String, Value::String(it)) => any(py, it),
        (PyType::Handle(_), Value::Handle(it)) => named.handle(py, &it),
        (PyType::Numbers(NumberKind::U8), Value::Numbers(it)) => {
            Ok(PyBytes::new(py, it.as_le_bytes()).into_any().unbind())
        }
        (PyType::Numbers(kind), Value::Numbers(it)) => {
            numbers::got(py, *kind, numbers::Bytes::Own(it.into_le_bytes()))
        }
        (PyType::List(item), Value::List(values)) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(inner(item, value)?)?;
            }
            Ok(list.into_any().unbind())
        }
        (PyType::Option(_), Value::Option(None)) => Ok(py.None()),
        (PyType::Option(some), Value::Option(Some(value))) => {
            let value = inner(some, *value)?;
            match **some {
                PyType::Option(_) => wrapped(py, "Some", Some(value)),
                _ => Ok(value),
            }
        }
        (PyType::Result(ok, err), Value::Result(value)) => {
            let (name, ty, value) = match value {
                Ok(value) => ("Ok", ok, value),
                Err(value) => ("Err", err, value),
            };
            let value = match (ty, value) {
                (Some(ty), Some(value)) => Some(inner(ty, *value)?),
                _ => None,
            };
            wrapped(py, name, value)
        }
        (PyType::Record(record), Value::Record(values)) => {
            let fields = record.fields.iter().zip(values);
            let fields = fields.map(|(field, value)| inner(&field.ty, value));
            let fields = PyTuple::new(py, fields.collect::<PyResult<Vec<_>>>()?)?;
            record.class.call1(py, fields)
        }
        (PyType::Tuple(items), Value::Tuple(values)) => {
            let values = items.iter().zip(values);
            let values = values.map(|(ty, value)| inner(ty, value));
            let values = PyTuple::new(py, values.collect::<PyResult<Vec<_>>>()?)?;
            Ok(values.into_any().unbind())
        }
        (PyType::Variant(variant), Value::Variant(at, payload)) => {
            let case = variant.cases.get(at as usize).ok_or_else(misfit)?;
            match (&case.payload, payload) {
                (Some(ty), Some(value)) => case.class.call1(py, (inner(ty, *value)?,)),
                _ => case.class.call0(py),
            }
        }
        (PyType::Enum(it), Value::Enum(at)) => {
            let member = it.members.get(at as usize).ok_or_else(misfit)?;
            Ok(member.clone_ref(py))
        }
        (PyType::Flags(it), Value::Flags(set)) => {
            let mut flags = it.class.call1(py, (0,))?.into_bound(py);
            for (member, _) in it.members.iter().zip(set).filter(|(_, is_set)| *is_set) {
                flags = flags.bitor(member.bind(py))?;
            }
            Ok(flags.unbind())
        }
        _ => Err(misfit()),
    }
}

/// The codec reads values by the same type.
fn misfit() -> PyErr {
    pyo3::exceptions::PyRuntimeError::new_err("a value is not of its type: please report this")
}

fn wrapped(py: Python<'_>, name: &str, value: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
    let class = py.import("wasmrun._values")?.getattr(name)?;
    let value = value.unwrap_or_else(|| py.None());
    Ok(class.call1((value,))?.unbind())
}
