//! The argument blocks: what a stage reads and writes, as every device gets it.
//!
//! Every field is 8 bytes: a device pointer, a count, or the bits of a float in the low half. The same bytes are a
//! CUDA kernel's by-value parameter and an Ascend kernel's host arguments. They are written once, here;
//! `cuda/abi.cuh` and `ascend/abi.h` are generated from [`BLOCKS`] by `cargo xtask abi` and checked for drift.
//!
//! Conventions: a pointer of 0 means absent (an output that is not wanted, an input that does not apply); strides are
//! in elements; a `*_width` is the size in bytes of the integers behind the pointer it belongs to (4 or 8).

/// Name and meaning of one field, for the generators.
#[derive(Debug, Clone, Copy)]
pub struct FieldInfo {
    /// Field name.
    pub name: &'static str,
    /// Its documentation, one line.
    pub doc: &'static str,
}

/// Name, meaning and fields of one block, for the generators.
#[derive(Debug, Clone, Copy)]
pub struct BlockInfo {
    /// Type name, the same in Rust and C.
    pub name: &'static str,
    /// Its documentation, one line.
    pub doc: &'static str,
    /// Fields in memory order, 8 bytes each.
    pub fields: &'static [FieldInfo],
}

macro_rules! blocks {
    ($( #[doc = $doc:literal] $name:ident { $( #[doc = $fdoc:literal] $field:ident, )+ } )+) => {
        $(
            #[doc = $doc]
            #[allow(rustdoc::broken_intra_doc_links, reason = "[rows] is a shape, in the C headers too")]
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, bytemuck::Pod, bytemuck::Zeroable)]
            #[repr(C)]
            pub struct $name { $( #[doc = $fdoc] pub $field: u64, )+ }
            impl $name {
                /// The block's description.
                pub const INFO: BlockInfo = BlockInfo {
                    name: stringify!($name),
                    doc: $doc,
                    fields: &[$( FieldInfo { name: stringify!($field), doc: $fdoc }, )+],
                };
            }
            const _: () = assert!(size_of::<$name>() == 8 * $name::INFO.fields.len());
        )+
        /// Every block, in the order the generated headers list them.
        pub const BLOCKS: &[BlockInfo] = &[$( $name::INFO, )+];
    };
}

blocks! {
    /// One row of the parameter table: the parameters of one request.
    SlotBlock {
        /// 1 once written; a row that names a slot with 0 gets status bad_index.
        live,
        /// f32 bits: log2(e) / temperature.
        scale,
        /// top_p * 2^32, rounded half to even; 2^32 keeps everything.
        top_p,
        /// Tokens kept; 2^64 - 1 keeps everything.
        top_k,
        /// f32 bits: smallest exponent min-p keeps; -inf keeps everything.
        min_exponent,
        /// Seed of the request's draws.
        seed,
        /// 1: top-p looks at the first top_k tokens alone.
        top_k_first,
        /// 0; keeps a row at 64 bytes.
        reserved,
    }
    /// Rows of logits, the parameters to process them with, and where the results go.
    RowBlock {
        /// Rows R to process.
        rows,
        /// Vocabulary size V.
        vocab,
        /// Columns N every later stage sees: min(force-top-k, V), or V.
        columns,
        /// Logits [logits_rows, logits_stride], read-only.
        logits,
        /// 0 = f32, 1 = f16, 2 = bf16.
        logits_dtype,
        /// Rows the logits buffer holds.
        logits_rows,
        /// Elements from one row of logits to the next, at least V.
        logits_stride,
        /// Row of the logits for each row [rows]; absent: the same number.
        gather,
        /// Bytes of a gather index.
        gather_width,
        /// Allowed-token bits [mask_rows, mask_stride] of 32-bit words, bit v % 32 of word v / 32.
        mask,
        /// Rows the mask buffer holds.
        mask_rows,
        /// Words from one mask row to the next.
        mask_stride,
        /// Mask row for each row [rows], -1 = no mask; absent: the same number.
        mask_index,
        /// Bytes of a mask index.
        mask_index_width,
        /// Reserved: (id, a, b, c) lists that adjust logits, ids ascending; must be absent.
        adjust,
        /// Reserved: start of each row's list [rows + 1]; must be absent.
        adjust_offsets,
        /// Parameter table [slot_count] of SlotBlock.
        slots,
        /// Rows the parameter table holds.
        slot_count,
        /// Parameter slot for each row [rows], -1 = padding row; absent: the same number.
        row_to_slot,
        /// Bytes of a slot index.
        row_to_slot_width,
        /// What the step may meet: bits of the filter constants. A slot that uses another filter gets bad_index.
        filters,
        /// i64 positions: one a row, or one a request when verifying.
        positions,
        /// i32 added to each position (the last valid offset); absent: 0.
        position_offsets,
        /// Added to every position (the draft step), wrapping.
        position_add,
        /// Added to every seed, wrapping (the draft model's stream).
        seed_add,
        /// Token each row must output [rows], -1 = none; absent: none.
        golden,
        /// Bytes of a golden token.
        golden_width,
        /// Test hook: u64 draw bits [rows, 3] that replace the hash, one per case; absent in production.
        bits,
        /// f32 values of the N kept columns [rows, columns]: written by Select, read when from_columns is 1.
        column_values,
        /// i32 ids of the N kept columns [rows, columns], ascending: written by Select, read when from_columns is 1.
        column_ids,
        /// i32 row status Select found [rows].
        column_status,
        /// 1: process the columns above instead of the logits.
        from_columns,
        /// Token of each row [rows], -1 = none.
        tokens,
        /// Bytes of an output token.
        tokens_width,
        /// f32 processed logprob of each row's token [rows], -inf = none or not kept.
        logprobs,
        /// i32 rank of each row's token [rows], from 1; 0 = none or not kept.
        ranks,
        /// i32 number of kept tokens [rows].
        kept_counts,
        /// i32 status bits [rows].
        status,
        /// f32 logprob of each row's token under the logits as handed in [rows].
        raw_logprobs,
        /// f32 probability of the tokens up to the row's token, least likely first [rows].
        sum_smaller_probs,
        /// Width k of the top lists.
        top_width,
        /// i32 ids of the first k kept tokens [rows, top_width], -1 = unused.
        top_ids,
        /// f32 processed logprobs of the same [rows, top_width], -inf = unused.
        top_logprobs,
        /// i32 valid entries of a top list [rows].
        top_counts,
        /// f32 processed logprobs of all N columns [rows, dense_stride], -inf = not kept.
        dense,
        /// i32 ids of the N columns [rows, dense_stride].
        dense_ids,
        /// Elements from one dense row to the next, at least N.
        dense_stride,
        /// i32 ids of the kept tokens [rows, kept_width], ascending, then -1; those past the width are not listed.
        kept_ids,
        /// Width of a kept list.
        kept_width,
        /// Scratch memory of the stage.
        scratch,
        /// Bytes of it.
        scratch_bytes,
    }
    /// Draft tokens to verify and where the decisions go; goes with a RowBlock whose rows are grouped by request.
    VerifyBlock {
        /// 0 = rejection, 1 = one-hot, 2 = chain.
        mode,
        /// Requests.
        requests,
        /// i32 first row of each request [requests + 1], ascending, the last entry one past the last row.
        first_rows,
        /// Request of each row [rows], -1 = padding row.
        row_to_request,
        /// Bytes of a request index.
        row_to_request_width,
        /// Distance between the positions of neighbouring rows of a request.
        position_stride,
        /// Draft token each row verifies [rows]; a request's last row has none and its entry is not read.
        draft_ids,
        /// Bytes of a draft token.
        draft_ids_width,
        /// f32 logprobs of the drafts' distributions [pool_rows, draft_stride].
        draft_logprobs,
        /// i32 ids of the draft's columns [pool_rows, draft_stride]; absent: column = id.
        draft_columns,
        /// Elements from one draft row to the next.
        draft_stride,
        /// Columns of a draft row.
        draft_width,
        /// Rows of the draft pool.
        pool_rows,
        /// Pool row for each row [rows]; absent: the same number.
        draft_rows,
        /// Bytes of a pool row index.
        draft_rows_width,
        /// f32 draft logprobs moved to the target's columns [rows, columns]: written by Remap, read by Verify.
        remapped,
        /// i32 drafts accepted [requests].
        accepted,
        /// i32 row of each output token [requests, accept_width], -1 = none.
        accept_index,
        /// Width of accept_index, at least the longest request.
        accept_width,
        /// i32 work area [rows]: whether the row accepts its draft.
        row_accepts,
    }
}

/// Status bits of a row.
pub mod status {
    /// A NaN was left after the mask and counted as -inf.
    pub const NAN_LOGITS: i32 = 1;
    /// A token at +inf: only such tokens are kept.
    pub const INF_LOGITS: i32 = 2;
    /// Nothing above -inf was left: token -1.
    pub const EMPTY_ROW: i32 = 4;
    /// A NaN in the draft's logprobs was met.
    pub const NAN_DRAFT: i32 = 8;
    /// A slot, gather, mask, request, draft row or golden index out of range, a slot never written, or a slot that
    /// uses a filter the step excludes: token -1, nothing read.
    pub const BAD_INDEX: i32 = 16;

    /// The names the result document uses, in ascending order.
    pub fn names(status: i32) -> Vec<&'static str> {
        let all = [
            (BAD_INDEX, "bad_index"),
            (EMPTY_ROW, "empty_row"),
            (INF_LOGITS, "inf_logits"),
            (NAN_DRAFT, "nan_draft"),
            (NAN_LOGITS, "nan_logits"),
        ];
        all.iter().filter(|(bit, _)| status & bit != 0).map(|(_, name)| *name).collect()
    }
}

/// Bits of [`RowBlock::filters`].
pub mod filter {
    /// Some slot uses top-k.
    pub const TOP_K: u64 = 1;
    /// Some slot uses top-p.
    pub const TOP_P: u64 = 2;
    /// Some slot uses min-p.
    pub const MIN_P: u64 = 4;
    /// Every slot has top-k 1; another gets bad_index.
    pub const ALL_GREEDY: u64 = 8;
    /// Every filter may be met.
    pub const ALL: u64 = TOP_K | TOP_P | MIN_P;
}

/// Values of [`VerifyBlock::mode`].
pub mod verify_mode {
    /// Rejection sampling against the draft's distribution.
    pub const REJECTION: u64 = 0;
    /// Rejection sampling, the draft's distribution being one token.
    pub const ONE_HOT: u64 = 1;
    /// Every row draws fresh; drafts count while they equal the drawn token.
    pub const CHAIN: u64 = 2;
}
