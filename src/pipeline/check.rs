//! What a step is held to before anything is enqueued: its own shapes, and the sampler's limits.

use super::blocks::SlotBlock;
use super::limits::MAX_VOCAB;
use super::plan::Shape;
use super::sampler::Sampler;
use super::step::{Filters, Index, Step, Verify, VerifyMode};
use crate::device::{DevPtr, Device, effective_columns};
use crate::error::{Error, Result};

const OP: &str = "step";

impl<D: Device + ?Sized> Sampler<D> {
    /// Holds a step to its own shapes and to the limits; returns its columns N.
    pub(super) fn check(&self, step: &Step) -> Result<usize> {
        let (logits, out) = (&step.logits, &step.outputs);
        let at_least = |what, value: usize, least: usize, of: &str| {
            if value >= least {
                Ok(())
            } else {
                Err(Error::argument(OP, what, value, format!("at least {of} = {least}")))
            }
        };
        let at_most = |what, value: usize, most: usize, of: &str| {
            if value <= most { Ok(()) } else { Err(Error::argument(OP, what, value, format!("at most {of} = {most}"))) }
        };
        let present = |what, ptr: DevPtr| if ptr.is_null() { Err(Error::NullPointer { op: OP, what }) } else { Ok(()) };
        let index = |what, index: Option<Index>| index.map_or(Ok(()), |i| present(what, i.ptr));

        at_least("rows", step.rows, 1, "one row")?;
        at_most("rows", step.rows, self.limits.rows, "the sampler's limit")?;
        at_least("vocab", logits.vocab, 1, "one token")?;
        at_most("vocab", logits.vocab, self.limits.vocab, "the sampler's limit")?;
        at_least("logits stride", logits.stride, logits.vocab, "vocab")?;
        present("logits", logits.ptr)?;
        if !logits.ptr.0.is_multiple_of(logits.dtype.bytes() as u64) {
            return Err(Error::argument(OP, "logits pointer", logits.ptr.0, "aligned to its elements"));
        }
        let in_memory = |what, rows: usize, stride: usize| {
            // At most 4 bytes an element.
            if rows.checked_mul(stride).is_some_and(|n| n <= isize::MAX as usize / 4) {
                return Ok(());
            }
            Err(Error::argument(OP, what, rows, "rows * stride within the address space"))
        };
        if step.gather.is_none() {
            at_least("logits rows", logits.rows, step.rows, "rows")?;
        }
        in_memory("logits rows", logits.rows, logits.stride)?;
        let columns = effective_columns(self.device.info().platform, step.force_topk, logits.vocab)?;
        if columns < logits.vocab {
            at_most("force_topk", columns, self.limits.force_topk, "the sampler's limit")?;
        }
        if !step.adjust.is_null() {
            return Err(Error::Unsupported { op: OP, what: "adjusting logits by a list (penalties, bias)".into() });
        }
        if step.row_to_slot.is_none() {
            at_least("table slots", self.slots_of(step).count, step.rows, "rows, as there is no row_to_slot")?;
        }
        if let Some(slots) = &step.slots {
            present("slots", slots.ptr)?;
            in_memory("slots", slots.count, size_of::<SlotBlock>() / 4)?;
        }
        index("gather", step.gather)?;
        index("row_to_slot", step.row_to_slot)?;
        index("golden", step.golden)?;
        if let Some(mask) = &step.mask {
            present("mask", mask.ptr)?;
            at_least("mask stride", mask.stride, logits.vocab.div_ceil(32), "ceil(vocab / 32)")?;
            in_memory("mask rows", mask.rows, mask.stride)?;
            index("mask index", mask.index)?;
            if mask.index.is_none() {
                at_least("mask rows", mask.rows, step.rows, "rows")?;
            }
        }
        let draws = step.golden.is_none() && Shape::of(step, Filters::ALL, columns).wants_rows;
        if step.positions.is_null() && (draws || step.verify.is_some()) {
            let what = "positions (absent only where golden tokens are scored or columns alone are selected)";
            return Err(Error::NullPointer { op: OP, what });
        }
        index("tokens", out.tokens)?;
        if let Some(top) = &out.top {
            at_least("top_logprobs width", top.width, 1, "one entry")?;
            at_most("top_logprobs width", top.width, MAX_VOCAB, "the largest vocabulary")?;
            present("top_logprobs ids", top.ids)?;
            present("top_logprobs logprobs", top.logprobs)?;
        }
        if let Some(dense) = &out.dense {
            present("dense logprobs", dense.logprobs)?;
            at_least("dense stride", dense.stride, columns, "N")?;
            in_memory("rows of dense logprobs", step.rows, dense.stride)?;
        }
        if let Some(kept) = &out.kept_ids {
            present("kept ids", kept.ids)?;
            at_least("kept width", kept.width, 1, "one entry")?;
            at_most("kept width", kept.width, MAX_VOCAB, "the largest vocabulary")?;
        }
        if let Some(selected) = &out.columns {
            at_least("force_topk", step.force_topk, 1, "one column, to hand out the columns")?;
            present("column values", selected.values)?;
            present("column ids", selected.ids)?;
        }
        if let Some(verify) = &step.verify {
            self.check_verify(step, verify)?;
            in_memory("requests of accept_index", verify.requests, verify.accept_width)?;
            if let Some(drafts) = &verify.drafts {
                in_memory("draft pool rows", drafts.pool_rows, drafts.stride)?;
            }
            if verify.drafts.is_some_and(|d| !d.columns.is_null()) {
                at_most("columns to remap drafts to", columns, self.limits.columns(), "the sampler's limit")?;
            }
        }
        Ok(columns)
    }

