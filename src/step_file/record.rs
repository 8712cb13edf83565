//! The recorder: a step that a running stack has just taken, read back from the device into a step file.
//!
//! Nothing is kept while steps run. Parameters come out of the device's own table, whose numbers determine them up to
//! what makes no difference, so a recording costs what its call costs and no step costs more for it.

use super::{DraftStep, Phase, StepFile, StepRequest, StoredDrafts, StoredLogits, StoredMask, VerifyRule};
use crate::batch::PositionRule;
use crate::device::{DevPtr, Device, RawStream};
use crate::error::{Error, Result};
use crate::params::SamplingParams;
use crate::pipeline::blocks::SlotBlock;
use crate::pipeline::{Index, IndexWidth, Sampler, Step, Verify, VerifyMode};
use std::collections::BTreeMap;
use std::ops::Range;

const OP: &str = "record";
/// Bounds of what the header takes: in all, for a request, for a row.
const HEADER: usize = 1024;
const OF_REQUEST: usize = 1024;
const OF_ROW: usize = 64;

impl<D: Device + ?Sized> Sampler<D> {
    /// The step that this sampler has just taken on `stream`, as a step file of at most `max_bytes`, to be replayed on
    /// any device. Waits for the stream, then reads inputs and parameters back.
    ///
    /// Padding rows are left out. Positions are recorded with what is added to them.
    ///
    /// # Errors
    /// As [`step`](Self::step); [`Error::Capture`] while the stream is capturing; [`Error::Argument`] when the file would
    /// be larger than `max_bytes`; [`Error::StepFile`] for what a step file cannot say: a row whose indices are out of
    /// range or whose slot is empty or uses a filter that the step excludes, a position below 1, drafts in other columns
    /// than the file's N.
    ///
    /// # Safety
    /// As [`step`](Self::step); inputs and parameter table are as they were when the step ran.
    pub unsafe fn record(&self, stream: RawStream, step: &Step, max_bytes: usize) -> Result<StepFile> {
        self.plan(step)?;
        if !step.injected_bits.is_null() {
            return Err(Error::Unsupported { op: OP, what: "a step with injected bits".into() });
        }
        let read = Reader { device: &**self.device(), stream };
        // Before the first copy: in a capture that would be captured.
        // SAFETY: the caller's promise.
        unsafe { read.device.synchronize(stream)? };
        // SAFETY: every array below has the length that the step states.
        unsafe {
            let rows = Rows::read(&read, step)?;
            let requests = match &step.verify {
                None => rows.alone(),
                Some(verify) => rows.grouped(&read, step, verify)?,
            };
            if requests.is_empty() {
                return Err(refuse("step", "every row is padding"));
            }
            let columns = if step.force_topk == 0 { step.logits.vocab } else { step.force_topk.min(step.logits.vocab) };
            check_size(step, &requests, columns, max_bytes)?;
            let params = params_of(self, &read, step, &requests, &rows)?;
            let file = rows.file(&read, step, &requests, params, columns)?;
            // A golden id out of range, a draft's id twice: what could not be read back is no recording.
            file.check()?;
            Ok(file)
        }
    }
}

fn refuse(place: impl Into<String>, what: impl Into<String>) -> Error {
    super::refuse(place, what)
}

fn row(number: usize) -> String {
    format!("row {number}")
}

/// Rows of one request, and its entry among the positions.
struct Request {
    rows: Range<usize>,
    number: usize,
}

/// What the step says of its rows, one entry a row.
struct Rows {
    slots: Vec<i64>,
    logits: Vec<i64>,
    masks: Vec<i64>,
    golden: Option<Vec<i64>>,
}

impl Rows {
    unsafe fn read<D: Device + ?Sized>(read: &Reader<'_, D>, step: &Step) -> Result<Rows> {
        let n = step.rows;
        let same = || (0..n as i64).collect();
        // SAFETY: the caller's promise: one entry a row.
        let get = |index: Option<Index>| unsafe { index.map_or_else(|| Ok(same()), |index| read.index(index, n)) };
        Ok(Rows {
            slots: get(step.row_to_slot)?,
            logits: get(step.gather)?,
            masks: get(step.mask.and_then(|mask| mask.index))?,
            // SAFETY: as above.
            golden: step.golden.map(|golden| unsafe { read.index(golden, n) }).transpose()?,
        })
    }

