//! The kernels: their sources, and which of them a stage launches.

use super::{columns, resident};
use crate::device::{Stage, StageKind};
use crate::pipeline::Limits;
use crate::pipeline::blocks::{RowBlock, VerifyBlock};
use std::ffi::CStr;

/// One translation unit: a name, and the sources that are compiled together.
pub(super) struct Unit {
    pub name: &'static str,
    pub sources: &'static [&'static str],
}

/// What every kernel is built on, in the order of use; the files include nothing.
macro_rules! unit {
    ($name:literal: $($source:literal)+) => {
        unit!(@ $name: "abi.cuh" "machine.cuh" "team.cuh" "number.cuh" "access.cuh" "source.cuh" "descent.cuh" "row.cuh" "output.cuh"
            $($source)+)
    };
    // One whose warps have roles.
    ($name:literal with roles: $whether:literal $($source:literal)+) => {
        unit!(@ $name: "abi.cuh" "machine.cuh" "roles.cuh" $whether "team.cuh" "number.cuh" "access.cuh" "source.cuh" "descent.cuh"
            "row.cuh" "output.cuh" "tile.cuh" "exchange.cuh" "cut.cuh" "prefix.cuh" "list.cuh" "verify.cuh" "verdict.cuh"
            "pipe.cuh" "feed.cuh" "maxima.cuh" "masses.cuh" "tell.cuh" "send.cuh" "lead_draw.cuh" "lead_verdict.cuh"
            "lead_roads.cuh" "lead_tokens.cuh" "lead_top_p.cuh" "lead_whole.cuh" "lead.cuh" "draw.cuh" $($source)+)
    };
    (@ $name:literal: $($source:literal)+) => {
        Unit { name: $name, sources: &[$( include_str!(concat!("../../../cuda/", $source)) ),+] }
    };
}

/// What NVRTC compiles.
pub(super) const UNITS: &[Unit] = &[
    unit!("select": "select.cuh" "select.cu"),
    unit!("argmax": "argmax.cu" "argmax_stream.cu"),
    unit!("sample": "sample.cuh" "sample.cu"),
    unit!("remap": "remap.cu"),
    unit!("verify": "verify.cuh" "verify.cu"),
    unit!("select_f32": "narrow.cuh" "strips.cuh" "survivors.cuh" "columns.cuh" "select_columns.cuh" "draw_columns.cuh" "select_f32.cu"),
    unit!("select_f16": "narrow.cuh" "strips.cuh" "survivors.cuh" "columns.cuh" "select_columns.cuh" "draw_columns.cuh" "select_f16.cu"),
    unit!("select_bf16": "narrow.cuh" "strips.cuh" "survivors.cuh" "columns.cuh" "select_columns.cuh" "draw_columns.cuh" "select_bf16.cu"),
    unit!("sample_f32": "tile.cuh" "exchange.cuh" "cut.cuh" "prefix.cuh" "sample.cuh" "list.cuh" "find.cuh" "sample_tile.cuh" "sample_f32.cu"),
    unit!("sample_f16": "tile.cuh" "exchange.cuh" "cut.cuh" "prefix.cuh" "sample.cuh" "list.cuh" "find.cuh" "sample_tile.cuh" "sample_f16.cu"),
    unit!("sample_bf16": "tile.cuh" "exchange.cuh" "cut.cuh" "prefix.cuh" "sample.cuh" "list.cuh" "find.cuh" "sample_tile.cuh" "sample_bf16.cu"),
    unit!("verify_f32": "tile.cuh" "exchange.cuh" "cut.cuh" "prefix.cuh" "list.cuh" "find.cuh" "verify.cuh" "verdict.cuh" "residual.cuh" "verify_tile.cuh" "settle.cuh" "verify_f32.cu"),
    unit!("verify_f16": "tile.cuh" "exchange.cuh" "cut.cuh" "prefix.cuh" "list.cuh" "find.cuh" "verify.cuh" "verdict.cuh" "residual.cuh" "verify_tile.cuh" "settle.cuh" "verify_f16.cu"),
    unit!("verify_bf16": "tile.cuh" "exchange.cuh" "cut.cuh" "prefix.cuh" "list.cuh" "find.cuh" "verify.cuh" "verdict.cuh" "residual.cuh" "verify_tile.cuh" "settle.cuh" "verify_bf16.cu"),
    unit!("draw_f32" with roles: "drawing.cuh" "draw_f32.cu"),
    unit!("draw_f16" with roles: "drawing.cuh" "draw_f16.cu"),
    unit!("draw_bf16" with roles: "drawing.cuh" "draw_bf16.cu"),
    unit!("columns_f32": "narrow.cuh" "strips.cuh" "survivors.cuh" "columns.cuh" "sample.cuh" "verify.cuh" "row_columns.cuh" "columns_f32.cu"),
    unit!("columns_f16": "narrow.cuh" "strips.cuh" "survivors.cuh" "columns.cuh" "sample.cuh" "verify.cuh" "row_columns.cuh" "columns_f16.cu"),
    unit!("columns_bf16": "narrow.cuh" "strips.cuh" "survivors.cuh" "columns.cuh" "sample.cuh" "verify.cuh" "row_columns.cuh" "columns_bf16.cu"),
    unit!("judge_f32" with roles: "judging.cuh" "judge_f32.cu"),
    unit!("judge_f16" with roles: "judging.cuh" "judge_f16.cu"),
    unit!("judge_bf16" with roles: "judging.cuh" "judge_bf16.cu"),
];

