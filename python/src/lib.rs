//! The Python bindings: `samedraw._samedraw`. Arrays are taken where they are, by address; what Python can get wrong is
//! checked and said by name; the rest is the Rust API.
//!
//! | file | what |
//! |---|---|
//! | `dlpack` | the exchange format |
//! | `array` | an array of any library: its address, type, shape and place |
//! | `stream` | the caller's current stream |
//! | `step`, `verify` | a step from keyword arguments |
//! | `classes` | `Device`, `ParamTable`, `Sampler`, `CapturedStep` |
//! | `errors` | errors as Python's |

mod array;
mod classes;
mod dlpack;
mod errors;
mod step;
mod stream;
mod verify;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use samedraw::pipeline::blocks::{SlotBlock, status};
use samedraw::{FilterOrder, SamplingParams};

/// Sampling parameters from keyword arguments.
fn params_of(given: Option<&Bound<'_, PyDict>>) -> PyResult<SamplingParams> {
    let mut params = SamplingParams::default();
    for (key, value) in given.into_iter().flatten() {
        let key: String = key.extract()?;
        match key.as_str() {
            // To the nearest f32, as the semantics ask; a Python float is an f64.
            "temperature" => params.temperature = value.extract::<f64>()? as f32,
            "top_p" => params.top_p = value.extract::<f64>()? as f32,
            "top_k" => params.top_k = value.extract()?,
            "min_p" => params.min_p = value.extract::<f64>()? as f32,
            "seed" => params.seq_seed = value.extract()?,
            "filter_order" => {
                params.filter_order = match value.extract::<String>()?.as_str() {
                    "joint" => FilterOrder::Joint,
                    "top_k_first" => FilterOrder::TopKFirst,
                    other => {
                        return Err(errors::value(format!(
                            "filter_order = {other:?} is refused: joint or top_k_first"
                        )));
                    }
                }
            }
            other => return Err(errors::argument(format!("there is no sampling parameter {other:?}"))),
        }
    }
    Ok(params)
}

/// The row of eight integers that a parameter table holds for these parameters.
#[pyfunction]
#[pyo3(signature = (**params))]
fn param_row(params: Option<&Bound<'_, PyDict>>) -> PyResult<[u64; 8]> {
    let params = params_of(params)?;
    let seed = params.resolve_seed().map_err(errors::of)?;
    let SlotBlock { live, scale, top_p, top_k, min_exponent, seed, top_k_first, reserved } =
        params.to_slot(seed).map_err(errors::of)?;
    Ok([live, scale, top_p, top_k, min_exponent, seed, top_k_first, reserved])
}

/// Every platform's name, with what is there or why nothing is.
#[pyfunction]
fn devices() -> Vec<(&'static str, bool, String)> {
    let line = |probe: samedraw::device::Probe| match probe.state {
        Ok(info) => (probe.platform.name(), true, info.name),
        Err(why) => (probe.platform.name(), false, why.to_string()),
    };
    samedraw::device::probe().into_iter().map(line).collect()
}

/// The names of a row status's bits.
#[pyfunction]
fn status_names(bits: i32) -> Vec<&'static str> {
    status::names(bits)
}

#[pymodule]
fn _samedraw(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<classes::Device>()?;
    module.add_class::<classes::ParamTable>()?;
    module.add_class::<classes::Sampler>()?;
    module.add_class::<classes::CapturedStep>()?;
    module.add_class::<verify::Verify>()?;
    module.add_function(wrap_pyfunction!(param_row, module)?)?;
    module.add_function(wrap_pyfunction!(devices, module)?)?;
    module.add_function(wrap_pyfunction!(status_names, module)?)?;
    module.add_function(wrap_pyfunction!(array::address, module)?)?;
    Ok(())
}
