//! Launches of the kernels that keep the first columns of a row of logits: selections, and the stages that select for
//! themselves.

use super::kernels::{Card, Entry, Kernel, Launch, OTHER_SHARED, max_cluster};
use crate::pipeline::blocks::{RowBlock, filter};

/// By the type of the logits.
const SELECT: [Kernel; 3] = [(5, c"samedraw_select_f32"), (6, c"samedraw_select_f16"), (7, c"samedraw_select_bf16")];
const DRAW: [Kernel; 3] =
    [(5, c"samedraw_draw_columns_f32"), (6, c"samedraw_draw_columns_f16"), (7, c"samedraw_draw_columns_bf16")];
const SAMPLE: [Kernel; 3] =
    [(17, c"samedraw_sample_columns_f32"), (18, c"samedraw_sample_columns_f16"), (19, c"samedraw_sample_columns_bf16")];
const VERIFY: [Kernel; 3] =
    [(17, c"samedraw_verify_columns_f32"), (18, c"samedraw_verify_columns_f16"), (19, c"samedraw_verify_columns_bf16")];
/// Threads of their blocks, for few columns and for many.
const SELECT_BLOCKS: (u32, u32) = (512, 1024);
const DRAW_BLOCKS: (u32, u32) = (512, 512);
const ROW_BLOCKS: (u32, u32) = (256, 256);

pub(super) fn entries(card: &Card) -> impl Iterator<Item = Entry> {
    let smem = card.smem_per_block_optin.saturating_sub(OTHER_SHARED) as u32;
    let kinds = [(SELECT, SELECT_BLOCKS), (DRAW, DRAW_BLOCKS), (SAMPLE, ROW_BLOCKS), (VERIFY, ROW_BLOCKS)];
    let kernels = kinds.into_iter().flat_map(|(kernels, (_, block))| kernels.map(|kernel| (kernel, block)));
    let cluster_block = if card.clusters { 1 } else { 0 };
    kernels.map(move |((unit, entry), block)| Entry { unit, entry, smem, cluster_block: block * cluster_block })
}

/// The launch of a selection; `None` where another kernel is the way to it, as with the functions below.
pub(super) fn select(card: &Card, b: &RowBlock) -> Option<Launch> {
    launch(card, &SELECT, SELECT_BLOCKS, b)
}

pub(super) fn sample(card: &Card, b: &RowBlock) -> Option<Launch> {
    match (fewer_columns(b), draws_alone(b)) {
        (false, _) => None,
        (true, true) => launch(card, &DRAW, DRAW_BLOCKS, b),
        (true, false) => launch(card, &SAMPLE, ROW_BLOCKS, b),
    }
}

pub(super) fn verify(card: &Card, b: &RowBlock) -> Option<Launch> {
    if fewer_columns(b) { launch(card, &VERIFY, ROW_BLOCKS, b) } else { None }
}

/// Whether a stage selects columns from the logits itself.
fn fewer_columns(b: &RowBlock) -> bool {
    b.from_columns == 0 && b.columns < b.vocab
}

/// Whether a row draws a token of its own and wants no more than `cuda/draw_columns.cuh` gives.
fn draws_alone(b: &RowBlock) -> bool {
    let others = b.ranks | b.raw_logprobs | b.sum_smaller_probs | b.dense | b.dense_ids | b.kept_ids | b.golden;
    let list = b.top_width == 0 || (b.top_width <= 64 && b.top_ids != 0 && b.top_logprobs != 0);
    others == 0 && list && b.positions != 0 && b.filters & filter::TOP_K == 0
}

/// A cluster of blocks (or a block) a row, which streams it and keeps what may be among its first columns; blocks of
/// `few` threads for few columns, of `many` for many. `None` where their lists do not fit.
fn launch(card: &Card, kernels: &[Kernel; 3], (few, many): (u32, u32), b: &RowBlock) -> Option<Launch> {
    if card.general {
        return None;
    }
    let (rows, sms) = (b.rows, u64::from(card.sms));
    let (unit, entry) = kernels[b.logits_dtype.min(2) as usize];
    let block = if b.columns > 6144 { many } else { few };
    let mut cluster = match rows {
        // Every block gets every list: many columns are long to send.
        _ if rows * 16 <= sms => {
            if b.columns > 6144 {
                8
            } else {
                16
            }
        }
        _ if rows * 4 <= sms => 4,
        _ if rows * 2 <= sms => 2,
        _ => 1,
    };
    while cluster > 1 && (cluster > max_cluster(card) || b.vocab < cluster * 2048) {
        cluster /= 2;
    }
    if let Some(forced) = card.forced_cluster {
        cluster = max_cluster(card).min(forced.into());
    }
    let room = card.smem_per_block_optin.saturating_sub(OTHER_SHARED) as u64;
    loop {
        if let Some(smem) = column_lists(b, cluster, u64::from(block), room) {
            let grid = u32::try_from(rows * cluster).ok().filter(|&blocks| blocks <= i32::MAX as u32)?;
            return Some(Launch { unit, entry, grid: [grid, 1, 1], block, smem: smem as u32, cluster: cluster as u32 });
        }
        cluster *= 2;
        if cluster > max_cluster(card) {
            return None;
        }
    }
}

/// Shared memory of a block for the lists of `columns`, of which `cuda/survivors.cuh` tells the layout; `None` where the
/// `room` is too small for them to hold what is likely to survive, or the row too long for its sample.
fn column_lists(b: &RowBlock, cluster: u64, block: u64, room: u64) -> Option<u64> {
    let (vocab, columns) = (b.vocab, b.columns);
    let grain = if b.logits_dtype == 0 { 4 } else { 8 };
    let warps = block / 32;
    let lines = (vocab / grain).div_ceil(8);
    // Lines of a strip, of which the sample has the first.
    let strip = lines.div_ceil(cluster * warps * 16).max(1).next_power_of_two();
    let part = columns.div_ceil(cluster * strip);
    let rank = part + ((25 * part).isqrt() + 8).max(8 * grain + 1);
    let listed = rank + rank / 8 + 16;
    // Four standard deviations more than the sample suggests, and no more than there is.
    let likely = strip * listed + 4 * strip * listed.isqrt() + 64;
    let own = lines.div_ceil(cluster) * 8 * grain + 2 * grain;
    let words = vocab.div_ceil(256) * 8;
    let fixed = (words * 2).max(8192) + words * 4 + (columns.div_ceil(8) * 16).max(block * 20);
    let capacity = likely.min(own).next_multiple_of(2).min(room.checked_sub(fixed)? / (8 * cluster));
    let enough = strip * (rank + rank / 32 + 2) + 2 * strip * rank.isqrt();
    let smem = fixed + cluster * capacity * 8;
    // Places of entries have 16 bits.
    (strip <= warps * 4 && capacity >= enough.min(own) && cluster * capacity <= 1 << 16).then_some(smem)
}