/// No stage launches it: what measurements compare with.
pub(super) const PLAIN_READ: Unit = unit!(@ "read": "read.cu");

/// A unit's index, and the name of a kernel of it.
pub(super) type Kernel = (usize, &'static CStr);
const SELECT: Kernel = (0, c"samedraw_select");
const ARGMAX: Kernel = (1, c"samedraw_argmax");
const SAMPLE: Kernel = (2, c"samedraw_sample");
const REMAP: Kernel = (3, c"samedraw_remap");
const VERIFY: Kernel = (4, c"samedraw_verify");
/// By the type of the logits, as the ones below.
const ARGMAX_STREAM: [Kernel; 3] =
    [(1, c"samedraw_argmax_f32"), (1, c"samedraw_argmax_f16"), (1, c"samedraw_argmax_bf16")];
/// The same for few rows.
const ARGMAX_FEW: [Kernel; 3] = [(1, c"samedraw_argmax_few_f32"), ARGMAX_STREAM[1], ARGMAX_STREAM[2]];
const SAMPLE_TILE: [Kernel; 3] =
    [(8, c"samedraw_sample_f32"), (9, c"samedraw_sample_f16"), (10, c"samedraw_sample_bf16")];
const VERIFY_TILE: [Kernel; 3] =
    [(11, c"samedraw_verify_f32"), (12, c"samedraw_verify_f16"), (13, c"samedraw_verify_bf16")];

/// Behind the kernels that verify many rows.
pub(super) const SETTLE: [Kernel; 3] =
    [(11, c"samedraw_settle_f32"), (12, c"samedraw_settle_f16"), (13, c"samedraw_settle_bf16")];

/// Threads of a block that has a row to itself.
const BLOCK: u32 = 512;
/// Threads of a block that holds a part of a row in shared memory: a power of two.
const TILE_BLOCK: u32 = 256;
/// Shared memory the kernels use besides what a launch asks for, and what the card keeps, generously.
pub(super) const OTHER_SHARED: usize = 10 << 10;

/// Bytes that are kept of a rejected row, as `Pending` in `verdict.cuh`.
const PENDING_ROW: usize = 24;

/// Facts of the card a launch depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Card {
    /// Compute capability, major and minor.
    pub compute: (u32, u32),
    /// Multiprocessors.
    pub sms: u32,
    /// Largest dynamic shared memory of a block.
    pub smem_per_block_optin: usize,
    /// Whether launches may use clusters of blocks.
    pub clusters: bool,
    /// Blocks of the largest cluster, where there are any.
    pub largest_cluster: u32,
    /// Blocks of every cluster, for tests.
    pub forced_cluster: Option<u32>,
    /// The general kernels alone, for tests.
    pub general: bool,
    /// Clusters that stay wherever they can be used, for tests.
    pub forced_resident: bool,
    /// How many clusters of 2, 4, 8 and 16 blocks the card holds at a time, of the kernels whose clusters stay.
    pub resident: [u32; 4],
    /// The same of those that settle requests.
    pub settling: [u32; 4],
    /// Whether a launch may start before the one ahead of it in the stream has ended; the kernels wait for it themselves.
    pub pdl: bool,
}

impl Card {
    /// Clusters of `blocks` that the card holds at a time, of the kernels whose clusters stay.
    pub fn resident_clusters(&self, blocks: u64) -> u64 {
        let size = [2, 4, 8, 16].iter().position(|&size| size == blocks);
        size.map_or(0, |size| self.resident[size].into())
    }
}

/// Bytes of an element of the logits.
pub(super) fn element_bytes(dtype: u64) -> u64 {
    if dtype == 0 { 4 } else { 2 }
}