    fn alone(&self) -> Vec<Request> {
        let used = (0..self.slots.len()).filter(|&r| self.slots[r] != -1);
        used.map(|r| Request { rows: r..r + 1, number: r }).collect()
    }

    unsafe fn grouped<D: Device + ?Sized>(
        &self,
        read: &Reader<'_, D>,
        step: &Step,
        verify: &Verify,
    ) -> Result<Vec<Request>> {
        // SAFETY: the caller's promise.
        let (first, of) = unsafe {
            (
                read.index(Index::i32(verify.first_rows), verify.requests + 1)?,
                read.index(verify.row_to_request, step.rows)?,
            )
        };
        let mut requests = Vec::new();
        for (number, ends) in first.windows(2).enumerate() {
            let place = format!("request {number}");
            let rows = match (usize::try_from(ends[0]), usize::try_from(ends[1])) {
                (Ok(start), Ok(end)) if start <= end && end <= step.rows => start..end,
                _ => return Err(refuse(place, format!("rows {} to {} of {}", ends[0], ends[1], step.rows))),
            };
            let padding = rows.clone().filter(|&r| self.slots[r] == -1 || of[r] == -1).count();
            if padding == rows.len() {
                continue;
            }
            if padding > 0 {
                return Err(refuse(place, "padding among its rows, which a step file cannot say"));
            }
            if let Some(stray) = rows.clone().find(|&r| of[r] != number as i64) {
                return Err(refuse(row(stray), format!("belongs to request {}, not {number}", of[stray])));
            }
            if let Some(other) = rows.clone().find(|&r| self.slots[r] != self.slots[rows.start]) {
                return Err(refuse(row(other), "another slot than its request's first row"));
            }
            requests.push(Request { rows, number });
        }
        Ok(requests)
    }

    unsafe fn file<D: Device + ?Sized>(
        &self,
        read: &Reader<'_, D>,
        step: &Step,
        requests: &[Request],
        params: Vec<SamplingParams>,
        columns: usize,
    ) -> Result<StepFile> {
        let (logits, out) = (&step.logits, &step.outputs);
        let used: Vec<usize> = requests.iter().flat_map(|request| request.rows.clone()).collect();
        let drafts = match step.verify {
            Some(Verify { draft_ids, .. }) => {
                // SAFETY: the caller's promise: one entry a row.
                unsafe { read.index(draft_ids, step.rows)? }
            }
            None => Vec::new(),
        };
        // SAFETY: the caller's promise, as for all that follows.
        let positions = unsafe { positions(read, step, requests)? };
        let draft = match step.draft_step {
            None => None,
            Some(number) => match i32::try_from(number) {
                Ok(step) if step >= 1 => Some(DraftStep { step, last_valid_offset: 0 }),
                _ => return Err(refuse("draft_step", format!("{number} where 1 to 2147483647 is expected"))),
            },
        };
        let requests_of_file = requests.iter().zip(params).zip(&positions).map(|((request, mut params), position)| {
            let rows = request.rows.clone();
            if let Some(golden) = &self.golden {
                params.golden_token_ids = golden[rows.clone()].to_vec();
            }
            params.top_logprobs = out.top.map_or(0, |top| top.width);
            StepRequest {
                id: format!("slot {}, row {}", self.slots[rows.start], rows.start),
                seqlen_q: rows.len(),
                // `positions` held it to 1 and up; a sequence has fewer rows than 2^31.
                seqlen_k: *position as usize + rows.len() - 1,
                params,
                draft_token_ids: drafts.get(rows.start..rows.end - 1).unwrap_or_default().to_vec(),
                draft,
            }
        });
        let places = used.iter().map(|&r| {
            let at = usize::try_from(self.logits[r]).ok().filter(|&at| at < logits.rows);
            let at = at.ok_or_else(|| refuse(row(r), format!("logits row {} of {}", self.logits[r], logits.rows)))?;
            Ok(logits.ptr.offset(at * logits.stride * logits.dtype.bytes()))
        });
        let places = places.collect::<Result<Vec<_>>>()?;
        Ok(StepFile {
            phase: if step.verify.is_some() { Phase::Decode } else { Phase::Prefill },
            force_topk: step.force_topk,
            draft_model: draft.is_some(),
            sum_smaller_probs: !out.sum_smaller_probs.is_null(),
            dense_logprobs: out.dense.is_some(),
            raw_logprobs: !out.raw_logprobs.is_null(),
            verify: match step.verify {
                Some(Verify { mode: VerifyMode::Chain, .. }) => VerifyRule::Chain,
                _ => VerifyRule::Rejection,
            },
            positions: position_rule(step)?,
            requests: requests_of_file.collect(),
            logits: StoredLogits {
                dtype: logits.dtype,
                rows: used.len(),
                vocab: logits.vocab,
                // SAFETY: as above.
                bytes: unsafe { read.values(&places, logits.vocab * logits.dtype.bytes())? },
            },
            // SAFETY: as above.
            mask: unsafe { self.mask(read, step, &used)? },
            // SAFETY: as above.
            drafts: unsafe { self.drafts(read, step, requests, &drafts, columns)? },
        })
    }

