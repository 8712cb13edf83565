//! A step on host data, run on any device: for tests, command lines and replays, not for a decode loop.

mod run;

pub use run::HostRun;

use super::blocks::status;
use super::limits::MAX_VOCAB;
use super::step::{DType, Filters, VerifyMode};
use crate::error::{Error, Result};
use crate::params::SamplingParams;

const OP: &str = "host step";

/// Masks in host memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostMask<'a> {
    /// `[rows, stride]` words.
    pub words: &'a [i32],
    /// Words from one row to the next.
    pub stride: usize,
    /// Mask row for each row.
    pub index: Option<&'a [i32]>,
}

/// Verification with everything in host memory.
#[derive(Debug, Clone, Copy)]
pub struct HostVerify<'a> {
    /// How.
    pub mode: VerifyMode,
    /// `[requests + 1]`.
    pub first_rows: &'a [i32],
    /// `[rows]`.
    pub row_to_request: &'a [i32],
    /// Distance between positions of neighbouring rows.
    pub position_stride: i64,
    /// `[rows]`.
    pub draft_ids: &'a [i64],
    /// f32 `[pool_rows, draft_width]`; empty unless the mode is rejection.
    pub draft_logprobs: &'a [f32],
    /// `[pool_rows, draft_width]`; empty: column = id.
    pub draft_columns: &'a [i32],
    /// Columns of a draft row.
    pub draft_width: usize,
    /// Pool row of each row `[rows]`; empty: the same number.
    pub draft_rows: &'a [i32],
}

/// A step in host memory. See [`Step`](super::Step) for the meaning of the fields.
#[derive(Debug, Clone, Copy)]
pub struct HostStep<'a> {
    /// Bytes of the logits; `logits_offset` bytes in, row 0 starts.
    pub logits: &'a [u8],
    /// Where row 0 starts, in bytes: tests move it to vary the alignment.
    pub logits_offset: usize,
    /// Their type.
    pub dtype: DType,
    /// Vocabulary size.
    pub vocab: usize,
    /// Elements from one row to the next.
    pub stride: usize,
    /// Rows the logits hold.
    pub logits_rows: usize,
    /// Rows to process.
    pub rows: usize,
    /// Logits row of each row.
    pub gather: Option<&'a [i64]>,
    /// Force-top-k.
    pub force_topk: usize,
    /// Masks.
    pub mask: Option<HostMask<'a>>,
    /// Parameters, one a slot.
    pub params: &'a [SamplingParams],
    /// Slot of each row; `None`: the same number.
    pub row_to_slot: Option<&'a [i32]>,
    /// Positions, one a row or one a request; `None`: no draw.
    pub positions: Option<&'a [i64]>,
    /// Added to the positions.
    pub position_offsets: Option<&'a [i32]>,
    /// Draft model's stream.
    pub draft_step: Option<i64>,
    /// Golden tokens, one a row.
    pub golden: Option<&'a [i64]>,
    /// Filters in use.
    pub filters: Option<Filters>,
    /// Verification.
    pub verify: Option<HostVerify<'a>>,
    /// Width of the top lists, 0 = none.
    pub top_logprobs: usize,
    /// Whether to report dense logprobs.
    pub dense: bool,
    /// Whether to report ranks and the numbers of kept tokens.
    pub places: bool,
    /// Whether to report raw logprobs.
    pub raw_logprobs: bool,
    /// Whether to report sum_smaller_probs.
    pub sum_smaller_probs: bool,
    /// Width of the kept lists, 0 = none.
    pub kept_ids: usize,
    /// Whether a step that verifies reports accept_index, `[requests, longest request]`. One long request among many
    /// short ones makes it far larger than the step.
    pub accept_index: bool,
    /// Whether to report the selected columns.
    pub columns: bool,
    /// Whether to report anything but tokens, logprobs and status is up to the fields above; false
    /// here asks for the columns alone.
    pub rows_wanted: bool,
    /// Test hook: draw bits `[rows, 3]`.
    #[doc(hidden)]
    pub injected_bits: Option<&'a [u64]>,
}

impl Default for HostStep<'_> {
    fn default() -> Self {
        HostStep {
            logits: &[],
            logits_offset: 0,
            dtype: DType::F32,
            vocab: 0,
            stride: 0,
            logits_rows: 0,
            rows: 0,
            gather: None,
            force_topk: 0,
            mask: None,
            params: &[],
            row_to_slot: None,
            positions: None,
            position_offsets: None,
            draft_step: None,
            golden: None,
            filters: None,
            verify: None,
            top_logprobs: 0,
            dense: false,
            places: true,
            raw_logprobs: false,
            sum_smaller_probs: false,
            kept_ids: 0,
            accept_index: true,
            columns: false,
            rows_wanted: true,
            injected_bits: None,
        }
    }
}

/// Results of a [`HostStep`], flat, one entry a row unless said otherwise. Slots a device did not write hold the
/// poison each buffer starts with: -7777 in integers, NaN in floats.
#[derive(Debug, Clone, PartialEq, Default)]
#[allow(missing_docs)]
pub struct HostResult {
    pub tokens: Vec<i64>,
    pub logprobs: Vec<f32>,
    pub ranks: Vec<i32>,
    pub kept_counts: Vec<i32>,
    pub status: Vec<i32>,
    pub raw_logprobs: Vec<f32>,
    pub sum_smaller_probs: Vec<f32>,
    /// `[rows, top_logprobs]`.
    pub top_ids: Vec<i32>,
    /// `[rows, top_logprobs]`.
    pub top_logprobs: Vec<f32>,
    pub top_counts: Vec<i32>,
    /// `[rows, N]`.
    pub dense: Vec<f32>,
    /// `[rows, N]`.
    pub dense_ids: Vec<i32>,
    /// `[rows, kept_ids]`.
    pub kept_ids: Vec<i32>,
    /// `[rows, N]`.
    pub column_values: Vec<f32>,
    /// `[rows, N]`.
    pub column_ids: Vec<i32>,
    /// `[requests]`.
    pub accepted: Vec<i32>,
    /// `[requests, longest request]`; empty where it was not asked for.
    pub accept_index: Vec<i32>,
}

