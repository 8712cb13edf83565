//! The sampler: plans a step, fills the blocks, enqueues the stages.

use super::blocks::{RowBlock, VerifyBlock};
use super::capture::{CapturedStep, Variant};
use super::limits::{ALIGN, Layout, Limits, Workspace};
use super::plan::{Plan, Shape, plan};
use super::step::{Filters, Index, Slots, Step, Verify};
use super::table::ParamTable;
use crate::device::{DevPtr, Device, DeviceBuffer, RawStream, Stage, StageKind, effective_columns};
use crate::error::{Error, Result};
use crate::random::DRAFT_SEED_OFFSET;
use std::sync::Arc;

/// Runs steps on a device: one workspace, one step in flight at a time.
///
/// [`Sampler::new`] compiles, loads and touches every kernel its limits can reach; [`Sampler::step`] never compiles,
/// allocates, synchronises or reads the device back.
#[derive(Debug)]
pub struct Sampler<D: Device + ?Sized> {
    pub(super) device: Arc<D>,
    pub(super) limits: Limits,
    pub(super) table: Arc<ParamTable<D>>,
    workspace: Arc<Workspace<D>>,
}

impl<D: Device + ?Sized> Sampler<D> {
    /// A sampler with a workspace of its own, for steps within `limits` with the parameters of `table`.
    ///
    /// # Errors
    /// [`Error::Argument`] and [`Error::ForceTopK`] for limits out of range; what the device reports.
    pub fn new(device: &Arc<D>, limits: Limits, table: &Arc<ParamTable<D>>) -> Result<Self> {
        let owned = DeviceBuffer::new(device, Self::workspace_bytes(&**device, &limits)?)?;
        Self::build(device, limits, table, owned.ptr(), Some(owned))
    }

    /// As [`new`](Self::new), with a workspace the caller lends.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`Error::Workspace`] when it is smaller than
    /// [`workspace_bytes`](Self::workspace_bytes) or not aligned to 256 bytes.
    ///
    /// # Safety
    /// `bytes` bytes at `workspace` are device memory that nothing else uses while this sampler or a step captured
    /// from it lives.
    pub unsafe fn with_workspace(
        device: &Arc<D>,
        limits: Limits,
        table: &Arc<ParamTable<D>>,
        workspace: DevPtr,
        bytes: usize,
    ) -> Result<Self> {
        let needed = Self::workspace_bytes(&**device, &limits)?;
        if bytes < needed || workspace.is_null() || !workspace.0.is_multiple_of(ALIGN as u64) {
            return Err(Error::Workspace { given: bytes, needed, align: ALIGN });
        }
        Self::build(device, limits, table, workspace, None)
    }

