//! Prompt logprobs: how likely each prompt token was, given the tokens before it (SEMANTICS section 8).

use super::sampler::Sampler;
use super::step::{Index, Logits, Outputs, Step};
use crate::device::{DevPtr, Device, RawStream};
use crate::error::{Error, Result};
use std::ops::Range;

/// Most rows whose logits are asked for at once.
pub const PROMPT_CHUNK_ROWS: usize = 8192;

const OP: &str = "prompt logprobs";

/// The part of one request's prompt that a prefill step processes.
#[derive(Debug, Clone)]
pub struct PromptChunk<'a> {
    /// The whole prompt.
    pub prompt: &'a [i64],
    /// Tokens of the prompt this step feeds.
    pub seqlen_q: usize,
    /// Tokens of the prompt fed after this step.
    pub seqlen_k: usize,
    /// Parameter slot of the request.
    pub slot: i32,
    /// Why the request gets none, when it asked for them and they are switched off.
    pub off: Option<String>,
}

/// Result of one request.
#[derive(Debug, Clone, PartialEq)]
pub enum PromptLogprobs {
    /// One value for each prompt token this chunk predicts, in order.
    Values(Vec<f32>),
    /// Switched off, and why.
    Off(String),
}

/// Which rows of a prefill step are scored, against which tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptPlan {
    /// Row of the step's hidden states for each scored row.
    pub rows: Vec<i32>,
    /// The prompt token each scored row should predict.
    pub targets: Vec<i64>,
    /// Parameter slot of each scored row.
    pub row_to_slot: Vec<i32>,
    requests: Vec<std::result::Result<Range<usize>, String>>,
}

