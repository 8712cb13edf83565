//! The stream a call works on: the one it is given, else the current one of the library that the logits come from.

use crate::array::{Place, Torch};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use samedraw::Platform;
use samedraw::device::RawStream;

/// Torch's current stream where torch is imported, else cupy's, else the default stream. On the CPU there is one stream.
pub fn current(py: Python<'_>, given: Option<&Bound<'_, PyAny>>, place: Place) -> PyResult<RawStream> {
    if let Some(stream) = given {
        return raw(stream);
    }
    if place.platform == Platform::Cpu {
        return Ok(RawStream::default());
    }
    if let Some(torch) = Torch::loaded(py)? {
        if place.platform == Platform::Cuda
            && let Some(raw_stream) = &torch.raw_stream
        {
            return raw_stream.call1(py, (place.ordinal,))?.extract(py).map(RawStream);
        }
        let name = if place.platform == Platform::Cuda { "cuda" } else { "npu" };
        let stream =
            torch.module.bind(py).getattr(name)?.call_method1(intern!(py, "current_stream"), (place.ordinal,))?;
        return raw(&stream);
    }
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?.cast_into::<PyDict>()?;
    match modules.get_item("cupy")? {
        Some(cupy) => raw(&cupy.getattr("cuda")?.call_method0("get_current_stream")?),
        None => Ok(RawStream::default()),
    }
}

/// A stream as an integer, or an object of torch's, cupy's or cuda-python's.
fn raw(stream: &Bound<'_, PyAny>) -> PyResult<RawStream> {
    for name in ["cuda_stream", "npu_stream", "ptr"] {
        if let Ok(found) = stream.getattr(name) {
            return found.extract().map(RawStream);
        }
    }
    let asked = stream.extract::<u64>();
    asked.map(RawStream).map_err(|_| {
        let what = stream.get_type().name().map_or_else(|_| "an object".into(), |name| name.to_string());
        crate::errors::argument(format!("stream is a {what}: an address or a stream of torch or cupy is expected"))
    })
}
