//! Verification on the CPU: SEMANTICS section 9. Rows decide for themselves, then each request is settled.

use super::access::{
    Place, RowState, bits, draft_row, forced, load_index, place, request_rows, resolve, slice_mut, store,
};
use super::row::{Processed, pick};
use super::stages::{Tools, finish, process, store_token};
use crate::mass::{draft_mass, scale_draft};
use crate::pipeline::blocks::{RowBlock, SlotBlock, VerifyBlock, status, verify_mode};
use crate::random::{Case, scale_bits};

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
