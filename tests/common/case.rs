//! A step on owned host data, and the few lines that run it.

use super::oracle;
use samedraw::device::DevPtr;
use samedraw::pipeline::{
    DType, Filters, HostMask, HostResult, HostRun, HostStep, HostVerify, Outputs, Step, VerifyMode,
};
use samedraw::{Device, SamplingParams};
use std::sync::Arc;

/// Drafts of a case.
#[derive(Debug, Clone, Default)]
pub struct Drafted {
    pub mode: Option<VerifyMode>,
    pub first_rows: Vec<i32>,
    pub row_to_request: Vec<i32>,
    pub position_stride: i64,
    pub ids: Vec<i64>,
    pub logprobs: Vec<f32>,
    pub columns: Vec<i32>,
    pub width: usize,
    pub rows: Vec<i32>,
}

/// What a [`HostStep`] borrows.
#[derive(Debug, Clone)]
pub struct Case {
    pub logits: Vec<u8>,
    pub offset: usize,
    pub dtype: DType,
    pub vocab: usize,
    pub stride: usize,
    pub logits_rows: usize,
    pub rows: usize,
    pub gather: Option<Vec<i64>>,
    pub force_topk: usize,
    pub mask: Option<Vec<i32>>,
    pub mask_stride: usize,
    pub mask_index: Option<Vec<i32>>,
    pub params: Vec<SamplingParams>,
    pub row_to_slot: Option<Vec<i32>>,
    pub positions: Option<Vec<i64>>,
    pub position_offsets: Option<Vec<i32>>,
    pub draft_step: Option<i64>,
    pub golden: Option<Vec<i64>>,
    pub filters: Option<Filters>,
    pub verify: Option<Drafted>,
    pub top_logprobs: usize,
    pub dense: bool,
    pub places: bool,
    pub raw_logprobs: bool,
    pub sum_smaller_probs: bool,
    pub kept_ids: usize,
    pub columns: bool,
    pub rows_wanted: bool,
    pub bits: Option<Vec<u64>>,
}

impl Case {
    /// f32 rows of equal length, each with parameters of its own, at positions 0, 1, 2, ..., every output of a row on.
    pub fn f32(rows: &[&[f32]], params: &[SamplingParams]) -> Case {
        let vocab = rows[0].len();
        assert!(rows.iter().all(|row| row.len() == vocab), "rows of one length");
        Case {
            logits: rows.iter().flat_map(|row| row.iter().flat_map(|x| x.to_le_bytes())).collect(),
            offset: 0,
            dtype: DType::F32,
            vocab,
            stride: vocab,
            logits_rows: rows.len(),
            rows: rows.len(),
            gather: None,
            force_topk: 0,
            mask: None,
            mask_stride: vocab.div_ceil(32),
            mask_index: None,
            params: params.to_vec(),
            row_to_slot: (params.len() < rows.len()).then(|| vec![0; rows.len()]),
            positions: Some((0..rows.len() as i64).collect()),
            position_offsets: None,
            draft_step: None,
            golden: None,
            filters: None,
            verify: None,
            top_logprobs: vocab.min(20),
            dense: true,
            places: true,
            raw_logprobs: true,
            sum_smaller_probs: true,
            kept_ids: vocab,
            columns: false,
            rows_wanted: true,
            bits: None,
        }
    }

    /// As [`f32`](Self::f32), in a 16-bit type.
    pub fn half(dtype: DType, rows: &[&[f32]], params: &[SamplingParams]) -> Case {
        let bits = |x: f32| match dtype {
            DType::F16 => half::f16::from_f32(x).to_bits(),
            DType::BF16 => half::bf16::from_f32(x).to_bits(),
            DType::F32 => panic!("a 16-bit type"),
        };
        let logits = rows.iter().flat_map(|row| row.iter().flat_map(|&x| bits(x).to_le_bytes())).collect();
        Case { logits, dtype, ..Case::f32(rows, params) }
    }

    /// The same row `n` times, drawn with `seed(i)` at position 0 with `params` else.
    pub fn repeated(row: &[f32], n: usize, params: &SamplingParams, seed: impl Fn(usize) -> u64) -> Case {
        let params: Vec<_> = (0..n).map(|i| SamplingParams { seq_seed: Some(seed(i)), ..params.clone() }).collect();
        Case {
            gather: Some(vec![0; n]),
            rows: n,
            params,
            row_to_slot: None,
            positions: Some(vec![0; n]),
            ..Case::f32(&[row], &[SamplingParams::default()])
        }
        .with_tokens_alone()
    }

    /// Switches the larger outputs off.
    pub fn tokens_alone(&mut self) {
        (self.top_logprobs, self.kept_ids) = (0, 0);
        (self.dense, self.raw_logprobs, self.sum_smaller_probs) = (false, false, false);
    }