impl PromptPlan {
    /// Plans the chunks of one step, whose hidden states lie behind each other in the same order: every row of a chunk
    /// is scored against the next prompt token, except the last row of a prompt's last chunk.
    ///
    /// # Errors
    /// [`Error::Argument`] for lengths that do not fit the prompt, and for a token to predict that is not in 0..`vocab`.
    pub fn new(chunks: &[PromptChunk<'_>], vocab: usize) -> Result<Self> {
        let mut plan = PromptPlan { rows: vec![], targets: vec![], row_to_slot: vec![], requests: vec![] };
        let mut first_row = 0usize;
        for chunk in chunks {
            if chunk.seqlen_q == 0 || chunk.seqlen_k < chunk.seqlen_q || chunk.seqlen_k > chunk.prompt.len() {
                let limit = format!(
                    "at least seqlen_q = {}, itself above 0, at most the prompt's {}",
                    chunk.seqlen_q,
                    chunk.prompt.len()
                );
                return Err(Error::argument(OP, "seqlen_k", chunk.seqlen_k, limit));
            }
            if let Some(reason) = &chunk.off {
                plan.requests.push(Err(reason.clone()));
            } else {
                let start = plan.rows.len();
                let fed = chunk.seqlen_k - chunk.seqlen_q..chunk.seqlen_k;
                for (row, position) in fed.enumerate() {
                    if let Some(&target) = chunk.prompt.get(position + 1) {
                        if !usize::try_from(target).is_ok_and(|target| target < vocab) {
                            let limit = format!("0 to vocab - 1 = {}", vocab.saturating_sub(1));
                            return Err(Error::argument(OP, "prompt token", target, limit));
                        }
                        let row = i32::try_from(first_row + row)
                            .map_err(|_| Error::argument(OP, "rows", first_row + row, "at most 2147483647"))?;
                        plan.rows.push(row);
                        plan.targets.push(target);
                        plan.row_to_slot.push(chunk.slot);
                    }
                }
                plan.requests.push(Ok(start..plan.rows.len()));
            }
            first_row += chunk.seqlen_q;
        }
        Ok(plan)
    }

    /// Which of the scored rows are each chunk's, in the order of the chunks, or why there are none.
    pub fn requests(&self) -> &[std::result::Result<Range<usize>, String>] {
        &self.requests
    }

    /// Splits the flat result into one entry per request, in the order of the chunks.
    ///
    /// # Errors
    /// [`Error::Argument`] when `values` is not one value per scored row.
    pub fn split(&self, values: &[f32]) -> Result<Vec<PromptLogprobs>> {
        if values.len() != self.rows.len() {
            return Err(Error::argument(
                OP,
                "values",
                values.len(),
                format!("one per scored row = {}", self.rows.len()),
            ));
        }
        let one = |request: &std::result::Result<Range<usize>, String>| match request {
            Ok(range) => PromptLogprobs::Values(values[range.clone()].to_vec()),
            Err(reason) => PromptLogprobs::Off(reason.clone()),
        };
        Ok(self.requests.iter().map(one).collect())
    }
}

impl<D: Device + ?Sized> Sampler<D> {
    /// Enqueues the scoring of `rows` planned rows, in chunks of at most [`PROMPT_CHUNK_ROWS`] (or this sampler's row
    /// limit). For each chunk `logits` is called with the range of planned rows and enqueues their logits
    /// on `stream`, one row each; so never more than a chunk of them exists.
    ///
    /// `targets` and `row_to_slot` hold one entry per planned row in device memory; `out` takes one f32 each. The
    /// request's temperature, top-p, top-k and min-p apply.
    ///
    /// # Errors
    /// As [`step`](Self::step), and whatever `logits` returns.
    ///
    /// # Safety
    /// As [`step`](Self::step), for every chunk.
    pub unsafe fn prompt_logprobs(
        &mut self,
        stream: RawStream,
        rows: usize,
        targets: Index,
        row_to_slot: Index,
        logits: &mut dyn FnMut(Range<usize>) -> Result<Logits>,
        out: DevPtr,
    ) -> Result<()> {
        let chunk = PROMPT_CHUNK_ROWS.min(self.limits().rows);
        let mut start = 0;
        while start < rows {
            let range = start..rows.min(start + chunk);
            let step = Step {
                logits: logits(range.clone())?,
                rows: range.len(),
                row_to_slot: Some(row_to_slot.skip(start)),
                golden: Some(targets.skip(start)),
                outputs: Outputs { logprobs: out.offset(4 * start), ..Outputs::default() },
                ..Step::default()
            };
            // SAFETY: the caller's promise; the offsets stay within the arrays of `rows` entries.
            unsafe { self.step(stream, &step)? };
            start = range.end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_of_41_tokens_in_one_chunk_gives_40_values() {
        let prompt: Vec<i64> = (0..41).collect();
        let chunk = PromptChunk { prompt: &prompt, seqlen_q: 41, seqlen_k: 41, slot: 3, off: None };
        let plan = PromptPlan::new(&[chunk], 41).unwrap();
        assert_eq!(plan.rows, (0..40).collect::<Vec<i32>>());
        assert_eq!(plan.targets, (1..41).collect::<Vec<i64>>());
        assert!(plan.row_to_slot.iter().all(|&s| s == 3));
    }

    #[test]
    fn the_last_row_of_a_chunk_predicts_the_first_token_of_the_next() {
        let prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3];
        let mut values = Vec::new();
        for (q, k) in [(4, 4), (4, 8), (2, 10)] {
            let other = PromptChunk { prompt: &prompt, seqlen_q: 1, seqlen_k: 1, slot: 0, off: Some("cached".into()) };
            let chunk = PromptChunk { prompt: &prompt, seqlen_q: q, seqlen_k: k, slot: 0, off: None };
            let plan = PromptPlan::new(&[other, chunk], 10).unwrap();
            assert_eq!(plan.rows.first(), Some(&1));
            let floats: Vec<f32> = plan.targets.iter().map(|&t| t as f32).collect();
            let split = plan.split(&floats).unwrap();
            assert_eq!(split[0], PromptLogprobs::Off("cached".into()));
            let PromptLogprobs::Values(v) = &split[1] else { panic!("values expected") };
            values.extend(v.iter().map(|&x| x as i64));
        }
        assert_eq!(values, prompt[1..]);
    }

    #[test]
    fn tokens_outside_the_vocabulary_are_refused() {
        for token in [-1, 10, i64::MAX] {
            let prompt = [0, token];
            let chunk = PromptChunk { prompt: &prompt, seqlen_q: 2, seqlen_k: 2, slot: 0, off: None };
            let error = PromptPlan::new(&[chunk], 10).unwrap_err().to_string();
            assert_eq!(error, format!("prompt logprobs: prompt token = {token} is refused: 0 to vocab - 1 = 9"));
        }
    }
}
