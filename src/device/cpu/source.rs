//! A row of logits as the later stages see it: masked, NaN removed, read in place.

use super::lanes::Row as Values;
use crate::pipeline::blocks::status;
use half::{bf16, f16};

/// Position in the order of tokens: everything up to and including the token with this key and id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    pub key: u32,
    pub id: u32,
}

impl Cut {
    /// Everything.
    pub const ALL: Cut = Cut { key: 0, id: u32::MAX };

    /// Whether a token is within the cut.
    #[inline(always)]
    pub fn has(self, key: u32, id: u32) -> bool {
        key > self.key || (key == self.key && id <= self.id)
    }

    /// The shorter of two prefixes.
    pub fn and(self, other: Cut) -> Cut {
        if self.key > other.key || (self.key == other.key && self.id < other.id) { self } else { other }
    }
}

/// Order-preserving integer of a logit; -0 and +0 are one value.
#[inline(always)]
pub(super) fn key(x: f32) -> u32 {
    let bits = (x + 0.0).to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// The value whose [`key`] this is.
pub(super) fn value_of_key(key: u32) -> f32 {
    f32::from_bits(if key >> 31 == 1 { key & !(1 << 31) } else { !key })
}

/// One row: `len` values, ascending ids.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    values: Values,
    len: usize,
    /// Allowed-token bits, if the row has a mask.
    mask: Option<*const u32>,
    /// Ids of the values, if they are not 0, 1, 2, ...
    ids: Option<*const i32>,
}

impl Source {
    /// A row of logits at `ptr` of the type a block's `logits_dtype` names.
    ///
    /// # Safety
    /// `len` elements at `ptr`, and ceil(len / 32) words at `mask`, stay valid and unchanged while this is used.
    pub unsafe fn logits(ptr: u64, dtype: u64, len: usize, mask: Option<*const u32>) -> Self {
        let values = match dtype {
            0 => Values::F32(ptr as *const f32),
            1 => Values::F16(ptr as *const u16),
            _ => Values::BF16(ptr as *const u16),
        };
        Source { values, len, mask, ids: None }
    }

    /// A row of selected columns.
    ///
    /// # Safety
    /// As [`logits`](Self::logits), for both arrays.
    pub unsafe fn columns(values: *const f32, ids: *const i32, len: usize) -> Self {
        Source { values: Values::F32(values), len, mask: None, ids: Some(ids) }
    }

    /// Where the values lie.
    pub fn place(&self) -> Values {
        self.values
    }

    /// Allowed-token bits, if the row has a mask.
    pub fn mask(&self) -> Option<*const u32> {
        self.mask
    }

    /// Id of the value at `index`.
    pub fn id_at(&self, index: usize) -> u32 {
        // SAFETY: callers pass an index below len.
        self.ids.map_or(index as u32, |ids| unsafe { ids.add(index).read_unaligned() } as u32)
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Calls `f(index, id, value)` for every value as handed in: no mask, NaN left alone.
    #[inline(always)]
    fn each_raw(&self, mut f: impl FnMut(usize, u32, f32)) {
        // SAFETY: the constructors' promise covers every index below len, the id array included.
        unsafe {
            match (self.values, self.ids) {
                (Values::F32(p), Some(ids)) => {
                    (0..self.len).for_each(|i| f(i, ids.add(i).read_unaligned() as u32, p.add(i).read_unaligned()))
                }
                (Values::F32(p), None) => (0..self.len).for_each(|i| f(i, i as u32, p.add(i).read_unaligned())),
                (Values::F16(p), _) => (0..self.len).for_each(|i| f(i, i as u32, widen_f16(p.add(i).read_unaligned()))),
                (Values::BF16(p), _) => {
                    (0..self.len).for_each(|i| f(i, i as u32, widen_bf16(p.add(i).read_unaligned())))
                }
            }
        }
    }

    #[inline(always)]
    fn allowed(mask: *const u32, id: u32) -> bool {
        // SAFETY: the constructor's promise; id < len.
        let word = unsafe { mask.add(id as usize / 32).read_unaligned() };
        word >> (id % 32) & 1 == 1
    }

    /// Calls `f(index, id, value)` for every value after the mask and with NaN as -inf, in ascending id.
    #[inline(always)]
    pub fn each(&self, mut f: impl FnMut(usize, u32, f32)) {
        let clean = |x: f32| if x.is_nan() { f32::NEG_INFINITY } else { x };
        match self.mask {
            None => self.each_raw(|i, id, x| f(i, id, clean(x))),
            Some(mask) => {
                self.each_raw(|i, id, x| f(i, id, if Self::allowed(mask, id) { clean(x) } else { f32::NEG_INFINITY }))
            }
        }
    }

    /// Largest value after the mask, and the status bits its scan shows.
    pub fn max(&self) -> (f32, i32) {
        let (mut max, mut nan) = (f32::NEG_INFINITY, false);
        let mut see = |x: f32| {
            nan |= x.is_nan();
            max = if x > max { x } else { max };
        };
        match self.mask {
            None => self.each_raw(|_, _, x| see(x)),
            Some(mask) => self.each_raw(|_, id, x| {
                if Self::allowed(mask, id) {
                    see(x);
                }
            }),
        }
        let mut found = if nan { status::NAN_LOGITS } else { 0 };
        if max == f32::INFINITY {
            found |= status::INF_LOGITS;
        }
        (max, found)
    }

    /// Index of token `id`, if the row has it.
    pub fn find(&self, id: i64) -> Option<usize> {
        let Some(ids) = self.ids else {
            return usize::try_from(id).ok().filter(|&i| i < self.len);
        };
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let mid = low + (high - low) / 2;
            // SAFETY: mid < len.
            let here = i64::from(unsafe { ids.add(mid).read_unaligned() });
            match here.cmp(&id) {
                std::cmp::Ordering::Equal => return Some(mid),
                std::cmp::Ordering::Less => low = mid + 1,
                std::cmp::Ordering::Greater => high = mid,
            }
        }
        None
    }

    /// The value at `index` after the mask and with NaN as -inf.
    pub fn at(&self, index: usize) -> f32 {
        // SAFETY: callers pass an index of `find` or `each`, which is below len.
        let x = unsafe {
            match self.values {
                Values::F32(p) => p.add(index).read_unaligned(),
                Values::F16(p) => widen_f16(p.add(index).read_unaligned()),
                Values::BF16(p) => widen_bf16(p.add(index).read_unaligned()),
            }
        };
        let masked = self.mask.is_some_and(|mask| !Self::allowed(mask, index as u32));
        if masked || x.is_nan() { f32::NEG_INFINITY } else { x }
    }
}

#[inline(always)]
fn widen_f16(bits: u16) -> f32 {
    f16::from_bits(bits).to_f32()
}

#[inline(always)]
fn widen_bf16(bits: u16) -> f32 {
    bf16::from_bits(bits).to_f32()
}
