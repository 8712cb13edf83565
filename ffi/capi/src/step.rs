//! A step as it crosses the ABI, and what it becomes.

use crate::sized::{Versioned, read};
use crate::status::samedraw_status::SAMEDRAW_ARGUMENT;
use crate::status::{Result, refuse};
use crate::table::{flag, samedraw_slot, zero};
use crate::verify::{samedraw_verify, verify};
use samedraw::device::DevPtr;
use samedraw::pipeline::{
    Columns, DType, Dense, Filters, Index, IndexWidth, KeptIds, Logits, Mask, Outputs, Slots, TopLogprobs,
};
use samedraw::{Step, pipeline::blocks::status};
use std::ffi::c_void;
use std::mem::size_of;

/// Type of the logits.
#[repr(u32)]
pub enum samedraw_dtype {
    /// IEEE 754 binary32.
    SAMEDRAW_F32 = 0,
    /// IEEE 754 binary16.
    SAMEDRAW_F16 = 1,
    /// The upper half of a binary32.
    SAMEDRAW_BF16 = 2,
}

/// Bit of samedraw_step.filters: some row uses top-k.
pub const SAMEDRAW_FILTER_TOP_K: u32 = 1;
/// Bit of samedraw_step.filters: some row uses top-p.
pub const SAMEDRAW_FILTER_TOP_P: u32 = 2;
/// Bit of samedraw_step.filters: some row uses min-p.
pub const SAMEDRAW_FILTER_MIN_P: u32 = 4;
/// Bit of samedraw_step.filters: every row has top_k 1.
pub const SAMEDRAW_FILTER_ALL_GREEDY: u32 = 8;

/// Row status: a NaN was left after the mask and counted as -inf.
pub const SAMEDRAW_ROW_NAN_LOGITS: i32 = 1;
/// Row status: a token at +inf; only such tokens are kept.
pub const SAMEDRAW_ROW_INF_LOGITS: i32 = 2;
/// Row status: nothing above -inf was left; token -1.
pub const SAMEDRAW_ROW_EMPTY: i32 = 4;
/// Row status: a NaN in the draft's logprobs was met.
pub const SAMEDRAW_ROW_NAN_DRAFT: i32 = 8;
/// Row status: an index out of range, a slot never written or one that uses a filter the step excludes; token -1.
pub const SAMEDRAW_ROW_BAD_INDEX: i32 = 16;

const _: () = assert!(
    SAMEDRAW_ROW_NAN_LOGITS == status::NAN_LOGITS
        && SAMEDRAW_ROW_INF_LOGITS == status::INF_LOGITS
        && SAMEDRAW_ROW_EMPTY == status::EMPTY_ROW
        && SAMEDRAW_ROW_NAN_DRAFT == status::NAN_DRAFT
        && SAMEDRAW_ROW_BAD_INDEX == status::BAD_INDEX
);

/// Logits in device memory, read-only.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct samedraw_logits {
    /// sizeof(samedraw_logits)
    pub size: usize,
    /// First element of row 0, aligned to its elements.
    pub data: *const c_void,
    /// Rows the buffer holds; may be more than a step uses.
    pub rows: usize,
    /// Vocabulary size V; columns from V on are padding.
    pub vocab: usize,
    /// Elements from one row to the next, at least vocab.
    pub stride: usize,
    /// A samedraw_dtype.
    pub dtype: u32,
    /// 0
    pub reserved: u32,
}

/// Where results go, in device memory. What is null is not computed.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct samedraw_outputs {
    /// sizeof(samedraw_outputs)
    pub size: usize,
    /// int32_t or int64_t [rows]: token of each row, -1 = none.
    pub tokens: *mut c_void,
    /// Bytes of a token: 4 or 8.
    pub tokens_width: u32,
    /// 0
    pub reserved: u32,
    /// [rows]: processed logprob of the token, -inf = none.
    pub logprobs: *mut f32,
    /// [rows]: rank of the token, from 1; 0 = none.
    pub ranks: *mut i32,
    /// [rows]: number of kept tokens.
    pub kept_counts: *mut i32,
    /// [rows]: SAMEDRAW_ROW_... bits.
    pub status: *mut i32,
    /// [rows]: logprob of the token under the logits as handed in.
    pub raw_logprobs: *mut f32,
    /// [rows]: probability of the tokens up to this one, least likely first.
    pub sum_smaller_probs: *mut f32,
    /// Entries of a top list; 0 where top_ids is null.
    pub top_width: usize,
    /// [rows, top_width]: the most likely kept tokens, -1 = unused.
    pub top_ids: *mut i32,
    /// [rows, top_width]: their logprobs; given with top_ids.
    pub top_logprobs: *mut f32,
    /// [rows]: valid entries.
    pub top_counts: *mut i32,
    /// [rows, dense_stride]: processed logprobs of all N columns, -inf = not kept.
    pub dense: *mut f32,
    /// [rows, dense_stride]: ids of the columns, ascending.
    pub dense_ids: *mut i32,
    /// Elements from one dense row to the next, at least N.
    pub dense_stride: usize,
    /// [rows, kept_width]: ids of the kept tokens, ascending, then -1.
    pub kept_ids: *mut i32,
    /// Entries of a kept list.
    pub kept_width: usize,
    /// [rows, N]: the selected logits; needs force_topk.
    pub column_values: *mut f32,
    /// [rows, N]: their ids; given with column_values.
    pub column_ids: *mut i32,
}

