//! The kernels: their sources, and which of them a stage launches.

use crate::device::{Stage, StageKind};
use crate::pipeline::Limits;
use crate::pipeline::blocks::{RowBlock, filter};
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
    unit!("sample_f32": "tile.cuh" "exchange.cuh" "cut.cuh" "prefix.cuh" "sample.cuh" "sample_tile.cuh" "sample_f32.cu"),
    unit!("sample_f16": "tile.cuh" "exchange.cuh" "cut.cuh" "prefix.cuh" "sample.cuh" "sample_tile.cuh" "sample_f16.cu"),
    unit!("sample_bf16": "tile.cuh" "exchange.cuh" "cut.cuh" "prefix.cuh" "sample.cuh" "sample_tile.cuh" "sample_bf16.cu"),
    unit!("verify_f32": "tile.cuh" "exchange.cuh" "cut.cuh" "prefix.cuh" "verify.cuh" "verify_tile.cuh" "verify_f32.cu"),
    unit!("verify_f16": "tile.cuh" "exchange.cuh" "cut.cuh" "prefix.cuh" "verify.cuh" "verify_tile.cuh" "verify_f16.cu"),
    unit!("verify_bf16": "tile.cuh" "exchange.cuh" "cut.cuh" "prefix.cuh" "verify.cuh" "verify_tile.cuh" "verify_bf16.cu"),
    unit!("columns_f32": "narrow.cuh" "strips.cuh" "survivors.cuh" "columns.cuh" "sample.cuh" "verify.cuh" "row_columns.cuh" "columns_f32.cu"),
    unit!("columns_f16": "narrow.cuh" "strips.cuh" "survivors.cuh" "columns.cuh" "sample.cuh" "verify.cuh" "row_columns.cuh" "columns_f16.cu"),
    unit!("columns_bf16": "narrow.cuh" "strips.cuh" "survivors.cuh" "columns.cuh" "sample.cuh" "verify.cuh" "row_columns.cuh" "columns_bf16.cu"),
];

type Kernel = (usize, &'static CStr);
const SELECT: Kernel = (0, c"samedraw_select");
const ARGMAX: Kernel = (1, c"samedraw_argmax");
const SAMPLE: Kernel = (2, c"samedraw_sample");
const REMAP: Kernel = (3, c"samedraw_remap");
const VERIFY: Kernel = (4, c"samedraw_verify");
/// By the type of the logits, as the ones below.
const ARGMAX_STREAM: [Kernel; 3] =
    [(1, c"samedraw_argmax_f32"), (1, c"samedraw_argmax_f16"), (1, c"samedraw_argmax_bf16")];
const SELECT_COLUMNS: [Kernel; 3] =
    [(5, c"samedraw_select_f32"), (6, c"samedraw_select_f16"), (7, c"samedraw_select_bf16")];
const SAMPLE_TILE: [Kernel; 3] =
    [(8, c"samedraw_sample_f32"), (9, c"samedraw_sample_f16"), (10, c"samedraw_sample_bf16")];
const VERIFY_TILE: [Kernel; 3] =
    [(11, c"samedraw_verify_f32"), (12, c"samedraw_verify_f16"), (13, c"samedraw_verify_bf16")];
const DRAW_COLUMNS: [Kernel; 3] =
    [(5, c"samedraw_draw_columns_f32"), (6, c"samedraw_draw_columns_f16"), (7, c"samedraw_draw_columns_bf16")];
const SAMPLE_COLUMNS: [Kernel; 3] =
    [(14, c"samedraw_sample_columns_f32"), (15, c"samedraw_sample_columns_f16"), (16, c"samedraw_sample_columns_bf16")];
const VERIFY_COLUMNS: [Kernel; 3] =
    [(14, c"samedraw_verify_columns_f32"), (15, c"samedraw_verify_columns_f16"), (16, c"samedraw_verify_columns_bf16")];

/// Threads of a block that has a row to itself.
const BLOCK: u32 = 512;
/// Threads of a block that holds a part of a row in shared memory: a power of two.
const TILE_BLOCK: u32 = 256;
/// Shared memory the kernels use besides what a launch asks for, and what the card keeps, generously.
const OTHER_SHARED: usize = 10 << 10;

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
    /// Whether a launch may start before the one ahead of it in the stream has ended; the kernels wait for it themselves.
    pub pdl: bool,
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

/// A kernel, and the most dynamic shared memory it is launched with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub unit: usize,
    pub entry: &'static CStr,
    pub smem: u32,
}

/// Every kernel `launches` can name.
pub(super) fn entries(card: &Card) -> Vec<Entry> {
    let mut all: Vec<Entry> =
        [SELECT, ARGMAX, SAMPLE, REMAP, VERIFY].map(|(unit, entry)| Entry { unit, entry, smem: 0 }).to_vec();
    all.extend(ARGMAX_STREAM.map(|(unit, entry)| Entry { unit, entry, smem: 0 }));
    let smem = card.smem_per_block_optin.saturating_sub(OTHER_SHARED) as u32;
    let columns = [SELECT_COLUMNS, DRAW_COLUMNS, SAMPLE_COLUMNS, VERIFY_COLUMNS].into_iter().flatten();
    all.extend(columns.map(|(unit, entry)| Entry { unit, entry, smem }));
    if card.clusters {
        let tiles = [SAMPLE_TILE, VERIFY_TILE].into_iter().flatten();
        all.extend(tiles.map(|(unit, entry)| Entry { unit, entry, smem }));
    }
    all
}

