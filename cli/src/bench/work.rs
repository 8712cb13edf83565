//! A step on the device, ready to be enqueued over one input after the other.

use super::drafts::{DRAFTS, Pool};
use super::inputs::{Inputs, POOL};
use super::rows::Mix;
use samedraw::device::{DevPtr, DeviceBuffer, RawStream, Stream};
use samedraw::pipeline::{Columns, Drafts, Index, Logits, Outputs, TopLogprobs, Verify, VerifyMode};
use samedraw::{Device, Limits, ParamTable, Result, Sampler, SamplingParams, Step};
use std::sync::Arc;

/// Requests with parameters of their own; more would only make the table longer.
const SLOTS: usize = 64;
const TOP: usize = 20;

/// One step, its buffers and its sampler.
pub struct Work {
    sampler: Sampler<dyn Device>,
    step: Step,
    buffers: Vec<DeviceBuffer<dyn Device>>,
}

/// Where the inputs of a step come from.
pub struct Sources<'a> {
    pub inputs: &'a Inputs,
    /// The drafts' distributions, as many rows as the inputs hold, and the drafts; for steps that verify.
    pub drafts: Option<(&'a Inputs, &'a Pool)>,
}

impl Sources<'_> {
    /// How many steps of `rows` rows there are inputs for.
    pub fn steps_of(&self, rows: usize) -> usize {
        let drafts = self.drafts.map_or(usize::MAX, |(distributions, _)| distributions.steps_of(rows));
        self.inputs.steps_of(rows).min(drafts)
    }
}

impl Work {
    /// The step of `mix` over `rows` rows; as many tokens as rows, and what else the mix wants.
    pub fn new(
        device: &Arc<dyn Device>,
        stream: &Stream<dyn Device>,
        mix: Mix,
        rows: usize,
        sources: &Sources<'_>,
    ) -> Result<Work> {
        let (vocab, force_topk) = (sources.inputs.vocab, mix.force_topk());
        let table = Arc::new(ParamTable::new(device, SLOTS)?);
        for slot in 0..SLOTS {
            let params = SamplingParams { seq_seed: Some(100 + slot as u64), ..mix.params() };
            // SAFETY: the stream is ours and not capturing. Waited for, so that no write finds the ring busy.
            unsafe { table.set(stream.raw(), slot, &params)? };
            stream.synchronize()?;
        }
        let limits = Limits { force_topk, verify: mix.verifies().is_some(), ..Limits::new(rows, vocab) };
        let mut work =
            Work { sampler: Sampler::new(device, limits, &table)?, step: Step::default(), buffers: Vec::new() };
        let length = if mix.verifies().is_some() { DRAFTS + 1 } else { 1 };
        let requests = rows / length;
        let ints = |of: &dyn Fn(usize) -> usize, n: usize| (0..n).map(|i| of(i) as i32).collect::<Vec<i32>>();
        let mut put = |data: &[u8]| -> Result<DevPtr> {
            work.buffers.push(DeviceBuffer::from_slice(device, stream, data)?);
            Ok(work.buffers[work.buffers.len() - 1].ptr())
        };
        let bytes_of = |ints: &[i32]| ints.iter().flat_map(|i| i.to_le_bytes()).collect::<Vec<u8>>();
        let wide = |longs: &[i64]| longs.iter().flat_map(|i| i.to_le_bytes()).collect::<Vec<u8>>();
        let slots = put(&bytes_of(&ints(&|row| row / length % SLOTS, rows)))?;
        let pool_rows = Index::i32(put(&bytes_of(&ints(&|row| row % POOL, rows)))?);
        let positions = put(&wide(&(0..requests as i64).map(|n| 40 + n).collect::<Vec<_>>()))?;
        let columns = force_topk.min(vocab);
        let mut room = |cells: usize| put(&vec![0; 4 * cells.max(1)]);
        let mut outputs = Outputs::default();
        if mix.selects() {
            outputs.columns = Some(Columns { values: room(rows * columns)?, ids: room(rows * columns)? });
        } else {
            outputs.tokens = Some(Index::i32(room(rows)?));
        }
        if mix.reports() || mix == Mix::Whole {
            outputs.logprobs = room(rows)?;
        }
        if mix.reports() {
            (outputs.ranks, outputs.kept_counts, outputs.status) = (room(rows)?, room(rows)?, room(rows)?);
        }
        if mix == Mix::Whole {
            let (ids, logprobs) = (room(rows * TOP)?, room(rows * TOP)?);
            outputs.top = Some(TopLogprobs { width: TOP, ids, logprobs, counts: room(rows)? });
        }
        let verify = match (mix.verifies(), sources.drafts) {
            (Some(mode), Some((distributions, pool))) => {
                let (accepted, accept_index) = (room(requests)?, room(rows)?);
                // A step may start at any row of the pool.
                let ids: Vec<i64> = (0..rows + POOL).map(|row| pool.ids[row % POOL]).collect();
                Some(Verify {
                    mode,
                    requests,
                    first_rows: put(&bytes_of(&ints(&|request| request * length, requests + 1)))?,
                    row_to_request: Index::i32(put(&bytes_of(&ints(&|row| row / length, rows)))?),
                    position_stride: 10_000_019,
                    draft_ids: Index::i64(put(&wide(&ids))?),
                    drafts: (mode == VerifyMode::Rejection).then(|| Drafts {
                        logprobs: distributions.start(0, rows),
                        stride: vocab,
                        width: vocab,
                        pool_rows: rows,
                        ..Drafts::default()
                    }),
                    accepted,
                    accept_index,
                    accept_width: length,
                    row_accepts: DevPtr::NULL,
                })
            }
            _ => None,
        };
        work.step = Step {
            logits: Logits {
                ptr: sources.inputs.start(0, rows),
                dtype: sources.inputs.dtype,
                rows,
                vocab,
                stride: vocab,
            },
            rows,
            force_topk,
            mask: sources.inputs.mask(pool_rows),
            row_to_slot: Some(Index::i32(slots)),
            positions,
            verify,
            outputs,
            ..Step::default()
        };
        Ok(work)
    }

    /// Enqueues the step over input number `input`.
    ///
    /// # Safety
    /// `stream` is a live stream of the device; this value and `sources` outlive the work; `input` is below the number of
    /// steps there are inputs for.
    pub unsafe fn enqueue(&mut self, stream: RawStream, input: usize, sources: &Sources<'_>) -> Result<()> {
        let mut step = self.step;
        step.logits.ptr = sources.inputs.start(input, step.rows);
        if let (Some(verify), Some((distributions, _))) = (&mut step.verify, sources.drafts) {
            verify.draft_ids = verify.draft_ids.skip(input * step.rows % POOL);
            if let Some(drafts) = &mut verify.drafts {
                drafts.logprobs = distributions.start(input, step.rows);
            }
        }
        // SAFETY: every pointer is of a buffer of this value or of `sources`, of the size the step states.
        unsafe { self.sampler.step(stream, &step) }
    }

    /// The first 4 bytes of every token, for tests.
    #[cfg(test)]
    pub fn tokens(&self, stream: &Stream<dyn Device>) -> Result<Vec<i32>> {
        let tokens = self.step.outputs.tokens.map_or(DevPtr::NULL, |tokens| tokens.ptr);
        let mut read = vec![0; self.step.rows];
        match self.buffers.iter().find(|buffer| buffer.ptr() == tokens) {
            Some(buffer) => buffer.read(stream, &mut read).map(|()| read),
            None => Ok(Vec::new()),
        }
    }
}
