//! What one call of [`Sampler::step`](super::Sampler::step) is given: device pointers, shapes and wishes.

use crate::device::DevPtr;
#[cfg(feature = "step-file")]
use crate::pipeline::blocks::SlotBlock;
use crate::pipeline::blocks::filter;

/// Type of the logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[repr(u64)]
pub enum DType {
    /// IEEE 754 binary32.
    #[default]
    F32 = 0,
    /// IEEE 754 binary16.
    F16 = 1,
    /// The upper half of a binary32.
    BF16 = 2,
}

impl DType {
    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            DType::F32 => 4,
            DType::F16 | DType::BF16 => 2,
        }
    }
}

/// Size of the integers behind a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[repr(u64)]
pub enum IndexWidth {
    /// `i32`.
    #[default]
    I32 = 4,
    /// `i64`.
    I64 = 8,
}

/// An array of i32 or i64 in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Index {
    /// Its start.
    pub ptr: DevPtr,
    /// Size of an element.
    pub width: IndexWidth,
}

impl Index {
    /// An array of i32.
    pub const fn i32(ptr: DevPtr) -> Self {
        Index { ptr, width: IndexWidth::I32 }
    }

    /// An array of i64.
    pub const fn i64(ptr: DevPtr) -> Self {
        Index { ptr, width: IndexWidth::I64 }
    }

    /// The array from element `n` on.
    pub fn skip(self, n: usize) -> Self {
        Index { ptr: self.ptr.offset(n * self.width as usize), ..self }
    }
}

/// Logits in device memory, read-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Logits {
    /// First element of row 0. Any alignment an element of `dtype` may have.
    pub ptr: DevPtr,
    /// Type of an element.
    pub dtype: DType,
    /// Rows the buffer holds; may be more than a step uses.
    pub rows: usize,
    /// Vocabulary size V; columns from V on are padding and never seen.
    pub vocab: usize,
    /// Elements from one row to the next, at least `vocab`.
    pub stride: usize,
}

/// Allowed-token bits: `[rows, stride]` words of 32 bits, token v is bit `v % 32` of word `v / 32`, 1 = allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mask {
    /// First word of row 0.
    pub ptr: DevPtr,
    /// Rows the buffer holds.
    pub rows: usize,
    /// Words from one row to the next, at least ceil(V / 32).
    pub stride: usize,
    /// Mask row for each row of the step, -1 = no mask for this row; `None`: the same number.
    pub index: Option<Index>,
}

/// Filters a step may meet. A row whose slot uses one that is excluded gets token -1 and status `bad_index`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Filters {
    /// Some row uses top-k.
    pub top_k: bool,
    /// Some row uses top-p.
    pub top_p: bool,
    /// Some row uses min-p.
    pub min_p: bool,
    /// Every row has `top_k = 1`; one that has not gets `bad_index` too.
    pub all_greedy: bool,
}

impl Filters {
    /// Any filter may be met.
    pub const ALL: Filters = Filters { top_k: true, top_p: true, min_p: true, all_greedy: false };
    /// No filter is met.
    pub const NONE: Filters = Filters { top_k: false, top_p: false, min_p: false, all_greedy: false };

    pub(crate) fn bits(self) -> u64 {
        let bit = |on, bit| if on { bit } else { 0 };
        bit(self.top_k || self.all_greedy, filter::TOP_K)
            | bit(self.top_p, filter::TOP_P)
            | bit(self.min_p, filter::MIN_P)
            | bit(self.all_greedy, filter::ALL_GREEDY)
    }

    /// Whether a row with these parameters is processed, and does not get `bad_index`.
    #[cfg(feature = "step-file")]
    pub(crate) fn admit(self, slot: &SlotBlock) -> bool {
        let uses = super::table::uses(slot);
        uses & filter::ALL & !self.bits() == 0 && (!self.all_greedy || slot.top_k == 1)
    }
}

/// How drafts are verified, SEMANTICS section 9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum VerifyMode {
    /// Rejection sampling against the draft's distribution ([`Verify::drafts`]).
    Rejection = 0,
    /// Rejection sampling where the draft's distribution is its one token (n-gram and greedy drafts).
    OneHot = 1,
    /// Every row draws fresh; drafts count while they equal the drawn token.
    Chain = 2,
}

/// The drafts' distributions: a pool of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drafts {
    /// f32 processed logprobs `[pool_rows, stride]`.
    pub logprobs: DevPtr,
    /// i32 token ids of the columns `[pool_rows, stride]`, distinct in a row; null: column = id.
    pub columns: DevPtr,
    /// Elements from one row to the next.
    pub stride: usize,
    /// Columns of a row.
    pub width: usize,
    /// Rows the pool holds.
    pub pool_rows: usize,
    /// Pool row for each row of the step; `None`: the same number. A request's last row has none and is not read.
    pub rows: Option<Index>,
}

