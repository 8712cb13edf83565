//! One kernel launch, without allocating.

use super::runtime::{Runtime, acl};
use super::sys::acl as sys;
use crate::error::{Error, Result};
use std::ptr::null_mut;

/// Most fields a launch carries: both argument blocks and some to spare.
pub const MOST_FIELDS: usize = 128;
/// Most blocks of a launch.
const MOST_BLOCKS: u32 = 65_535;

/// A kernel's arguments: 8 bytes a field, as the runtime lays parameters out. A block passed by value is its fields in
/// their order.
#[derive(Debug, Clone, Copy)]
pub struct Arguments {
    fields: [u64; MOST_FIELDS],
    count: usize,
}

impl Default for Arguments {
    fn default() -> Self {
        Arguments { fields: [0; MOST_FIELDS], count: 0 }
    }
}

impl Arguments {
    /// The arguments followed by `fields`.
    ///
    /// # Errors
    /// [`Error::Argument`] past [`MOST_FIELDS`].
    pub fn and(mut self, fields: &[u64]) -> Result<Self> {
        let end = self.count + fields.len();
        let Some(room) = self.fields.get_mut(self.count..end) else {
            return Err(Error::argument("launch", "argument fields", end, format!("at most {MOST_FIELDS}")));
        };
        room.copy_from_slice(fields);
        self.count = end;
        Ok(self)
    }

    /// The arguments followed by the fields of an argument block.
    ///
    /// # Errors
    /// [`Error::Argument`] past [`MOST_FIELDS`].
    pub fn and_block<B: bytemuck::NoUninit>(self, block: &B) -> Result<Self> {
        const { assert!(size_of::<B>().is_multiple_of(8) && align_of::<B>() == 8, "fields of 8 bytes alone") };
        self.and(bytemuck::cast_slice(std::slice::from_ref(block)))
    }
}

/// A kernel of a binary that its device has loaded, and keeps loaded.
#[derive(Debug, Clone, Copy)]
pub struct Kernel(pub(super) sys::aclrtFuncHandle);

// SAFETY: a handle that the runtime takes on any thread in whose context the binary was loaded.
unsafe impl Send for Kernel {}
// SAFETY: as above; nothing changes after loading.
unsafe impl Sync for Kernel {}

/// Enqueues `blocks` blocks of `kernel`.
///
/// # Safety
/// The context is current and the kernel of it, the stream is live, and what the arguments point at is what the kernel
/// takes.
pub(super) unsafe fn launch(
    runtime: &Runtime,
    stream: sys::aclrtStream,
    kernel: Kernel,
    blocks: u32,
    arguments: &Arguments,
) -> Result<()> {
    const OP: &str = "launch";
    if blocks == 0 || blocks > MOST_BLOCKS {
        return Err(Error::argument(OP, "blocks", blocks, format!("1 to {MOST_BLOCKS}")));
    }
    if arguments.count == 0 {
        return Err(Error::argument(OP, "argument fields", 0, "at least 1: the runtime refuses a kernel without"));
    }
    // The runtime takes a pointer to mutable memory, so it gets memory of its own.
    let mut fields = arguments.fields;
    let (fields, bytes) = (fields.as_mut_ptr().cast(), 8 * arguments.count);
    // SAFETY: the caller's promise; the runtime copies the arguments before it returns; no configuration and no
    // placeholders are passed.
    unsafe {
        acl!(
            runtime,
            OP,
            aclrtLaunchKernelWithHostArgs(kernel.0, blocks, stream, null_mut(), fields, bytes, null_mut(), 0)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::blocks::{RowBlock, VerifyBlock};

    #[test]
    fn the_largest_stage_fits_and_one_more_is_refused() {
        let both =
            Arguments::default().and_block(&RowBlock::default()).unwrap().and_block(&VerifyBlock::default()).unwrap();
        assert_eq!(both.count, RowBlock::INFO.fields.len() + VerifyBlock::INFO.fields.len());
        let full = both.and(&vec![7; MOST_FIELDS - both.count]).unwrap();
        let error = full.and(&[1]).unwrap_err().to_string();
        assert_eq!(error, "launch: argument fields = 129 is refused: at most 128");
    }
}
