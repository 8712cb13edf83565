//! Devices, parameter tables, samplers and captured steps.

use crate::array::{Array, Place, Type};
use crate::errors::{argument, of, value};
use crate::params_of;
use crate::step::{Arguments, place_of};
use crate::stream;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use samedraw::device::{RawStream, open};
use samedraw::pipeline::{CapturedStep as Captured, Index, Variant};
use samedraw::{Device as Core, Limits, ParamTable as Table, Sampler as CoreSampler};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

fn place(device: &Arc<dyn Core>) -> Place {
    place_of(device.info().platform, device.info().ordinal)
}

/// A device, by its name: "cpu", "cuda", "cuda:1", "ascend".
///
/// Raises RuntimeError where the platform cannot be used, with the reason and what was looked for.
#[pyclass(frozen, module = "samedraw")]
pub struct Device {
    device: Arc<dyn Core>,
}

#[pymethods]
impl Device {
    #[new]
    #[pyo3(signature = (name = "cpu"))]
    fn new(py: Python<'_>, name: &str) -> PyResult<Self> {
        Ok(Device { device: py.detach(|| open(name)).map_err(of)? })
    }

    /// "cpu", "cuda" or "ascend".
    #[getter]
    fn platform(&self) -> &'static str {
        self.device.info().platform.name()
    }

    /// Its number on the platform.
    #[getter]
    fn ordinal(&self) -> usize {
        self.device.info().ordinal
    }

    /// Chip and what matters of its size.
    #[getter]
    fn name(&self) -> &str {
        &self.device.info().name
    }

    /// Whether its arithmetic rounds as the semantics ask.
    #[getter]
    fn exact(&self) -> bool {
        self.device.info().exact
    }

    /// Largest force_topk; None = no limit.
    #[getter]
    fn max_force_topk(&self) -> Option<usize> {
        self.device.info().platform.max_force_topk()
    }

    /// Waits for a stream.
    #[pyo3(signature = (stream = None))]
    fn synchronize(&self, py: Python<'_>, stream: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let stream = stream::current(py, stream.as_ref(), place(&self.device))?;
        // SAFETY: the stream is the caller's.
        py.detach(|| unsafe { self.device.synchronize(stream) }).map_err(of)
    }

    fn __repr__(&self) -> String {
        format!("Device({}: {})", place(&self.device), self.device.info().name)
    }
}

/// Parameters of requests, one slot each, in device memory.
#[pyclass(frozen, module = "samedraw")]
pub struct ParamTable {
    device: Arc<dyn Core>,
    table: Arc<Table<dyn Core>>,
}

#[pymethods]
impl ParamTable {
    #[new]
    fn new(device: &Device, slots: usize) -> PyResult<Self> {
        let table = Table::new(&device.device, slots).map_err(of)?;
        Ok(ParamTable { device: Arc::clone(&device.device), table: Arc::new(table) })
    }

    /// Number of slots.
    #[getter]
    fn slots(&self) -> usize {
        self.table.slots()
    }