    fn check_verify(&self, step: &Step, verify: &Verify) -> Result<()> {
        let refuse = |what, value: usize, limit: String| Err(Error::argument(OP, what, value, limit));
        let present = |what, ptr: DevPtr| if ptr.is_null() { Err(Error::NullPointer { op: OP, what }) } else { Ok(()) };
        if !self.limits.verify {
            return refuse("requests to verify", verify.requests, "0: the sampler's limits do not verify".into());
        }
        if verify.requests == 0 || verify.requests > step.rows {
            return refuse("requests to verify", verify.requests, format!("1 to rows = {}", step.rows));
        }
        present("first_rows", verify.first_rows)?;
        present("row_to_request", verify.row_to_request.ptr)?;
        present("draft_ids", verify.draft_ids.ptr)?;
        present("accepted", verify.accepted)?;
        match step.outputs.tokens {
            Some(_) => {}
            None => return Err(Error::NullPointer { op: OP, what: "tokens (verification writes them)" }),
        }
        if !verify.accept_index.is_null() && verify.accept_width == 0 {
            return refuse("accept_width", 0, "at least the longest request".into());
        }
        match (&verify.drafts, verify.mode) {
            (Some(drafts), VerifyMode::Rejection) => {
                present("draft logprobs", drafts.logprobs)?;
                if drafts.width == 0 || drafts.width > step.logits.vocab {
                    return refuse("draft width", drafts.width, format!("1 to vocab = {}", step.logits.vocab));
                }
                if drafts.stride < drafts.width {
                    return refuse("draft stride", drafts.stride, format!("at least the width = {}", drafts.width));
                }
                if drafts.pool_rows == 0 || (drafts.rows.is_none() && drafts.pool_rows < step.rows) {
                    return refuse("draft pool rows", drafts.pool_rows, format!("at least rows = {}", step.rows));
                }
                if let Some(rows) = drafts.rows {
                    present("draft rows", rows.ptr)?;
                }
                if !drafts.columns.is_null() && !self.limits.remap {
                    return refuse("draft columns", drafts.width, "none: the sampler's limits do not remap".into());
                }
                Ok(())
            }
            (None, VerifyMode::Rejection) => {
                Err(Error::NullPointer { op: OP, what: "drafts (rejection needs the drafts' logprobs)" })
            }
            (None, _) => Ok(()),
            (Some(drafts), mode) => {
                refuse("draft width", drafts.width, format!("no drafts' logprobs: {mode:?} does not use them"))
            }
        }
    }
}