/// One launch of a kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launch {
    /// Index in [`UNITS`].
    pub unit: usize,
    pub entry: &'static CStr,
    pub grid: [u32; 3],
    pub block: u32,
    /// Bytes of dynamic shared memory.
    pub smem: u32,
    /// Blocks of a cluster; 1 = none.
    pub cluster: u32,
}

/// The launches of a stage, in order.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LaunchList {
    items: [Option<Launch>; 3],
}

impl LaunchList {
    pub fn iter(&self) -> impl Iterator<Item = &Launch> {
        self.items.iter().flatten()
    }
}

/// A kernel, and the most dynamic shared memory and threads it is launched with in a cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub unit: usize,
    pub entry: &'static CStr,
    pub smem: u32,
    /// Threads of a block; 0 for a kernel that is never launched in clusters.
    pub cluster_block: u32,
}

/// Every kernel `launches` can name.
pub(super) fn entries(card: &Card) -> Vec<Entry> {
    let general = |(unit, entry)| Entry { unit, entry, smem: 0, cluster_block: 0 };
    let mut all: Vec<Entry> = [SELECT, ARGMAX, SAMPLE, REMAP, VERIFY].map(general).to_vec();
    let streams = ARGMAX_STREAM.iter().chain(&ARGMAX_FEW[..1]);
    all.extend(streams.map(|&(unit, entry)| Entry { unit, entry, smem: 0, cluster_block: 512 }));
    all.extend(columns::entries(card));
    if card.clusters {
        let smem = card.smem_per_block_optin.saturating_sub(OTHER_SHARED) as u32;
        let tiles = [SAMPLE_TILE, VERIFY_TILE].into_iter().flatten();
        all.extend(tiles.map(|(unit, entry)| Entry { unit, entry, smem, cluster_block: TILE_BLOCK }));
        all.extend(SETTLE.map(|(unit, entry)| Entry { unit, entry, smem: 0, cluster_block: BLOCK }));
        let smem = card.smem_per_block_optin.saturating_sub(resident::OTHER_SHARED) as u32;
        let stay = [resident::DRAW, resident::JUDGE].into_iter().flatten();
        all.extend(stay.map(|(unit, entry)| Entry { unit, entry, smem, cluster_block: resident::BLOCK }));
    }
    all
}

/// The launches of `stage`.
pub(super) fn launches(card: &Card, stage: &Stage<'_>) -> LaunchList {
    let one = match *stage {
        // Without a selection there is nothing to find: a copy, a block a row.
        Stage::Select(b) if b.columns == b.vocab => block_a_row(SELECT, b),
        Stage::Select(b) => columns::select(card, b).unwrap_or_else(|| block_a_row(SELECT, b)),
        Stage::Argmax(b) if b.from_columns != 0 || card.general => block_a_row(ARGMAX, b),
        Stage::Argmax(b) => argmax_stream(card, b),
        Stage::Sample(b) => resident::draw(card, &resident::DRAW, b)
            .or_else(|| columns::sample(card, b))
            .or_else(|| tile(card, &SAMPLE_TILE, 16, b))
            .unwrap_or_else(|| block_a_row(SAMPLE, b)),
        Stage::Remap(b, _) => block_a_row(REMAP, b),
        Stage::Verify(b, v) => {
            if let Some(list) = verify_many(card, b, v) {
                return list;
            }
            columns::verify(card, b)
                .or_else(|| tile(card, &VERIFY_TILE, 16, b))
                .unwrap_or_else(|| block_a_row(VERIFY, b))
        }
    };
    LaunchList { items: [Some(one), None, None] }
}

/// Clusters that stay, and behind them a cluster a request that settles it, so large that all are under way at a time.
fn verify_many(card: &Card, b: &RowBlock, v: &VerifyBlock) -> Option<LaunchList> {
    if v.requests == 0 {
        return None;
    }
    let judge = resident::draw(card, &resident::JUDGE, b)?;
    let all_at_once = |&size: &u64| u64::from(card.settling[size.ilog2() as usize - 1]) >= v.requests;
    let cluster = [16, 8, 4].into_iter().find(all_at_once).unwrap_or(2);
    let cluster = card.forced_cluster.map_or(cluster, u64::from);
    let (unit, entry) = SETTLE[b.logits_dtype.min(2) as usize];
    let grid = u32::try_from(v.requests * cluster).ok().filter(|&blocks| blocks <= i32::MAX as u32)?;
    let settle = Launch { unit, entry, grid: [grid, 1, 1], block: BLOCK, smem: 0, cluster: cluster as u32 };
    Some(LaunchList { items: [Some(judge), Some(settle), None] })
}