    unsafe fn mask<D: Device + ?Sized>(
        &self,
        read: &Reader<'_, D>,
        step: &Step,
        used: &[usize],
    ) -> Result<Option<StoredMask>> {
        let Some(mask) = &step.mask else { return Ok(None) };
        let width = step.logits.vocab.div_ceil(32);
        let mut words = vec![-1i32; used.len() * width];
        for (&r, words) in used.iter().zip(words.chunks_exact_mut(width)) {
            match usize::try_from(self.masks[r]) {
                Ok(at) if at < mask.rows => {
                    // SAFETY: the row lies within the mask.
                    let found = unsafe { read.values(&[mask.ptr.offset(at * mask.stride * 4)], width)? };
                    words.copy_from_slice(&found);
                }
                Err(_) if self.masks[r] == -1 => {}
                _ => return Err(refuse(row(r), format!("mask row {} of {}", self.masks[r], mask.rows))),
            }
        }
        Ok(Some(StoredMask { width, words }))
    }

    unsafe fn drafts<D: Device + ?Sized>(
        &self,
        read: &Reader<'_, D>,
        step: &Step,
        requests: &[Request],
        ids: &[i64],
        columns: usize,
    ) -> Result<Option<StoredDrafts>> {
        let Some(Verify { drafts: Some(drafts), .. }) = &step.verify else { return Ok(None) };
        if drafts.width != columns {
            return Err(refuse(
                "drafts",
                format!("{} columns where the file's N = {columns} is expected", drafts.width),
            ));
        }
        // SAFETY: the caller's promise: one entry a row.
        let pool = unsafe { drafts.rows.map(|rows| read.index(rows, step.rows)).transpose()? };
        let (mut logprobs, mut index) = (Vec::new(), Vec::new());
        for r in requests.iter().flat_map(|request| request.rows.start..request.rows.end - 1) {
            let at = pool.as_ref().map_or(r as i64, |pool| pool[r]);
            let Some(at) = usize::try_from(at).ok().filter(|&at| at < drafts.pool_rows) else {
                // Without a draft its row is not read, and what the file holds there neither.
                if (0..step.logits.vocab as i64).contains(&ids[r]) {
                    return Err(refuse(row(r), format!("draft row {at} of {}", drafts.pool_rows)));
                }
                logprobs.resize(logprobs.len() + columns, f32::NEG_INFINITY);
                index.extend(0..columns as i32);
                continue;
            };
            let offset = at * drafts.stride * 4;
            // SAFETY: the row lies within the pool.
            unsafe {
                logprobs.extend(read.values::<f32>(&[drafts.logprobs.offset(offset)], columns)?);
                if !drafts.columns.is_null() {
                    index.extend(read.values::<i32>(&[drafts.columns.offset(offset)], columns)?);
                }
            }
        }
        let index = (!drafts.columns.is_null()).then_some(index);
        Ok(Some(StoredDrafts { width: columns, logprobs, index }))
    }
}

fn position_rule(step: &Step) -> Result<PositionRule> {
    let Some(verify) = &step.verify else { return Ok(PositionRule::Strided) };
    let rules = [PositionRule::Strided, PositionRule::Sequential];
    let found = rules.into_iter().find(|rule| rule.stride() == verify.position_stride);
    found.ok_or_else(|| {
        refuse("positions", format!("{} between rows is no rule of a step file", verify.position_stride))
    })
}

