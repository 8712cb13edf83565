//! Decode: seqlen_q rows per request, all but the last verifying a draft.

use super::{check_lengths, decode_position, row_number};
use crate::error::{Error, Result};

const OP: &str = "decode batch";

/// One decode request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeRequest<'a> {
    /// Rows: drafts + 1.
    pub seqlen_q: usize,
    /// Length of the sequence with this step's tokens.
    pub seqlen_k: usize,
    /// Parameter slot.
    pub slot: i32,
    /// The drafts, `seqlen_q - 1` of them; -1 = no draft at that place.
    pub draft_token_ids: &'a [i64],
}

/// Rows of a decode step and the metadata of their verification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DecodeBatch {
    /// Position of each request's row 0.
    pub positions: Vec<i64>,
    /// First row of each request, then one past the last row: what a step takes as `first_rows`.
    pub first_rows: Vec<i32>,
    /// Request of each row.
    pub row_to_request: Vec<i32>,
    /// Parameter slot of each row.
    pub row_to_slot: Vec<i32>,
    /// Place of each row within its request.
    pub local_step: Vec<i32>,
    /// Whether the row verifies a draft; false on each request's last row.
    pub is_verify: Vec<bool>,
    /// Draft each row verifies; -1 on each request's last row.
    pub draft_ids: Vec<i64>,
}

impl DecodeBatch {
    /// Lays out the requests behind each other.
    ///
    /// ```
    /// use samedraw::batch::{DecodeBatch, DecodeRequest};
    /// let request = |seqlen_q, slot| DecodeRequest {
    ///     seqlen_q, seqlen_k: 55, slot, draft_token_ids: &[7, 7, 7, 7, 7][..seqlen_q - 1],
    /// };
    /// let batch = DecodeBatch::new(&[request(6, 0), request(6, 1), request(4, 2)])?;
    /// assert_eq!(batch.mtp_first_token_positions(), [0, 6, 12]);
    /// assert_eq!(batch.local_step, [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3]);
    /// # Ok::<(), samedraw::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for a length of 0, seqlen_k below seqlen_q, a number of drafts other than seqlen_q - 1, or
    /// more rows than i32 holds.
    pub fn new(requests: &[DecodeRequest<'_>]) -> Result<Self> {
        let mut batch = DecodeBatch { first_rows: vec![0], ..DecodeBatch::default() };
        for (number, request) in requests.iter().enumerate() {
            check_lengths(OP, request.seqlen_q, request.seqlen_k)?;
            let drafts = request.draft_token_ids;
            if drafts.len() != request.seqlen_q - 1 {
                let limit = format!("seqlen_q - 1 = {}", request.seqlen_q - 1);
                return Err(Error::argument(OP, "draft_token_ids", drafts.len(), limit));
            }
            batch.positions.push(decode_position(request.seqlen_q, request.seqlen_k));
            for step in 0..request.seqlen_q {
                batch.row_to_request.push(row_number(OP, number)?);
                batch.row_to_slot.push(request.slot);
                batch.local_step.push(row_number(OP, step)?);
                batch.is_verify.push(step + 1 < request.seqlen_q);
                batch.draft_ids.push(drafts.get(step).copied().unwrap_or(-1));
            }
            batch.first_rows.push(row_number(OP, batch.row_to_request.len())?);
        }
        Ok(batch)
    }

    /// First row of each request.
    pub fn mtp_first_token_positions(&self) -> &[i32] {
        self.first_rows.split_last().map_or(&[], |(_, first)| first)
    }

    /// Pool row each row reads when the pool holds one row per verified row, in order; -1 on last rows.
    pub fn consecutive_draft_rows(&self) -> Vec<i32> {
        let mut next = 0;
        let row = |verifies: &bool| {
            if !verifies {
                return -1;
            }
            next += 1;
            next - 1
        };
        self.is_verify.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_of_6_6_4() {
        let drafts = [1i64; 5];
        let request = |seqlen_q: usize, slot| DecodeRequest {
            seqlen_q,
            seqlen_k: 55,
            slot,
            draft_token_ids: &drafts[..seqlen_q - 1],
        };
        let batch = DecodeBatch::new(&[request(6, 4), request(6, 5), request(4, 6)]).unwrap();
        assert_eq!(batch.row_to_request, [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2]);
        assert_eq!(batch.row_to_slot, [4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6]);
        assert_eq!(batch.mtp_first_token_positions(), [0, 6, 12]);
        assert_eq!(batch.first_rows, [0, 6, 12, 16]);
        let last_rows: Vec<usize> = (0..16).filter(|&r| !batch.is_verify[r]).collect();
        assert_eq!(last_rows, [5, 11, 15]);
        assert_eq!(batch.positions, [50, 50, 52]);
        assert_eq!(batch.consecutive_draft_rows(), [0, 1, 2, 3, 4, -1, 5, 6, 7, 8, 9, -1, 10, 11, 12, -1]);
    }

    #[test]
    fn a_batch_without_requests_has_no_first_rows() {
        assert!(DecodeBatch::default().mtp_first_token_positions().is_empty());
        assert!(DecodeBatch::new(&[]).unwrap().mtp_first_token_positions().is_empty());
    }

    #[test]
    fn a_wrong_number_of_drafts_names_both_counts() {
        let request = DecodeRequest { seqlen_q: 4, seqlen_k: 9, slot: 0, draft_token_ids: &[1, 2] };
        let error = DecodeBatch::new(&[request]).unwrap_err().to_string();
        assert_eq!(error, "decode batch: draft_token_ids = 2 is refused: seqlen_q - 1 = 3");
    }
}
