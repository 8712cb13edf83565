//! Devices.

use crate::handle::{Handle, out};
use crate::sized::{Versioned, write};
use crate::status::samedraw_status::SAMEDRAW_ARGUMENT;
use crate::status::{Result, guard, null, refuse, samedraw_status};
use samedraw::device::{CpuDevice, open};
use samedraw::pipeline::MAX_VOCAB;
use samedraw::{Device, Platform};
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

/// A device. Tables, samplers and captured steps keep it alive: it may be freed before them.
pub struct samedraw_device {
    _opaque: [u8; 0],
}

impl Handle for samedraw_device {
    type Value = Arc<dyn Device>;
    const NAME: &'static str = "samedraw_device";
}

/// A kind of accelerator.
#[repr(u32)]
pub enum samedraw_platform {
    /// The host's cores.
    SAMEDRAW_CPU = 0,
    /// NVIDIA GPUs.
    SAMEDRAW_CUDA = 1,
    /// Ascend NPUs.
    SAMEDRAW_ASCEND = 2,
}

/// What a device is, and its limits.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct samedraw_device_info {
    /// sizeof(samedraw_device_info)
    pub size: usize,
    /// A samedraw_platform.
    pub platform: u32,
    /// 1: its arithmetic rounds as the semantics ask; 0: a decision may differ at the edge of a mass.
    pub exact: u32,
    /// Its number on the platform.
    pub ordinal: usize,
    /// Largest force_topk, counted as min(N, V); 0 = no limit.
    pub max_force_topk: usize,
    /// Largest vocabulary.
    pub max_vocab: usize,
    /// Its name: chip and what matters of its size, ended by a 0.
    pub name: [c_char; 256],
}

// SAFETY: as the trait asks.
unsafe impl Versioned for samedraw_device_info {
    const NAME: &'static str = "samedraw_device_info";
    const FIRST: usize = 296;
}

/// Opens a device by its name: "cpu", "cuda", "cuda:1", "ascend", "ascend:0". SAMEDRAW_UNAVAILABLE, with the reason and
/// what was looked for as the message, where the platform cannot be used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_device_open(
    name: *const c_char,
    device: *mut *mut samedraw_device,
) -> samedraw_status {
    guard(|| {
        // SAFETY: the header's promise.
        let (device, name) = unsafe { (out(device, "device")?, text(name, "name")?) };
        samedraw_device::give(device, open(name)?);
        Ok(())
    })
}

/// The CPU with that many threads of its own, the caller's counted in; samedraw_device_open("cpu") shares one thread a core
/// among all that open it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_device_open_cpu(
    threads: usize,
    device: *mut *mut samedraw_device,
) -> samedraw_status {
    guard(|| {
        const MOST: usize = 4096;
        // SAFETY: the header's promise.
        let device = unsafe { out(device, "device") }?;
        if !(1..=MOST).contains(&threads) {
            return refuse(SAMEDRAW_ARGUMENT, format!("threads = {threads} is refused: 1 to {MOST}"));
        }
        samedraw_device::give(device, Arc::new(CpuDevice::with_threads(threads)));
        Ok(())
    })
}

/// Says what a device is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_device_describe(
    device: *const samedraw_device,
    info: *mut samedraw_device_info,
) -> samedraw_status {
    guard(|| {
        // SAFETY: the header's promise.
        let found = unsafe { samedraw_device::get(device) }?.info();
        let mut name = [0; 256];
        for (to, from) in name[..255].iter_mut().zip(found.name.bytes()) {
            *to = from as c_char;
        }
        let described = samedraw_device_info {
            size: 0,
            platform: match found.platform {
                Platform::Cpu => samedraw_platform::SAMEDRAW_CPU,
                Platform::Cuda => samedraw_platform::SAMEDRAW_CUDA,
                Platform::Ascend => samedraw_platform::SAMEDRAW_ASCEND,
            } as u32,
            exact: u32::from(found.exact),
            ordinal: found.ordinal,
            max_force_topk: found.platform.max_force_topk().unwrap_or(0),
            max_vocab: MAX_VOCAB,
            name,
        };
        // SAFETY: the header's promise.
        unsafe { write(info, described) }
    })
}

/// Waits until everything enqueued on the stream has run: for tear-down and tests. No function here waits by itself but
/// this one, samedraw_sampler_record, and those that create or free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_device_synchronize(
    device: *const samedraw_device,
    stream: *mut c_void,
) -> samedraw_status {
    guard(|| {
        // SAFETY: the header's promise.
        unsafe { samedraw_device::get(device)?.synchronize(crate::sampler::raw(stream))? };
        Ok(())
    })
}

/// Frees a device; null is nothing to do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_device_free(device: *mut samedraw_device) -> samedraw_status {
    // SAFETY: the header's promise.
    guard(|| unsafe { samedraw_device::free(device, |_| Ok(())) })
}

/// A text of the caller's.
///
/// # Safety
/// `ptr` is null or a string that ends with a 0.
pub(crate) unsafe fn text<'a>(ptr: *const c_char, what: &str) -> Result<&'a str> {
    if ptr.is_null() {
        return null(what);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(ptr) };
    text.to_str().or_else(|_| refuse(SAMEDRAW_ARGUMENT, format!("{what} is not UTF-8")))
}
