//! One kernel launch, without allocating.

use super::driver::Driver;
use super::kernels::{Card, Launch};
use crate::error::Result;
use crate::pipeline::blocks::{RowBlock, VerifyBlock};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::ptr::from_ref;

/// Enqueues `function` as `launch` says, with the blocks as its by-value parameters. A kernel that takes the rows alone
/// has one parameter, and the driver reads no second.
///
/// # Safety
/// The context is current, the function is of it, the stream is live, and the blocks' pointers are valid.
pub(super) unsafe fn launch(
    driver: &Driver,
    card: &Card,
    function: sys::CUfunction,
    launch: &Launch,
    stream: sys::CUstream,
    rows: &RowBlock,
    verify: &VerifyBlock,
) -> Result<()> {
    // SAFETY: all zeros is a valid attribute: the id to be ignored, and a union of integers.
    let mut attributes: [sys::CUlaunchAttribute; 2] = unsafe { std::mem::zeroed() };
    let mut count = 0;
    if launch.cluster > 1 {
        attributes[count] = cluster_attribute(launch.cluster);
        count += 1;
    }
    if card.pdl {
        attributes[count].id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[count].value.programmaticStreamSerializationAllowed = 1;
        count += 1;
    }
    let config = sys::CUlaunchConfig {
        gridDimX: launch.grid[0],
        gridDimY: launch.grid[1],
        gridDimZ: launch.grid[2],
        blockDimX: launch.block,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: launch.smem,
        hStream: stream,
        attrs: attributes.as_mut_ptr(),
        numAttrs: count as u32,
    };
    let mut params: [*mut c_void; 2] = [from_ref(rows) as *mut c_void, from_ref(verify) as *mut c_void];
    // SAFETY: the caller's promise; the driver copies configuration and parameters before it returns and writes
    // through none of the pointers.
    unsafe { driver.launch("enqueue", &config, function, &mut params) }
}

/// The attribute of a launch in clusters of `blocks`.
pub(super) fn cluster_attribute(blocks: u32) -> sys::CUlaunchAttribute {
    // SAFETY: as in `launch`.
    let mut attribute: sys::CUlaunchAttribute = unsafe { std::mem::zeroed() };
    attribute.id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: blocks, y: 1, z: 1 };
    attribute
}