    /// What a server asks for: of all columns and without golden tokens, the token, its logprob and the status.
    pub fn served(&mut self) {
        self.tokens_alone();
        (self.places, self.columns, self.rows_wanted) = (false, false, true);
        (self.force_topk, self.golden) = (0, None);
        self.positions.get_or_insert_with(|| (0..self.rows as i64).collect());
    }

    /// As [`tokens_alone`](Self::tokens_alone).
    pub fn with_tokens_alone(mut self) -> Case {
        self.tokens_alone();
        self
    }

    /// Borrowed, as the crate takes it.
    pub fn host(&self) -> HostStep<'_> {
        HostStep {
            logits: &self.logits,
            logits_offset: self.offset,
            dtype: self.dtype,
            vocab: self.vocab,
            stride: self.stride,
            logits_rows: self.logits_rows,
            rows: self.rows,
            gather: self.gather.as_deref(),
            force_topk: self.force_topk,
            mask: self.mask.as_deref().map(|words| HostMask {
                words,
                stride: self.mask_stride,
                index: self.mask_index.as_deref(),
            }),
            params: &self.params,
            row_to_slot: self.row_to_slot.as_deref(),
            positions: self.positions.as_deref(),
            position_offsets: self.position_offsets.as_deref(),
            draft_step: self.draft_step,
            golden: self.golden.as_deref(),
            filters: self.filters,
            verify: self.verify.as_ref().map(|v| HostVerify {
                mode: v.mode.expect("a mode"),
                first_rows: &v.first_rows,
                row_to_request: &v.row_to_request,
                position_stride: v.position_stride,
                draft_ids: &v.ids,
                draft_logprobs: &v.logprobs,
                draft_columns: &v.columns,
                draft_width: v.width,
                draft_rows: &v.rows,
            }),
            top_logprobs: self.top_logprobs,
            dense: self.dense,
            places: self.places,
            raw_logprobs: self.raw_logprobs,
            sum_smaller_probs: self.sum_smaller_probs,
            kept_ids: self.kept_ids,
            accept_index: true,
            columns: self.columns,
            rows_wanted: self.rows_wanted,
            injected_bits: self.bits.as_deref(),
        }
    }

    /// Whether the case's force-top-k is within the device's limit.
    pub fn fits(&self, device: &Arc<dyn Device>) -> bool {
        let limit = device.info().platform.max_force_topk().unwrap_or(usize::MAX);
        self.force_topk == 0 || self.force_topk.min(self.vocab) <= limit
    }

    /// The result `device` gives; `what` names the case in a failure.
    pub fn run(&self, device: &Arc<dyn Device>, what: &str) -> HostResult {
        let run = HostRun::new(device, &self.host()).and_then(|mut run| run.run());
        run.unwrap_or_else(|error| panic!("{what} on {}: {error}", device.info().platform))
    }

    /// What one more step of `run`, a run of this case, gives one position further on. Of a `silent` one the status is not asked
    /// for, so that what it says of it is of another step: rows that are passed over need not be read then.
    pub fn step_on<D: Device + ?Sized>(&mut self, run: &mut HostRun<D>, silent: bool) -> HostResult {
        let positions: Vec<i64> = self.positions.iter().flatten().map(|position| position + 1).collect();
        let at = run.put(&positions).expect("room");
        self.positions = Some(positions);
        let (sampler, first, stream) = run.parts();
        let (all, status) = (first.outputs, if silent { DevPtr::NULL } else { first.outputs.status });
        let next = Step { positions: at, outputs: Outputs { status, ..all }, ..*first };
        // SAFETY: the step is the run's own but for the positions, as many, which live as long.
        unsafe { sampler.step(stream, &next).expect("a step") };
        run.read().expect("outputs")
    }

    /// The result the semantics give.
    pub fn expected(&self) -> HostResult {
        oracle::expect(&self.host())
    }

    /// Adds one request of `drafts.len() + 1` rows that covers the whole case.
    pub fn verifying(self, mode: VerifyMode, drafts: &[i64], logprobs: &[&[f32]]) -> Case {
        let rows = self.rows as i32;
        assert_eq!(drafts.len() + 1, self.rows, "one draft a row but the last");
        let mut ids = drafts.to_vec();
        ids.push(-1);
        Case {
            positions: Some(vec![0]),
            verify: Some(Drafted {
                mode: Some(mode),
                first_rows: vec![0, rows],
                row_to_request: vec![0; self.rows],
                position_stride: 10_000_019,
                ids,
                logprobs: logprobs.concat(),
                columns: Vec::new(),
                width: logprobs.first().map_or(0, |row| row.len()),
                // The last row of the request has no draft row; -1 shows that none is read for it.
                rows: if logprobs.is_empty() {
                    Vec::new()
                } else {
                    (0..rows).map(|r| if r + 1 < rows { r } else { -1 }).collect()
                },
            }),
            ..self
        }
    }
}
