//! A step on host data, run on any device: for tests, command lines and replays, not for a decode loop.

use super::sampler::{Limits, Sampler};
use super::step::{
    Columns, DType, Dense, Drafts, Filters, Index, KeptIds, Logits, Mask, Outputs, Step, TopLogprobs, Verify,
    VerifyMode,
};
use super::table::ParamTable;
use crate::device::{DevPtr, Device, DeviceBuffer, RawStream, Stream};
use crate::error::{Error, Result};
use crate::params::SamplingParams;
use crate::pipeline::blocks::status;
use std::sync::Arc;

const OP: &str = "host step";

/// Masks in host memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostMask<'a> {
    /// `[rows, stride]` words.
    pub words: &'a [i32],
    /// Words from one row to the next.
    pub stride: usize,
    /// Mask row for each row.
    pub index: Option<&'a [i32]>,
}

/// Verification with everything in host memory.
#[derive(Debug, Clone, Copy)]
pub struct HostVerify<'a> {
    /// How.
    pub mode: VerifyMode,
    /// `[requests + 1]`.
    pub first_rows: &'a [i32],
    /// `[rows]`.
    pub row_to_request: &'a [i32],
    /// Distance between positions of neighbouring rows.
    pub position_stride: i64,
    /// `[rows]`.
    pub draft_ids: &'a [i64],
    /// f32 `[pool_rows, draft_width]`; empty unless the mode is rejection.
    pub draft_logprobs: &'a [f32],
    /// `[pool_rows, draft_width]`; empty: column = id.
    pub draft_columns: &'a [i32],
    /// Columns of a draft row.
    pub draft_width: usize,
    /// Pool row of each row `[rows]`; empty: the same number.
    pub draft_rows: &'a [i32],
}

/// A step in host memory. See [`Step`] for the meaning of the fields.
#[derive(Debug, Clone, Copy)]
pub struct HostStep<'a> {
    /// Bytes of the logits; `logits_offset` bytes in, row 0 starts.
    pub logits: &'a [u8],
    /// Where row 0 starts, in bytes: tests move it to vary the alignment.
    pub logits_offset: usize,
    /// Their type.
    pub dtype: DType,
    /// Vocabulary size.
    pub vocab: usize,
    /// Elements from one row to the next.
    pub stride: usize,
    /// Rows the logits hold.
    pub logits_rows: usize,
    /// Rows to process.
    pub rows: usize,
    /// Logits row of each row.
    pub gather: Option<&'a [i64]>,
    /// Force-top-k.
    pub force_topk: usize,
    /// Masks.
    pub mask: Option<HostMask<'a>>,
    /// Parameters, one a slot.
    pub params: &'a [SamplingParams],
    /// Slot of each row; `None`: the same number.
    pub row_to_slot: Option<&'a [i32]>,
    /// Positions, one a row or one a request; `None`: no draw.
    pub positions: Option<&'a [i64]>,
    /// Added to the positions.
    pub position_offsets: Option<&'a [i32]>,
    /// Draft model's stream.
    pub draft_step: Option<i64>,
    /// Golden tokens, one a row.
    pub golden: Option<&'a [i64]>,
    /// Filters in use.
    pub filters: Option<Filters>,
    /// Verification.
    pub verify: Option<HostVerify<'a>>,
    /// Width of the top lists, 0 = none.
    pub top_logprobs: usize,
    /// Whether to report dense logprobs.
    pub dense: bool,
    /// Whether to report raw logprobs.
    pub raw_logprobs: bool,
    /// Whether to report sum_smaller_probs.
    pub sum_smaller_probs: bool,
    /// Width of the kept lists, 0 = none.
    pub kept_ids: usize,
    /// Whether to report the selected columns.
    pub columns: bool,
    /// Whether to report anything but tokens, logprobs, ranks, kept counts and status is up to the fields above; false
    /// here asks for the columns alone.
    pub rows_wanted: bool,
    /// Test hook: draw bits `[rows, 3]`.
    #[doc(hidden)]
    pub injected_bits: Option<&'a [u64]>,
}

impl Default for HostStep<'_> {
    fn default() -> Self {
        HostStep {
            logits: &[],
            logits_offset: 0,
            dtype: DType::F32,
            vocab: 0,
            stride: 0,
            logits_rows: 0,
            rows: 0,
            gather: None,
            force_topk: 0,
            mask: None,
            params: &[],
            row_to_slot: None,
            positions: None,
            position_offsets: None,
            draft_step: None,
            golden: None,
            filters: None,
            verify: None,
            top_logprobs: 0,
            dense: false,
            raw_logprobs: false,
            sum_smaller_probs: false,
            kept_ids: 0,
            columns: false,
            rows_wanted: true,
            injected_bits: None,
        }
    }
}

