//! A GPU, and the plain read its steps are compared with.

use super::graph::Read;
use crate::output::Failure;
use samedraw::Device;
use samedraw::device::open;
use std::sync::Arc;

#[cfg(feature = "cuda")]
impl Read for samedraw::device::cuda::PlainRead {
    fn shapes(&self) -> usize {
        Self::SHAPES
    }

    unsafe fn enqueue(
        &self,
        stream: samedraw::device::RawStream,
        shape: usize,
        from: samedraw::device::DevPtr,
        bytes: usize,
    ) -> samedraw::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { samedraw::device::cuda::PlainRead::enqueue(self, stream, shape, from, bytes) }
    }
}

/// A GPU and its plain read.
pub type Opened = (Arc<dyn Device>, Box<dyn Read>);

/// Opens the GPU called `name`.
#[cfg(feature = "cuda")]
pub fn open_with_read(name: &str) -> Result<Opened, Failure> {
    use samedraw::device::cuda::{CudaDevice, PlainRead};
    let ordinal = open(name)?.info().ordinal;
    let device = Arc::new(CudaDevice::open(ordinal)?);
    let read = PlainRead::new(&device)?;
    Ok((device, Box::new(read)))
}

/// Absent from this build; the device says so.
#[cfg(not(feature = "cuda"))]
pub fn open_with_read(name: &str) -> Result<Opened, Failure> {
    Err(Failure(format!("{} has no plain read to compare with", open(name)?.info().name)))
}
