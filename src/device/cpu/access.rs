//! Reading and writing what a block points at.

use super::source::Source;
use crate::params::{TOP_K_OFF, TOP_P_OFF};
use crate::pipeline::blocks::{RowBlock, SlotBlock, VerifyBlock, filter, status};
use crate::random::{Case, draw_bits};

/// Element `i` of an array of i32 (`width` 4) or i64.
///
/// # Safety
/// The array holds more than `i` elements.
pub(super) unsafe fn load_index(ptr: u64, width: u64, i: usize) -> i64 {
    // SAFETY: the caller's promise.
    unsafe {
        if width == 4 {
            i64::from((ptr as *const i32).add(i).read_unaligned())
        } else {
            (ptr as *const i64).add(i).read_unaligned()
        }
    }
}

/// As [`load_index`], with element `i` being `i` where there is no array.
///
/// # Safety
/// As [`load_index`], unless `ptr` is 0.
unsafe fn load_index_or_self(ptr: u64, width: u64, i: usize) -> i64 {
    // SAFETY: the caller's promise.
    if ptr == 0 { i as i64 } else { unsafe { load_index(ptr, width, i) } }
}

/// Writes element `i` of an output array, unless the output is not wanted.
///
/// # Safety
/// The array holds more than `i` elements, unless `ptr` is 0.
pub(super) unsafe fn store<T>(ptr: u64, i: usize, value: T) {
    if ptr != 0 {
        // SAFETY: the caller's promise.
        unsafe { (ptr as *mut T).add(i).write_unaligned(value) };
    }
}

/// Row `i` of an output matrix as a slice, if it is wanted.
///
/// # Safety
/// The matrix holds more than `i` rows of `width` aligned elements, which nothing else accesses.
pub(super) unsafe fn slice_mut<'a, T>(ptr: u64, i: usize, width: usize) -> Option<&'a mut [T]> {
    // SAFETY: the caller's promise.
    (ptr != 0).then(|| unsafe { std::slice::from_raw_parts_mut((ptr as *mut T).add(i * width), width) })
}

/// A row that may be processed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Live {
    pub slot: SlotBlock,
    pub source: Source,
    /// Status bits that Select found.
    pub known: i32,
}

/// What a row's indices say.
#[derive(Debug, Clone, Copy)]
pub(super) enum RowState {
    /// Nothing is read or written.
    Padding,
    /// An index is out of range: status `bad_index`.
    Bad,
    Live(Live),
}

/// Resolves row `row`'s slot, gather and mask indices.
///
/// # Safety
/// As [`Device::enqueue`](crate::device::Device::enqueue) for `b`.
pub(super) unsafe fn resolve(b: &RowBlock, row: usize) -> RowState {
    // SAFETY: the caller's promise; the arrays hold one entry a row; indices into buffers are checked before use.
    unsafe {
        let slot = load_index_or_self(b.row_to_slot, b.row_to_slot_width, row);
        if slot == -1 {
            return RowState::Padding;
        }
        if !in_range(slot, b.slot_count) {
            return RowState::Bad;
        }
        let slot = (b.slots as *const SlotBlock).add(slot as usize).read_unaligned();
        if slot.live == 0 || uses_excluded(&slot, b.filters) {
            return RowState::Bad;
        }
        if let Some(golden) = golden(b, row)
            && !(-1..b.vocab as i64).contains(&golden)
        {
            return RowState::Bad;
        }
        if b.from_columns != 0 {
            let (n, known) = (b.columns as usize, (b.column_status as *const i32).add(row).read_unaligned());
            if known & status::BAD_INDEX != 0 {
                return RowState::Bad;
            }
            let values = (b.column_values as *const f32).add(row * n);
            let source = Source::columns(values, (b.column_ids as *const i32).add(row * n), n);
            return RowState::Live(Live { slot, source, known });
        }
        let logits_row = load_index_or_self(b.gather, b.gather_width, row);
        if !in_range(logits_row, b.logits_rows) {
            return RowState::Bad;
        }
        let mut mask = None;
        if b.mask != 0 {
            let mask_row = load_index_or_self(b.mask_index, b.mask_index_width, row);
            if mask_row != -1 {
                if !in_range(mask_row, b.mask_rows) {
                    return RowState::Bad;
                }
                mask = Some((b.mask as *const u32).add(mask_row as usize * b.mask_stride as usize));
            }
        }
        let bytes = if b.logits_dtype == 0 { 4 } else { 2 };
        let start = b.logits + logits_row as u64 * b.logits_stride * bytes;
        let source = Source::logits(start, b.logits_dtype, b.vocab as usize, mask);
        RowState::Live(Live { slot, source, known: 0 })
    }
}

