//! The CUDA device: NVIDIA GPUs from sm_80 up, on drivers from CUDA 12.0 up.
//!
//! It shares the card's primary context with the stack around it, takes the stack's streams and pointers as they are,
//! and makes its context current only while a call of its own runs. Nothing of CUDA is needed to build it.
//!
//! Kernels are compiled at [`prepare`](crate::Device::prepare) by an NVRTC from 12.1 on and kept in a cache; with the
//! feature `precompiled` they are in the library and NVRTC is not needed. Environment variables:
//!
//! | variable | what |
//! |---|---|
//! | `SAMEDRAW_CUDA_DRIVER` | path of the driver, in place of `libcuda.so.1` |
//! | `SAMEDRAW_NVRTC` | path of the NVRTC; else one the process has open, a toolkit's, a Python package's, the loader's |
//! | `SAMEDRAW_CACHE_DIR` | folder of compiled kernels; else `$XDG_CACHE_HOME/samedraw`, else `~/.cache/samedraw` |
//! | `SAMEDRAW_CUDA_VARIANT` | for tests: forces a way of launching, `general`, `no-clusters`, `cluster:N`, `resident`, `pdl`, `no-pdl` |
//!
//! | file | what |
//! |---|---|
//! | `driver` | the driver, found and checked, its calls as `Result`s |
//! | `context` | the primary context, current for the length of a call |
//! | `nvrtc`, `precompiled` | where machine code comes from |
//! | `modules` | the loaded kernels |
//! | `kernels` | the sources, and which launches a stage takes |
//! | `columns` | the launches that select columns |
//! | `resident` | the launches of clusters that stay |
//! | `switches` | what tests force |
//! | `launch` | one launch |
//! | `calls` | the `Device` trait |
//! | `build` | kernels compiled ahead of time |
//! | `plain_read` | a kernel that only reads, the unit of measurements |

#[doc(hidden)]
pub mod build;
mod calls;
mod columns;
mod context;
mod driver;
mod kernels;
mod launch;
mod modules;
mod nvrtc;
mod plain_read;
mod precompiled;
mod resident;
mod switches;

use crate::device::{DeviceInfo, Platform};
use crate::error::{Error, Result, Unavailable};
use context::Context;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use driver::Driver;
use kernels::Card;
use modules::Modules;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

#[doc(hidden)]
pub use plain_read::PlainRead;
#[doc(hidden)]
pub use switches::Switches;

/// One GPU.
#[derive(Debug)]
pub struct CudaDevice {
    info: DeviceInfo,
    driver: &'static Driver,
    context: Context,
    card: Card,
    loading: Mutex<()>,
    modules: OnceLock<Modules>,
    launched: AtomicU64,
    /// Of those, the ones in clusters of 2, 4, 8 and 16.
    clustered: [AtomicU64; 4],
}

impl CudaDevice {
    /// GPU number `ordinal`, in the driver's numbering.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where the driver is missing, too old or lacks a symbol, where there is no such GPU, and
    /// where it is older than sm_80; [`Error::Driver`] for what the driver reports; [`Error::Unsupported`] for a value
    /// of `SAMEDRAW_CUDA_VARIANT` that is none of those listed.
    pub fn open(ordinal: usize) -> Result<Self> {
        Self::open_with(ordinal, Switches::of_environment()?)
    }

    #[doc(hidden)]
    pub fn open_with(ordinal: usize, switches: Switches) -> Result<Self> {
        const OP: &str = "open";
        let driver = driver::open()?;
        let (mut count, mut device, mut bytes, mut name) = (0, 0, 0, [0; 256]);
        // SAFETY: the driver is open; each call writes one variable, the name within its length.
        unsafe {
            driver::cuDeviceGetCount(OP, &mut count)?;
            if ordinal >= count as usize {
                return Err(unavailable(format!("there is no GPU {ordinal}, the driver has {count}"), Vec::new()));
            }
            driver::cuDeviceGet(OP, &mut device, ordinal as i32)?;
            driver::cuDeviceGetName(OP, name.as_mut_ptr(), name.len() as i32, device)?;
            driver::cuDeviceTotalMem_v2(OP, &mut bytes, device)?;
        }
        // SAFETY: the driver ends the name with a zero within the array.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy();
        let ask = |which: Attribute| {
            let mut value = 0;
            // SAFETY: as above.
            unsafe { driver::cuDeviceGetAttribute(OP, &mut value, which, device) }.map(|()| value.max(0) as u32)
        };
        let major = ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        if major < 8 {
            return Err(unavailable(format!("{name} is sm_{major}{minor}; sm_80 or newer is needed"), Vec::new()));
        }
        let sms = ask(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let card = Card {
            compute: (major, minor),
            sms,
            smem_per_block_optin: ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as usize,
            clusters: major >= 9 && !switches.no_clusters && !switches.general,
            // What compute capability allows; which of them the card can schedule is asked once the kernels are loaded.
            largest_cluster: if matches!(major, 9 | 10) { 16 } else { 8 },
            forced_cluster: switches.cluster,
            general: switches.general,
            forced_resident: switches.resident,
            resident: [2, 4, 8, 16].map(|size| if major >= 9 { 1.max(sms / size) } else { 0 }),
            settling: [2, 4, 8, 16].map(|size| if major >= 9 { 1.max(sms / size) } else { 0 }),
            pdl: switches.overlap.unwrap_or(false) && major >= 9,
        };
        let name = format!("{name}, sm_{major}{minor}, {} multiprocessors, {} MiB", card.sms, bytes >> 20);
        // SAFETY: the handle is this driver's.
        let context = unsafe { Context::retain(device)? };
        Ok(CudaDevice {
            info: DeviceInfo { platform: Platform::Cuda, ordinal, name, exact: true },
            driver,
            context,
            card,
            loading: Mutex::new(()),
            modules: OnceLock::new(),
            launched: AtomicU64::new(0),
            clustered: Default::default(),
        })
    }

    /// The card as it is known by now: with the clusters it can schedule, once kernels are loaded.
    fn card(&self) -> &Card {
        self.modules.get().map_or(&self.card, Modules::card)
    }

    /// Kernel launches enqueued so far.
    #[doc(hidden)]
    pub fn launches(&self) -> u64 {
        self.launched.load(Ordering::Relaxed)
    }

    /// Kernel launches enqueued so far in clusters of `blocks`.
    #[doc(hidden)]
    pub fn launches_in_clusters_of(&self, blocks: u32) -> u64 {
        let sizes = [2, 4, 8, 16];
        sizes.iter().position(|&size| size == blocks).map_or(0, |at| self.clustered[at].load(Ordering::Relaxed))
    }

    /// Blocks of the largest cluster that launches use; 1 where they use none.
    #[doc(hidden)]
    pub fn largest_cluster(&self) -> u32 {
        if self.card().clusters { self.card().largest_cluster } else { 1 }
    }

    /// Where the loaded kernels came from; empty before [`prepare`](crate::Device::prepare).
    #[doc(hidden)]
    pub fn kernel_origins(&self) -> &[String] {
        self.modules.get().map(Modules::origins).unwrap_or_default()
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        if let Some(modules) = self.modules.take() {
            modules.close(&self.context);
        }
    }
}

fn unavailable(reason: String, tried: Vec<String>) -> Error {
    Error::Unavailable(Unavailable { platform: Platform::Cuda, reason, tried })
}

/// A raw stream as the driver takes it.
fn stream(raw: crate::device::RawStream) -> sys::CUstream {
    raw.0 as sys::CUstream
}
