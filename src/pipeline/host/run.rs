//! A host step on a device: its buffers, its sampler, its results.

use super::{HostResult, HostStep, check_arrays};
use crate::device::{DevPtr, Device, DeviceBuffer, RawStream, Stream};
use crate::error::Result;
use crate::pipeline::limits::Limits;
use crate::pipeline::sampler::Sampler;
use crate::pipeline::step::{
    Columns, Dense, Drafts, Index, KeptIds, Logits, Mask, Outputs, Step, TopLogprobs, Verify, VerifyMode,
};
use crate::pipeline::table::ParamTable;
use std::sync::Arc;

/// What an output slot holds before the step.
const POISON_I32: i32 = -7777;

/// A [`HostStep`] brought to a device: run it, replay it, read it.
#[derive(Debug)]
pub struct HostRun<D: Device + ?Sized> {
    sampler: Sampler<D>,
    step: Step,
    stream: Arc<Stream<D>>,
    inputs: Inputs<D>,
    outputs: Buffers<D>,
    columns: usize,
}

#[derive(Debug)]
struct Inputs<D: Device + ?Sized> {
    device: Arc<D>,
    stream: Arc<Stream<D>>,
    buffers: Vec<DeviceBuffer<D>>,
}

impl<D: Device + ?Sized> Inputs<D> {
    fn put<T: bytemuck::NoUninit>(&mut self, data: &[T]) -> Result<DevPtr> {
        let buffer = DeviceBuffer::from_slice(&self.device, &self.stream, data)?;
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
    fn new(device: &Arc<D>, stream: &Stream<D>, host: &HostStep<'_>, columns: usize, longest: usize) -> Result<Self> {
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
            ranks: ints(all && host.places, rows)?,
            kept_counts: ints(all && host.places, rows)?,
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
            accept_index: ints(host.verify.is_some() && host.accept_index, requests * longest)?,
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
    /// [`Error::Argument`](crate::Error::Argument) for arrays that are too short; otherwise as [`ParamTable::set`], [`Sampler::new`].
    pub fn new(device: &Arc<D>, host: &HostStep<'_>) -> Result<Self> {
        check_arrays(host)?;
        let stream = Arc::new(Stream::new(device)?);
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
        let outputs = Buffers::new(device, &stream, host, columns, longest)?;
        let mut inputs = Inputs { device: Arc::clone(device), stream: Arc::clone(&stream), buffers: Vec::new() };
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

    /// From now on the step writes tokens alone, so that its time is that of sampling without reports.
    pub fn tokens_alone(&mut self) {
        self.step.outputs = Outputs { tokens: self.step.outputs.tokens, ..Outputs::default() };
    }

    /// The step as built, for callers that run it, or a changed copy of it, themselves.
    pub fn parts(&mut self) -> (&mut Sampler<D>, &Step, RawStream) {
        (&mut self.sampler, &self.step, self.stream.raw())
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
        let stream = &*self.stream;
        fn get<D: Device + ?Sized, T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(
            stream: &Stream<D>,
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
            row_accepts: DevPtr::NULL,
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
        slots: None,
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
