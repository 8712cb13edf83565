//! Prefill: one row per prompt, its last.

use super::{check_lengths, prefill_position, row_number};
use crate::error::Result;

const OP: &str = "prefill batch";

/// One prompt, or one chunk of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefillRequest {
    /// Tokens this step feeds.
    pub seqlen_q: usize,
    /// Tokens of the prompt fed after this step.
    pub seqlen_k: usize,
    /// Parameter slot.
    pub slot: i32,
}

/// Rows of a prefill step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PrefillBatch {
    /// Last row of each prompt among the step's hidden states; a gather index where logits exist for all of them.
    pub selected_token_indices: Vec<i32>,
    /// Position of each row's draw.
    pub positions: Vec<i64>,
    /// Parameter slot of each row.
    pub row_to_slot: Vec<i32>,
}

impl PrefillBatch {
    /// Lays out the prompts behind each other.
    ///
    /// ```
    /// use samedraw::batch::{PrefillBatch, PrefillRequest};
    /// let prompt = |seqlen, slot| PrefillRequest { seqlen_q: seqlen, seqlen_k: seqlen, slot };
    /// let batch = PrefillBatch::new(&[prompt(41, 0), prompt(100, 1)])?;
    /// assert_eq!(batch.selected_token_indices, [40, 140]);
    /// assert_eq!(batch.positions, [41, 100]);
    /// # Ok::<(), samedraw::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for a length of 0, seqlen_k below seqlen_q, or more rows than i32 holds.
    pub fn new(requests: &[PrefillRequest]) -> Result<Self> {
        let mut batch = PrefillBatch::default();
        let mut rows = 0usize;
        for request in requests {
            check_lengths(OP, request.seqlen_q, request.seqlen_k)?;
            rows = rows.saturating_add(request.seqlen_q);
            batch.selected_token_indices.push(row_number(OP, rows - 1)?);
            batch.positions.push(prefill_position(request.seqlen_k));
            batch.row_to_slot.push(request.slot);
        }
        Ok(batch)
    }
}
