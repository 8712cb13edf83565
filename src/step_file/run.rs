//! A step on a device.

use super::result::{Float, RequestResult, ResultDocument};
use super::{Phase, StepFile, VerifyRule};
use crate::batch::{DecodeBatch, DecodeRequest, prefill_position};
use crate::device::Device;
use crate::error::Result;
use crate::params::SamplingParams;
use crate::pipeline::blocks::status;
use crate::pipeline::{HostMask, HostResult, HostRun, HostStep, HostVerify, VerifyMode};
use std::ops::Range;
use std::sync::Arc;

impl StepFile {
    /// Runs the step on `device`; `force_topk` takes the place of the file's (0 = off).
    ///
    /// # Errors
    /// As [`bring`](Self::bring), and what the device reports.
    pub fn run<D: Device + ?Sized>(&self, device: &Arc<D>, force_topk: Option<usize>) -> Result<ResultDocument> {
        let mut run = self.bring(device, force_topk)?;
        let result = run.run()?;
        Ok(self.document(&result, run.columns()))
    }

    /// Brings the step to `device`, to be run any number of times; `force_topk` takes the place of the file's.
    ///
    /// # Errors
    /// As [`check`](Self::check), [`Error::ForceTopK`](crate::Error::ForceTopK) above the device's limit, and what the
    /// device reports.
    pub fn bring<D: Device + ?Sized>(&self, device: &Arc<D>, force_topk: Option<usize>) -> Result<HostRun<D>> {
        self.check()?;
        let (logits, rows) = (&self.logits, self.logits.rows);
        let force_topk = force_topk.unwrap_or(self.force_topk);
        let columns = if force_topk == 0 { logits.vocab } else { force_topk.min(logits.vocab) };
        let params: Vec<SamplingParams> = self.requests.iter().map(|request| request.params.clone()).collect();
        let widest = params.iter().map(|p| p.top_logprobs).max().unwrap_or(0);
        let mut step = HostStep {
            logits: &logits.bytes,
            dtype: logits.dtype,
            vocab: logits.vocab,
            stride: logits.vocab,
            logits_rows: rows,
            rows,
            force_topk,
            mask: self.mask.as_ref().map(|mask| HostMask { words: &mask.words, stride: mask.width, index: None }),
            params: &params,
            // No row keeps more than its columns, so a longer list would only be padding.
            top_logprobs: widest.min(columns),
            dense: self.dense_logprobs,
            raw_logprobs: self.raw_logprobs,
            sum_smaller_probs: self.sum_smaller_probs,
            accept_index: false,
            ..HostStep::default()
        };

        let golden = self.golden_rows();
        step.golden = golden.as_deref();
        let offsets: Vec<i32> = self.requests.iter().filter_map(|r| r.draft.map(|d| d.last_valid_offset)).collect();
        if self.draft_model {
            step.position_offsets = Some(&offsets);
            step.draft_step = self.first_draft_step();
        }
        let batch;
        let positions: Vec<i64>;
        let draft_rows;
        match self.phase {
            Phase::Prefill => {
                positions = self.shifted(self.requests.iter().map(|r| prefill_position(r.seqlen_k)));
            }
            Phase::Decode => {
                batch = self.decode_batch()?;
                draft_rows = batch.consecutive_draft_rows();
                positions = self.shifted(batch.positions.iter().copied());
                step.row_to_slot = Some(&batch.row_to_slot);
                let mut verify = HostVerify {
                    mode: VerifyMode::OneHot,
                    first_rows: &batch.first_rows,
                    row_to_request: &batch.row_to_request,
                    position_stride: self.positions.stride(),
                    draft_ids: &batch.draft_ids,
                    draft_logprobs: &[],
                    draft_columns: &[],
                    draft_width: 0,
                    draft_rows: &[],
                };
                match (self.verify, &self.drafts) {
                    (VerifyRule::Chain, _) => verify.mode = VerifyMode::Chain,
                    // Without a verified row there is no distribution to read.
                    (VerifyRule::Rejection, Some(drafts)) if !drafts.logprobs.is_empty() => {
                        verify.mode = VerifyMode::Rejection;
                        verify.draft_logprobs = &drafts.logprobs;
                        verify.draft_columns = drafts.index.as_deref().unwrap_or_default();
                        verify.draft_width = drafts.width;
                        verify.draft_rows = &draft_rows;
                    }
                    (VerifyRule::Rejection, _) => {}
                }
                step.verify = Some(verify);
            }
        }
        step.positions = Some(&positions);
        HostRun::new(device, &step)
    }

