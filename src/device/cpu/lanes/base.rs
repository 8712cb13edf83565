//! Vectors that every target has: arrays, left to the compiler.

use super::kernels::{Isa, Lanes, W};

const N: usize = 8;

pub enum Base {}

impl Isa for Base {
    const LANES: usize = N;
    type Floats = [f32; N];
    type Ints = [i32; N];

    #[inline(always)]
    unsafe fn load(from: *const f32) -> [f32; N] {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<[f32; N]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> [f32; N] {
        [x; N]
    }

    #[inline(always)]
    unsafe fn add(a: [f32; N], b: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    unsafe fn sub(a: [f32; N], b: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| a[i] - b[i])
    }

    #[inline(always)]
    unsafe fn mul(a: [f32; N], b: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    unsafe fn max(a: [f32; N], b: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    unsafe fn raise(p: [f32; N], n: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| f32::from_bits(p[i].to_bits().wrapping_add(n[i].to_bits() << 23)))
    }

    #[inline(always)]
    unsafe fn zero() -> [i32; N] {
        [0; N]
    }

    #[inline(always)]
    unsafe fn truncate(x: [f32; N]) -> [i32; N] {
        // SAFETY: the caller's promise.
        std::array::from_fn(|i| unsafe { x[i].to_int_unchecked() })
    }

    #[inline(always)]
    unsafe fn widen(x: [i32; N]) -> [f32; N] {
        std::array::from_fn(|i| x[i] as f32)
    }

    #[inline(always)]
    unsafe fn sum(a: [i32; N], b: [i32; N]) -> [i32; N] {
        std::array::from_fn(|i| a[i].wrapping_add(b[i]))
    }

    #[inline(always)]
    unsafe fn total(x: [i32; N]) -> u64 {
        x.iter().map(|&x| u64::from(x as u32)).sum()
    }

    #[inline(always)]
    unsafe fn at_least(x: &Lanes, low: f32) -> u32 {
        (0..W).fold(0, |bits, lane| bits | u32::from(x[lane] >= low) << lane)
    }

    #[inline(always)]
    unsafe fn between(x: &Lanes, low: f32, high: f32) -> u32 {
        (0..W).fold(0, |bits, lane| bits | u32::from(low <= x[lane] && x[lane] <= high) << lane)
    }

    #[inline(always)]
    unsafe fn pack(x: &Lanes, bits: u32, out: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { pack(x, bits, out) };
    }

    #[inline(always)]
    unsafe fn pack_indices(x: &[u32; W], bits: u32, out: *mut u32) {
        // SAFETY: the caller's promise.
        unsafe { pack(x, bits, out) };
    }

    #[inline(always)]
    unsafe fn pack_numbers(first: u32, bits: u32, out: *mut u32) {
        // SAFETY: the caller's promise.
        unsafe { pack(&std::array::from_fn(|lane| first + lane as u32), bits, out) };
    }
}

#[inline(always)]
unsafe fn pack<T: Copy>(x: &[T; W], mut bits: u32, mut out: *mut T) {
    while bits != 0 {
        // SAFETY: the caller's promise.
        unsafe {
            out.write(x[bits.trailing_zeros() as usize % W]);
            out = out.add(1);
        }
        bits &= bits - 1;
    }
}