/// The position of each request's first row, with its offset.
unsafe fn positions<D: Device + ?Sized>(read: &Reader<'_, D>, step: &Step, requests: &[Request]) -> Result<Vec<i64>> {
    if step.positions.is_null() {
        // Scored rows draw nothing, whatever their position. `record` was refused a step that would draw.
        return Ok(vec![1; requests.len()]);
    }
    let n = step.verify.map_or(step.rows, |verify| verify.requests);
    // SAFETY: the caller's promise.
    let (positions, offsets) = unsafe {
        let offsets = (!step.position_offsets.is_null()).then(|| read.index(Index::i32(step.position_offsets), n));
        (read.index(Index::i64(step.positions), n)?, offsets.transpose()?)
    };
    let position = |request: &Request| {
        let offset = offsets.as_ref().map_or(0, |offsets| offsets[request.number]);
        let position = positions[request.number].wrapping_add(offset);
        if position < 1 {
            return Err(refuse(row(request.rows.start), format!("position {position} where 1 and up is expected")));
        }
        Ok(position)
    };
    requests.iter().map(position).collect()
}

/// Refuses what would be too large before any of it is read.
fn check_size(step: &Step, requests: &[Request], columns: usize, max_bytes: usize) -> Result<()> {
    let rows: usize = requests.iter().map(|request| request.rows.len()).sum();
    let words = if step.mask.is_some() { step.logits.vocab.div_ceil(32) * 4 } else { 0 };
    let draft = match step.verify.and_then(|verify| verify.drafts) {
        None => 0,
        Some(drafts) => columns * if drafts.columns.is_null() { 4 } else { 8 },
    };
    let of_row = step.logits.vocab * step.logits.dtype.bytes() + words + draft + OF_ROW;
    let bytes = rows.saturating_mul(of_row).saturating_add(HEADER + requests.len() * OF_REQUEST);
    if bytes > max_bytes {
        return Err(Error::argument(OP, "bytes of the step file", bytes, format!("at most max_bytes = {max_bytes}")));
    }
    Ok(())
}

/// The parameters of each request, from the device's table.
unsafe fn params_of<D: Device + ?Sized>(
    sampler: &Sampler<D>,
    read: &Reader<'_, D>,
    step: &Step,
    requests: &[Request],
    rows: &Rows,
) -> Result<Vec<SamplingParams>> {
    let slots = sampler.slots_of(step);
    let mut known: BTreeMap<usize, SamplingParams> = BTreeMap::new();
    let mut params = |request: &Request| {
        let (first, slot) = (request.rows.start, rows.slots[request.rows.start]);
        let Some(slot) = usize::try_from(slot).ok().filter(|&slot| slot < slots.count) else {
            return Err(refuse(row(first), format!("slot {slot} of {}", slots.count)));
        };
        if let Some(params) = known.get(&slot) {
            return Ok(params.clone());
        }
        // SAFETY: the slot lies within the table.
        let block = unsafe { read.values(&[slots.ptr.offset(slot * size_of::<SlotBlock>())], 1)? };
        let block: SlotBlock = block[0];
        let params = SamplingParams::from_slot(&block)
            .ok_or_else(|| refuse(row(first), format!("slot {slot} holds no parameters")))?;
        if step.filters.is_some_and(|filters| !filters.admit(&block)) {
            return Err(refuse(row(first), format!("slot {slot} uses a filter that the step excludes")));
        }
        known.insert(slot, params.clone());
        Ok(params)
    };
    requests.iter().map(&mut params).collect()
}

/// Device memory, read after the stream was waited for.
struct Reader<'a, D: Device + ?Sized> {
    device: &'a D,
    stream: RawStream,
}

impl<D: Device + ?Sized> Reader<'_, D> {
    /// `each` values from every place, behind each other.
    unsafe fn values<T: bytemuck::Pod>(&self, places: &[DevPtr], each: usize) -> Result<Vec<T>> {
        let mut values = vec![T::zeroed(); places.len() * each];
        for (place, to) in places.iter().zip(values.chunks_exact_mut(each.max(1))) {
            let to: &mut [u8] = bytemuck::cast_slice_mut(to);
            // SAFETY: the caller's promise for the source; the target is waited for below before anyone looks at it.
            unsafe { self.device.copy_to_host(self.stream, to.as_mut_ptr(), *place, to.len())? };
        }
        // SAFETY: the stream is live.
        unsafe { self.device.synchronize(self.stream)? };
        Ok(values)
    }

    unsafe fn index(&self, index: Index, n: usize) -> Result<Vec<i64>> {
        // SAFETY: the caller's promise.
        unsafe {
            Ok(match index.width {
                IndexWidth::I32 => self.values::<i32>(&[index.ptr], n)?.into_iter().map(i64::from).collect(),
                IndexWidth::I64 => self.values(&[index.ptr], n)?,
            })
        }
    }
}
