//! Results compared bit for bit.

use samedraw::pipeline::HostResult;
use std::fmt::Debug;

fn first<T: Copy + Debug>(
    name: &str,
    width: usize,
    want: &[T],
    got: &[T],
    same: impl Fn(T, T) -> bool,
) -> Option<String> {
    if want.len() != got.len() {
        return Some(format!("{name}: {} elements wanted, {} given", want.len(), got.len()));
    }
    let at = (0..want.len()).find(|&i| !same(want[i], got[i]))?;
    let (row, column) = (at / width.max(1), at % width.max(1));
    Some(format!("{name}[{row}][{column}]: wanted {:?}, got {:?}", want[at], got[at]))
}

fn floats(name: &str, width: usize, want: &[f32], got: &[f32]) -> Option<String> {
    let same = |a: f32, b: f32| a.to_bits() == b.to_bits();
    let found = first(name, width, want, got, same)?;
    let at = want.iter().zip(got).position(|(&a, &b)| !same(a, b));
    let bits = at.map_or(String::new(), |i| format!(" (bits {:#010x}, {:#010x})", want[i].to_bits(), got[i].to_bits()));
    Some(found + &bits)
}

/// The first element in which two results differ, by name, row and place in the row.
pub fn first_difference(want: &HostResult, got: &HostResult) -> Option<String> {
    let rows = want.tokens.len().max(want.status.len()).max(1);
    let ints =
        |name, want: &[i32], got: &[i32], rows: usize| first(name, want.len() / rows.max(1), want, got, |a, b| a == b);
    let reals = |name, want: &[f32], got: &[f32]| floats(name, want.len() / rows, want, got);
    first("tokens", 1, &want.tokens, &got.tokens, |a, b| a == b)
        .or_else(|| ints("status", &want.status, &got.status, rows))
        .or_else(|| ints("accepted", &want.accepted, &got.accepted, want.accepted.len()))
        .or_else(|| ints("kept_counts", &want.kept_counts, &got.kept_counts, rows))
        .or_else(|| ints("ranks", &want.ranks, &got.ranks, rows))
        .or_else(|| reals("logprobs", &want.logprobs, &got.logprobs))
        .or_else(|| ints("accept_index", &want.accept_index, &got.accept_index, want.accepted.len()))
        .or_else(|| ints("kept_ids", &want.kept_ids, &got.kept_ids, rows))
        .or_else(|| ints("top_counts", &want.top_counts, &got.top_counts, rows))
        .or_else(|| ints("top_ids", &want.top_ids, &got.top_ids, rows))
        .or_else(|| reals("top_logprobs", &want.top_logprobs, &got.top_logprobs))
        .or_else(|| ints("dense_ids", &want.dense_ids, &got.dense_ids, rows))
        .or_else(|| reals("dense", &want.dense, &got.dense))
        .or_else(|| reals("raw_logprobs", &want.raw_logprobs, &got.raw_logprobs))
        .or_else(|| reals("sum_smaller_probs", &want.sum_smaller_probs, &got.sum_smaller_probs))
        .or_else(|| ints("column_ids", &want.column_ids, &got.column_ids, rows))
        .or_else(|| reals("column_values", &want.column_values, &got.column_values))
}

/// Fails with the first difference.
pub fn assert_same(want: &HostResult, got: &HostResult, what: impl FnOnce() -> String) {
    if let Some(difference) = first_difference(want, got) {
        panic!("{}: {difference}", what());
    }
}

/// How many elements of each output were compared, and how many of them differ.
pub fn differences(want: &HostResult, got: &HostResult) -> Vec<(&'static str, usize, usize)> {
    fn of<T: Copy>(
        all: &mut Vec<(&'static str, usize, usize)>,
        name: &'static str,
        want: &[T],
        got: &[T],
        same: impl Fn(T, T) -> bool,
    ) {
        let differ = want.iter().zip(got).filter(|&(&a, &b)| !same(a, b)).count();
        all.push((name, want.len().max(got.len()), differ + want.len().abs_diff(got.len())));
    }
    let bits = |a: f32, b: f32| a.to_bits() == b.to_bits();
    let all = &mut Vec::new();
    of(all, "tokens", &want.tokens, &got.tokens, |a, b| a == b);
    for (name, want, got) in [
        ("status", &want.status, &got.status),
        ("kept_counts", &want.kept_counts, &got.kept_counts),
        ("ranks", &want.ranks, &got.ranks),
        ("accepted", &want.accepted, &got.accepted),
        ("accept_index", &want.accept_index, &got.accept_index),
        ("kept_ids", &want.kept_ids, &got.kept_ids),
        ("top_counts", &want.top_counts, &got.top_counts),
        ("top_ids", &want.top_ids, &got.top_ids),
        ("dense_ids", &want.dense_ids, &got.dense_ids),
        ("column_ids", &want.column_ids, &got.column_ids),
    ] {
        of(all, name, want, got, |a, b| a == b);
    }
    for (name, want, got) in [
        ("logprobs", &want.logprobs, &got.logprobs),
        ("top_logprobs", &want.top_logprobs, &got.top_logprobs),
        ("dense", &want.dense, &got.dense),
        ("raw_logprobs", &want.raw_logprobs, &got.raw_logprobs),
        ("sum_smaller_probs", &want.sum_smaller_probs, &got.sum_smaller_probs),
        ("column_values", &want.column_values, &got.column_values),
    ] {
        of(all, name, want, got, bits);
    }
    std::mem::take(all)
}