/// The row's logits as handed in, for a row that resolved as live.
///
/// # Safety
/// As [`resolve`].
pub(super) unsafe fn raw_logits(b: &RowBlock, row: usize) -> Source {
    // SAFETY: `resolve` held the gather index to its range (Select did, for a row read from columns).
    unsafe {
        let logits_row = load_index_or_self(b.gather, b.gather_width, row) as u64;
        let bytes = if b.logits_dtype == 0 { 4 } else { 2 };
        let start = b.logits + logits_row * b.logits_stride * bytes;
        Source::logits(start, b.logits_dtype, b.vocab as usize, None)
    }
}

fn in_range(index: i64, count: u64) -> bool {
    index >= 0 && (index as u64) < count
}

fn uses_excluded(slot: &SlotBlock, filters: u64) -> bool {
    let excludes = |bit| filters & bit == 0;
    (slot.top_k != TOP_K_OFF && excludes(filter::TOP_K))
        || (slot.top_p != TOP_P_OFF && excludes(filter::TOP_P))
        || (f32::from_bits(slot.min_exponent as u32) != f32::NEG_INFINITY && excludes(filter::MIN_P))
        || (slot.top_k != 1 && !excludes(filter::ALL_GREEDY))
}

/// The golden token array's entry for `row`, if there is an array.
///
/// # Safety
/// As [`resolve`].
pub(super) unsafe fn golden(b: &RowBlock, row: usize) -> Option<i64> {
    // SAFETY: the array holds one entry a row.
    (b.golden != 0).then(|| unsafe { load_index(b.golden, b.golden_width, row) })
}

/// The token `row` must output, if any.
///
/// # Safety
/// As [`resolve`].
pub(super) unsafe fn forced(b: &RowBlock, row: usize) -> Option<i64> {
    // SAFETY: the caller's promise.
    unsafe { golden(b, row) }.filter(|&token| token != -1)
}

/// The draw bits of `row`: `base` is its entry in the positions, `offset` its distance from there.
///
/// # Safety
/// As [`resolve`]; positions are present and hold more than `base` entries.
pub(super) unsafe fn bits(b: &RowBlock, row: usize, base: usize, offset: i64, slot: &SlotBlock, case: Case) -> u64 {
    // SAFETY: the caller's promise; the test hook holds three entries a row.
    unsafe {
        if b.bits != 0 {
            return (b.bits as *const u64).add(3 * row + case as usize).read_unaligned();
        }
        let mut position = (b.positions as *const i64).add(base).read_unaligned();
        if b.position_offsets != 0 {
            position = position.wrapping_add(load_index(b.position_offsets, 4, base));
        }
        position = position.wrapping_add(b.position_add as i64).wrapping_add(offset);
        draw_bits(slot.seed.wrapping_add(b.seed_add), position, case)
    }
}

/// Where a row's verification stands in its request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub request: usize,
    pub local_step: i64,
    pub is_last: bool,
}

/// Resolves a row's request: `Ok(None)` for a padding row, `Err(())` for an index out of range.
///
/// # Safety
/// As [`Device::enqueue`](crate::device::Device::enqueue) for both blocks.
pub(super) unsafe fn place(b: &RowBlock, v: &VerifyBlock, row: usize) -> Result<Option<Place>, ()> {
    // SAFETY: one entry a row; first_rows holds requests + 1 entries.
    unsafe {
        let request = load_index(v.row_to_request, v.row_to_request_width, row);
        if request == -1 {
            return Ok(None);
        }
        if !in_range(request, v.requests) {
            return Err(());
        }
        let request = request as usize;
        let Some((first, end)) = request_rows(b, v, request) else { return Err(()) };
        if row < first || row >= end {
            return Err(());
        }
        Ok(Some(Place { request, local_step: (row - first) as i64, is_last: row + 1 == end }))
    }
}

/// First row of a request and one past its last, if they lie within the step.
///
/// # Safety
/// As [`place`]; `request` is below the number of requests.
pub(super) unsafe fn request_rows(b: &RowBlock, v: &VerifyBlock, request: usize) -> Option<(usize, usize)> {
    // SAFETY: first_rows holds requests + 1 entries.
    let (first, end) = unsafe { (load_index(v.first_rows, 4, request), load_index(v.first_rows, 4, request + 1)) };
    (0 <= first && first <= end && end <= b.rows as i64).then_some((first as usize, end as usize))
}

/// The pool row a row's draft reads: `None` when it is out of range.
///
/// # Safety
/// As [`place`].
pub(super) unsafe fn draft_row(v: &VerifyBlock, row: usize) -> Option<usize> {
    // SAFETY: one entry a row.
    let index = unsafe { load_index_or_self(v.draft_rows, v.draft_rows_width, row) };
    in_range(index, v.pool_rows).then_some(index as usize)
}