/// One step. Every pointer but logits, verify and outputs is device memory; null = absent.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct samedraw_step {
    /// sizeof(samedraw_step)
    pub size: usize,
    /// The logits.
    pub logits: *const samedraw_logits,
    /// Rows R to process.
    pub rows: usize,
    /// Where results go.
    pub outputs: *const samedraw_outputs,
    /// Verification of drafts; null: every row draws.
    pub verify: *const samedraw_verify,
    /// int32_t or int64_t [rows]: row of the logits for each row; null: the same number.
    pub gather: *const c_void,
    /// Bytes of an entry: 4 or 8.
    pub gather_width: u32,
    /// Bytes of an entry of row_to_slot.
    pub row_to_slot_width: u32,
    /// int32_t or int64_t [rows]: parameter slot, -1 = padding row; null: the same number.
    pub row_to_slot: *const c_void,
    /// [slot_count]: parameter rows of the caller's in place of the sampler's table; null: the table.
    pub slots: *const samedraw_slot,
    /// Rows of slots.
    pub slot_count: usize,
    /// [rows], or [requests] when verifying: position of the draw. Null: golden tokens are scored, no row draws.
    pub positions: *const i64,
    /// [rows], or [requests] when verifying: added to the positions.
    pub position_offsets: *const i32,
    /// Keep the first N tokens of the order; 0 = off.
    pub force_topk: usize,
    /// [mask_rows, mask_stride]: allowed-token bits, token v is bit v % 32 of word v / 32; null: all are allowed.
    pub mask: *const i32,
    /// Rows of the mask.
    pub mask_rows: usize,
    /// Words from one mask row to the next, at least ceil(V / 32).
    pub mask_stride: usize,
    /// int32_t or int64_t [rows]: mask row of each row, -1 = none; null: the same number.
    pub mask_index: *const c_void,
    /// Bytes of an entry of mask_index: 4 or 8.
    pub mask_index_width: u32,
    /// Bytes of an entry of golden: 4 or 8.
    pub golden_width: u32,
    /// int32_t or int64_t [rows]: token each row must output, -1 = none.
    pub golden: *const c_void,
    /// 1: the draft model's stream; draft_step is the draft's number.
    pub has_draft_step: u32,
    /// 1: filters says what the batch uses, and a row that uses another gets SAMEDRAW_ROW_BAD_INDEX. 0: what the table's
    /// live slots use, or any with slots, or, in a capture, the variant's.
    pub has_filters: u32,
    /// The draft's number, from 1.
    pub draft_step: i64,
    /// SAMEDRAW_FILTER_... bits; 0 where has_filters is 0.
    pub filters: u32,
    /// 0
    pub reserved: u32,
}

// The number stays what it is when a struct grows, and the assertion becomes an inequality.
macro_rules! versioned {
    ($($name:ident $first:literal)+) => {$(
        const _: () = assert!(size_of::<$name>() == $first);
        // SAFETY: as the trait asks.
        unsafe impl Versioned for $name {
            const NAME: &'static str = stringify!($name);
            const FIRST: usize = $first;
        }
    )+};
}
versioned! { samedraw_logits 48 samedraw_outputs 160 samedraw_step 176 }

pub(crate) fn ptr<T>(ptr: *const T) -> DevPtr {
    DevPtr(ptr as u64)
}

/// An array of integers; null is absent.
pub(crate) fn index(what: &str, data: *const c_void, width: u32) -> Result<Option<Index>> {
    let width = match width {
        _ if data.is_null() => return Ok(None),
        4 => IndexWidth::I32,
        8 => IndexWidth::I64,
        other => return refuse(SAMEDRAW_ARGUMENT, format!("{what} = {other} is refused: 4 or 8")),
    };
    Ok(Some(Index { ptr: ptr(data), width }))
}

/// # Safety
/// As [`read`].
pub(crate) unsafe fn logits(given: *const samedraw_logits) -> Result<Logits> {
    // SAFETY: the caller's promise.
    let given = unsafe { read(given) }?;
    let dtype = match given.dtype {
        0 => DType::F32,
        1 => DType::F16,
        2 => DType::BF16,
        other => return refuse(SAMEDRAW_ARGUMENT, format!("logits: dtype = {other} is refused: 0 to 2")),
    };
    zero("samedraw_logits.reserved", given.reserved)?;
    Ok(Logits { ptr: ptr(given.data), dtype, rows: given.rows, vocab: given.vocab, stride: given.stride })
}