    /// The results of a run as a document; `columns` is the N the run processed its rows in.
    fn document(&self, result: &HostResult, columns: usize) -> ResultDocument {
        let mut first = 0;
        let requests = self.requests.iter().enumerate().map(|(i, request)| {
            let rows = first..first + self.rows_of(request);
            first = rows.end;
            let floats = |wanted: bool, values: &[f32]| {
                wanted.then(|| values[rows.clone()].iter().map(|&x| Float(x)).collect::<Vec<_>>())
            };
            let k = request.params.top_logprobs;
            RequestResult {
                id: request.id.clone(),
                tokens: result.tokens[rows.clone()].to_vec(),
                accepted: result.accepted.get(i).map_or(0, |&n| n.into()),
                logprobs: floats(true, &result.logprobs).unwrap_or_default(),
                ranks: result.ranks[rows.clone()].iter().map(|&rank| (rank != 0).then_some(rank.into())).collect(),
                kept: result.kept_counts[rows.clone()].iter().map(|&n| n.into()).collect(),
                status: result.status[rows.clone()].iter().map(|&bits| names(bits)).collect(),
                top_logprobs: (k > 0).then(|| top_lists(result, rows.clone(), k)),
                sum_smaller_probs: floats(self.sum_smaller_probs, &result.sum_smaller_probs),
                raw_logprobs: floats(self.raw_logprobs, &result.raw_logprobs),
                dense_logprobs: self.dense_logprobs.then(|| {
                    let row = |row: usize| {
                        result.dense[row * columns..(row + 1) * columns].iter().map(|&x| Float(x)).collect()
                    };
                    rows.clone().map(row).collect()
                }),
            }
        });
        ResultDocument { requests: requests.collect() }
    }

    fn decode_batch(&self) -> Result<DecodeBatch> {
        let requests: Vec<DecodeRequest<'_>> = self
            .requests
            .iter()
            .enumerate()
            .map(|(slot, request)| DecodeRequest {
                seqlen_q: request.seqlen_q,
                seqlen_k: request.seqlen_k,
                // At most as many requests as rows, which `check` holds to i32.
                slot: slot as i32,
                draft_token_ids: &request.draft_token_ids,
            })
            .collect();
        DecodeBatch::new(&requests)
    }

    /// Golden token of each row, unless no request has any.
    fn golden_rows(&self) -> Option<Vec<i64>> {
        if self.requests.iter().all(|request| request.params.golden_token_ids.is_empty()) {
            return None;
        }
        let rows = self.requests.iter().flat_map(|request| {
            let given = request.params.golden_token_ids.iter().copied();
            given.chain(std::iter::repeat(-1)).take(self.rows_of(request))
        });
        Some(rows.collect())
    }

    fn first_draft_step(&self) -> Option<i64> {
        self.requests.first()?.draft.map(|draft| draft.step.into())
    }

    /// A step has one draft number, the file one a request: what a request's differs from the first one's goes into
    /// its position, to which the number is added anyway.
    fn shifted(&self, positions: impl Iterator<Item = i64>) -> Vec<i64> {
        let first = self.first_draft_step().unwrap_or(0);
        let shift = |draft: Option<super::DraftStep>| draft.map_or(0, |draft| i64::from(draft.step) - first);
        positions.zip(&self.requests).map(|(at, request)| at.wrapping_add(shift(request.draft))).collect()
    }
}

fn names(bits: i32) -> Vec<String> {
    status::names(bits).into_iter().map(str::to_owned).collect()
}

/// The first `k` entries of each row's list, as far as they are valid.
fn top_lists(result: &HostResult, rows: Range<usize>, k: usize) -> Vec<Vec<(i64, Float)>> {
    let width = result.top_ids.len() / result.top_counts.len().max(1);
    let list = |row: usize| {
        let valid = usize::try_from(result.top_counts[row]).unwrap_or(0).min(width).min(k);
        let entries = row * width..row * width + valid;
        let ids = result.top_ids[entries.clone()].iter().map(|&id| i64::from(id));
        ids.zip(result.top_logprobs[entries].iter().map(|&x| Float(x))).collect()
    };
    rows.map(list).collect()
}
