//! The arithmetic the model does itself, in the place of the hardware's instructions.

use crate::launch::{Driver, shape};
use crate::on_the_model;
use half::{bf16, f16};

#[test]
fn every_f16_is_widened_exactly() {
    on_the_model("numbers::every_f16_is_widened_exactly", &[], || {
        let source = "extern \"C\" __global__ void k(u64 in, u64 out) {\n\
            u32 i = blockIdx.x * 256 + threadIdx.x;\n\
            ((u32*)out)[i] = __float_as_uint(widen_f16((u16)i));\n}\n";
        let got = Driver::open().run(source, shape(256, 256, 1), &[0; 4], 1 << 16).expect("a launch");
        for (bits, got) in got.into_iter().enumerate() {
            let want = f16::from_bits(bits as u16).to_f32();
            let same = if want.is_nan() { f32::from_bits(got).is_nan() } else { got == want.to_bits() };
            assert!(same, "{bits:#06x} became {got:#010x}");
        }
    });
}

/// Pairs of values and what the operations make of them, by Rust's own arithmetic.
#[test]
fn maxima_and_directed_sums_are_ieee() {
    on_the_model("numbers::maxima_and_directed_sums_are_ieee", &[], || {
        let values =
            [0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, 16_777_216.0, 3.4e38, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        let pairs: Vec<[f32; 2]> = values.iter().flat_map(|&a| values.map(|b| [a, b])).collect();
        let source = "extern \"C\" __global__ void k(u64 in, u64 out) {\n\
            float a = ((const float*)in)[2 * threadIdx.x], b = ((const float*)in)[2 * threadIdx.x + 1];\n\
            float* to = (float*)out + 4 * threadIdx.x;\n\
            to[0] = max_or_nan(a, b), to[1] = fmaxf(a, b), to[2] = __fadd_rd(a, b), to[3] = __fadd_rn(a, b);\n}\n";
        let input: Vec<u32> = pairs.iter().flatten().map(|x| x.to_bits()).collect();
        let got =
            Driver::open().run(source, shape(1, pairs.len() as u32, 1), &input, 4 * pairs.len()).expect("a launch");
        for (&[a, b], got) in pairs.iter().zip(got.chunks(4)) {
            let largest = match (a.is_nan(), b.is_nan()) {
                (true, _) => b,
                (_, true) => a,
                _ if a == 0.0 && b == 0.0 => f32::from_bits(a.to_bits() & b.to_bits()),
                _ => f32::max(a, b),
            };
            let or_nan = if a.is_nan() || b.is_nan() { f32::NAN } else { largest };
            // The exact sum is `sum + rest`, both f64.
            let (wide_a, wide_b, nearest) = (f64::from(a), f64::from(b), a + b);
            let sum = wide_a + wide_b;
            let back = sum - wide_a;
            let rest = (wide_a - (sum - back)) + (wide_b - back);
            let down = match f64::from(nearest) {
                above if above > sum || (above == sum && rest < 0.0) => f32::next_down(nearest),
                0.0 if sum == 0.0 && (a.is_sign_negative() || b.is_sign_negative()) => -0.0,
                _ => nearest,
            };
            for (which, (want, got)) in [or_nan, largest, down, nearest].into_iter().zip(got).enumerate() {
                let got = f32::from_bits(*got);
                let same = if want.is_nan() { got.is_nan() } else { got.to_bits() == want.to_bits() };
                assert!(same, "operation {which} of {a:?} and {b:?}: {got:?}, not {want:?}");
            }
        }
    });
}

#[test]
fn conversions_keep_within_their_range() {
    on_the_model("numbers::conversions_keep_within_their_range", &[], || {
        let values = [0.0, 0.99, 1.0, 4_294_967_040.0, 4_294_967_296.0, 1.8e19, 3e38, -0.5, -7.0, f32::INFINITY];
        let source = "extern \"C\" __global__ void k(u64 in, u64 out) {\n\
            float x = ((const float*)in)[threadIdx.x];\n\
            u64 wide = __float2ull_rz(x);\n\
            u32* to = (u32*)out + 4 * threadIdx.x;\n\
            to[0] = (u32)wide, to[1] = (u32)(wide >> 32);\n\
            to[2] = __float2uint_rz(x), to[3] = max_or_nan_bf16x2(__float_as_uint(x), 0x40003f80);\n}\n";
        let input: Vec<u32> = values.iter().map(|x| x.to_bits()).collect();
        let got =
            Driver::open().run(source, shape(1, values.len() as u32, 1), &input, 4 * values.len()).expect("a launch");
        for (&x, got) in values.iter().zip(got.chunks(4)) {
            let wide = u64::from(got[0]) | u64::from(got[1]) << 32;
            assert_eq!((wide, got[2]), (x as u64, x as u32), "{x:?}");
            // Both halves of the word as numbers of 16 bits, next to 1 and 2.
            let halves = [x.to_bits() as u16, (x.to_bits() >> 16) as u16].map(|bits| bf16::from_bits(bits).to_f32());
            let want =
                [(halves[0], 1.0), (halves[1], 2.0)].map(|(a, b): (f32, f32)| if a.is_nan() { a } else { a.max(b) });
            let got = [got[3] as u16, (got[3] >> 16) as u16].map(|bits| bf16::from_bits(bits).to_f32());
            assert!(
                want.iter().zip(got).all(|(w, g)| w.is_nan() && g.is_nan() || *w == g),
                "{x:?}: {got:?}, not {want:?}"
            );
        }
    });
}
