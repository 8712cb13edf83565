//! The stages on the CPU, a row at a time: SEMANTICS sections 3 to 8. Verification is in `verify`.

use super::access::{
    Live, RowState, bits, draft_row, forced, load_index, place, raw_logits, resolve, slice_mut, store,
};
use super::lanes::{self, Engine, Scratch, Slot};
use super::row::Processed;
use super::source::key;
use crate::mass::LOG2_E;
use crate::params::{TOP_K_OFF, TOP_P_OFF};
use crate::pipeline::blocks::{RowBlock, SlotBlock, VerifyBlock, status};
use crate::random::Case;

/// Lanes and the work areas for one row; none: the scalar code.
pub(super) type Tools<'s> = Option<(Engine<'s>, &'s mut Slot)>;

/// Select: the first N tokens of the order, ascending id.
///
/// # Safety
/// As [`Device::enqueue`](crate::device::Device::enqueue), for this and every function here and in `verify`.
pub(super) unsafe fn select(b: &RowBlock, row: usize, tools: Tools<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        let n = b.columns as usize;
        let (Some(values), Some(ids)) =
            (slice_mut::<f32>(b.column_values, row, n), slice_mut::<i32>(b.column_ids, row, n))
        else {
            return;
        };
        let status = match resolve(b, row) {
            RowState::Padding => return,
            RowState::Bad => {
                values.fill(f32::NEG_INFINITY);
                ids.fill(-1);
                status::BAD_INDEX
            }
            RowState::Live(live) => {
                let found =
                    tools.and_then(|(k, s)| lanes::process(k, &mut s.main, &live.source, b.columns, &KEEP_ALL, true));
                let selected = match found {
                    Some(found) => Processed::from(found, live.source, &KEEP_ALL, live.known),
                    None => Processed::new(live.source, b.columns, &KEEP_ALL, live.known),
                };
                let mut place = 0;
                selected.each_column(|id, x, _| {
                    values[place] = x;
                    ids[place] = id as i32;
                    place += 1;
                });
                selected.status
            }
        };
        store(b.column_status, row, status);
    }
}

/// Argmax: the first token of the order, for a step whose filters say that every row has `top_k = 1`.
pub(super) unsafe fn argmax(b: &RowBlock, row: usize, tools: Tools<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        let live = match resolve(b, row) {
            RowState::Padding => return,
            RowState::Bad => return finish(b, row, None, None, -1, status::BAD_INDEX),
            RowState::Live(live) => live,
        };
        let in_lanes = tools.and_then(|(k, s)| lanes::find_max(k, &mut s.main, &live.source));
        let (max, found) = in_lanes.map_or_else(|| live.source.max(), |(max, found, _)| (max, found));
        let mut found = found | live.known;
        let mut token = -1;
        if max == f32::NEG_INFINITY {
            found |= status::EMPTY_ROW;
        } else if let Some((_, _, index)) = in_lanes {
            token = i64::from(live.source.id_at(index));
        } else {
            live.source.each(|_, id, x| {
                if token == -1 && key(x) == key(max) {
                    token = i64::from(id);
                }
            });
        }
        let kept = i32::from(token >= 0);
        store_token(b, row, token);
        store(b.logprobs, row, if token >= 0 { 0.0 } else { f32::NEG_INFINITY });
        store(b.ranks, row, kept);
        store(b.kept_counts, row, kept);
        store(b.status, row, found);
    }
}

/// Sample: process the row, draw its token unless a golden one is given.
pub(super) unsafe fn sample(b: &RowBlock, row: usize, tools: Tools<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        match resolve(b, row) {
            RowState::Padding => {}
            RowState::Bad => finish(b, row, None, None, -1, status::BAD_INDEX),
            RowState::Live(live) => {
                let (processed, raw) = process(b, &live, tools);
                let token = forced(b, row).unwrap_or_else(|| {
                    if b.positions == 0 { -1 } else { processed.draw(bits(b, row, row, 0, &live.slot, Case::Fresh)) }
                });
                finish(b, row, Some(&processed), raw, token, processed.status);
            }
        }
    }
}

/// Remap: the draft row's logprobs at the target row's columns, -inf for those the draft does not have.
pub(super) unsafe fn remap(b: &RowBlock, v: &VerifyBlock, row: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(out) = slice_mut::<f32>(v.remapped, row, b.columns as usize) else { return };
        let (Ok(Some(place)), RowState::Live(live)) = (place(b, v, row), resolve(b, row)) else { return };
        let Some(pool_row) = draft_row(v, row).filter(|_| !place.is_last) else { return };
        out.fill(f32::NEG_INFINITY);
        let start = pool_row * v.draft_stride as usize;
        for column in start..start + v.draft_width as usize {
            let id = load_index(v.draft_columns, 4, column);
            if let Some(index) = live.source.find(id) {
                out[index] = (v.draft_logprobs as *const f32).add(column).read_unaligned();
            }
        }
    }
}

