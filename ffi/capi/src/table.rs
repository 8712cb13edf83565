//! Parameters and the table of them.

use crate::device::samedraw_device;
use crate::handle::{Handle, out};
use crate::sampler::raw;
use crate::sized::{Versioned, read, write};
use crate::status::samedraw_status::SAMEDRAW_ARGUMENT;
use crate::status::{Result, guard, refuse, samedraw_status};
use samedraw::pipeline::blocks::SlotBlock;
use samedraw::{Device, FilterOrder, ParamTable, SamplingParams};
use std::ffi::c_void;
use std::sync::Arc;

/// A table of parameters in device memory, one slot a request. Samplers keep it alive: it may be freed before them.
/// Any number of threads may write it.
pub struct samedraw_table {
    _opaque: [u8; 0],
}

impl Handle for samedraw_table {
    type Value = Arc<ParamTable<dyn Device>>;
    const NAME: &'static str = "samedraw_table";
}

/// How top-p and top-k combine.
#[repr(u32)]
pub enum samedraw_filter_order {
    /// Top-p looks at the whole distribution.
    SAMEDRAW_JOINT = 0,
    /// Top-p looks at the first top_k tokens alone.
    SAMEDRAW_TOP_K_FIRST = 1,
}

/// Sampling parameters of a request. samedraw_params_init() fills in the defaults, which are not all 0.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct samedraw_params {
    /// sizeof(samedraw_params)
    pub size: usize,
    /// 0 to 1e30; below 1e-5 nearly greedy, without filters. Default 1.
    pub temperature: f32,
    /// In (0, 1]; default 1, which keeps all.
    pub top_p: f32,
    /// 1 to 2^31 - 1, or -1, the default, which keeps all. 1 is exact argmax.
    pub top_k: i64,
    /// In [0, 1]; default 0, which keeps all.
    pub min_p: f32,
    /// A samedraw_filter_order.
    pub filter_order: u32,
    /// The seed, where has_seed is 1.
    pub seed: u64,
    /// 0, the default: 64 random bits of the operating system are the seed.
    pub has_seed: u32,
    /// 0
    pub reserved: u32,
}

// SAFETY: as the trait asks.
unsafe impl Versioned for samedraw_params {
    const NAME: &'static str = "samedraw_params";
    const FIRST: usize = 48;
}

/// A row of parameters as the kernels read it; see samedraw_params_to_slot. All 0: an empty slot.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct samedraw_slot {
    /// 1
    pub live: u64,
    /// Bits of the float log2(e) / temperature.
    pub scale: u64,
    /// top_p * 2^32, rounded half to even.
    pub top_p: u64,
    /// Tokens kept; 2^64 - 1 keeps all.
    pub top_k: u64,
    /// Bits of the float log2(min_p); -inf keeps all.
    pub min_exponent: u64,
    /// Seed of the draws.
    pub seed: u64,
    /// 1: top-p looks at the first top_k tokens alone.
    pub top_k_first: u64,
    /// 0
    pub reserved: u64,
}

const _: () = assert!(size_of::<samedraw_slot>() == size_of::<SlotBlock>());

impl samedraw_params {
    fn to_core(self) -> Result<SamplingParams> {
        let filter_order = match self.filter_order {
            0 => FilterOrder::Joint,
            1 => FilterOrder::TopKFirst,
            other => return refuse(SAMEDRAW_ARGUMENT, format!("filter_order = {other} is refused: 0 or 1")),
        };
        zero("samedraw_params.reserved", self.reserved)?;
        let seq_seed = flag("has_seed", self.has_seed)?.then_some(self.seed);
        let samedraw_params { temperature, top_p, top_k, min_p, .. } = self;
        Ok(SamplingParams { temperature, top_p, top_k, min_p, filter_order, seq_seed, ..SamplingParams::default() })
    }
}

/// A field that is 0 or 1.
pub(crate) fn flag(what: &str, value: u32) -> Result<bool> {
    match value {
        0 | 1 => Ok(value == 1),
        _ => refuse(SAMEDRAW_ARGUMENT, format!("{what} = {value} is refused: 0 or 1")),
    }
}

/// A field that later releases may give a meaning.
pub(crate) fn zero(what: &str, value: u32) -> Result<()> {
    if value == 0 { Ok(()) } else { refuse(SAMEDRAW_ARGUMENT, format!("{what} = {value} is refused: 0")) }
}

/// Fills in the defaults; params->size is set beforehand.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_params_init(params: *mut samedraw_params) -> samedraw_status {
    guard(|| {
        let defaults = SamplingParams::default();
        let value = samedraw_params {
            size: 0,
            temperature: defaults.temperature,
            top_p: defaults.top_p,
            top_k: defaults.top_k,
            min_p: defaults.min_p,
            filter_order: samedraw_filter_order::SAMEDRAW_JOINT as u32,
            seed: 0,
            has_seed: 0,
            reserved: 0,
        };
        // SAFETY: the header's promise.
        unsafe { write(params, value) }
    })
}

/// The row of parameters that a table would hold, for a stack that keeps rows of its own in device memory and hands them to
/// a step as samedraw_step.slots.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_params_to_slot(
    params: *const samedraw_params,
    slot: *mut samedraw_slot,
) -> samedraw_status {
    guard(|| {
        // SAFETY: the header's promise.
        let (params, slot) = unsafe { (read(params)?.to_core()?, out(slot, "slot")?) };
        let SlotBlock { live, scale, top_p, top_k, min_exponent, seed, top_k_first, reserved } =
            params.to_slot(params.resolve_seed()?)?;
        *slot = samedraw_slot { live, scale, top_p, top_k, min_exponent, seed, top_k_first, reserved };
        Ok(())
    })
}

/// Creates an empty table of 1 to 2^31 - 1 slots.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_table_create(
    device: *const samedraw_device,
    slots: usize,
    table: *mut *mut samedraw_table,
) -> samedraw_status {
    guard(|| {
        // SAFETY: the header's promise.
        let (device, table) = unsafe { (samedraw_device::get(device)?, out(table, "table")?) };
        samedraw_table::give(table, Arc::new(ParamTable::new(device, slots)?));
        Ok(())
    })
}

/// Writes a slot, in order with the work on the stream, which is not capturing. seed, if not null, receives the seed in
/// use. SAMEDRAW_STAGING_BUSY while the 64 writes before it are all in flight.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_table_set(
    table: *const samedraw_table,
    stream: *mut c_void,
    slot: usize,
    params: *const samedraw_params,
    seed: *mut u64,
) -> samedraw_status {
    guard(|| {
        // SAFETY: the header's promise.
        unsafe {
            let table = samedraw_table::get(table)?;
            let used = table.set(raw(stream), slot, &read(params)?.to_core()?)?;
            if !seed.is_null() {
                *seed = used;
            }
        }
        Ok(())
    })
}

/// Empties a slot, in order with the work on the stream; a row that still names it gets status SAMEDRAW_ROW_BAD_INDEX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_table_clear(
    table: *const samedraw_table,
    stream: *mut c_void,
    slot: usize,
) -> samedraw_status {
    guard(|| {
        // SAFETY: the header's promise.
        unsafe { samedraw_table::get(table)?.clear(raw(stream), slot)? };
        Ok(())
    })
}

/// Frees a table, whose writes have run; null is nothing to do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_table_free(table: *mut samedraw_table) -> samedraw_status {
    // SAFETY: the header's promise.
    guard(|| unsafe { samedraw_table::free(table, |_| Ok(())) })
}
