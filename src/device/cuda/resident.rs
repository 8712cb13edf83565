//! Launches of the kernels that draw for many rows, or verify their drafts: as many clusters as the card holds at a time, each
//! taking row after row.

use super::kernels::{Card, Kernel, Launch, element_bytes};
use crate::pipeline::Limits;
use crate::pipeline::blocks::{RowBlock, filter};

/// By the type of the logits.
pub(super) const DRAW: [Kernel; 3] =
    [(14, c"samedraw_draw_f32"), (15, c"samedraw_draw_f16"), (16, c"samedraw_draw_bf16")];
pub(super) const JUDGE: [Kernel; 3] =
    [(20, c"samedraw_judge_f32"), (21, c"samedraw_judge_f16"), (22, c"samedraw_judge_bf16")];
/// Threads of a block, as `ALL_ROLES` in `roles.cuh`.
pub(super) const BLOCK: u32 = 864;
/// Shared memory of a block besides what a launch asks for, rounded up.
pub(super) const OTHER_SHARED: usize = 36 << 10;

/// Warps that a row's part of a block is cut for, slots a block has at most and is worth having at least, mails of a lead,
/// and tokens of a list: as in `pipe.cuh` and `roles.cuh`.
const MASS_WARPS: u64 = 16;
/// Tokens a mass warp has of a row at most: a thread keeps a bit for each four of its own.
const MOST_OF_A_WARP: u64 = 32 * 128;
const MAX_SLOTS: u64 = 4;
const FEWEST_SLOTS: u64 = 3;
const MAILS: u64 = 2;
const LIST: u64 = 256;
/// Fewest rows of a step for which lists are kept.
const FEWEST_ROWS: u64 = 24;
/// Bytes from which on a row is a long one.
const LONG_ROW: u64 = 384 << 10;
const HALF_LONG_ROW: u64 = LONG_ROW / 2;
/// The lead sums up the masses of a whole row in bins that hold those of fewer tokens than this.
const MOST_TOKENS: u64 = 1 << 18;
/// Below so many bytes a row is too short to be cut into parts.
const SHORTEST_ROW: u64 = 64 << 10;

/// The launch for a batch of which the token, its logprob and the status are wanted; `None` where another kernel is the
/// faster one, or the only one.
pub(super) fn draw(card: &Card, kernels: &[Kernel; 3], b: &RowBlock) -> Option<Launch> {
    let more = [b.ranks, b.kept_counts, b.raw_logprobs, b.sum_smaller_probs, b.top_width, b.dense, b.kept_ids];
    let wanted = b.from_columns == 0 && b.columns == b.vocab && b.positions != 0 && b.golden == 0;
    if !card.clusters || !wanted || b.vocab >= MOST_TOKENS || more.iter().any(|&output| output != 0) {
        return None;
    }
    let bytes = element_bytes(b.logits_dtype);
    if !card.forced_resident && b.rows < fewest_rows(b.filters, b.vocab * bytes) {
        return None;
    }
    let (cluster, slots) = shape(card, b.vocab, bytes)?;
    let clusters = b.rows.min(card.resident_clusters(cluster));
    let (unit, entry) = kernels[b.logits_dtype.min(2) as usize];
    Some(Launch {
        unit,
        entry,
        grid: [(clusters * cluster) as u32, 1, 1],
        block: BLOCK,
        smem: (slots * slot_bytes(b.vocab, bytes, cluster)) as u32,
        cluster: cluster as u32,
    })
}

/// Rows of so many bytes from which on these kernels are the faster ones, by measurement.
fn fewest_rows(filters: u64, row: u64) -> u64 {
    let filtered = filters & (filter::TOP_K | filter::TOP_P) != 0;
    match (row, filtered) {
        (LONG_ROW.., _) => FEWEST_ROWS,
        (HALF_LONG_ROW.., true) => 48,
        (HALF_LONG_ROW.., false) | (_, true) => 64,
        (_, false) => 96,
    }
}

/// Blocks of a cluster and slots of a block: the smallest cluster of which a block has slots enough.
fn shape(card: &Card, vocab: u64, bytes: u64) -> Option<(u64, u64)> {
    let room = card.smem_per_block_optin.saturating_sub(OTHER_SHARED) as u64;
    let slots = |cluster: u64| {
        let slot = slot_bytes(vocab, bytes, cluster);
        if slot > MOST_OF_A_WARP * MASS_WARPS * bytes { 0 } else { (room / slot).min(MAX_SLOTS) }
    };
    if let Some(forced) = card.forced_cluster.map(u64::from) {
        let fits = forced > 1 && card.resident_clusters(forced) > 0 && slots(forced) >= 2;
        return fits.then(|| (forced, slots(forced)));
    }
    if vocab * bytes < SHORTEST_ROW && !card.forced_resident {
        return None;
    }
    [4, 8, 16].into_iter().find(|&c| card.resident_clusters(c) > 0 && slots(c) >= FEWEST_SLOTS).map(|c| (c, slots(c)))
}

/// Bytes of a block's part of a row, whatever the row's alignment: the same for every warp.
fn slot_bytes(vocab: u64, bytes: u64, cluster: u64) -> u64 {
    let grain = 16 / bytes;
    (grain - 1 + vocab).div_ceil(grain).div_ceil(cluster * MASS_WARPS) * 16 * MASS_WARPS
}

/// Bytes of scratch memory for the lists of rows that top-p cuts, within `limits`. With less, such rows take the way of rows whose
/// lists run over.
pub(super) fn list_bytes(card: &Card, limits: &Limits) -> usize {
    if !card.clusters || ((limits.rows as u64) < FEWEST_ROWS && !card.forced_resident) {
        return 0;
    }
    // Before the kernels are loaded it is not known how many clusters the card holds: never more than this.
    let lists = |cluster: u64| u64::from(card.sms) / cluster * cluster * MAILS * cluster * MASS_WARPS;
    let most =
        [4, 2].into_iter().filter_map(|bytes| shape(card, limits.vocab as u64, bytes)).map(|(c, _)| lists(c)).max();
    most.map_or(0, |lists| (lists * LIST * 8) as usize)
}
