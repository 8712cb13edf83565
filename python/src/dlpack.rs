//! DLPack's structs as its header lays them out, the capsules they come in, and the table of functions that says the same
//! without a capsule.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

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
const EXCHANGE: &CStr = c"dlpack_exchange_api";
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

/// The format's functions of one type of arrays, `DLPackExchangeAPI`, as far as they are called here.
#[repr(C)]
struct Functions {
    major: u32,
    minor: u32,
    _previous: *const c_void,
    /// Those that hand arrays over for longer than a call.
    _owning: [*const c_void; 3],
    describe: Option<unsafe extern "C" fn(*mut ffi::PyObject, *mut DLTensor) -> c_int>,
}

/// A type whose arrays describe themselves without a capsule and without a call of Python: a few nanoseconds an array.
pub struct Exchange {
    class: Py<PyAny>,
    functions: NonNull<Functions>,
}

// SAFETY: the table is constant, and the format has it stay for the life of the process.
unsafe impl Send for Exchange {}
// SAFETY: as above.
unsafe impl Sync for Exchange {}

impl Exchange {
    /// What `class` offers; `None` where it offers nothing or a major version not known here.
    pub fn of(class: &Bound<'_, PyAny>) -> Option<Exchange> {
        let capsule = class.getattr("__dlpack_c_exchange_api__").ok()?.cast_into::<PyCapsule>().ok()?;
        // SAFETY: the capsule is alive; a pointer comes out only where it has this name.
        let functions = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), EXCHANGE.as_ptr()) };
        let Some(functions) = NonNull::new(functions.cast::<Functions>()) else {
            PyErr::take(class.py());
            return None;
        };
        // SAFETY: as the format says of a capsule of this name; the version stands at its start in every one.
        let major = unsafe { (&raw const (*functions.as_ptr()).major).read() };
        (major == 1).then(|| Exchange { class: class.clone().unbind(), functions })
    }

    /// The tensor that `object` is while it lives and is not resized; `None` where it is of another type or cannot say.
    pub fn tensor(&self, object: &Bound<'_, PyAny>) -> Option<DLTensor> {
        if !object.get_type().is(&self.class) {
            return None;
        }
        // SAFETY: the table outlives the process's use of it.
        let describe = unsafe { self.functions.as_ref() }.describe?;
        let mut tensor = MaybeUninit::uninit();
        // SAFETY: the object is alive and of the type the function is for, which writes the tensor where it returns 0.
        if unsafe { describe(object.as_ptr(), tensor.as_mut_ptr()) } == 0 {
            // SAFETY: as above.
            return Some(unsafe { tensor.assume_init() });
        }
        PyErr::take(object.py());
        None
    }
}