    /// Bytes of workspace that steps within `limits` need.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn workspace_bytes(device: &D, limits: &Limits) -> Result<usize> {
        limits.check()?;
        effective_columns(device.info().platform, limits.force_topk, limits.vocab)?;
        Ok(Layout::new(device, limits).bytes)
    }

    fn build(
        device: &Arc<D>,
        limits: Limits,
        table: &Arc<ParamTable<D>>,
        base: DevPtr,
        owned: Option<DeviceBuffer<D>>,
    ) -> Result<Self> {
        device.prepare(&limits)?;
        let layout = Layout::new(&**device, &limits);
        // Kernels rely on counters in the scratch area being 0 and leave them so.
        // SAFETY: the workspace holds `layout.bytes` bytes; nothing else uses it yet.
        unsafe {
            device.fill(RawStream::default(), base, 0, layout.bytes)?;
            device.synchronize(RawStream::default())?;
        }
        let workspace = Arc::new(Workspace { base, layout, _owned: owned });
        Ok(Sampler { device: Arc::clone(device), limits, table: Arc::clone(table), workspace })
    }

    /// The device.
    pub fn device(&self) -> &Arc<D> {
        &self.device
    }

    /// The parameter table.
    pub fn table(&self) -> &Arc<ParamTable<D>> {
        &self.table
    }

    /// What this sampler is built for.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The plan a step would run.
    ///
    /// # Errors
    /// As [`step`](Self::step) for a step that is refused.
    pub fn plan(&self, step: &Step) -> Result<Plan> {
        let columns = self.check(step)?;
        Ok(plan(&Shape::of(step, self.filters_of(step), columns)))
    }

    /// Enqueues one step on `stream`.
    ///
    /// Does not allocate, synchronise or read the device back. Errors come before anything is enqueued, except those
    /// of the device itself.
    ///
    /// # Errors
    /// [`Error::Argument`], [`Error::NullPointer`] and [`Error::ForceTopK`] for a step that does not hold together or
    /// exceeds the limits; [`Error::Unsupported`] for adjustment lists; what the device reports.
    ///
    /// # Safety
    /// Every pointer of `step` is null where its documentation allows it, or valid on the device for the shape stated
    /// there until the stream has passed this step; outputs overlap nothing else; `stream` is a live stream of the
    /// device; the previous step of this sampler is ordered before this one; the sampler lives until the stream has
    /// passed this one.
    pub unsafe fn step(&mut self, stream: RawStream, step: &Step) -> Result<()> {
        let columns = self.check(step)?;
        // SAFETY: the caller's promise.
        unsafe { self.run(stream, step, columns, self.filters_of(step)) }
    }

    /// Captures `step` on `stream` as a graph that [`CapturedStep::replay`] runs, with `variant` naming the filters its
    /// replays may meet. Replays read logits, parameters, positions and drafts anew from the captured addresses.
    ///
    /// A stack that captures its own graph calls [`step`](Self::step) inside its capture instead, with
    /// [`Step::filters`] set, and keeps this sampler alive.
    ///
    /// # Errors
    /// As [`step`](Self::step), and [`Error::Argument`] when the variant and the step disagree on verification.
    ///
    /// # Safety
    /// As [`step`](Self::step), for every replay; `stream` is not the default stream.
    pub unsafe fn capture(&mut self, stream: RawStream, step: &Step, variant: Variant) -> Result<CapturedStep<D>> {
        let columns = self.check(step)?;
        if let Some(verifies) = variant.verifies()
            && verifies != step.verify.is_some()
        {
            let rule = format!("variant {variant:?} {}", if verifies { "verifies drafts" } else { "does not verify" });
            return Err(Error::argument("capture", "steps that verify", i64::from(step.verify.is_some()), rule));
        }
        // SAFETY: the caller's promise.
        unsafe {
            self.device.begin_capture(stream)?;
            let ran = self.run(stream, step, columns, variant.filters());
            let graph = self.device.end_capture(stream);
            if let Err(error) = ran {
                if let Ok(graph) = graph {
                    self.device.destroy_graph(graph)?;
                }
                return Err(error);
            }
            Ok(CapturedStep::new(&self.device, graph?, &self.workspace, &self.table))
        }
    }

    fn filters_of(&self, step: &Step) -> Filters {
        step.filters.unwrap_or_else(|| match step.slots {
            Some(_) => Filters::ALL,
            None => self.table.filters(),
        })
    }

    /// The parameter rows a step reads.
    pub(crate) fn slots_of(&self, step: &Step) -> Slots {
        step.slots.unwrap_or(Slots { ptr: self.table.ptr(), count: self.table.slots() })
    }

    /// Fills the blocks and enqueues the plan.
    ///
    /// # Safety
    /// As [`step`](Self::step).
    unsafe fn run(&self, stream: RawStream, step: &Step, columns: usize, filters: Filters) -> Result<()> {
        let plan = plan(&Shape::of(step, filters, columns));
        let rows = self.row_block(step, columns, filters, &plan);
        let verify = step.verify.as_ref().map(|v| self.verify_block(v, &plan)).unwrap_or_default();
        // Select writes the columns that the stages after it read. Few plans have it, so its block is not made for all.
        let mut select = None;
        for kind in plan.stages() {
            let stage = match kind {
                StageKind::Select => Stage::Select(select.insert(RowBlock { from_columns: 0, ..rows })),
                StageKind::Argmax => Stage::Argmax(&rows),
                StageKind::Sample => Stage::Sample(&rows),
                StageKind::Remap => Stage::Remap(&rows, &verify),
                StageKind::Verify => Stage::Verify(&rows, &verify),
            };
            self.device.supports(&stage)?;
            // SAFETY: the step's pointers are the caller's promise; the workspace was sized for the limits that
            // `check` held the step to.
            unsafe { self.device.enqueue(stream, &stage)? };
        }
        Ok(())
    }

    fn row_block(&self, step: &Step, columns: usize, filters: Filters, plan: &Plan) -> RowBlock {
        let area = |offset: usize| self.workspace.base.offset(offset).0;
        let layout = &self.workspace.layout;
        let (out, logits) = (&step.outputs, &step.logits);
        let index = |index: Option<Index>| index.map_or((0, 0), |i| (i.ptr.0, i.width as u64));
        let mask = step.mask.unwrap_or_default();
        let (gather, gather_width) = index(step.gather);
        let (mask_index, mask_index_width) = index(mask.index);
        let (row_to_slot, row_to_slot_width) = index(step.row_to_slot);
        let (golden, golden_width) = index(step.golden);
        let (tokens, tokens_width) = index(out.tokens);
        let top = out.top.unwrap_or_default();
        let dense = out.dense.unwrap_or_default();
        let kept = out.kept_ids.unwrap_or_default();
        let selected = out.columns;
        let slots = self.slots_of(step);
        RowBlock {
            rows: step.rows as u64,
            vocab: logits.vocab as u64,
            columns: columns as u64,
            logits: logits.ptr.0,
            logits_dtype: logits.dtype as u64,
            logits_rows: logits.rows as u64,
            logits_stride: logits.stride as u64,
            gather,
            gather_width,
            mask: mask.ptr.0,
            mask_rows: mask.rows as u64,
            mask_stride: mask.stride as u64,
            mask_index,
            mask_index_width,
            adjust: 0,
            adjust_offsets: 0,
            slots: slots.ptr.0,
            slot_count: slots.count as u64,
            row_to_slot,
            row_to_slot_width,
            filters: filters.bits(),
            positions: step.positions.0,
            position_offsets: step.position_offsets.0,
            position_add: step.draft_step.unwrap_or(0) as u64,
            seed_add: if step.draft_step.is_some() { DRAFT_SEED_OFFSET } else { 0 },
            golden,
            golden_width,
            bits: step.injected_bits.0,
            column_values: selected.map_or(area(layout.column_values), |c| c.values.0),
            column_ids: selected.map_or(area(layout.column_ids), |c| c.ids.0),
            column_status: area(layout.column_status),
            from_columns: u64::from(plan.from_columns),
            tokens,
            tokens_width,
            logprobs: out.logprobs.0,
            ranks: out.ranks.0,
            kept_counts: out.kept_counts.0,
            status: out.status.0,
            raw_logprobs: out.raw_logprobs.0,
            sum_smaller_probs: out.sum_smaller_probs.0,
            top_width: top.width as u64,
            top_ids: top.ids.0,
            top_logprobs: top.logprobs.0,
            top_counts: top.counts.0,
            dense: dense.logprobs.0,
            dense_ids: dense.ids.0,
            dense_stride: dense.stride as u64,
            kept_ids: kept.ids.0,
            kept_width: kept.width as u64,
            scratch: area(layout.scratch),
            scratch_bytes: layout.scratch_bytes as u64,
        }
    }

    fn verify_block(&self, verify: &Verify, plan: &Plan) -> VerifyBlock {
        let area = |offset: usize| self.workspace.base.offset(offset).0;
        let drafts = verify.drafts.unwrap_or_default();
        VerifyBlock {
            mode: verify.mode as u64,
            requests: verify.requests as u64,
            first_rows: verify.first_rows.0,
            row_to_request: verify.row_to_request.ptr.0,
            row_to_request_width: verify.row_to_request.width as u64,
            position_stride: verify.position_stride as u64,
            draft_ids: verify.draft_ids.ptr.0,
            draft_ids_width: verify.draft_ids.width as u64,
            draft_logprobs: drafts.logprobs.0,
            draft_columns: drafts.columns.0,
            draft_stride: drafts.stride as u64,
            draft_width: drafts.width as u64,
            pool_rows: drafts.pool_rows as u64,
            draft_rows: drafts.rows.map_or(0, |i| i.ptr.0),
            draft_rows_width: drafts.rows.map_or(0, |i| i.width as u64),
            remapped: if plan.remapped { area(self.workspace.layout.remapped) } else { 0 },
            accepted: verify.accepted.0,
            accept_index: verify.accept_index.0,
            accept_width: verify.accept_width as u64,
            row_accepts: match verify.row_accepts {
                DevPtr::NULL => area(self.workspace.layout.row_accepts),
                wanted => wanted.0,
            },
        }
    }
}