/// What a step of the caller's is in the core's terms.
///
/// # Safety
/// As [`read`], for it and for the structs it points at.
pub(crate) unsafe fn step(given: *const samedraw_step) -> Result<Step> {
    // SAFETY: the caller's promise.
    let s = unsafe { read(given) }?;
    zero("samedraw_step.reserved", s.reserved)?;
    let filters = flag("has_filters", s.has_filters)?;
    if !filters && s.filters != 0 {
        return refuse(SAMEDRAW_ARGUMENT, format!("filters = {} is refused where has_filters is 0: 0", s.filters));
    }
    let mask = Mask {
        ptr: ptr(s.mask),
        rows: s.mask_rows,
        stride: s.mask_stride,
        index: index("mask_index_width", s.mask_index, s.mask_index_width)?,
    };
    if s.mask.is_null() && mask.index.is_some() {
        return refuse(SAMEDRAW_ARGUMENT, "mask_index is given without a mask");
    }
    Ok(Step {
        // SAFETY: the caller's promise.
        logits: unsafe { logits(s.logits) }?,
        rows: s.rows,
        gather: index("gather_width", s.gather, s.gather_width)?,
        force_topk: s.force_topk,
        mask: (!s.mask.is_null()).then_some(mask),
        row_to_slot: index("row_to_slot_width", s.row_to_slot, s.row_to_slot_width)?,
        slots: (!s.slots.is_null()).then(|| Slots { ptr: ptr(s.slots), count: s.slot_count }),
        positions: ptr(s.positions),
        position_offsets: ptr(s.position_offsets),
        draft_step: flag("has_draft_step", s.has_draft_step)?.then_some(s.draft_step),
        golden: index("golden_width", s.golden, s.golden_width)?,
        filters: if filters { Some(filter_bits(s.filters)?) } else { None },
        // SAFETY: the caller's promise.
        verify: if s.verify.is_null() { None } else { Some(unsafe { verify(s.verify) }?) },
        // SAFETY: the caller's promise.
        outputs: unsafe { outputs(s.outputs) }?,
        ..Step::default()
    })
}

fn filter_bits(bits: u32) -> Result<Filters> {
    if bits > 15 {
        return refuse(SAMEDRAW_ARGUMENT, format!("filters = {bits:#x} is refused: bits up to 8"));
    }
    let has = |bit| bits & bit != 0;
    Ok(Filters {
        top_k: has(SAMEDRAW_FILTER_TOP_K),
        top_p: has(SAMEDRAW_FILTER_TOP_P),
        min_p: has(SAMEDRAW_FILTER_MIN_P),
        all_greedy: has(SAMEDRAW_FILTER_ALL_GREEDY),
    })
}

/// # Safety
/// As [`read`].
unsafe fn outputs(given: *const samedraw_outputs) -> Result<Outputs> {
    // SAFETY: the caller's promise.
    let o = unsafe { read(given) }?;
    zero("samedraw_outputs.reserved", o.reserved)?;
    // What belongs to an output that is not wanted says that the caller meant to want it.
    for (what, main, other) in [
        ("top_logprobs", o.top_ids.is_null(), !o.top_logprobs.is_null() || !o.top_counts.is_null()),
        ("dense_ids", o.dense.is_null(), !o.dense_ids.is_null()),
        ("column_ids", o.column_values.is_null(), !o.column_ids.is_null()),
    ] {
        if main && other {
            return refuse(SAMEDRAW_ARGUMENT, format!("{what} is given without the output that it belongs to"));
        }
    }
    Ok(Outputs {
        tokens: index("tokens_width", o.tokens, o.tokens_width)?,
        logprobs: ptr(o.logprobs),
        ranks: ptr(o.ranks),
        kept_counts: ptr(o.kept_counts),
        status: ptr(o.status),
        raw_logprobs: ptr(o.raw_logprobs),
        sum_smaller_probs: ptr(o.sum_smaller_probs),
        top: (!o.top_ids.is_null()).then(|| TopLogprobs {
            width: o.top_width,
            ids: ptr(o.top_ids),
            logprobs: ptr(o.top_logprobs),
            counts: ptr(o.top_counts),
        }),
        dense: (!o.dense.is_null()).then(|| Dense {
            logprobs: ptr(o.dense),
            ids: ptr(o.dense_ids),
            stride: o.dense_stride,
        }),
        kept_ids: (!o.kept_ids.is_null()).then(|| KeptIds { ids: ptr(o.kept_ids), width: o.kept_width }),
        columns: (!o.column_values.is_null()).then(|| Columns { values: ptr(o.column_values), ids: ptr(o.column_ids) }),
    })
}
