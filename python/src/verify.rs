//! Verification of drafts from keyword arguments.

use crate::array::Array;
use crate::errors::{argument, value};
use crate::step::{ANY_INT, Arguments, F32, I32, index_of};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use samedraw::batch::PositionRule;
use samedraw::device::DevPtr;
use samedraw::pipeline::{Drafts, Verify as Core, VerifyMode};

/// Verification of drafts, for ``Sampler.step(verify=...)``; the step's rows are grouped by request.
///
/// mode: "rejection", "one_hot" or "chain"; positions: "strided" or "sequential". Arrays on the sampler's device:
/// first_rows int32 ``[requests + 1]``, row_to_request and draft_ids int32 or int64 ``[rows]``, accepted int32
/// ``[requests]`` (written); for rejection draft_logprobs float32 ``[pool, columns]`` with draft_columns int32 alike, where
/// column is not id, and draft_rows int32 or int64 ``[rows]``; written where given: accept_index int32 ``[requests, longest
/// request]``, row_accepts int32 ``[rows]``.
#[pyclass(frozen, module = "samedraw")]
pub struct Verify {
    mode: VerifyMode,
    rule: PositionRule,
    arrays: Py<PyDict>,
}

#[pymethods]
impl Verify {
    #[new]
    #[pyo3(signature = (mode, *, positions = "strided", **arrays))]
    fn new(py: Python<'_>, mode: &str, positions: &str, arrays: Option<Bound<'_, PyDict>>) -> PyResult<Self> {
        let mode = match mode {
            "rejection" => VerifyMode::Rejection,
            "one_hot" => VerifyMode::OneHot,
            "chain" => VerifyMode::Chain,
            other => return Err(value(format!("mode = {other:?} is refused: rejection, one_hot or chain"))),
        };
        let rule = match positions {
            "strided" => PositionRule::Strided,
            "sequential" => PositionRule::Sequential,
            other => return Err(value(format!("positions = {other:?} is refused: strided or sequential"))),
        };
        let arrays = arrays.unwrap_or_else(|| PyDict::new(py));
        const KNOWN: [&str; 9] = [
            "first_rows",
            "row_to_request",
            "draft_ids",
            "draft_logprobs",
            "draft_columns",
            "draft_rows",
            "accepted",
            "accept_index",
            "row_accepts",
        ];
        for key in arrays.keys() {
            let key: String = key.extract()?;
            if !KNOWN.contains(&key.as_str()) {
                return Err(argument(format!("Verify has no argument {key:?}")));
            }
        }
        Ok(Verify { mode, rule, arrays: arrays.unbind() })
    }
}

impl<'py> Arguments<'py> {
    pub fn verify(&self, verify: &Bound<'py, PyAny>, rows: usize) -> PyResult<Core> {
        let py = verify.py();
        let verify = verify.cast::<Verify>().map_err(|_| argument("verify is to be a samedraw.Verify"))?.get();
        let arrays = verify.arrays.bind(py);
        let get = |name: &str| -> PyResult<Option<Bound<'py, PyAny>>> {
            Ok(arrays.get_item(name)?.filter(|object| !object.is_none()))
        };
        let needed = |name: &str| get(name)?.ok_or_else(|| value(format!("{name} is missing: verification needs it")));
        let entries = |name: &str, types, n, out| -> PyResult<Option<Array>> {
            get(name)?.map(|object| self.entries(name, &object, types, n, out)).transpose()
        };
        let first_rows = self.array("first_rows", &needed("first_rows")?, I32)?;
        let requests = first_rows.shape().first().map_or(0, |&n| n.saturating_sub(1));
        self.entries("first_rows", &needed("first_rows")?, I32, requests + 1, false)?;
        let drafts = match get("draft_logprobs")? {
            None => match (get("draft_columns")?, get("draft_rows")?) {
                (None, None) => None,
                _ => return Err(value("draft_columns and draft_rows are given without draft_logprobs")),
            },
            Some(object) => {
                let (logprobs, width, stride) = self.matrix("draft_logprobs", &object, F32, None, false)?;
                let pool_rows = logprobs.shape()[0];
                let columns = get("draft_columns")?
                    .map(|object| self.matrix("draft_columns", &object, I32, Some(pool_rows), false))
                    .transpose()?;
                if let Some((_, other, apart)) = columns
                    && (other, apart) != (width, stride)
                {
                    return Err(value(format!(
                        "draft_columns has {other} columns, {apart} apart; draft_logprobs {width}, {stride} apart"
                    )));
                }
                Some(Drafts {
                    logprobs: logprobs.ptr,
                    columns: columns.map_or(DevPtr::NULL, |(array, ..)| array.ptr),
                    stride,
                    width,
                    pool_rows,
                    rows: entries("draft_rows", ANY_INT, rows, false)?.map(index_of),
                })
            }
        };
        let accept_index = get("accept_index")?
            .map(|object| self.matrix("accept_index", &object, I32, Some(requests), true))
            .transpose()?;
        if let Some((_, width, stride)) = accept_index
            && width != stride
        {
            return Err(value(format!(
                "accept_index has stride {stride} between rows: its {width} columns are expected"
            )));
        }
        let all = |name: &str, types, n, out| self.entries(name, &needed(name)?, types, n, out);
        Ok(Core {
            mode: verify.mode,
            requests,
            first_rows: first_rows.ptr,
            row_to_request: index_of(all("row_to_request", ANY_INT, rows, false)?),
            position_stride: verify.rule.stride(),
            draft_ids: index_of(all("draft_ids", ANY_INT, rows, false)?),
            drafts,
            accepted: all("accepted", I32, requests, true)?.ptr,
            accept_index: accept_index.map_or(DevPtr::NULL, |(array, ..)| array.ptr),
            accept_width: accept_index.map_or(0, |(_, width, _)| width),
            row_accepts: entries("row_accepts", I32, rows, true)?.map_or(DevPtr::NULL, |array| array.ptr),
        })
    }
}
