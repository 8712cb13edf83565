//! DLPack's structs as its header lays them out, and the capsules they come in.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::{CStr, c_void};

/// Host memory.
pub const CPU: i32 = 1;
/// A GPU's memory.
pub const CUDA: i32 = 2;
/// Pinned host memory.
pub const CUDA_HOST: i32 = 3;
/// Memory that host and GPU share.
pub const CUDA_MANAGED: i32 = 13;

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const READ_ONLY: u64 = 1;

#[repr(C)]
pub struct DLTensor {
    pub data: *mut c_void,
    pub device_type: i32,
    pub device_id: i32,
    pub ndim: i32,
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
    pub shape: *mut i64,
    pub strides: *mut i64,
    pub byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: DLTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: DLTensor,
}

/// A capsule that was not consumed: its own destructor gives the tensor back when Python drops it.
pub struct Exported<'py> {
    capsule: Bound<'py, PyCapsule>,
    versioned: bool,
}

impl<'py> Exported<'py> {
    /// What `object.__dlpack__` gives for `stream`, `None` for host memory. `None` where it gives nothing we know.
    pub fn of(object: &Bound<'py, PyAny>, stream: Option<i64>) -> PyResult<Option<Self>> {
        let py = object.py();
        let keywords = pyo3::types::PyDict::new(py);
        if let Some(stream) = stream {
            keywords.set_item("stream", stream)?;
        }
        keywords.set_item("max_version", (1, 1))?;
        let method = object.getattr("__dlpack__")?;
        let exported = match method.call((), Some(&keywords)) {
            // A library of before version 1 of the format.
            Err(error) if error.is_instance_of::<pyo3::exceptions::PyTypeError>(py) => {
                keywords.del_item("max_version")?;
                method.call((), Some(&keywords))?
            }
            exported => exported?,
        };
        let Ok(capsule) = exported.cast_into::<PyCapsule>() else { return Ok(None) };
        // SAFETY: the capsule is alive; the names are strings that end with a 0.
        let named = |name: &CStr| unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 1 };
        let versioned = named(VERSIONED);
        if !versioned && !named(PLAIN) {
            return Ok(None);
        }
        let exported = Exported { capsule, versioned };
        let known = !versioned || exported.versioned().is_some_and(|managed| managed.major == 1);
        Ok(known.then_some(exported))
    }

    fn pointer<T>(&self, name: &CStr) -> Option<&T> {
        // SAFETY: the capsule is valid under this name, and holds a T as the format says.
        unsafe { ffi::PyCapsule_GetPointer(self.capsule.as_ptr(), name.as_ptr()).cast::<T>().as_ref() }
    }

    fn versioned(&self) -> Option<&Versioned> {
        self.pointer(VERSIONED)
    }

    /// The tensor, and whether it may be written. It lives as long as this value.
    pub fn tensor(&self) -> Option<(&DLTensor, bool)> {
        if self.versioned {
            return self.versioned().map(|managed| (&managed.tensor, managed.flags & READ_ONLY == 0));
        }
        self.pointer::<Managed>(PLAIN).map(|managed| (&managed.tensor, true))
    }
}
