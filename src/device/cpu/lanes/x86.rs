//! Vectors of AVX2 and of AVX-512.

use super::kernels::{Isa, Lanes, W};
use std::arch::x86_64::*;

pub enum Avx2 {}
pub enum Avx512 {}

/// For each choice of 8 lanes, their numbers in order.
static ORDER: [[u32; 8]; 256] = {
    let mut order = [[0; 8]; 256];
    let mut bits = 0;
    while bits < 256 {
        let (mut lane, mut next) = (0, 0);
        while lane < 8 {
            if bits >> lane & 1 == 1 {
                order[bits][next] = lane;
                next += 1;
            }
            lane += 1;
        }
        bits += 1;
    }
    order
};

#[inline(always)]
unsafe fn pack_halves(x: *const i32, bits: u32, out: *mut i32) {
    // SAFETY: 16 lanes are read, and written no further than 16 from `out`; the instructions are the caller's promise.
    unsafe {
        let (low, high) = (bits as usize & 0xFF, bits as usize >> 8 & 0xFF);
        let (first, second) = (_mm256_loadu_si256(x.cast()), _mm256_loadu_si256(x.add(8).cast()));
        _mm256_storeu_si256(
            out.cast(),
            _mm256_permutevar8x32_epi32(first, _mm256_loadu_si256(ORDER[low].as_ptr().cast())),
        );
        let rest = out.add(low.count_ones() as usize);
        _mm256_storeu_si256(
            rest.cast(),
            _mm256_permutevar8x32_epi32(second, _mm256_loadu_si256(ORDER[high].as_ptr().cast())),
        );
    }
}

