//! The stream a call works on: the one it is given, else the current one of a library that the program has imported.

use crate::array::{Place, Torch};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use samedraw::Platform;
use samedraw::device::RawStream;

/// Torch's current stream where a torch with CUDA is imported, else cupy's, else the default stream. On the CPU there is one stream.
pub fn current(py: Python<'_>, given: Option<&Bound<'_, PyAny>>, place: Place) -> PyResult<RawStream> {
    if let Some(stream) = given {
        return raw(stream);
    }
    if place.platform == Platform::Cpu {
        return Ok(RawStream::default());
    }
    if let Some(torch) = Torch::loaded(py)? {
        if place.platform == Platform::Ascend {
            let npu = torch.module.bind(py).getattr("npu")?;
            return raw(&npu.call_method1(intern!(py, "current_stream"), (place.ordinal,))?);
        }
        if let Some(raw_stream) = &torch.raw_stream {
            return raw_stream.call1(py, (place.ordinal,))?.extract(py).map(RawStream);
        }
    }
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?.cast_into::<PyDict>()?;
    match modules.get_item("cupy")? {
        Some(cupy) => raw(&cupy.getattr("cuda")?.call_method0("get_current_stream")?),
        None => Ok(RawStream::default()),
    }
}

/// A stream as an integer, or an object of torch's, cupy's or cuda-python's.
fn raw(stream: &Bound<'_, PyAny>) -> PyResult<RawStream> {
    if let Ok(address) = stream.extract() {
        return Ok(RawStream(address));
    }
    for name in ["cuda_stream", "npu_stream", "ptr"] {
        if let Ok(found) = stream.getattr(name) {
            return found.extract().map(RawStream);
        }
    }
    let what = stream.get_type().name().map_or_else(|_| "an object".into(), |name| name.to_string());
    Err(crate::errors::argument(format!("stream is a {what}: an address or a stream of torch or cupy is expected")))
}
