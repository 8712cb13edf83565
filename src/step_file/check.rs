//! What a step must satisfy beyond its types: shapes that agree, parameters in range.

use super::{Phase, StepFile, StepRequest, refuse};
use crate::error::{Error, Result};
use crate::pipeline::MAX_VOCAB;

impl StepFile {
    /// Holds the step to its own shapes and every parameter to its range. Reading, writing and running do this.
    ///
    /// # Errors
    /// [`Error::StepFile`] with the place and what is wrong there.
    pub fn check(&self) -> Result<()> {
        let logits = &self.logits;
        if logits.vocab == 0 || logits.vocab > MAX_VOCAB {
            return Err(refuse(
                "tensor logits",
                format!("vocabulary of {} tokens: 1 to {MAX_VOCAB} are allowed", logits.vocab),
            ));
        }
        if self.requests.is_empty() {
            return Err(refuse("step.requests", "no request"));
        }
        for (i, request) in self.requests.iter().enumerate() {
            self.check_request(&format!("step.requests[{i}]"), request)?;
        }
        let rows = |count: fn(&StepFile, &StepRequest) -> usize| {
            self.requests.iter().try_fold(0usize, |sum, request| sum.checked_add(count(self, request)))
        };
        let wanted = rows(|file, request| file.rows_of(request));
        if wanted != Some(logits.rows) || logits.rows > i32::MAX as usize {
            let wanted = wanted.map_or("more than can be counted".into(), |n| n.to_string());
            return Err(refuse("tensor logits", format!("{} rows, the requests add up to {wanted}", logits.rows)));
        }
        let bytes = logits.rows.checked_mul(logits.vocab).and_then(|n| n.checked_mul(logits.dtype.bytes()));
        if bytes != Some(logits.bytes.len()) {
            let shape = format!("[{}, {}] of {:?}", logits.rows, logits.vocab, logits.dtype);
            return Err(refuse("tensor logits", format!("{} bytes do not hold {shape}", logits.bytes.len())));
        }
        self.check_mask()?;
        self.check_drafts(rows(|file, request| file.rows_of(request) - 1).unwrap_or(usize::MAX))
    }

    fn check_request(&self, place: &str, request: &StepRequest) -> Result<()> {
        let at = |key: &str, what: String| Err(refuse(format!("{place}.{key}"), what));
        if request.seqlen_q == 0 {
            return at("seqlen_q", "0 where at least 1 is expected".into());
        }
        if request.seqlen_k < request.seqlen_q || request.seqlen_k > i64::MAX as usize {
            let range = format!("seqlen_q = {} to {}", request.seqlen_q, i64::MAX);
            return at("seqlen_k", format!("{} where {range} is expected", request.seqlen_k));
        }
        let (drafts, wanted) = (request.draft_token_ids.len(), self.rows_of(request) - 1);
        if drafts != wanted {
            let rule = match self.phase {
                Phase::Prefill => "0, a prefill has none",
                Phase::Decode => &format!("seqlen_q - 1 = {wanted}"),
            };
            return at("draft_token_ids", format!("{drafts} drafts where {rule} is expected"));
        }
        if request.params.seq_seed.is_none() {
            return at("seq_seed", "a seed is expected, a step on disk draws none".into());
        }
        if request.params.prompt_logprobs {
            return at("params", "prompt logprobs are not part of a step file".into());
        }
        request.params.check().map_err(|error| match error {
            Error::Parameter { field, value, allowed } => {
                refuse(format!("{place}.params.{field}"), format!("{value} where {allowed} is expected"))
            }
            other => other,
        })?;
        let vocab = self.logits.vocab as i64;
        if let Some((n, id)) =
            request.params.golden_token_ids.iter().enumerate().find(|&(_, &id)| id < -1 || id >= vocab)
        {
            let what = format!("golden id {id} where -1 (none) to V - 1 = {} is expected", vocab - 1);
            return at(&format!("golden[{n}]"), what);
        }
        match (self.draft_model, &request.draft) {
            (false, None) => Ok(()),
            (false, Some(_)) => {
                at("draft_step", "given, but the step is not a draft model's (draft_model is false)".into())
            }
            (true, None) => at("draft_step", "missing, and the step is a draft model's".into()),
            (true, Some(draft)) if draft.step < 1 => {
                at("draft_step", format!("{} where at least 1 is expected", draft.step))
            }
            (true, Some(draft)) if draft.last_valid_offset < 0 => {
                at("last_valid_offset", format!("{} where at least 0 is expected", draft.last_valid_offset))
            }
            (true, Some(_)) => Ok(()),
        }
    }

    fn check_mask(&self) -> Result<()> {
        let Some(mask) = &self.mask else { return Ok(()) };
        let (rows, needed) = (self.logits.rows, self.logits.vocab.div_ceil(32));
        if mask.width < needed {
            let what = format!("{} words a row where ceil(V / 32) = {needed} are needed", mask.width);
            return Err(refuse("tensor token_bitmask", what));
        }
        if rows.checked_mul(mask.width) != Some(mask.words.len()) {
            let given = mask.words.len() / mask.width;
            return Err(refuse("tensor token_bitmask", format!("{given} rows, the logits have {rows}")));
        }
        Ok(())
    }

    fn check_drafts(&self, verified: usize) -> Result<()> {
        let Some(drafts) = &self.drafts else { return Ok(()) };
        if self.phase == Phase::Prefill {
            return Err(refuse("tensor draft_logprobs", "a prefill verifies no drafts"));
        }
        let columns = self.columns();
        if drafts.width != columns {
            let what = format!("{} columns where N = {columns} are expected", drafts.width);
            return Err(refuse("tensor draft_logprobs", what));
        }
        let cells = verified.checked_mul(columns);
        let rows = |cells: usize| cells / columns;
        if cells != Some(drafts.logprobs.len()) {
            let what = format!("{} rows, the requests verify {verified}", rows(drafts.logprobs.len()));
            return Err(refuse("tensor draft_logprobs", what));
        }
        let Some(index) = &drafts.index else { return Ok(()) };
        if cells != Some(index.len()) {
            let what = format!("{} rows of {columns} columns, the requests verify {verified}", rows(index.len()));
            return Err(refuse("tensor draft_index", what));
        }
        let mut ids: Vec<i32> = Vec::new();
        for (row, columns) in index.chunks_exact(columns).enumerate() {
            ids.clear();
            ids.extend(columns.iter().filter(|&&id| id >= 0));
            ids.sort_unstable();
            if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(refuse("tensor draft_index", format!("row {row} names token {} twice", pair[0])));
            }
        }
        Ok(())
    }
}
