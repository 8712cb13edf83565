//! Batches: requests become rows, SEMANTICS sections 1, 9 and 10.
//!
//! Host-side and plain: the vectors here are what a stack stages to the device (or builds there itself).

mod decode;
mod golden;
mod prefill;

pub use decode::{DecodeBatch, DecodeRequest};
pub use golden::{golden_rows, next_golden_tokens};
pub use prefill::{PrefillBatch, PrefillRequest};

use crate::error::{Error, Result};
use crate::random::ROW_STRIDE;

/// How the positions of one decode request's rows follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum PositionRule {
    /// Row j uses position + j * 10000019: every row has a stream of its own. Repeats past 10,000,018 tokens.
    #[default]
    Strided,
    /// Row j uses position + j: what decoding one token at a time would use.
    Sequential,
}

impl PositionRule {
    /// The distance between neighbouring rows.
    pub const fn stride(self) -> i64 {
        match self {
            PositionRule::Strided => ROW_STRIDE,
            PositionRule::Sequential => 1,
        }
    }
}

/// Position of a prefill's draw: the prompt length after this chunk.
pub const fn prefill_position(seqlen_k: usize) -> i64 {
    seqlen_k as i64
}

/// Position of a decode request's row 0.
///
/// ```
/// assert_eq!(samedraw::batch::decode_position(6, 55), 50);
/// ```
pub const fn decode_position(seqlen_q: usize, seqlen_k: usize) -> i64 {
    seqlen_k as i64 - seqlen_q as i64 + 1
}

fn check_lengths(op: &'static str, seqlen_q: usize, seqlen_k: usize) -> Result<()> {
    if seqlen_q == 0 {
        return Err(Error::argument(op, "seqlen_q", 0, "at least 1"));
    }
    if seqlen_k < seqlen_q {
        return Err(Error::argument(op, "seqlen_k", seqlen_k, format!("at least seqlen_q = {seqlen_q}")));
    }
    if seqlen_k > i64::MAX as usize {
        return Err(Error::argument(op, "seqlen_k", seqlen_k, "at most 2^63 - 1"));
    }
    Ok(())
}

fn row_number(op: &'static str, row: usize) -> Result<i32> {
    i32::try_from(row).map_err(|_| Error::argument(op, "rows", row, "at most 2147483647"))
}