/// The launches of `stage`.
pub(super) fn launches(card: &Card, stage: &Stage<'_>) -> LaunchList {
    let one = match *stage {
        // Without a selection there is nothing to find: a copy, a block a row.
        Stage::Select(b) if b.columns == b.vocab => block_a_row(SELECT, b),
        Stage::Select(b) => columns(card, &SELECT_COLUMNS, (512, 1024), b).unwrap_or_else(|| block_a_row(SELECT, b)),
        Stage::Argmax(b) if b.from_columns != 0 => block_a_row(ARGMAX, b),
        Stage::Argmax(b) => argmax_stream(card, b),
        Stage::Sample(b) if fewer_columns(b) && draws_alone(b) => {
            columns(card, &DRAW_COLUMNS, (512, 512), b).unwrap_or_else(|| block_a_row(SAMPLE, b))
        }
        Stage::Sample(b) if fewer_columns(b) => {
            columns(card, &SAMPLE_COLUMNS, (256, 256), b).unwrap_or_else(|| block_a_row(SAMPLE, b))
        }
        Stage::Sample(b) => tile(card, &SAMPLE_TILE, 16, b).unwrap_or_else(|| block_a_row(SAMPLE, b)),
        Stage::Remap(b, _) => block_a_row(REMAP, b),
        Stage::Verify(b, _) if fewer_columns(b) => {
            columns(card, &VERIFY_COLUMNS, (256, 256), b).unwrap_or_else(|| block_a_row(VERIFY, b))
        }
        Stage::Verify(b, _) => tile(card, &VERIFY_TILE, 16, b).unwrap_or_else(|| block_a_row(VERIFY, b)),
    };
    LaunchList { items: [Some(one), None, None] }
}

fn block_a_row((unit, entry): Kernel, b: &RowBlock) -> Launch {
    Launch { unit, entry, grid: [b.rows as u32, 1, 1], block: BLOCK, smem: 0, cluster: 1 }
}

/// Largest cluster of the card.
fn max_cluster(card: &Card) -> u64 {
    match (card.clusters, card.compute.0) {
        (false, _) => 1,
        (true, 9 | 10) => 16,
        (true, _) => 8,
    }
}

/// Few rows are split over many blocks, so that every multiprocessor reads; with many, one block a row is enough.
fn argmax_stream(card: &Card, b: &RowBlock) -> Launch {
    let (rows, sms) = (b.rows, u64::from(card.sms));
    let (mut cluster, block) = match rows {
        _ if rows * 16 <= sms => (16, 512),
        _ if rows * 8 <= sms => (16, 256),
        _ if rows * 2 <= sms => (8, 128),
        _ if rows <= 2 * sms => (2, 256),
        _ => (1, 256),
    };
    while cluster > 1 && (cluster > max_cluster(card) || b.vocab < cluster * 2048) {
        cluster /= 2;
    }
    let (unit, entry) = ARGMAX_STREAM[b.logits_dtype.min(2) as usize];
    Launch { unit, entry, grid: [(rows * cluster) as u32, 1, 1], block, smem: 0, cluster: cluster as u32 }
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
fn columns(card: &Card, kernels: &[Kernel; 3], (few, many): (u32, u32), b: &RowBlock) -> Option<Launch> {
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

/// A cluster a row, the row in its shared memory; `few` blocks while there are few rows. `None` where the card or the row
/// does not allow it.
fn tile(card: &Card, kernels: &[Kernel; 3], few: u64, b: &RowBlock) -> Option<Launch> {
    if !card.clusters || b.from_columns != 0 {
        return None;
    }
    let (rows, sms) = (b.rows, u64::from(card.sms));
    let (unit, entry) = kernels[b.logits_dtype.min(2) as usize];
    let bytes = if b.logits_dtype == 0 { 4 } else { 2 };
    let mut cluster = if rows * 4 <= sms { few.min(max_cluster(card)) } else { 8 };
    // A part below 16 KB costs more in exchanges than it saves in passes.
    while cluster > 2 && b.vocab * bytes < cluster * (16 << 10) {
        cluster /= 2;
    }
    let room = card.smem_per_block_optin.saturating_sub(OTHER_SHARED) as u64;
    while cluster < max_cluster(card) && tile_bytes(b.vocab, bytes, cluster) > room {
        cluster *= 2;
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

/// Scratch bytes a stage of `kind` needs at most. Kernels find it zeroed and leave it so.
pub(super) fn scratch_bytes(_card: &Card, kind: StageKind, _limits: &Limits) -> usize {
    match kind {
        // The number of rows that have finished.
        StageKind::Verify => 256,
        _ => 0,
    }
}
