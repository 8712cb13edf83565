//! Errors as Python's: a value that is refused is a `ValueError`, with the Rust error's text, which names it.

use pyo3::PyErr;
use pyo3::exceptions::{PyMemoryError, PyNotImplementedError, PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use samedraw::Error;

pub fn of(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Parameter { .. }
        | Error::ForceTopK { .. }
        | Error::Argument { .. }
        | Error::NullPointer { .. }
        | Error::Workspace { .. }
        | Error::StepFile { .. } => PyValueError::new_err(text),
        Error::OutOfMemory { .. } => PyMemoryError::new_err(text),
        Error::Io { .. } => PyOSError::new_err(text),
        Error::Unsupported { .. } => PyNotImplementedError::new_err(text),
        _ => PyRuntimeError::new_err(text),
    }
}

pub fn value(text: impl Into<String>) -> PyErr {
    PyValueError::new_err(text.into())
}

pub fn argument(text: impl Into<String>) -> PyErr {
    PyTypeError::new_err(text.into())
}
