//! The kernels: their sources, and which of them a stage launches.

use crate::device::{Stage, StageKind};
use crate::pipeline::Limits;
use crate::pipeline::blocks::RowBlock;
use std::ffi::CStr;

/// One translation unit: a name, and the sources that are compiled together.
pub(super) struct Unit {
    pub name: &'static str,
    pub sources: &'static [&'static str],
}

macro_rules! unit {
    ($name:literal: $($source:literal)+) => {
        Unit { name: $name, sources: &[$( include_str!(concat!("../../../cuda/", $source)) ),+] }
    };
}

/// What NVRTC compiles. The order within a unit is that of use; the files include nothing.
pub(super) const UNITS: &[Unit] = &[
    unit!("select": "abi.cuh" "team.cuh" "number.cuh" "access.cuh" "source.cuh" "descent.cuh" "row.cuh" "output.cuh" "select.cu"),
    unit!("argmax": "abi.cuh" "team.cuh" "number.cuh" "access.cuh" "source.cuh" "descent.cuh" "row.cuh" "output.cuh" "argmax.cu"),
    unit!("sample": "abi.cuh" "team.cuh" "number.cuh" "access.cuh" "source.cuh" "descent.cuh" "row.cuh" "output.cuh" "sample.cu"),
    unit!("remap": "abi.cuh" "team.cuh" "number.cuh" "access.cuh" "source.cuh" "descent.cuh" "row.cuh" "output.cuh" "remap.cu"),
    unit!("verify": "abi.cuh" "team.cuh" "number.cuh" "access.cuh" "source.cuh" "descent.cuh" "row.cuh" "output.cuh" "verify.cuh" "verify.cu"),
];

/// Threads of a block that has a row to itself.
const BLOCK: u32 = 512;

/// Facts of the card a launch depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Card {
    /// Compute capability, major and minor.
    pub compute: (u32, u32),
    /// Multiprocessors.
    pub sms: u32,
    /// Largest dynamic shared memory of a block.
    pub smem_per_block_optin: usize,
    /// Size of the second-level cache.
    pub l2_bytes: usize,
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

const SELECT: (usize, &CStr) = (0, c"samedraw_select");
const ARGMAX: (usize, &CStr) = (1, c"samedraw_argmax");
const SAMPLE: (usize, &CStr) = (2, c"samedraw_sample");
const REMAP: (usize, &CStr) = (3, c"samedraw_remap");
const VERIFY: (usize, &CStr) = (4, c"samedraw_verify");

/// Every kernel `launches` can name.
pub(super) fn entries(_card: &Card) -> Vec<Entry> {
    [SELECT, ARGMAX, SAMPLE, REMAP, VERIFY].map(|(unit, entry)| Entry { unit, entry, smem: 0 }).to_vec()
}

/// The launches of `stage`.
pub(super) fn launches(_card: &Card, stage: &Stage<'_>) -> LaunchList {
    let ((unit, entry), rows): (_, &RowBlock) = match *stage {
        Stage::Select(b) => (SELECT, b),
        Stage::Argmax(b) => (ARGMAX, b),
        Stage::Sample(b) => (SAMPLE, b),
        Stage::Remap(b, _) => (REMAP, b),
        Stage::Verify(b, _) => (VERIFY, b),
    };
    let one = Launch { unit, entry, grid: [rows.rows as u32, 1, 1], block: BLOCK, smem: 0, cluster: 1 };
    LaunchList { items: [Some(one), None, None] }
}

/// Scratch bytes a stage of `kind` needs at most. Kernels find it zeroed and leave it so.
pub(super) fn scratch_bytes(_card: &Card, kind: StageKind, _limits: &Limits) -> usize {
    match kind {
        // The number of rows that have finished.
        StageKind::Verify => 256,
        _ => 0,
    }
}