/// Results of a [`HostStep`], flat, one entry a row unless said otherwise. Slots a device did not write hold the
/// poison each buffer starts with: -7777 in integers, NaN in floats.
#[derive(Debug, Clone, PartialEq, Default)]
#[allow(missing_docs)]
pub struct HostResult {
    pub tokens: Vec<i64>,
    pub logprobs: Vec<f32>,
    pub ranks: Vec<i32>,
    pub kept_counts: Vec<i32>,
    pub status: Vec<i32>,
    pub raw_logprobs: Vec<f32>,
    pub sum_smaller_probs: Vec<f32>,
    /// `[rows, top_logprobs]`.
    pub top_ids: Vec<i32>,
    /// `[rows, top_logprobs]`.
    pub top_logprobs: Vec<f32>,
    pub top_counts: Vec<i32>,
    /// `[rows, N]`.
    pub dense: Vec<f32>,
    /// `[rows, N]`.
    pub dense_ids: Vec<i32>,
    /// `[rows, kept_ids]`.
    pub kept_ids: Vec<i32>,
    /// `[rows, N]`.
    pub column_values: Vec<f32>,
    /// `[rows, N]`.
    pub column_ids: Vec<i32>,
    /// `[requests]`.
    pub accepted: Vec<i32>,
    /// `[requests, longest request]`.
    pub accept_index: Vec<i32>,
}

impl HostResult {
    /// The row's status names.
    pub fn status_names(&self, row: usize) -> Vec<&'static str> {
        status::names(self.status[row])
    }
}

/// What an output slot holds before the step.
const POISON_I32: i32 = -7777;

/// A [`HostStep`] brought to a device: run it, replay it, read it.
#[derive(Debug)]
pub struct HostRun<D: Device + ?Sized> {
    sampler: Sampler<D>,
    step: Step,
    stream: Stream<D>,
    inputs: Inputs<D>,
    outputs: Buffers<D>,
    columns: usize,
}

#[derive(Debug)]
struct Inputs<D: Device + ?Sized> {
    device: Arc<D>,
    stream: RawStream,
    buffers: Vec<DeviceBuffer<D>>,
}

impl<D: Device + ?Sized> Inputs<D> {
    fn put<T: bytemuck::NoUninit>(&mut self, data: &[T]) -> Result<DevPtr> {
        let buffer = DeviceBuffer::from_slice(&self.device, self.stream, data)?;
        self.buffers.push(buffer);
        Ok(self.buffers[self.buffers.len() - 1].ptr())
    }

    fn put_optional<T: bytemuck::NoUninit>(&mut self, data: Option<&[T]>) -> Result<DevPtr> {
        data.map_or(Ok(DevPtr::NULL), |data| self.put(data))
    }
}

/// One output: its buffer and its elements.
type Output<D> = Option<(DeviceBuffer<D>, usize)>;

#[derive(Debug)]
struct Buffers<D: Device + ?Sized> {
    tokens: Output<D>,
    logprobs: Output<D>,
    ranks: Output<D>,
    kept_counts: Output<D>,
    status: Output<D>,
    raw_logprobs: Output<D>,
    sum_smaller_probs: Output<D>,
    top_ids: Output<D>,
    top_logprobs: Output<D>,
    top_counts: Output<D>,
    dense: Output<D>,
    dense_ids: Output<D>,
    kept_ids: Output<D>,
    column_values: Output<D>,
    column_ids: Output<D>,
    accepted: Output<D>,
    accept_index: Output<D>,
}