impl HostResult {
    /// The row's status names.
    pub fn status_names(&self, row: usize) -> Vec<&'static str> {
        status::names(self.status[row])
    }
}

/// Holds every host array to the shape the step states, so that the device never reads past one.
fn check_arrays(host: &HostStep<'_>) -> Result<()> {
    let exact = |what, len: usize, want: usize| {
        if len == want { Ok(()) } else { Err(Error::argument(OP, what, len, format!("{want} elements"))) }
    };
    let bytes = host
        .logits_rows
        .checked_mul(host.stride)
        .and_then(|n| n.checked_mul(host.dtype.bytes()))
        .and_then(|n| n.checked_add(host.logits_offset));
    if bytes.is_none_or(|bytes| bytes > host.logits.len()) {
        let limit =
            format!("rows = {} of {} elements behind offset {}", host.logits_rows, host.stride, host.logits_offset);
        return Err(Error::argument(OP, "logits bytes", host.logits.len(), limit));
    }
    // Rows times this stays far from overflow, as no sampler has more than 2^31 rows.
    for (what, width) in [("top_logprobs", host.top_logprobs), ("kept_ids", host.kept_ids)] {
        if width > MAX_VOCAB {
            return Err(Error::argument(OP, what, width, format!("at most {MAX_VOCAB}")));
        }
    }
    let optional = |what, len: Option<usize>, want| len.map_or(Ok(()), |len| exact(what, len, want));
    let requests = host.verify.map_or(host.rows, |v| v.first_rows.len().saturating_sub(1));
    optional("gather", host.gather.map(<[_]>::len), host.rows)?;
    optional("row_to_slot", host.row_to_slot.map(<[_]>::len), host.rows)?;
    optional("positions", host.positions.map(<[_]>::len), requests)?;
    optional("position_offsets", host.position_offsets.map(<[_]>::len), requests)?;
    optional("golden", host.golden.map(<[_]>::len), host.rows)?;
    optional("injected bits", host.injected_bits.map(<[_]>::len), host.rows.saturating_mul(3))?;
    if let Some(mask) = &host.mask {
        optional("mask index", mask.index.map(<[_]>::len), host.rows)?;
        if mask.stride == 0 || !mask.words.len().is_multiple_of(mask.stride) {
            return Err(Error::argument(OP, "mask words", mask.words.len(), format!("rows of {} words", mask.stride)));
        }
    }
    if let Some(verify) = &host.verify {
        exact("row_to_request", verify.row_to_request.len(), host.rows)?;
        exact("draft_ids", verify.draft_ids.len(), host.rows)?;
        let ascending = verify.first_rows.windows(2).all(|w| w[0] <= w[1]);
        let ends = (verify.first_rows.first(), verify.first_rows.last());
        if !ascending || ends.0 != Some(&0) || ends.1.is_none_or(|&last| last < 0 || last as usize > host.rows) {
            let last = ends.1.copied().unwrap_or(-1);
            return Err(Error::argument(OP, "first_rows", last, format!("ascending from 0 to at most {}", host.rows)));
        }
        if !verify.draft_logprobs.is_empty() || verify.draft_width != 0 {
            let cells = verify.draft_logprobs.len();
            if verify.draft_width == 0 || !cells.is_multiple_of(verify.draft_width) {
                let limit = format!("rows of {} columns", verify.draft_width);
                return Err(Error::argument(OP, "draft logprobs", cells, limit));
            }
            if !verify.draft_columns.is_empty() {
                exact("draft columns", verify.draft_columns.len(), cells)?;
            }
        }
        if !verify.draft_rows.is_empty() {
            exact("draft rows", verify.draft_rows.len(), host.rows)?;
        }
    }
    Ok(())
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use super::*;
    use crate::device::CpuDevice;
    use std::sync::Arc;

    #[test]
    fn widths_and_rows_whose_product_overflows_are_refused() {
        let device = Arc::new(CpuDevice::with_threads(1));
        let params = [SamplingParams::greedy(), SamplingParams::greedy()];
        let step = HostStep {
            logits: &[0; 16],
            vocab: 2,
            stride: 2,
            logits_rows: 2,
            rows: 2,
            params: &params,
            positions: Some(&[1, 1]),
            ..HostStep::default()
        };
        let refused = |step: HostStep<'_>| HostRun::new(&device, &step).expect_err("refused").to_string();
        let wide = 1 << (usize::BITS - 1);
        let message = format!("host step: top_logprobs = {wide} is refused: at most 8388608");
        assert_eq!(refused(HostStep { top_logprobs: wide, ..step }), message);
        let message = format!("host step: kept_ids = {wide} is refused: at most 8388608");
        assert_eq!(refused(HostStep { kept_ids: wide, ..step }), message);
        let message = format!("limits: rows = {} is refused: 1 to 2147483647", usize::MAX);
        assert_eq!(refused(HostStep { rows: usize::MAX, positions: None, ..step }), message);
    }
}