fn block_a_row((unit, entry): Kernel, b: &RowBlock) -> Launch {
    Launch { unit, entry, grid: [b.rows as u32, 1, 1], block: BLOCK, smem: 0, cluster: 1 }
}

/// Largest cluster of the card.
pub(super) fn max_cluster(card: &Card) -> u64 {
    if card.clusters { card.largest_cluster.into() } else { 1 }
}

/// Few rows are split over many blocks, so that every multiprocessor reads; with many, one block a row is enough.
fn argmax_stream(card: &Card, b: &RowBlock) -> Launch {
    let (rows, sms) = (b.rows, u64::from(card.sms));
    let (mut cluster, block, kernels) = match rows {
        _ if rows * 32 <= sms => (16, 512, &ARGMAX_STREAM),
        _ if rows * 5 <= sms => (8, 512, &ARGMAX_FEW),
        _ if rows * 3 <= sms => (8, 256, &ARGMAX_STREAM),
        _ if rows * 2 <= sms => (8, 128, &ARGMAX_STREAM),
        _ if rows <= 2 * sms => (2, 256, &ARGMAX_STREAM),
        _ => (1, 256, &ARGMAX_STREAM),
    };
    while cluster > 1 && (cluster > max_cluster(card) || b.vocab < cluster * 2048) {
        cluster /= 2;
    }
    if let Some(forced) = card.forced_cluster {
        cluster = max_cluster(card).min(forced.into());
    }
    let (unit, entry) = kernels[b.logits_dtype.min(2) as usize];
    Launch { unit, entry, grid: [(rows * cluster) as u32, 1, 1], block, smem: 0, cluster: cluster as u32 }
}

/// A cluster a row, the row in its shared memory; `few` blocks while there are few rows. `None` where the card or the row
/// does not allow it.
fn tile(card: &Card, kernels: &[Kernel; 3], few: u64, b: &RowBlock) -> Option<Launch> {
    if !card.clusters || b.from_columns != 0 {
        return None;
    }
    let (rows, sms) = (b.rows, u64::from(card.sms));
    let (unit, entry) = kernels[b.logits_dtype.min(2) as usize];
    let bytes = element_bytes(b.logits_dtype);
    let mut cluster =
        card.forced_cluster.map_or(if rows * 4 <= sms { few } else { 8 }, u64::from).min(max_cluster(card));
    // A part below 16 KB costs more in exchanges than it saves in passes.
    while card.forced_cluster.is_none() && cluster > 2 && b.vocab * bytes < cluster * (16 << 10) {
        cluster /= 2;
    }
    let room = card.smem_per_block_optin.saturating_sub(OTHER_SHARED) as u64;
    while cluster < max_cluster(card) && tile_bytes(b.vocab, bytes, cluster) > room {
        cluster *= 2;
    }
    // What the blocks of a cluster push to each other is no instruction for a block without one.
    if cluster == 1 {
        return None;
    }
    let smem = tile_bytes(b.vocab, bytes, cluster);
    (smem <= room && rows * cluster <= i32::MAX as u64).then(|| Launch {
        unit,
        entry,
        grid: [(rows * cluster) as u32, 1, 1],
        block: TILE_BLOCK,
        smem: smem as u32,
        cluster: cluster as u32,
    })
}

/// Bytes a block of a cluster takes of a row, whatever the row's alignment: the same for every warp, and room for the
/// 16-bit places of a tenth of them.
fn tile_bytes(vocab: u64, bytes: u64, cluster: u64) -> u64 {
    let grain = 16 / bytes;
    let (grains, warps) = ((grain - 1 + vocab).div_ceil(grain), u64::from(TILE_BLOCK / 32));
    let part = grains.div_ceil(cluster * warps) * grain;
    part * warps * bytes + part / 10 * 2 * warps
}

/// Bytes of the scratch memory that kernels find zeroed and leave so, as `SCRATCH_HEAD` in `verify.cuh`: how much of the rows has
/// finished, and which requests have had their last token.
const SCRATCH_HEAD: usize = 8192;

/// Scratch bytes a stage of `kind` needs at most.
pub(super) fn scratch_bytes(card: &Card, kind: StageKind, limits: &Limits) -> usize {
    match kind {
        StageKind::Sample => SCRATCH_HEAD + resident::list_bytes(card, limits),
        StageKind::Verify => SCRATCH_HEAD + limits.rows * PENDING_ROW + resident::list_bytes(card, limits),
        _ => 0,
    }
}
