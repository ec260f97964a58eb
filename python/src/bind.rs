//! Arguments of a call by position and by keyword.
//!
//! Owns [`bind`]. Must not: look at values.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

/// Keyword arguments in the order of the parameters, behind the positional ones. Those that are missing are `None` where
/// `is_optional` says so.
pub(crate) fn bind<'py>(
    function: &str,
    names: &[Py<PyString>],
    is_optional: impl Fn(usize) -> bool,
    given: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let py = given.py();
    let mut all: Vec<_> = given.iter().collect();
    let count = names.len();
    let plural = if count == 1 { "" } else { "s" };
    if all.len() > count {
        let found = all.len();
        return Err(PyTypeError::new_err(format!(
            "{function}() takes {count} argument{plural}, got {found}"
        )));
    }
    let mut used = 0;
    for (at, name) in names.iter().enumerate().skip(all.len()) {
        let name = name.bind(py);
        match keywords.map(|it| it.get_item(name)).transpose()?.flatten() {
            Some(value) => {
                all.push(value);
                used += 1;
            }
            None if is_optional(at) => all.push(py.None().into_bound(py)),
            None => {
                return Err(PyTypeError::new_err(format!(
                    "{function}() misses the argument '{name}'"
                )));
            }
        }
    }
    if let Some(keywords) = keywords
        && keywords.len() > used
    {
        for key in keywords.keys() {
            let at = names
                .iter()
                .position(|name| key.eq(name.bind(py)).unwrap_or(false));
            match at {
                None => {
                    return Err(PyTypeError::new_err(format!(
                        "{function}() has no argument '{key}'"
                    )));
                }
                Some(at) if at < given.len() => {
                    return Err(PyTypeError::new_err(format!(
                        "{function}() got two values for the argument '{key}'"
                    )));
                }
                Some(_) => {}
            }
        }
    }
    Ok(all)
}