    /// Writes a slot, in order with the work on the stream, and returns the seed in use.
    ///
    /// Keywords: temperature, top_p, top_k, min_p, seed, filter_order ("joint" or "top_k_first"); what is left out has its
    /// default, which keeps every token. Raises ValueError for a value out of range, by its name, and RuntimeError while
    /// the 64 writes before it are in flight.
    #[pyo3(signature = (slot, *, stream = None, **params))]
    fn set(
        &self,
        py: Python<'_>,
        slot: usize,
        stream: Option<Bound<'_, PyAny>>,
        params: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u64> {
        let (params, stream) = (params_of(params)?, stream::current(py, stream.as_ref(), place(&self.device))?);
        // SAFETY: the stream is the caller's, and not capturing.
        unsafe { self.table.set(stream, slot, &params) }.map_err(of)
    }

    /// Empties a slot: a row that still names it gets token -1 and status bad_index.
    #[pyo3(signature = (slot, *, stream = None))]
    fn clear(&self, py: Python<'_>, slot: usize, stream: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let stream = stream::current(py, stream.as_ref(), place(&self.device))?;
        // SAFETY: as in `set`.
        unsafe { self.table.clear(stream, slot) }.map_err(of)
    }
}

/// Runs steps of up to ``rows`` rows of ``vocab`` tokens: one workspace, one step in flight.
///
/// slots: slots of a parameter table of its own, as many as rows unless given; table: a table to share instead.
/// force_topk: the largest of a step. verify, remap: whether steps verify drafts, and drafts have columns of their own.
/// workspace: memory to use, an array ``[bytes]`` aligned to 256, held while the sampler lives; see ``workspace_bytes``.
#[pyclass(frozen, module = "samedraw")]
pub struct Sampler {
    device: Arc<dyn Core>,
    table: Arc<Table<dyn Core>>,
    sampler: Mutex<CoreSampler<dyn Core>>,
    /// The caller's memory, if it lent the workspace.
    workspace: Option<Py<PyAny>>,
}

fn limits(rows: usize, vocab: usize, force_topk: usize, verify: bool, remap: bool) -> Limits {
    Limits { rows, vocab, force_topk, verify, remap }
}

#[pymethods]
impl Sampler {
    #[new]
    #[pyo3(signature = (device, rows, vocab, *, slots = None, table = None, force_topk = 0, verify = false, remap = false, workspace = None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn new(
        py: Python<'_>,
        device: &Device,
        rows: usize,
        vocab: usize,
        slots: Option<usize>,
        table: Option<&ParamTable>,
        force_topk: usize,
        verify: bool,
        remap: bool,
        workspace: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let device = &device.device;
        let limits = limits(rows, vocab, force_topk, verify, remap);
        let table = match (table, slots) {
            (Some(_), Some(_)) => return Err(argument("slots and table are given: one of them is expected")),
            (Some(table), None) if Arc::ptr_eq(&table.device, device) => Arc::clone(&table.table),
            (Some(_), None) => return Err(value("the table is of another device")),
            (None, slots) => Arc::new(Table::new(device, slots.unwrap_or(rows)).map_err(of)?),
        };
        let sampler = match &workspace {
            // Compiles kernels, on a GPU.
            None => py.detach(|| CoreSampler::new(device, limits, &table)),
            Some(lent) => {
                let array = Array::of("workspace", lent, 0)?;
                if array.place != place(device) {
                    return Err(value(format!("workspace is on {}, the device is {}", array.place, place(device))));
                }
                let [n] = *array.shape() else {
                    return Err(value(format!("workspace has shape {:?}: [bytes] is expected", array.shape())));
                };
                let bytes =
                    n * array.dtype_bytes().ok_or_else(|| value("workspace: a type of 1, 4 or 8 bytes is expected"))?;
                // SAFETY: the array lives as long as the sampler, which holds it; the caller leaves it alone.
                unsafe { CoreSampler::with_workspace(device, limits, &table, array.ptr, bytes) }
            }
        };
        Ok(Sampler {
            device: Arc::clone(device),
            table,
            sampler: Mutex::new(sampler.map_err(of)?),
            workspace: workspace.map(Bound::unbind),
        })
    }

    /// Bytes of workspace that such a sampler needs.
    #[staticmethod]
    #[pyo3(signature = (device, rows, vocab, *, force_topk = 0, verify = false, remap = false))]
    fn workspace_bytes(
        device: &Device,
        rows: usize,
        vocab: usize,
        force_topk: usize,
        verify: bool,
        remap: bool,
    ) -> PyResult<usize> {
        CoreSampler::workspace_bytes(&*device.device, &limits(rows, vocab, force_topk, verify, remap)).map_err(of)
    }

    /// The device.
    #[getter]
    fn device(&self) -> Device {
        Device { device: Arc::clone(&self.device) }
    }

    /// The parameter table.
    #[getter]
    fn table(&self) -> ParamTable {
        ParamTable { device: Arc::clone(&self.device), table: Arc::clone(&self.table) }
    }

