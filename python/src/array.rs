//! An array of any library: its address, type, shape, strides and place.
//!
//! Tensors of torch come by DLPack's table of functions or, from releases without it, by their attributes; everything else
//! comes by capsules of DLPack. Nothing is copied. The array must live until the step has run: while it is an argument of a call it does, and after it
//! the libraries' allocators keep memory for work that was enqueued before it was freed.

use crate::dlpack::{CPU, CUDA, CUDA_HOST, CUDA_MANAGED, DLTensor, Exchange, Exported};
use crate::errors::{argument, value};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use samedraw::Platform;
use samedraw::device::DevPtr;
use std::fmt;

/// The types we take, by their names in messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    F16,
    Bf16,
    F32,
    I32,
    I64,
    U32,
    U64,
    U8,
    Other,
}

impl Type {
    fn of(code: u8, bits: u8, lanes: u16) -> Type {
        match (code, bits, lanes) {
            (2, 16, 1) => Type::F16,
            (4, 16, 1) => Type::Bf16,
            (2, 32, 1) => Type::F32,
            (0, 32, 1) => Type::I32,
            (0, 64, 1) => Type::I64,
            (1, 32, 1) => Type::U32,
            (1, 64, 1) => Type::U64,
            (1, 8, 1) | (0, 8, 1) => Type::U8,
            _ => Type::Other,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::F16 => "float16",
            Type::Bf16 => "bfloat16",
            Type::F32 => "float32",
            Type::I32 => "int32",
            Type::I64 => "int64",
            Type::U32 => "uint32",
            Type::U64 => "uint64",
            Type::U8 => "uint8",
            Type::Other => "a type not known here",
        })
    }
}

/// Where an array is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub platform: Platform,
    pub ordinal: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.platform {
            Platform::Cpu => f.write_str("cpu"),
            platform => write!(f, "{platform}:{}", self.ordinal),
        }
    }
}

const MOST_DIMENSIONS: usize = 4;

/// An array, described.
#[derive(Clone, Copy, Debug)]
pub struct Array {
    pub ptr: DevPtr,
    pub dtype: Type,
    pub place: Place,
    pub writable: bool,
    ndim: usize,
    shape: [usize; MOST_DIMENSIONS],
    strides: [i64; MOST_DIMENSIONS],
}

impl Array {
    pub fn shape(&self) -> &[usize] {
        &self.shape[..self.ndim]
    }

    /// Distance between neighbours of dimension `n` in elements; that of a dimension of one or none does not matter.
    pub fn stride(&self, n: usize) -> i64 {
        self.strides[n]
    }

    /// Describes `object`; `name` is the argument it came as. `stream` is what its library is to make it ready on.
    pub fn of(name: &str, object: &Bound<'_, PyAny>, stream: u64) -> PyResult<Array> {
        if let Some(torch) = Torch::loaded(object.py())? {
            let described = torch.exchange.as_ref().and_then(|exchange| exchange.tensor(object));
            if let Some(tensor) = described
                && let Some(place) = place_of(&tensor)
            {
                return Array::of_tensor(name, &tensor, place, true);
            }
            if object.is_instance(torch.tensor.bind(object.py()))? {
                return torch.describe(name, object);
            }
        }
        let Ok(device) = object.call_method0(intern!(object.py(), "__dlpack_device__")) else {
            let what = object.get_type().name()?.to_string();
            return Err(argument(format!("{name} is a {what}: an array with __dlpack__ is expected")));
        };
        let (kind, _): (i32, i32) = device.extract()?;
        // On a GPU 0 is not a stream to the format; its default stream is 1.
        let ready_on = (kind == CUDA || kind == CUDA_MANAGED).then_some(if stream == 0 { 1 } else { stream as i64 });
        let exported = Exported::of(object, ready_on)
            .map_err(|error| value(format!("{name} cannot be exported by DLPack: {error}")))?;
        let tensor = exported.as_ref().and_then(Exported::tensor);
        let (tensor, writable) =
            tensor.ok_or_else(|| value(format!("{name} gives a DLPack capsule of no known kind")))?;
        let Some(place) = place_of(tensor) else {
            let kind = tensor.device_type;
            return Err(value(format!("{name} is on DLPack's device type {kind}: cpu or cuda is expected")));
        };
        Array::of_tensor(name, tensor, place, writable && !never_changes(object))
    }

    fn of_tensor(name: &str, tensor: &DLTensor, place: Place, writable: bool) -> PyResult<Array> {
        let ndim = dimensions(name, usize::try_from(tensor.ndim).unwrap_or(usize::MAX))?;
        let mut array = Array {
            ptr: DevPtr(tensor.data as u64 + tensor.byte_offset),
            dtype: Type::of(tensor.code, tensor.bits, tensor.lanes),
            place,
            writable,
            ndim,
            shape: [0; MOST_DIMENSIONS],
            strides: [1; MOST_DIMENSIONS],
        };
        for n in (0..ndim).rev() {
            // SAFETY: the format holds `ndim` entries in both; null strides are those of a compact array.
            unsafe {
                array.shape[n] = usize::try_from(*tensor.shape.add(n)).unwrap_or(0);
                array.strides[n] = match tensor.strides.is_null() {
                    false => *tensor.strides.add(n),
                    true if n + 1 == ndim => 1,
                    true => array.strides[n + 1].saturating_mul(array.shape[n + 1] as i64),
                };
            }
        }
        Ok(array)
    }
}

