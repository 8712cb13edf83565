//! Rows of a step moved about: the same rows in another order, number or company.

use super::Case;
use samedraw::pipeline::HostResult;

/// The case, which does not verify, with every index explicit so that rows can be moved about.
pub fn movable(mut case: Case) -> Case {
    let rows = case.rows;
    case.gather.get_or_insert_with(|| (0..rows as i64).collect());
    case.row_to_slot.get_or_insert_with(|| (0..rows as i32).collect());
    if case.mask.is_some() {
        case.mask_index.get_or_insert_with(|| (0..rows as i32).collect());
    }
    case.rows_wanted = true;
    case.kept_ids = case.vocab;
    case
}

fn chosen<T: Clone>(all: &Option<Vec<T>>, width: usize, rows: &[usize]) -> Option<Vec<T>> {
    all.as_ref().map(|all| rows.iter().flat_map(|&row| all[row * width..(row + 1) * width].to_vec()).collect())
}

/// The case whose row i is row `rows[i]` of `case`.
pub fn with_rows(case: &Case, rows: &[usize]) -> Case {
    Case {
        rows: rows.len(),
        gather: chosen(&case.gather, 1, rows),
        row_to_slot: chosen(&case.row_to_slot, 1, rows),
        mask_index: chosen(&case.mask_index, 1, rows),
        positions: chosen(&case.positions, 1, rows),
        position_offsets: chosen(&case.position_offsets, 1, rows),
        golden: chosen(&case.golden, 1, rows),
        bits: chosen(&case.bits, 3, rows),
        ..case.clone()
    }
}

/// Rows `rows` of a result that has `of` rows.
pub fn rows_of(result: &HostResult, of: usize, rows: &[usize]) -> HostResult {
    fn part<T: Clone>(all: &[T], of: usize, rows: &[usize]) -> Vec<T> {
        let width = all.len() / of;
        rows.iter().flat_map(|&row| all[row * width..(row + 1) * width].to_vec()).collect()
    }
    HostResult {
        tokens: part(&result.tokens, of, rows),
        logprobs: part(&result.logprobs, of, rows),
        ranks: part(&result.ranks, of, rows),
        kept_counts: part(&result.kept_counts, of, rows),
        status: part(&result.status, of, rows),
        raw_logprobs: part(&result.raw_logprobs, of, rows),
        sum_smaller_probs: part(&result.sum_smaller_probs, of, rows),
        top_ids: part(&result.top_ids, of, rows),
        top_logprobs: part(&result.top_logprobs, of, rows),
        top_counts: part(&result.top_counts, of, rows),
        dense: part(&result.dense, of, rows),
        dense_ids: part(&result.dense_ids, of, rows),
        kept_ids: part(&result.kept_ids, of, rows),
        column_values: part(&result.column_values, of, rows),
        column_ids: part(&result.column_ids, of, rows),
        ..HostResult::default()
    }
}