    /// As ``ParamTable.set`` of the sampler's table.
    #[pyo3(signature = (slot, *, stream = None, **params))]
    fn set_params(
        &self,
        py: Python<'_>,
        slot: usize,
        stream: Option<Bound<'_, PyAny>>,
        params: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u64> {
        self.table().set(py, slot, stream, params)
    }

    /// As ``ParamTable.clear``.
    #[pyo3(signature = (slot, *, stream = None))]
    fn clear(&self, py: Python<'_>, slot: usize, stream: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        self.table().clear(py, slot, stream)
    }

    /// Enqueues one step on the current stream. Nothing is copied, allocated or waited for; Python may run meanwhile.
    ///
    /// logits: float32, float16 or bfloat16 ``[rows, vocab]``, tokens next to each other. Keywords, each an array on the
    /// sampler's device unless said otherwise:
    ///
    /// - positions: int64 ``[rows]``, or ``[requests]`` when verifying; without it golden tokens are scored
    /// - slots: int32 or int64 ``[rows]``, -1 = padding; params: int64 ``[slots, 8]`` in place of the table
    /// - gather: int32 or int64 ``[rows]``, row of the logits
    /// - mask: int32 ``[mask rows, ceil(vocab / 32)]``; mask_index: int32 or int64 ``[rows]``, -1 = none
    /// - golden: int32 or int64 ``[rows]``, -1 = none; position_offsets: int32, as positions; draft_step: a number
    /// - force_topk, rows, vocab: numbers; filters: names of "top_k", "top_p", "min_p", "all_greedy"
    /// - verify: a Verify; stream: an address or a stream of torch or cupy, in place of the current one
    ///
    /// Outputs, written where given: tokens int32 or int64, logprobs, raw_logprobs, sum_smaller_probs float32, ranks,
    /// kept_counts, status int32, all ``[rows]``; top_ids int32, top_logprobs float32 ``[rows, k]``, top_counts int32
    /// ``[rows]``; dense float32, dense_ids int32 ``[rows, N]``; kept_ids int32 ``[rows, k]``; column_values float32,
    /// column_ids int32 ``[rows, N]``.
    ///
    /// Raises ValueError for an array on another device, of another type, shape or stride, and for a number out of range,
    /// by name; TypeError for an argument that a step does not have and for an object that is no array.
    #[pyo3(signature = (logits, **keywords))]
    fn step(&self, py: Python<'_>, logits: Bound<'_, PyAny>, keywords: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let arguments = Arguments::new(py, keywords, place(&self.device))?;
        let (step, stream) = (arguments.step(&logits)?, arguments.stream());
        // Another thread's step may hold the sampler, and need Python to finish: it is waited for without.
        // SAFETY: the arrays were held to the shapes that the step states and live through the call; a device's work
        // after it is ordered before what their libraries do with the memory next.
        py.detach(|| unsafe { self.lock().step(stream, &step) }).map_err(of)
    }

    /// Captures a step, with the arguments of ``step``, on a stream that is not the default one; runs nothing.
    ///
    /// variant: the filters its replays may meet: default (any), no_filter, top_k, top_p, top_k_top_p, verify,
    /// verify_no_filter. The captured step keeps the arrays alive.
    #[pyo3(signature = (logits, *, variant = "default", **keywords))]
    fn capture(
        &self,
        py: Python<'_>,
        logits: Bound<'_, PyAny>,
        variant: &str,
        keywords: Option<Bound<'_, PyDict>>,
    ) -> PyResult<CapturedStep> {
        let variant = match variant {
            "default" => Variant::Default,
            "no_filter" => Variant::NoFilter,
            "top_k" => Variant::TopK,
            "top_p" => Variant::TopP,
            "top_k_top_p" => Variant::TopKTopP,
            "verify" => Variant::Verify,
            "verify_no_filter" => Variant::VerifyNoFilter,
            other => return Err(value(format!("variant = {other:?} is refused: default, no_filter, top_k, ..."))),
        };
        let arguments = Arguments::new(py, keywords.as_ref(), place(&self.device))?;
        let (step, stream) = (arguments.step(&logits)?, arguments.stream());
        // SAFETY: as in `step`; the captured step holds the arrays.
        let captured = unsafe { self.lock().capture(stream, &step, variant) }.map_err(of)?;
        let keep =
            (logits.unbind(), keywords.map(Bound::unbind), self.workspace.as_ref().map(|lent| lent.clone_ref(py)));
        Ok(CapturedStep { captured, place: place(&self.device), stream, _keep: keep })
    }

    /// Writes the step just taken, with the arguments it was taken with, to a step file of at most ``max_bytes``.
    ///
    /// Waits for the stream. ``samedraw run PATH --compare cpu`` replays it. Raises ValueError where the file would be
    /// larger or cannot say what the step was, OSError where it cannot be written.
    #[pyo3(signature = (path, max_bytes, logits, **keywords))]
    fn record(
        &self,
        py: Python<'_>,
        path: PathBuf,
        max_bytes: usize,
        logits: Bound<'_, PyAny>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let arguments = Arguments::new(py, keywords, place(&self.device))?;
        let (step, stream) = (arguments.step(&logits)?, arguments.stream());
        // SAFETY: as in `step`.
        py.detach(|| unsafe { self.lock().record(stream, &step, max_bytes) }?.write(path)).map_err(of)
    }

    /// Scores the prompt's tokens: ``out[i]`` becomes the logprob of ``targets[i]`` under ``logits[i]``.
    ///
    /// targets and slots: int32 or int64 ``[rows]``; logits ``[rows, vocab]``; out: float32 ``[rows]``. Any number of rows:
    /// it goes in pieces of the sampler's row limit.
    #[pyo3(signature = (targets, slots, logits, out, *, stream = None))]
    fn prompt_logprobs(
        &self,
        py: Python<'_>,
        targets: Bound<'_, PyAny>,
        slots: Bound<'_, PyAny>,
        logits: Bound<'_, PyAny>,
        out: Bound<'_, PyAny>,
        stream: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let keywords = PyDict::new(py);
        if let Some(stream) = stream {
            keywords.set_item("stream", stream)?;
        }
        keywords.set_item("golden", targets)?;
        keywords.set_item("slots", slots)?;
        keywords.set_item("logprobs", out)?;
        let arguments = Arguments::new(py, Some(&keywords), place(&self.device))?;
        let (step, stream) = (arguments.step(&logits)?, arguments.stream());
        let given = step.logits;
        let skip = |rows: usize| given.ptr.offset(rows * given.stride * given.dtype.bytes());
        let index = |index: Option<Index>| index.unwrap_or_default();
        let (targets, slots, out) = (index(step.golden), index(step.row_to_slot), step.outputs.logprobs);
        let mut chunk = |rows: std::ops::Range<usize>| {
            Ok(samedraw::pipeline::Logits { ptr: skip(rows.start), rows: rows.len(), ..given })
        };
        if step.rows > given.rows {
            return Err(value(format!("logits have {} rows: one a target = {} is expected", given.rows, step.rows)));
        }
        // SAFETY: as in `step`.
        unsafe { self.lock().prompt_logprobs(stream, step.rows, targets, slots, &mut chunk, out) }.map_err(of)
    }
}

impl Sampler {
    fn lock(&self) -> std::sync::MutexGuard<'_, CoreSampler<dyn Core>> {
        // A sampler keeps nothing of a step on the host that a panic could leave half done.
        self.sampler.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a captured step keeps alive: its logits, its other arrays, the lent workspace.
type Kept = (Py<PyAny>, Option<Py<PyDict>>, Option<Py<PyAny>>);

/// A captured step; it keeps its arrays, the workspace and the table alive.
#[pyclass(frozen, module = "samedraw")]
pub struct CapturedStep {
    captured: Captured<dyn Core>,
    place: Place,
    stream: RawStream,
    _keep: Kept,
}

#[pymethods]
impl CapturedStep {
    /// Enqueues one replay, on the stream it was captured on unless another is given.
    #[pyo3(signature = (stream = None))]
    fn replay(&self, py: Python<'_>, stream: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let stream = match &stream {
            None => self.stream,
            given => stream::current(py, given.as_ref(), self.place)?,
        };
        // SAFETY: the arrays are held.
        py.detach(|| unsafe { self.captured.replay(stream) }).map_err(of)
    }
}

impl Array {
    /// Bytes of an element; of the types we know, and bytes.
    fn dtype_bytes(&self) -> Option<usize> {
        match self.dtype {
            Type::F16 | Type::Bf16 => Some(2),
            Type::F32 | Type::I32 | Type::U32 => Some(4),
            Type::I64 | Type::U64 => Some(8),
            Type::U8 => Some(1),
            Type::Other => None,
        }
    }
}
