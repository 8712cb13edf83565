//! The stages on the CPU, a row at a time: SEMANTICS sections 3 to 8 for sampling, section 9 for verification.

use super::access::{
    Live, Place, RowState, bits, draft_row, forced, load_index, place, raw_logits, request_rows, resolve, slice_mut,
    store,
};
use super::lanes::{self, Engine, Scratch, Slot};
use super::row::{Processed, pick};
use super::source::key;
use crate::mass::{LOG2_E, draft_mass, scale_draft};
use crate::params::{TOP_K_OFF, TOP_P_OFF};
use crate::pipeline::blocks::{RowBlock, SlotBlock, VerifyBlock, status, verify_mode};
use crate::random::{Case, scale_bits};

/// Lanes and the work areas for one row; none: the scalar code.
pub(super) type Tools<'s> = Option<(Engine<'s>, &'s mut Slot)>;

/// Select: the first N tokens of the order, ascending id.
///
/// # Safety
/// As [`Device::enqueue`](crate::device::Device::enqueue), for this and every function below.
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

/// Verify, the row's part: its token as if every earlier draft was accepted, and whether it accepts its own.
pub(super) unsafe fn verify_row(b: &RowBlock, v: &VerifyBlock, row: usize, tools: Tools<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        store(v.row_accepts, row, 0i32);
        let state = match place(b, v, row) {
            Ok(None) => return,
            Err(()) => Err(()),
            Ok(Some(place)) => match resolve(b, row) {
                RowState::Padding => return,
                RowState::Bad => Err(()),
                RowState::Live(live) => Ok((place, live)),
            },
        };
        let decided = state.and_then(|(place, live)| {
            let draft = Draft::of(b, v, row, &place)?;
            let (processed, raw) = process(b, &live, tools);
            let decision = decide(b, v, row, &place, &live.slot, &processed, draft);
            Ok((processed, raw, decision))
        });
        match decided {
            Err(()) => finish(b, row, None, None, -1, status::BAD_INDEX),
            Ok((processed, raw, decision)) => {
                store(v.row_accepts, row, i32::from(decision.accepts));
                finish(b, row, Some(&processed), raw, decision.token, processed.status | decision.status);
            }
        }
    }
}

/// Verify, the request's part: rows after the first rejection give no token.
pub(super) unsafe fn settle(b: &RowBlock, v: &VerifyBlock, request: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let width = v.accept_width as usize;
        let index = slice_mut::<i32>(v.accept_index, request, width);
        let index = index.unwrap_or_default();
        index.fill(-1);
        let (mut accepted, mut alive) = (0i32, true);
        let (first, end) = request_rows(b, v, request).unwrap_or((0, 0));
        for row in first..end {
            let padding = load_index(v.row_to_request, v.row_to_request_width, row) == -1
                || matches!(resolve(b, row), RowState::Padding);
            if padding {
                alive = false;
                continue;
            }
            if !alive {
                store_token(b, row, -1);
                store(b.logprobs, row, f32::NEG_INFINITY);
                store(b.ranks, row, 0i32);
                store(b.raw_logprobs, row, f32::NEG_INFINITY);
                store(b.sum_smaller_probs, row, 0.0f32);
                if b.status != 0 {
                    let found = (b.status as *const i32).add(row).read_unaligned();
                    store(b.status, row, found & !status::NAN_DRAFT);
                }
                continue;
            }
            if load_index(b.tokens, b.tokens_width, row) >= 0
                && let Some(entry) = index.get_mut(row - first)
            {
                *entry = row as i32;
            }
            alive = load_index(v.row_accepts, 4, row) != 0;
            accepted += i32::from(alive);
        }
        store(v.accepted, request, accepted);
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

fn process<'s>(b: &RowBlock, live: &Live, tools: Tools<'s>) -> (Processed<'s>, RawTools<'s>) {
    let (main, raw) = tools.map(|(k, slot)| ((k, &mut slot.main), (k, &mut slot.raw))).unzip();
    (Processed::of(main, live.source, b.columns, &live.slot, live.known), raw)
}

/// What is known of the draft a row verifies.
#[derive(Debug, Clone, Copy)]
enum Draft {
    /// The row is its request's last: it draws fresh.
    Last,
    /// The draft's token alone matters (chain, golden rows).
    Token(i64),
    /// There is no draft: reject, draw from the kept masses.
    Absent,
    /// The draft's distribution is its token.
    OneHot(i64),
    /// The draft's token and the row of its distribution.
    Row(i64, usize),
}