fn place_of(tensor: &DLTensor) -> Option<Place> {
    match tensor.device_type {
        CPU | CUDA_HOST => Some(Place { platform: Platform::Cpu, ordinal: 0 }),
        CUDA | CUDA_MANAGED => Some(Place { platform: Platform::Cuda, ordinal: tensor.device_id.max(0) as usize }),
        _ => None,
    }
}

/// Whether the arrays of the object's library never change. jax gives capsules of before version 1, which cannot say so.
fn never_changes(object: &Bound<'_, PyAny>) -> bool {
    let module = object.get_type().module();
    module.is_ok_and(|module| {
        module.to_string_lossy().split('.').next().is_some_and(|root| matches!(root, "jax" | "jaxlib"))
    })
}

fn dimensions(name: &str, ndim: usize) -> PyResult<usize> {
    if ndim <= MOST_DIMENSIONS {
        return Ok(ndim);
    }
    Err(value(format!("{name} has {ndim} dimensions: at most {MOST_DIMENSIONS} are expected")))
}

/// What of torch is looked up once.
pub struct Torch {
    tensor: Py<PyType>,
    /// From 2.10 on.
    exchange: Option<Exchange>,
    /// Each type with its name here.
    dtypes: Vec<(Py<PyAny>, Type)>,
    /// `(device index) -> raw stream`; absent from a torch that was built without CUDA.
    pub raw_stream: Option<Py<PyAny>>,
    pub module: Py<PyModule>,
}

impl Torch {
    /// torch, where the program has imported it.
    pub fn loaded(py: Python<'_>) -> PyResult<Option<&'static Torch>> {
        static TORCH: PyOnceLock<Torch> = PyOnceLock::new();
        if let Some(torch) = TORCH.get(py) {
            return Ok(Some(torch));
        }
        let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?.cast_into::<PyDict>()?;
        let Some(module) = modules.get_item(intern!(py, "torch"))? else { return Ok(None) };
        // In the middle of its own import it has no tensors yet.
        let Ok(tensor) = module.getattr(intern!(py, "Tensor")) else { return Ok(None) };
        let mut dtypes = Vec::new();
        for (name, dtype) in [
            ("float32", Type::F32),
            ("int64", Type::I64),
            ("int32", Type::I32),
            ("bfloat16", Type::Bf16),
            ("float16", Type::F16),
            ("uint32", Type::U32),
            ("uint64", Type::U64),
            ("uint8", Type::U8),
        ] {
            // Old releases lack the unsigned ones.
            if let Ok(found) = module.getattr(name) {
                dtypes.push((found.unbind(), dtype));
            }
        }
        let raw_stream =
            module.getattr("_C").and_then(|c| c.getattr("_cuda_getCurrentRawStream")).ok().map(Bound::unbind);
        let module = module.cast_into::<PyModule>()?.unbind();
        let exchange = Exchange::of(&tensor);
        let torch = Torch { tensor: tensor.cast_into::<PyType>()?.unbind(), exchange, dtypes, raw_stream, module };
        Ok(Some(TORCH.get_or_init(py, || torch)))
    }

    fn describe(&self, name: &str, tensor: &Bound<'_, PyAny>) -> PyResult<Array> {
        let py = tensor.py();
        // By flags, as a device object and its name take longer than all the rest.
        let place = if tensor.getattr(intern!(py, "is_cuda"))?.is_truthy()? {
            let ordinal = tensor.call_method0(intern!(py, "get_device"))?.extract()?;
            Place { platform: Platform::Cuda, ordinal }
        } else if tensor.getattr(intern!(py, "is_cpu"))?.is_truthy()? {
            Place { platform: Platform::Cpu, ordinal: 0 }
        } else {
            elsewhere(name, tensor)?
        };
        let dtype = tensor.getattr(intern!(py, "dtype"))?;
        let found = self.dtypes.iter().find(|(known, _)| known.is(&dtype));
        let shape = tensor.getattr(intern!(py, "shape"))?.cast_into::<PyTuple>()?;
        // Tensors without a memory of their own (sparse, fake) refuse one or the other.
        let none = |error: PyErr| value(format!("{name} has no address: {error}"));
        let strides = tensor.call_method0(intern!(py, "stride")).map_err(none)?.cast_into::<PyTuple>()?;
        let ptr = tensor.call_method0(intern!(py, "data_ptr")).map_err(none)?;
        let mut array = Array {
            ptr: DevPtr(ptr.extract()?),
            dtype: found.map_or(Type::Other, |(_, dtype)| *dtype),
            place,
            writable: true,
            ndim: dimensions(name, shape.len())?,
            shape: [0; MOST_DIMENSIONS],
            strides: [1; MOST_DIMENSIONS],
        };
        for n in 0..array.ndim {
            array.shape[n] = shape.get_item(n)?.extract()?;
            array.strides[n] = strides.get_item(n)?.extract()?;
        }
        Ok(array)
    }
}

/// The place of a tensor that is neither on the CPU nor on an NVIDIA GPU.
fn elsewhere(name: &str, tensor: &Bound<'_, PyAny>) -> PyResult<Place> {
    let device = tensor.getattr("device")?;
    let kind: String = device.getattr("type")?.extract()?;
    if kind != "npu" {
        return Err(value(format!("{name} is on {kind}: cpu, cuda or npu is expected")));
    }
    let ordinal: Option<usize> = device.getattr("index")?.extract()?;
    Ok(Place { platform: Platform::Ascend, ordinal: ordinal.unwrap_or(0) })
}

/// The address at which an array is read, for those who want to see that nothing is copied.
#[pyfunction]
pub fn address(array: &Bound<'_, PyAny>) -> PyResult<u64> {
    Array::of("array", array, 0).map(|array| array.ptr.0)
}