impl<D: Device + ?Sized> Buffers<D> {
    fn new(device: &Arc<D>, stream: RawStream, host: &HostStep<'_>, columns: usize, longest: usize) -> Result<Self> {
        let ints = |wanted: bool, n: usize| -> Result<Output<D>> {
            let poison = || DeviceBuffer::from_slice(device, stream, &vec![POISON_I32; n]);
            wanted.then(|| Ok((poison()?, n))).transpose()
        };
        let floats = |wanted: bool, n: usize| -> Result<Output<D>> {
            let poison = || DeviceBuffer::from_slice(device, stream, &vec![f32::NAN; n]);
            wanted.then(|| Ok((poison()?, n))).transpose()
        };
        let tokens = DeviceBuffer::from_slice(device, stream, &vec![i64::from(POISON_I32); host.rows])?;
        let (rows, all) = (host.rows, host.rows_wanted);
        let requests = host.verify.map_or(0, |v| v.first_rows.len().saturating_sub(1));
        Ok(Buffers {
            tokens: all.then_some((tokens, rows)),
            logprobs: floats(all, rows)?,
            ranks: ints(all, rows)?,
            kept_counts: ints(all, rows)?,
            status: ints(all, rows)?,
            raw_logprobs: floats(host.raw_logprobs, rows)?,
            sum_smaller_probs: floats(host.sum_smaller_probs, rows)?,
            top_ids: ints(host.top_logprobs > 0, rows * host.top_logprobs)?,
            top_logprobs: floats(host.top_logprobs > 0, rows * host.top_logprobs)?,
            top_counts: ints(host.top_logprobs > 0, rows)?,
            dense: floats(host.dense, rows * columns)?,
            dense_ids: ints(host.dense, rows * columns)?,
            kept_ids: ints(host.kept_ids > 0, rows * host.kept_ids)?,
            column_values: floats(host.columns, rows * columns)?,
            column_ids: ints(host.columns, rows * columns)?,
            accepted: ints(host.verify.is_some(), requests)?,
            accept_index: ints(host.verify.is_some(), requests * longest)?,
        })
    }
}

fn ptr<D: Device + ?Sized>(output: &Output<D>) -> DevPtr {
    output.as_ref().map_or(DevPtr::NULL, |(buffer, _)| buffer.ptr())
}

impl<D: Device + ?Sized> HostRun<D> {
    /// Brings `host` to `device`: buffers, parameter table, sampler.
    ///
    /// # Errors
    /// [`Error::Argument`] for arrays that are too short; otherwise as [`ParamTable::set`], [`Sampler::new`].
    pub fn new(device: &Arc<D>, host: &HostStep<'_>) -> Result<Self> {
        check_arrays(host)?;
        let stream = Stream::new(device)?;
        let raw = stream.raw();
        let columns = crate::device::effective_columns(device.info().platform, host.force_topk, host.vocab)?;
        let table = Arc::new(ParamTable::new(device, host.params.len().max(1))?);
        for (slot, params) in host.params.iter().enumerate() {
            // SAFETY: the stream is ours. It is waited for so that a table larger than the staging ring never finds
            // it busy.
            unsafe { table.set(raw, slot, params)? };
            stream.synchronize()?;
        }
        let limits = Limits {
            rows: host.rows,
            vocab: host.vocab,
            force_topk: host.force_topk,
            verify: host.verify.is_some(),
            remap: host.verify.is_some_and(|v| !v.draft_columns.is_empty()),
        };
        let sampler = Sampler::new(device, limits, &table)?;
        let longest = host
            .verify
            .map_or(0, |v| v.first_rows.windows(2).map(|w| (w[1] - w[0]).max(0) as usize).max().unwrap_or(0));
        let outputs = Buffers::new(device, raw, host, columns, longest)?;
        let mut inputs = Inputs { device: Arc::clone(device), stream: raw, buffers: Vec::new() };
        let step = build_step(host, columns, longest, &mut inputs, &outputs)?;
        Ok(HostRun { sampler, step, stream, inputs, outputs, columns })
    }

    /// Runs the step and reads everything back.
    ///
    /// # Errors
    /// As [`Sampler::step`].
    pub fn run(&mut self) -> Result<HostResult> {
        // SAFETY: `build_step` made every pointer, with the sizes the step states; inputs and outputs live in self.
        unsafe { self.sampler.step(self.stream.raw(), &self.step)? };
        self.read()
    }

    /// Runs the step once and returns the milliseconds it took on the device, by events around it.
    ///
    /// # Errors
    /// As [`Sampler::step`].
    pub fn time_ms(&mut self) -> Result<f32> {
        let device = Arc::clone(self.sampler.device());
        let raw = self.stream.raw();
        let (start, end) = (device.create_event(true)?, device.create_event(true)?);
        // SAFETY: the events and the stream are live and of this device; the step as in `run`. The events are
        // destroyed after `elapsed_ms` waited for them, or after the wait that its failure leaves to do.
        unsafe {
            let timed = device
                .record_event(raw, start)
                .and_then(|()| self.sampler.step(raw, &self.step))
                .and_then(|()| device.record_event(raw, end))
                .and_then(|()| device.elapsed_ms(start, end));
            if timed.is_err() {
                device.synchronize(raw)?;
            }
            device.destroy_event(start)?;
            device.destroy_event(end)?;
            timed
        }
    }