impl Draft {
    unsafe fn of(b: &RowBlock, v: &VerifyBlock, row: usize, place: &Place) -> Result<Draft, ()> {
        if place.is_last {
            return Ok(Draft::Last);
        }
        // SAFETY: one entry a row.
        let (id, golden) = unsafe { (load_index(v.draft_ids, v.draft_ids_width, row), forced(b, row).is_some()) };
        if golden || v.mode == verify_mode::CHAIN {
            return Ok(Draft::Token(id));
        }
        if !(0..b.vocab as i64).contains(&id) {
            return Ok(Draft::Absent);
        }
        if v.mode == verify_mode::ONE_HOT {
            return Ok(Draft::OneHot(id));
        }
        // SAFETY: one entry a row.
        unsafe { draft_row(v, row) }.map(|pool_row| Draft::Row(id, pool_row)).ok_or(())
    }

    /// The draft's logprob of the token `id` at `index` among the row's columns; -inf where it has none.
    unsafe fn logprob(self, b: &RowBlock, v: &VerifyBlock, row: usize, index: usize, id: i64) -> f32 {
        match self {
            Draft::OneHot(draft) if draft == id => 0.0,
            Draft::Row(_, pool_row) => {
                // SAFETY: a remapped row has one entry a column, a pool row `draft_width` ones.
                unsafe {
                    if v.remapped != 0 {
                        (v.remapped as *const f32).add(row * b.columns as usize + index).read_unaligned()
                    } else if id < v.draft_width as i64 {
                        let at = pool_row * v.draft_stride as usize + id as usize;
                        (v.draft_logprobs as *const f32).add(at).read_unaligned()
                    } else {
                        f32::NEG_INFINITY
                    }
                }
            }
            _ => f32::NEG_INFINITY,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Decision {
    token: i64,
    accepts: bool,
    status: i32,
}

/// Section 9 for one row.
unsafe fn decide(
    b: &RowBlock,
    v: &VerifyBlock,
    row: usize,
    place: &Place,
    slot: &SlotBlock,
    target: &Processed<'_>,
    draft: Draft,
) -> Decision {
    let offset = place.local_step.wrapping_mul(v.position_stride as i64);
    // SAFETY: the caller's promise.
    let bits = |case| unsafe { bits(b, row, place.request, offset, slot, case) };
    let fresh = |draft: Option<i64>| {
        // SAFETY: the caller's promise.
        let token = unsafe { forced(b, row) }.unwrap_or_else(|| target.draw(bits(Case::Fresh)));
        Decision { token, accepts: token >= 0 && draft == Some(token), status: 0 }
    };
    let rejected = |token, status| Decision { token, accepts: false, status };
    let d = match draft {
        Draft::Last => return fresh(None),
        Draft::Token(d) => return fresh(Some(d)),
        Draft::Absent => return rejected(target.draw(bits(Case::Residual)), 0),
        Draft::OneHot(d) | Draft::Row(d, _) => d,
    };
    if target.total == 0 {
        return rejected(-1, 0);
    }
    // SAFETY: the caller's promise; the draft's row was held to the pool.
    let draft_logprob = |index, id| unsafe { draft.logprob(b, v, row, index, id) };
    if let Some(index) = target.source.find(d).filter(|_| target.has_column(d)) {
        let q = draft_logprob(index, d);
        if q.is_nan() {
            return rejected(target.draw(bits(Case::Residual)), status::NAN_DRAFT);
        }
        let scaled = scale_draft(draft_mass(q), target.total);
        if scale_bits(bits(Case::Accept), scaled) < target.mass_of(d) {
            return Decision { token: d, accepts: true, status: 0 };
        }
    }
    let residual = |f: &mut dyn FnMut(u32, u64)| {
        let mut nan = false;
        target.each_kept(|index, id, mass| {
            let q = draft_logprob(index, i64::from(id));
            nan |= q.is_nan();
            f(id, mass.saturating_sub(scale_draft(draft_mass(q), target.total)));
        });
        nan
    };
    let mut total = 0;
    let nan = residual(&mut |_, mass| total += mass);
    let bits = bits(Case::Residual);
    let token = if total == 0 { target.draw(bits) } else { pick(bits, total, |f| _ = residual(f)) };
    rejected(token, if nan { status::NAN_DRAFT } else { 0 })
}

unsafe fn store_token(b: &RowBlock, row: usize, token: i64) {
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
unsafe fn finish(
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
