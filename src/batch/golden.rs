//! Golden tokens: output a request must give, SEMANTICS section 9.

use crate::error::{Error, Result};

const OP: &str = "golden tokens";

/// The next `2 * nextn + 1` golden tokens from `output_len` on, padded with -1.
///
/// ```
/// use samedraw::batch::next_golden_tokens;
/// assert_eq!(next_golden_tokens(&[5, 6, 7], 1, 2), [6, 7, -1, -1, -1]);
/// ```
pub fn next_golden_tokens(golden: &[i64], output_len: usize, nextn: usize) -> Vec<i64> {
    let next = golden.get(output_len..).unwrap_or_default();
    next.iter().copied().chain(std::iter::repeat(-1)).take(nextn.saturating_mul(2).saturating_add(1)).collect()
}

/// Golden token of each of a request's `seqlen_q` rows: the first `min(seqlen_q, nextn + 1)` of `next`, then -1.
///
/// # Errors
/// [`Error::Argument`] for an id below -1 or from `vocab` on.
pub fn golden_rows(next: &[i64], seqlen_q: usize, nextn: usize, vocab: usize) -> Result<Vec<i64>> {
    if let Some(&id) = next.iter().find(|&&id| id < -1 || id >= vocab as i64) {
        return Err(Error::argument(
            OP,
            "id",
            id,
            format!("-1 (none) or 0 to vocab - 1 = {}", vocab.saturating_sub(1)),
        ));
    }
    let given = seqlen_q.min(nextn.saturating_add(1));
    Ok((0..seqlen_q).map(|row| if row < given { next.get(row).copied().unwrap_or(-1) } else { -1 }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_past_nextn_have_no_golden_token() {
        let next = next_golden_tokens(&[1, 2, 3, 4, 5, 6, 7, 8], 0, 3);
        assert_eq!(next, [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(golden_rows(&next, 6, 3, 10).unwrap(), [1, 2, 3, 4, -1, -1]);
        assert_eq!(golden_rows(&next, 2, 3, 10).unwrap(), [1, 2]);
        assert_eq!(next_golden_tokens(&[1], 7, 1), [-1, -1, -1]);
    }

    #[test]
    fn ids_outside_the_vocabulary_are_refused() {
        for id in [-2, 10, (1 << 32) + 1] {
            let error = golden_rows(&[id], 1, 1, 10).unwrap_err().to_string();
            assert!(error.starts_with(&format!("golden tokens: id = {id} is refused: -1 (none) or 0 to")), "{error}");
        }
    }
}