    /// The step as built, for callers that change a pointer or a count before running it themselves.
    pub fn parts(&mut self) -> (&mut Sampler<D>, &mut Step, RawStream) {
        (&mut self.sampler, &mut self.step, self.stream.raw())
    }

    /// Columns N the rows are processed in.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Copies `data` to the device; it lives as long as this value.
    ///
    /// # Errors
    /// What the device reports.
    pub fn put<T: bytemuck::NoUninit>(&mut self, data: &[T]) -> Result<DevPtr> {
        self.inputs.put(data)
    }

    /// Waits for the stream and reads every output.
    ///
    /// # Errors
    /// What the device reports.
    pub fn read(&self) -> Result<HostResult> {
        let stream = self.stream.raw();
        fn get<D: Device + ?Sized, T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(
            stream: RawStream,
            output: &Output<D>,
        ) -> Result<Vec<T>> {
            let Some((buffer, n)) = output else { return Ok(Vec::new()) };
            let mut host = vec![T::zeroed(); *n];
            buffer.read(stream, &mut host)?;
            Ok(host)
        }
        let out = &self.outputs;
        Ok(HostResult {
            tokens: get(stream, &out.tokens)?,
            logprobs: get(stream, &out.logprobs)?,
            ranks: get(stream, &out.ranks)?,
            kept_counts: get(stream, &out.kept_counts)?,
            status: get(stream, &out.status)?,
            raw_logprobs: get(stream, &out.raw_logprobs)?,
            sum_smaller_probs: get(stream, &out.sum_smaller_probs)?,
            top_ids: get(stream, &out.top_ids)?,
            top_logprobs: get(stream, &out.top_logprobs)?,
            top_counts: get(stream, &out.top_counts)?,
            dense: get(stream, &out.dense)?,
            dense_ids: get(stream, &out.dense_ids)?,
            kept_ids: get(stream, &out.kept_ids)?,
            column_values: get(stream, &out.column_values)?,
            column_ids: get(stream, &out.column_ids)?,
            accepted: get(stream, &out.accepted)?,
            accept_index: get(stream, &out.accept_index)?,
        })
    }
}

/// Holds every host array to the shape the step states, so that the device never reads past one.
fn check_arrays(host: &HostStep<'_>) -> Result<()> {
    let exact = |what, len: usize, want: usize| {
        if len == want { Ok(()) } else { Err(Error::argument(OP, what, len, format!("{want} elements"))) }
    };
    let bytes = host
        .logits_rows
        .checked_mul(host.stride)
        .and_then(|n| n.checked_mul(host.dtype.bytes()))
        .and_then(|n| n.checked_add(host.logits_offset));
    if bytes.is_none_or(|bytes| bytes > host.logits.len()) {
        let limit =
            format!("rows = {} of {} elements behind offset {}", host.logits_rows, host.stride, host.logits_offset);
        return Err(Error::argument(OP, "logits bytes", host.logits.len(), limit));
    }
    let optional = |what, len: Option<usize>, want| len.map_or(Ok(()), |len| exact(what, len, want));
    let requests = host.verify.map_or(host.rows, |v| v.first_rows.len().saturating_sub(1));
    optional("gather", host.gather.map(<[_]>::len), host.rows)?;
    optional("row_to_slot", host.row_to_slot.map(<[_]>::len), host.rows)?;
    optional("positions", host.positions.map(<[_]>::len), requests)?;
    optional("position_offsets", host.position_offsets.map(<[_]>::len), requests)?;
    optional("golden", host.golden.map(<[_]>::len), host.rows)?;
    optional("injected bits", host.injected_bits.map(<[_]>::len), host.rows * 3)?;
    if let Some(mask) = &host.mask {
        optional("mask index", mask.index.map(<[_]>::len), host.rows)?;
        if mask.stride == 0 || !mask.words.len().is_multiple_of(mask.stride) {
            return Err(Error::argument(OP, "mask words", mask.words.len(), format!("rows of {} words", mask.stride)));
        }
    }
    if let Some(verify) = &host.verify {
        exact("row_to_request", verify.row_to_request.len(), host.rows)?;
        exact("draft_ids", verify.draft_ids.len(), host.rows)?;
        let ascending = verify.first_rows.windows(2).all(|w| w[0] <= w[1]);
        let ends = (verify.first_rows.first(), verify.first_rows.last());
        if !ascending || ends.0 != Some(&0) || ends.1.is_none_or(|&last| last < 0 || last as usize > host.rows) {
            let last = ends.1.copied().unwrap_or(-1);
            return Err(Error::argument(OP, "first_rows", last, format!("ascending from 0 to at most {}", host.rows)));
        }
        if !verify.draft_logprobs.is_empty() || verify.draft_width != 0 {
            let cells = verify.draft_logprobs.len();
            if verify.draft_width == 0 || !cells.is_multiple_of(verify.draft_width) {
                let limit = format!("rows of {} columns", verify.draft_width);
                return Err(Error::argument(OP, "draft logprobs", cells, limit));
            }
            if !verify.draft_columns.is_empty() {
                exact("draft columns", verify.draft_columns.len(), cells)?;
            }
        }
        if !verify.draft_rows.is_empty() {
            exact("draft rows", verify.draft_rows.len(), host.rows)?;
        }
    }
    Ok(())
}