/// Parameters that filter nothing, at temperature 1.
const KEEP_ALL: SlotBlock = SlotBlock {
    live: 1,
    scale: LOG2_E.to_bits() as u64,
    top_p: TOP_P_OFF,
    top_k: TOP_K_OFF,
    min_exponent: f32::NEG_INFINITY.to_bits() as u64,
    seed: 0,
    top_k_first: 0,
    reserved: 0,
};

/// Lanes and the work areas that are left for the logits as handed in.
type RawTools<'s> = Option<(Engine<'s>, &'s mut Scratch)>;

pub(super) fn process<'s>(b: &RowBlock, live: &Live, tools: Tools<'s>) -> (Processed<'s>, RawTools<'s>) {
    let (main, raw) = tools.map(|(k, slot)| ((k, &mut slot.main), (k, &mut slot.raw))).unzip();
    (Processed::of(main, live.source, b.columns, &live.slot, live.known), raw)
}

/// Writes the row's token in the width the block names.
pub(super) unsafe fn store_token(b: &RowBlock, row: usize, token: i64) {
    // SAFETY: one entry a row, of the width the block names.
    unsafe {
        if b.tokens_width == 4 {
            store(b.tokens, row, token as i32);
        } else {
            store(b.tokens, row, token);
        }
    }
}

/// Writes every output slot the row owns.
pub(super) unsafe fn finish(
    b: &RowBlock,
    row: usize,
    processed: Option<&Processed<'_>>,
    raw: RawTools<'_>,
    token: i64,
    status: i32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        store_token(b, row, token);
        store(b.status, row, status);
        let (width, kept_width, n) = (b.top_width as usize, b.kept_width as usize, b.columns as usize);
        let mut no_ids: [i32; 0] = [];
        let mut no_logprobs: [f32; 0] = [];
        let top_ids = slice_mut(b.top_ids, row, width).unwrap_or(&mut no_ids);
        let top_logprobs = slice_mut(b.top_logprobs, row, width).unwrap_or(&mut no_logprobs);
        if let Some(ids) = slice_mut::<i32>(b.kept_ids, row, kept_width) {
            ids.fill(-1);
            let mut next = 0;
            if let Some(p) = processed {
                p.each_kept(|_, id, _| {
                    if let Some(slot) = ids.get_mut(next) {
                        *slot = id as i32;
                    }
                    next += 1;
                });
            }
        }
        let dense_row = row * b.dense_stride as usize;
        let Some(p) = processed else {
            store(b.logprobs, row, f32::NEG_INFINITY);
            store(b.ranks, row, 0i32);
            store(b.kept_counts, row, 0i32);
            store(b.raw_logprobs, row, f32::NEG_INFINITY);
            store(b.sum_smaller_probs, row, 0.0f32);
            top_ids.fill(-1);
            top_logprobs.fill(f32::NEG_INFINITY);
            store(b.top_counts, row, 0i32);
            for column in dense_row..dense_row + if b.dense == 0 { 0 } else { n } {
                store(b.dense, column, f32::NEG_INFINITY);
                store(b.dense_ids, column, -1i32);
            }
            return;
        };
        if b.logprobs != 0 {
            store(b.logprobs, row, p.logprob(token));
        }
        if b.ranks != 0 {
            store(b.ranks, row, p.rank(token));
        }
        if b.kept_counts != 0 {
            store(b.kept_counts, row, p.kept_count() as i32);
        }
        if b.raw_logprobs != 0 {
            store(b.raw_logprobs, row, raw_logprob(b, row, raw, token));
        }
        if b.sum_smaller_probs != 0 {
            store(b.sum_smaller_probs, row, p.sum_smaller(token));
        }
        if width > 0 {
            let used = p.top(top_ids, top_logprobs);
            store(b.top_counts, row, used);
        }
        if b.dense != 0 {
            let mut column = dense_row;
            p.each_column(|id, _, logprob| {
                store(b.dense, column, logprob);
                store(b.dense_ids, column, id as i32);
                column += 1;
            });
        }
    }
}

/// Logprob of `token` under the logits as handed in: temperature 1, no mask, no filter.
unsafe fn raw_logprob(b: &RowBlock, row: usize, tools: RawTools<'_>, token: i64) -> f32 {
    if token < 0 {
        return f32::NEG_INFINITY;
    }
    // SAFETY: the row resolved as live.
    let source = unsafe { raw_logits(b, row) };
    let found = tools.and_then(|(k, scratch)| lanes::process(k, scratch, &source, b.vocab, &KEEP_ALL, false));
    let processed = match found {
        Some(found) => Processed::from(found, source, &KEEP_ALL, 0),
        None => Processed::new(source, b.vocab, &KEEP_ALL, 0),
    };
    processed.logprob(token)
}