/// Verification of draft tokens. The step's rows are grouped by request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verify {
    /// How.
    pub mode: VerifyMode,
    /// Requests in the step.
    pub requests: usize,
    /// i32 `[requests + 1]`: first row of each request, then one past the last row.
    pub first_rows: DevPtr,
    /// Request of each row, -1 = padding row, which `row_to_slot` marks too. A padding row inside a request ends it.
    pub row_to_request: Index,
    /// Distance between positions of neighbouring rows: [`PositionRule`](crate::batch::PositionRule)`::stride()`.
    pub position_stride: i64,
    /// Draft token each row verifies `[rows]`; -1 or outside 0..V is no draft. A request's last entry is not read.
    pub draft_ids: Index,
    /// The drafts' distributions, for [`VerifyMode::Rejection`].
    pub drafts: Option<Drafts>,
    /// Out: i32 `[requests]`, drafts accepted.
    pub accepted: DevPtr,
    /// Out: i32 `[requests, accept_width]`, the row of each output token, -1 = none. Null: not wanted.
    pub accept_index: DevPtr,
    /// Width of `accept_index`, at least the longest request.
    pub accept_width: usize,
    /// Out: i32 `[rows]`, 1 where the row accepts its draft taken by itself, whatever the rows before it do. Null: not
    /// wanted.
    pub row_accepts: DevPtr,
}

/// Lists of the most likely kept tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TopLogprobs {
    /// Entries a row, k.
    pub width: usize,
    /// i32 `[rows, width]`, -1 = unused.
    pub ids: DevPtr,
    /// f32 `[rows, width]`, -inf = unused.
    pub logprobs: DevPtr,
    /// i32 `[rows]`: valid entries, min(k, kept). Null: not wanted.
    pub counts: DevPtr,
}

/// Processed logprobs of all N columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dense {
    /// f32 `[rows, stride]`, -inf = not kept.
    pub logprobs: DevPtr,
    /// i32 `[rows, stride]`: their ids, ascending. Null: not wanted.
    pub ids: DevPtr,
    /// Elements from one row to the next, at least N.
    pub stride: usize,
}

/// Ids of the kept tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeptIds {
    /// i32 `[rows, width]`, ascending, then -1. A row that keeps more lists its first `width`; `kept_counts` tells.
    pub ids: DevPtr,
    /// Entries a row.
    pub width: usize,
}

/// The N columns themselves, as selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Columns {
    /// f32 `[rows, N]`: logits after the mask, NaN as -inf; a zero keeps its sign.
    pub values: DevPtr,
    /// i32 `[rows, N]`: ids, ascending.
    pub ids: DevPtr,
}

/// Where results go. What is `None` or null is not computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outputs {
    /// Token of each row, -1 = none.
    pub tokens: Option<Index>,
    /// f32 `[rows]`: processed logprob of the token.
    pub logprobs: DevPtr,
    /// i32 `[rows]`: rank of the token, from 1, 0 = none.
    pub ranks: DevPtr,
    /// i32 `[rows]`: number of kept tokens.
    pub kept_counts: DevPtr,
    /// i32 `[rows]`: bits of [`status`](super::blocks::status).
    pub status: DevPtr,
    /// f32 `[rows]`: logprob of the token under the logits as handed in.
    pub raw_logprobs: DevPtr,
    /// f32 `[rows]`: probability of the tokens up to this one, least likely first.
    pub sum_smaller_probs: DevPtr,
    /// Most likely kept tokens.
    pub top: Option<TopLogprobs>,
    /// All N processed logprobs.
    pub dense: Option<Dense>,
    /// Ids of the kept tokens.
    pub kept_ids: Option<KeptIds>,
    /// The N selected columns; needs `force_topk`.
    pub columns: Option<Columns>,
}

/// Parameter rows that the caller made on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slots {
    /// [`SlotBlock`](super::blocks::SlotBlock) `[count]`, each as [`SamplingParams::to_slot`](crate::SamplingParams::to_slot)
    /// gives it, or zeros.
    pub ptr: DevPtr,
    /// Rows of it.
    pub count: usize,
}

/// One step: R rows of logits to turn into tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Step {
    /// The logits.
    pub logits: Logits,
    /// Rows R to process.
    pub rows: usize,
    /// Row of the logits for each row; `None`: the same number.
    pub gather: Option<Index>,
    /// Keep the first N tokens of the order; 0 = off.
    pub force_topk: usize,
    /// Grammar masks.
    pub mask: Option<Mask>,
    /// Parameter slot for each row, -1 = padding row: nothing is read or written for it. `None`: the same number.
    pub row_to_slot: Option<Index>,
    /// The caller's own parameter rows in place of the sampler's table.
    pub slots: Option<Slots>,
    /// i64 positions, one a row, or one a request when verifying. Null: no row draws, golden tokens are scored.
    pub positions: DevPtr,
    /// i32 added to the positions, one a row (a request when verifying): the last valid offset. Null: 0.
    pub position_offsets: DevPtr,
    /// Draft model's stream: the draft's number i, from 1. `None`: the target's stream.
    pub draft_step: Option<i64>,
    /// Token each row must output, -1 = none.
    pub golden: Option<Index>,
    /// Filters the batch uses. `None`: what the table's live slots use; in a capture or with `slots`, any.
    pub filters: Option<Filters>,
    /// Verification of drafts.
    pub verify: Option<Verify>,
    /// Where results go.
    pub outputs: Outputs,
    /// Adjustment lists (penalties, bias): reserved, must be null.
    pub adjust: DevPtr,
    /// Test hook: u64 draw bits `[rows, 3]`, one for each case, in place of the hash.
    #[doc(hidden)]
    pub injected_bits: DevPtr,
}