// SAFETY, for every block below: the instructions are there by the trait's contract, pointers are good for the lanes.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one comment above for forty one-line wrappers")]
const _: () = {
    impl Isa for Avx2 {
        const LANES: usize = 8;
        type Floats = __m256;
        type Ints = __m256i;

        #[inline(always)]
        unsafe fn load(from: *const f32) -> __m256 {
            unsafe { _mm256_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> __m256 {
            unsafe { _mm256_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn add(a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_add_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn sub(a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_sub_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn mul(a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_mul_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn max(a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_max_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn raise(p: __m256, n: __m256) -> __m256 {
            unsafe {
                let n = _mm256_slli_epi32::<23>(_mm256_castps_si256(n));
                _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), n))
            }
        }
        #[inline(always)]
        unsafe fn zero() -> __m256i {
            unsafe { _mm256_setzero_si256() }
        }
        #[inline(always)]
        unsafe fn truncate(x: __m256) -> __m256i {
            unsafe { _mm256_cvttps_epi32(x) }
        }
        #[inline(always)]
        unsafe fn widen(x: __m256i) -> __m256 {
            unsafe { _mm256_cvtepi32_ps(x) }
        }
        #[inline(always)]
        unsafe fn sum(a: __m256i, b: __m256i) -> __m256i {
            unsafe { _mm256_add_epi32(a, b) }
        }
        #[inline(always)]
        unsafe fn total(x: __m256i) -> u64 {
            let mut lanes = [0u32; 8];
            unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), x) };
            lanes.iter().map(|&lane| u64::from(lane)).sum()
        }
        #[inline(always)]
        unsafe fn at_least(x: &Lanes, low: f32) -> u32 {
            unsafe {
                let low = _mm256_set1_ps(low);
                let a = _mm256_cmp_ps::<_CMP_GE_OQ>(_mm256_loadu_ps(x.as_ptr()), low);
                let b = _mm256_cmp_ps::<_CMP_GE_OQ>(_mm256_loadu_ps(x.as_ptr().add(8)), low);
                _mm256_movemask_ps(a) as u32 | (_mm256_movemask_ps(b) as u32) << 8
            }
        }
        #[inline(always)]
        unsafe fn between(x: &Lanes, low: f32, high: f32) -> u32 {
            unsafe {
                let (low, high) = (_mm256_set1_ps(low), _mm256_set1_ps(high));
                let (a, b) = (_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8)));
                let a = _mm256_and_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(a, low), _mm256_cmp_ps::<_CMP_LE_OQ>(a, high));
                let b = _mm256_and_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(b, low), _mm256_cmp_ps::<_CMP_LE_OQ>(b, high));
                _mm256_movemask_ps(a) as u32 | (_mm256_movemask_ps(b) as u32) << 8
            }
        }
        #[inline(always)]
        unsafe fn pack(x: &Lanes, bits: u32, out: *mut f32) {
            unsafe { pack_halves(x.as_ptr().cast(), bits, out.cast()) }
        }
        #[inline(always)]
        unsafe fn pack_indices(x: &[u32; W], bits: u32, out: *mut u32) {
            unsafe { pack_halves(x.as_ptr().cast(), bits, out.cast()) }
        }
        #[inline(always)]
        unsafe fn pack_numbers(first: u32, bits: u32, out: *mut u32) {
            unsafe {
                let (low, high) = (bits as usize & 0xFF, bits as usize >> 8 & 0xFF);
                let first = _mm256_set1_epi32(first as i32);
                let lanes = _mm256_loadu_si256(ORDER[low].as_ptr().cast());
                _mm256_storeu_si256(out.cast(), _mm256_add_epi32(lanes, first));
                let first = _mm256_add_epi32(first, _mm256_set1_epi32(8));
                let lanes = _mm256_loadu_si256(ORDER[high].as_ptr().cast());
                let rest = out.add(low.count_ones() as usize);
                _mm256_storeu_si256(rest.cast(), _mm256_add_epi32(lanes, first));
            }
        }
    }

    impl Isa for Avx512 {
        const LANES: usize = 16;
        type Floats = __m512;
        type Ints = __m512i;

        #[inline(always)]
        unsafe fn load(from: *const f32) -> __m512 {
            unsafe { _mm512_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> __m512 {
            unsafe { _mm512_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn add(a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_add_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn sub(a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_sub_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn mul(a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_mul_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn max(a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_max_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn raise(p: __m512, n: __m512) -> __m512 {
            unsafe {
                let n = _mm512_slli_epi32::<23>(_mm512_castps_si512(n));
                _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), n))
            }
        }
        #[inline(always)]
        unsafe fn zero() -> __m512i {
            unsafe { _mm512_setzero_si512() }
        }
        #[inline(always)]
        unsafe fn truncate(x: __m512) -> __m512i {
            unsafe { _mm512_cvttps_epi32(x) }
        }
        #[inline(always)]
        unsafe fn widen(x: __m512i) -> __m512 {
            unsafe { _mm512_cvtepi32_ps(x) }
        }
        #[inline(always)]
        unsafe fn sum(a: __m512i, b: __m512i) -> __m512i {
            unsafe { _mm512_add_epi32(a, b) }
        }
        #[inline(always)]
        unsafe fn total(x: __m512i) -> u64 {
            let mut lanes = [0u32; 16];
            unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), x) };
            lanes.iter().map(|&lane| u64::from(lane)).sum()
        }
        #[inline(always)]
        unsafe fn at_least(x: &Lanes, low: f32) -> u32 {
            unsafe { u32::from(_mm512_cmp_ps_mask::<_CMP_GE_OQ>(_mm512_loadu_ps(x.as_ptr()), _mm512_set1_ps(low))) }
        }
        #[inline(always)]
        unsafe fn between(x: &Lanes, low: f32, high: f32) -> u32 {
            unsafe {
                let x = _mm512_loadu_ps(x.as_ptr());
                let from = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, _mm512_set1_ps(low));
                u32::from(_mm512_mask_cmp_ps_mask::<_CMP_LE_OQ>(from, x, _mm512_set1_ps(high)))
            }
        }
        #[inline(always)]
        unsafe fn pack(x: &Lanes, bits: u32, out: *mut f32) {
            unsafe { _mm512_storeu_ps(out, _mm512_maskz_compress_ps(bits as u16, _mm512_loadu_ps(x.as_ptr()))) }
        }
        #[inline(always)]
        unsafe fn pack_indices(x: &[u32; W], bits: u32, out: *mut u32) {
            unsafe {
                let x = _mm512_loadu_si512(x.as_ptr().cast());
                _mm512_storeu_si512(out.cast(), _mm512_maskz_compress_epi32(bits as u16, x));
            }
        }
        #[inline(always)]
        unsafe fn pack_numbers(first: u32, bits: u32, out: *mut u32) {
            unsafe {
                let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
                let numbers = _mm512_add_epi32(lanes, _mm512_set1_epi32(first as i32));
                _mm512_storeu_si512(out.cast(), _mm512_maskz_compress_epi32(bits as u16, numbers));
            }
        }
    }
};
