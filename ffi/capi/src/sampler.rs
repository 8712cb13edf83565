//! Samplers and their steps.

use crate::device::samedraw_device;
use crate::handle::{Handle, exclusive, out};
use crate::sized::{Versioned, read};
use crate::status::{Result, guard, samedraw_status};
use crate::step::{ptr, samedraw_step, step};
use crate::table::{flag, samedraw_table};
use samedraw::device::RawStream;
use samedraw::{Device, Limits, Sampler};
use std::ffi::c_void;
use std::mem::size_of;
use std::sync::Mutex;

/// Runs steps: one workspace, one step in flight. A call while another one uses it returns SAMEDRAW_BUSY.
pub struct samedraw_sampler {
    _opaque: [u8; 0],
}

impl Handle for samedraw_sampler {
    type Value = Mutex<Sampler<dyn Device>>;
    const NAME: &'static str = "samedraw_sampler";
}

/// The largest step a sampler is built for.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct samedraw_limits {
    /// sizeof(samedraw_limits)
    pub size: usize,
    /// Rows of a step.
    pub rows: usize,
    /// Vocabulary size, at most 2^23.
    pub vocab: usize,
    /// Largest force_topk; 0 = never used.
    pub force_topk: usize,
    /// 1: steps verify drafts.
    pub verify: u32,
    /// 1: drafts come with column ids of their own.
    pub remap: u32,
}

const _: () = assert!(size_of::<samedraw_limits>() == 40);
// SAFETY: as the trait asks.
unsafe impl Versioned for samedraw_limits {
    const NAME: &'static str = "samedraw_limits";
    const FIRST: usize = 40;
}

/// # Safety
/// As [`read`].
unsafe fn limits(given: *const samedraw_limits) -> Result<Limits> {
    // SAFETY: the caller's promise.
    let l = unsafe { read(given) }?;
    let (verify, remap) = (flag("limits: verify", l.verify)?, flag("limits: remap", l.remap)?);
    Ok(Limits { rows: l.rows, vocab: l.vocab, force_topk: l.force_topk, verify, remap })
}

pub(crate) fn raw(stream: *mut c_void) -> RawStream {
    RawStream(stream as u64)
}

/// Bytes of workspace that steps within the limits need.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_workspace_bytes(
    device: *const samedraw_device,
    limit: *const samedraw_limits,
    bytes: *mut usize,
) -> samedraw_status {
    guard(|| {
        // SAFETY: the header's promise.
        let (device, bytes) = unsafe { (samedraw_device::get(device)?, out(bytes, "bytes")?) };
        // SAFETY: as above.
        *bytes = Sampler::workspace_bytes(&**device, &unsafe { limits(limit) }?)?;
        Ok(())
    })
}

/// Creates a sampler with a workspace of its own. Compiles and loads what its steps can reach; may take a second.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_sampler_create(
    device: *const samedraw_device,
    limit: *const samedraw_limits,
    table: *const samedraw_table,
    sampler: *mut *mut samedraw_sampler,
) -> samedraw_status {
    guard(|| {
        // SAFETY: the header's promise.
        unsafe {
            let (device, table) = (samedraw_device::get(device)?, samedraw_table::get(table)?);
            let sampler = out(sampler, "sampler")?;
            samedraw_sampler::give(sampler, Mutex::new(Sampler::new(device, limits(limit)?, table)?));
        }
        Ok(())
    })
}

/// As samedraw_sampler_create, with workspace_bytes bytes of device memory that the caller lends, aligned to 256: nothing
/// else uses them while the sampler or a step captured from it lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_sampler_create_with_workspace(
    device: *const samedraw_device,
    limit: *const samedraw_limits,
    table: *const samedraw_table,
    workspace: *mut c_void,
    workspace_bytes: usize,
    sampler: *mut *mut samedraw_sampler,
) -> samedraw_status {
    guard(|| {
        // SAFETY: the header's promise.
        unsafe {
            let (device, table) = (samedraw_device::get(device)?, samedraw_table::get(table)?);
            let (sampler, limits) = (out(sampler, "sampler")?, limits(limit)?);
            let made = Sampler::with_workspace(device, limits, table, ptr(workspace), workspace_bytes)?;
            samedraw_sampler::give(sampler, Mutex::new(made));
        }
        Ok(())
    })
}

/// Enqueues one step on the stream. Does not allocate, synchronise or read the device back; may be called while the
/// caller's own capture records the stream, with has_filters set. The structs are read before it returns; what they point
/// at on the device must stay until the stream has passed the step, and the sampler too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_sampler_step(
    sampler: *const samedraw_sampler,
    stream: *mut c_void,
    given: *const samedraw_step,
) -> samedraw_status {
    guard(|| {
        // SAFETY: the header's promise.
        unsafe {
            let mut sampler = exclusive(samedraw_sampler::get(sampler)?, samedraw_sampler::NAME)?;
            sampler.step(raw(stream), &step(given)?)?;
        }
        Ok(())
    })
}

/// Frees a sampler, whose steps have run; null is nothing to do. SAMEDRAW_BUSY, and nothing is freed, while another call
/// uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_sampler_free(sampler: *mut samedraw_sampler) -> samedraw_status {
    let idle = |value: &Mutex<_>| exclusive(value, samedraw_sampler::NAME).map(drop);
    // SAFETY: the header's promise.
    guard(|| unsafe { samedraw_sampler::free(sampler, idle) })
}
