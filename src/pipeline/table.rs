//! The parameter table: one row of parameters per request slot, in device memory.

use super::blocks::{SlotBlock, filter};
use super::staging::StagingRing;
use super::step::Filters;
use crate::device::{DevPtr, Device, DeviceBuffer, RawStream};
use crate::error::{Error, Result};
use crate::params::{SamplingParams, TOP_K_OFF, TOP_P_OFF};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Slot writes that may be in flight at once.
const WRITES_IN_FLIGHT: usize = 64;
const SLOT_BYTES: usize = size_of::<SlotBlock>();

/// Parameters of up to `slots` requests. Steps read it through `row_to_slot`; nothing is expanded per row.
///
/// Shared by the samplers of a target and its draft model. A write is ordered on the stream it is given, so steps
/// enqueued before it see the old parameters and steps after it the new ones.
#[derive(Debug)]
pub struct ParamTable<D: Device + ?Sized> {
    memory: DeviceBuffer<D>,
    slots: usize,
    host: Mutex<Host<D>>,
}

#[derive(Debug)]
struct Host<D: Device + ?Sized> {
    ring: StagingRing<D>,
    /// What each slot uses: filter bits, [`LIVE`], [`GREEDY`].
    uses: Vec<u64>,
    counts: Counts,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    live: usize,
    greedy: usize,
    top_k: usize,
    top_p: usize,
    min_p: usize,
}

const LIVE: u64 = 1 << 8;
const GREEDY: u64 = 1 << 9;

impl<D: Device + ?Sized> ParamTable<D> {
    /// An empty table of `slots` slots.
    ///
    /// # Errors
    /// [`Error::Argument`] for 0 slots or more than 2^31-1; what the device reports.
    pub fn new(device: &Arc<D>, slots: usize) -> Result<Self> {
        if slots == 0 || slots > i32::MAX as usize {
            return Err(Error::argument("parameter table", "slots", slots, "1 to 2147483647"));
        }
        let memory = DeviceBuffer::new(device, slots * SLOT_BYTES)?;
        // SAFETY: the buffer was just allocated with this size; the default stream always exists.
        unsafe {
            device.fill(RawStream::default(), memory.ptr(), 0, slots * SLOT_BYTES)?;
            device.synchronize(RawStream::default())?;
        }
        let ring = StagingRing::new(device, WRITES_IN_FLIGHT, SLOT_BYTES)?;
        let host = Host { ring, uses: vec![0; slots], counts: Counts::default() };
        Ok(ParamTable { memory, slots, host: Mutex::new(host) })
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Where the table is on the device.
    pub fn ptr(&self) -> DevPtr {
        self.memory.ptr()
    }

    /// Writes `params` to `slot`, in order with the work on `stream`; returns the seed in use, which is drawn from the
    /// operating system when `params` has none.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a parameter out of range, [`Error::Argument`] for a slot out of range,
    /// [`Error::StagingBusy`] while the 64 writes before it are all in flight. The table is then unchanged.
    ///
    /// # Safety
    /// `stream` is a live stream of the table's device and is not capturing.
    pub unsafe fn set(&self, stream: RawStream, slot: usize, params: &SamplingParams) -> Result<u64> {
        let seed = params.resolve_seed()?;
        let row = params.to_slot(seed)?;
        // SAFETY: the stream is the caller's promise.
        unsafe { self.write(stream, slot, row) }?;
        Ok(seed)
    }

    /// Empties `slot`, in order with the work on `stream`; a row that still names it gets status `bad_index`.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    ///
    /// # Safety
    /// As [`set`](Self::set).
    pub unsafe fn clear(&self, stream: RawStream, slot: usize) -> Result<()> {
        // SAFETY: the stream is the caller's promise.
        unsafe { self.write(stream, slot, SlotBlock::default()) }
    }

    unsafe fn write(&self, stream: RawStream, slot: usize, row: SlotBlock) -> Result<()> {
        if slot >= self.slots {
            return Err(Error::argument(
                "parameter table",
                "slot",
                slot,
                format!("the table has {} slots", self.slots),
            ));
        }
        let mut host = self.lock();
        let host = &mut *host;
        let mut area = host.ring.begin()?;
        area.push(&[row])?;
        // SAFETY: the slot lies within the table; the stream is the caller's promise.
        unsafe {
            area.copy_to(stream, self.memory.ptr().offset(slot * SLOT_BYTES))?;
            area.finish(stream)?;
        }
        let new = uses(&row);
        let old = std::mem::replace(&mut host.uses[slot], new);
        host.counts.change(old, new);
        Ok(())
    }

    /// What the live slots use.
    pub fn filters(&self) -> Filters {
        let counts = self.lock().counts;
        Filters {
            top_k: counts.top_k > 0,
            top_p: counts.top_p > 0,
            min_p: counts.min_p > 0,
            all_greedy: counts.live > 0 && counts.greedy == counts.live,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Host<D>> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn uses(row: &SlotBlock) -> u64 {
    if row.live == 0 {
        return 0;
    }
    let bit = |on, bit| if on { bit } else { 0 };
    LIVE | bit(row.top_k == 1, GREEDY)
        | bit(row.top_k != TOP_K_OFF, filter::TOP_K)
        | bit(row.top_p != TOP_P_OFF, filter::TOP_P)
        | bit(f32::from_bits(row.min_exponent as u32) != f32::NEG_INFINITY, filter::MIN_P)
}

impl Counts {
    fn change(&mut self, old: u64, new: u64) {
        let Counts { live, greedy, top_k, top_p, min_p } = self;
        let fields =
            [(live, LIVE), (greedy, GREEDY), (top_k, filter::TOP_K), (top_p, filter::TOP_P), (min_p, filter::MIN_P)];
        for (count, bit) in fields {
            *count = *count + usize::from(new & bit != 0) - usize::from(old & bit != 0);
        }
    }
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use crate::SamplingParams;
    use crate::device::CpuDevice;
    use crate::pipeline::blocks::status;
    use crate::pipeline::{Filters, HostRun, HostStep};
    use std::sync::Arc;

    #[test]
    fn an_empty_slot_gives_no_token_even_where_every_filter_is_allowed() {
        let device = Arc::new(CpuDevice::open().unwrap());
        let logits = [1.0f32, 2.0, 1.0, 2.0];
        let params = [SamplingParams::greedy(), SamplingParams::greedy()];
        let step = HostStep {
            logits: bytemuck::cast_slice(&logits),
            vocab: 2,
            stride: 2,
            logits_rows: 2,
            rows: 2,
            params: &params,
            positions: Some(&[1, 1]),
            filters: Some(Filters::ALL),
            ..HostStep::default()
        };
        let mut run = HostRun::new(&device, &step).unwrap();
        let (sampler, _, stream) = run.parts();
        // SAFETY: the stream is the run's own and not capturing.
        unsafe { sampler.table().clear(stream, 1) }.unwrap();
        let result = run.run().unwrap();
        assert_eq!((result.tokens, result.status), (vec![1, -1], vec![0, status::BAD_INDEX]));
    }
}
