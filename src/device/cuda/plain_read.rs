//! A kernel that reads and does nothing else: the unit that measurements of steps are given in.

use super::kernels::PLAIN_READ;
use super::modules::Compiler;
use super::{CudaDevice, driver, stream};
use crate::device::{DevPtr, DeviceBuffer, RawStream};
use crate::error::{Error, Result};
use cudarc::driver::sys;
use std::ffi::{CStr, c_void};
use std::ptr::{from_mut, null_mut};
use std::sync::Arc;

/// The kernels, with the loads of 16 bytes a thread has in flight.
const SHAPES: [(&CStr, u64); PlainRead::SHAPES] =
    [(c"samedraw_read_1", 1), (c"samedraw_read_4", 4), (c"samedraw_read_8", 8)];
const BLOCK: u32 = 256;

/// The plain read of a device. It is compiled when it is made: no step needs it.
#[derive(Debug)]
pub struct PlainRead {
    device: Arc<CudaDevice>,
    module: sys::CUmodule,
    functions: [sys::CUfunction; PlainRead::SHAPES],
    /// Where a result would go, if there were one.
    never: DeviceBuffer<CudaDevice>,
}

impl PlainRead {
    /// Ways of reading; which is the fastest depends on the size.
    pub const SHAPES: usize = 3;

    /// Compiles and loads it.
    ///
    /// # Errors
    /// As [`prepare`](crate::Device::prepare).
    pub fn new(device: &Arc<CudaDevice>) -> Result<Self> {
        const OP: &str = "plain read";
        let never = DeviceBuffer::new(device, 4)?;
        let _current = device.context.enter(OP)?;
        let (image, _) = Compiler::new(&device.card, device.driver.version)?.image(&PLAIN_READ)?;
        let mut module = null_mut();
        // SAFETY: the image is a whole CUBIN and outlives the call; the context is current.
        unsafe { driver::cuModuleLoadData(OP, &mut module, image.as_ptr().cast())? };
        // From here on dropping the value unloads the module.
        let mut loaded = PlainRead { device: Arc::clone(device), module, functions: [null_mut(); Self::SHAPES], never };
        for (function, (name, _)) in loaded.functions.iter_mut().zip(SHAPES) {
            // SAFETY: the module is loaded; the name is a C string.
            unsafe { driver::cuModuleGetFunction(OP, function, module, name.as_ptr())? };
        }
        Ok(loaded)
    }

    /// Enqueues a read of the whole 16-byte pieces of `bytes` bytes at `from`, in the way numbered `shape`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a way there is none of; what the driver reports.
    ///
    /// # Safety
    /// `bytes` bytes at `from` are device memory; `on` is a live stream; this value outlives the work.
    pub unsafe fn enqueue(&self, on: RawStream, shape: usize, from: DevPtr, bytes: usize) -> Result<()> {
        const OP: &str = "plain read";
        let Some(&(_, loads)) = SHAPES.get(shape) else {
            return Err(Error::argument(OP, "shape", shape, format!("0 to {}", Self::SHAPES - 1)));
        };
        let mut first = from.0.next_multiple_of(16);
        let mut grains = (from.0 + bytes as u64).saturating_sub(first) / 16;
        let mut never = self.never.ptr().0;
        let blocks = grains.div_ceil(u64::from(BLOCK) * loads);
        if blocks == 0 || blocks > i32::MAX as u64 {
            return Err(Error::argument(OP, "bytes", bytes, "16 bytes to 2^31-1 blocks of loads".to_owned()));
        }
        let config = sys::CUlaunchConfig {
            gridDimX: blocks as u32,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: BLOCK,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: stream(on),
            attrs: null_mut(),
            numAttrs: 0,
        };
        let mut params: [*mut c_void; 3] =
            [from_mut(&mut first).cast(), from_mut(&mut grains).cast(), from_mut(&mut never).cast()];
        let _current = self.device.context.enter(OP)?;
        // SAFETY: the function is of this context and takes these three parameters, which outlive the call.
        unsafe { self.device.driver.launch(OP, &config, self.functions[shape], &mut params) }
    }
}

impl Drop for PlainRead {
    fn drop(&mut self) {
        if let Ok(_current) = self.device.context.enter("close") {
            // SAFETY: loaded in `new`; work that uses it has been waited for by whoever enqueued it.
            let _ = unsafe { driver::cuModuleUnload("close", self.module) };
        }
    }
}