fn build_step<D: Device + ?Sized>(
    host: &HostStep<'_>,
    columns: usize,
    longest: usize,
    inputs: &mut Inputs<D>,
    outputs: &Buffers<D>,
) -> Result<Step> {
    let logits = inputs.put(host.logits)?.offset(host.logits_offset);
    let mask = match &host.mask {
        None => None,
        Some(mask) => Some(Mask {
            ptr: inputs.put(mask.words)?,
            rows: mask.words.len() / mask.stride,
            stride: mask.stride,
            index: mask.index.map(|index| inputs.put(index)).transpose()?.map(Index::i32),
        }),
    };
    let verify = match &host.verify {
        None => None,
        Some(v) => Some(Verify {
            mode: v.mode,
            requests: v.first_rows.len() - 1,
            first_rows: inputs.put(v.first_rows)?,
            row_to_request: Index::i32(inputs.put(v.row_to_request)?),
            position_stride: v.position_stride,
            draft_ids: Index::i64(inputs.put(v.draft_ids)?),
            drafts: match v.mode {
                VerifyMode::Rejection => Some(Drafts {
                    logprobs: inputs.put(v.draft_logprobs)?,
                    columns: if v.draft_columns.is_empty() { DevPtr::NULL } else { inputs.put(v.draft_columns)? },
                    stride: v.draft_width,
                    width: v.draft_width,
                    pool_rows: v.draft_logprobs.len() / v.draft_width.max(1),
                    rows: if v.draft_rows.is_empty() { None } else { Some(Index::i32(inputs.put(v.draft_rows)?)) },
                }),
                _ => None,
            },
            accepted: ptr(&outputs.accepted),
            accept_index: ptr(&outputs.accept_index),
            accept_width: longest,
        }),
    };
    Ok(Step {
        logits: Logits {
            ptr: logits,
            dtype: host.dtype,
            rows: host.logits_rows,
            vocab: host.vocab,
            stride: host.stride,
        },
        rows: host.rows,
        gather: host.gather.map(|gather| inputs.put(gather)).transpose()?.map(Index::i64),
        force_topk: host.force_topk,
        mask,
        row_to_slot: host.row_to_slot.map(|slots| inputs.put(slots)).transpose()?.map(Index::i32),
        positions: inputs.put_optional(host.positions)?,
        position_offsets: inputs.put_optional(host.position_offsets)?,
        draft_step: host.draft_step,
        golden: host.golden.map(|golden| inputs.put(golden)).transpose()?.map(Index::i64),
        filters: host.filters,
        verify,
        outputs: Outputs {
            tokens: outputs.tokens.as_ref().map(|(buffer, _)| Index::i64(buffer.ptr())),
            logprobs: ptr(&outputs.logprobs),
            ranks: ptr(&outputs.ranks),
            kept_counts: ptr(&outputs.kept_counts),
            status: ptr(&outputs.status),
            raw_logprobs: ptr(&outputs.raw_logprobs),
            sum_smaller_probs: ptr(&outputs.sum_smaller_probs),
            top: outputs.top_ids.as_ref().map(|(ids, _)| TopLogprobs {
                width: host.top_logprobs,
                ids: ids.ptr(),
                logprobs: ptr(&outputs.top_logprobs),
                counts: ptr(&outputs.top_counts),
            }),
            dense: outputs.dense.as_ref().map(|(dense, _)| Dense {
                logprobs: dense.ptr(),
                ids: ptr(&outputs.dense_ids),
                stride: columns,
            }),
            kept_ids: outputs.kept_ids.as_ref().map(|(ids, _)| KeptIds { ids: ids.ptr(), width: host.kept_ids }),
            columns: outputs
                .column_values
                .as_ref()
                .map(|(values, _)| Columns { values: values.ptr(), ids: ptr(&outputs.column_ids) }),
        },
        adjust: DevPtr::NULL,
        injected_bits: inputs.put_optional(host.injected_bits)?,
    })
}
