//! Verification of drafts as it crosses the ABI.

use crate::sized::{Versioned, read};
use crate::status::samedraw_status::SAMEDRAW_ARGUMENT;
use crate::status::{Result, null, refuse};
use crate::step::{index, ptr};
use crate::table::zero;
use samedraw::pipeline::{Drafts, Verify, VerifyMode};
use std::ffi::c_void;
use std::mem::size_of;

/// How drafts are verified.
#[repr(u32)]
pub enum samedraw_verify_mode {
    /// Rejection sampling against the draft's distribution.
    SAMEDRAW_REJECTION = 0,
    /// Rejection sampling where the draft's distribution is its one token.
    SAMEDRAW_ONE_HOT = 1,
    /// Every row draws fresh; drafts count while they equal the drawn token.
    SAMEDRAW_CHAIN = 2,
}

/// samedraw_verify.position_stride: every row has a stream of its own.
pub const SAMEDRAW_POSITIONS_STRIDED: i64 = 10_000_019;
/// samedraw_verify.position_stride: what decoding one token at a time would use.
pub const SAMEDRAW_POSITIONS_SEQUENTIAL: i64 = 1;

/// The drafts' distributions: a pool of rows in device memory.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct samedraw_drafts {
    /// sizeof(samedraw_drafts)
    pub size: usize,
    /// [pool_rows, stride]: processed logprobs.
    pub logprobs: *const f32,
    /// [pool_rows, stride]: token ids of the columns, distinct in a row; null: column = id.
    pub columns: *const i32,
    /// Elements from one row to the next.
    pub stride: usize,
    /// Columns of a row.
    pub width: usize,
    /// Rows of the pool.
    pub pool_rows: usize,
    /// int32_t or int64_t [rows]: pool row of each row of the step; null: the same number.
    pub rows: *const c_void,
    /// Bytes of an entry of rows: 4 or 8.
    pub rows_width: u32,
    /// 0
    pub reserved: u32,
}

/// Verification of draft tokens. The step's rows are grouped by request; arrays are in device memory.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct samedraw_verify {
    /// sizeof(samedraw_verify)
    pub size: usize,
    /// A samedraw_verify_mode.
    pub mode: u32,
    /// 0
    pub reserved: u32,
    /// Requests in the step.
    pub requests: usize,
    /// [requests + 1]: first row of each request, then one past the last row.
    pub first_rows: *const i32,
    /// int32_t or int64_t [rows]: request of each row, -1 = padding row.
    pub row_to_request: *const c_void,
    /// int32_t or int64_t [rows]: draft token each row verifies, -1 = none; a request's last entry is not read.
    pub draft_ids: *const c_void,
    /// Bytes of an entry of row_to_request: 4 or 8.
    pub row_to_request_width: u32,
    /// Bytes of an entry of draft_ids: 4 or 8.
    pub draft_ids_width: u32,
    /// SAMEDRAW_POSITIONS_STRIDED or SAMEDRAW_POSITIONS_SEQUENTIAL.
    pub position_stride: i64,
    /// The drafts' distributions: for SAMEDRAW_REJECTION, null otherwise. In host memory.
    pub drafts: *const samedraw_drafts,
    /// Out, [requests]: drafts accepted.
    pub accepted: *mut i32,
    /// Out, [requests, accept_width]: row of each output token, -1 = none; null: not wanted.
    pub accept_index: *mut i32,
    /// At least the longest request's rows.
    pub accept_width: usize,
    /// Out, [rows]: 1 where the row accepts its draft taken by itself; null: not wanted.
    pub row_accepts: *mut i32,
}

const _: () = assert!(size_of::<samedraw_drafts>() == 64 && size_of::<samedraw_verify>() == 104);
// SAFETY: as the trait asks.
unsafe impl Versioned for samedraw_drafts {
    const NAME: &'static str = "samedraw_drafts";
    const FIRST: usize = 64;
}
// SAFETY: as the trait asks.
unsafe impl Versioned for samedraw_verify {
    const NAME: &'static str = "samedraw_verify";
    const FIRST: usize = 104;
}

/// # Safety
/// As [`read`], for it and for the struct it points at.
pub(crate) unsafe fn verify(given: *const samedraw_verify) -> Result<Verify> {
    // SAFETY: the caller's promise.
    let v = unsafe { read(given) }?;
    zero("samedraw_verify.reserved", v.reserved)?;
    let mode = match v.mode {
        0 => VerifyMode::Rejection,
        1 => VerifyMode::OneHot,
        2 => VerifyMode::Chain,
        other => return refuse(SAMEDRAW_ARGUMENT, format!("verify: mode = {other} is refused: 0 to 2")),
    };
    let Some(row_to_request) = index("row_to_request_width", v.row_to_request, v.row_to_request_width)? else {
        return null("row_to_request");
    };
    let Some(draft_ids) = index("draft_ids_width", v.draft_ids, v.draft_ids_width)? else { return null("draft_ids") };
    if ![SAMEDRAW_POSITIONS_STRIDED, SAMEDRAW_POSITIONS_SEQUENTIAL].contains(&v.position_stride) {
        let rule = format!("{SAMEDRAW_POSITIONS_STRIDED} or {SAMEDRAW_POSITIONS_SEQUENTIAL}");
        return refuse(SAMEDRAW_ARGUMENT, format!("position_stride = {} is refused: {rule}", v.position_stride));
    }
    Ok(Verify {
        mode,
        requests: v.requests,
        first_rows: ptr(v.first_rows),
        row_to_request,
        position_stride: v.position_stride,
        draft_ids,
        // SAFETY: the caller's promise.
        drafts: if v.drafts.is_null() { None } else { Some(unsafe { drafts(v.drafts) }?) },
        accepted: ptr(v.accepted),
        accept_index: ptr(v.accept_index),
        accept_width: v.accept_width,
        row_accepts: ptr(v.row_accepts),
    })
}

/// # Safety
/// As [`read`].
unsafe fn drafts(given: *const samedraw_drafts) -> Result<Drafts> {
    // SAFETY: the caller's promise.
    let d = unsafe { read(given) }?;
    zero("samedraw_drafts.reserved", d.reserved)?;
    Ok(Drafts {
        logprobs: ptr(d.logprobs),
        columns: ptr(d.columns),
        stride: d.stride,
        width: d.width,
        pool_rows: d.pool_rows,
        rows: index("rows_width", d.rows, d.rows_width)?,
    })
}
