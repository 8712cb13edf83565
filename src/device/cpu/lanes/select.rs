//! The last value of a prefix of the order, found by narrowing a list down around pivots.
//!
//! A pivot comes from a small sorted sample, set a little to one side of where the end is expected and then to the
//! other, so that a few rounds leave few values. Rounds that a row of an odd make defeats go on by halving the range of
//! keys, so none takes more than some forty.

use super::super::source::{key, value_of_key};
use super::isa::Kernels;
use super::kernels::Scale;
use super::narrow::Into;
use crate::mass::{exponent, mass};

/// Lists up to this long are sorted.
const FEW: usize = 64;
const SAMPLE: usize = 32;
/// Rounds with a pivot from a sample.
const SAMPLED_ROUNDS: usize = 12;

/// Evenly spaced values, sorted descending.
unsafe fn sample(x: *const f32, n: usize) -> [f32; SAMPLE] {
    let step = n / SAMPLE;
    // SAFETY: below n, which is at least FEW.
    let mut values: [f32; SAMPLE] = std::array::from_fn(|i| unsafe { x.add(i * step + step / 2).read() });
    values.sort_unstable_by(|a, b| b.total_cmp(a));
    values
}

fn halfway(low: u32, high: u32) -> f32 {
    value_of_key(low + (high - low) / 2)
}

unsafe fn sorted<'a>(x: *mut f32, n: usize) -> &'a mut [f32] {
    // SAFETY: the caller's promise.
    let values = unsafe { std::slice::from_raw_parts_mut(x, n) };
    values.sort_unstable_by(|a, b| b.total_cmp(a));
    values
}

/// The `kth` largest value, from 1, of the `n` at `work`, which are overwritten.
///
/// # Safety
/// `work` has `n` clean values below +inf and room for a vector more; `kth` is 1 to n.
pub unsafe fn kth_largest(k: &Kernels, work: *mut f32, mut n: usize, mut kth: usize) -> f32 {
    let (no_indices, out) = (std::ptr::null(), Into { values: work, indices: std::ptr::null_mut() });
    let (mut low, mut high) = (key(f32::NEG_INFINITY), key(f32::MAX));
    let mut round = 0;
    // SAFETY: the caller's promise; every round leaves at least the value that is looked for.
    unsafe {
        while n > FEW {
            let pivot = if round < SAMPLED_ROUNDS {
                let at = kth * SAMPLE / n;
                let aside = 1 + at.min(SAMPLE - at).isqrt();
                let at = if round % 2 == 0 { at + aside } else { at.saturating_sub(aside + 1) };
                sample(work, n)[at.min(SAMPLE - 1)]
            } else {
                halfway(low, high)
            };
            round += 1;
            let (above, equal) = (k.count)(work, n, pivot);
            if kth <= above {
                n = (k.compact)(work, no_indices, n, pivot.next_up(), f32::INFINITY, out);
                low = key(pivot) + 1;
            } else if kth <= above + equal {
                return pivot;
            } else {
                kth -= above + equal;
                n = (k.compact)(work, no_indices, n, f32::NEG_INFINITY, pivot.next_down(), out);
                high = key(pivot) - 1;
            }
        }
        sorted(work, n)[kth - 1]
    }
}

/// Where a prefix ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct End {
    /// Its last value.
    pub value: f32,
    /// How many of the values equal to it it has.
    pub ties: usize,
}

/// The end of the prefix of values whose preceding mass is at most `limit`, of the `n` at `work`, whose masses sum up to
/// `total`, more than `limit`; `first` is a guess of its value. Both work areas are overwritten.
///
/// # Safety
/// `work` has `n` clean values below +inf, `spare` room for as many, both for a vector more; `sums` has room for one a
/// block.
pub unsafe fn mass_end(
    k: &Kernels,
    (mut work, mut spare): (*mut f32, *mut f32),
    sums: *mut u64,
    mut n: usize,
    (limit, total): (u64, u64),
    scale: Scale,
    first: Option<f32>,
) -> End {
    let mass_of = |x: f32| mass(exponent(x, scale.max, scale.scale));
    let (no_indices, none) = (std::ptr::null(), std::ptr::null_mut());
    let (mut low, mut high) = (key(f32::NEG_INFINITY), key(f32::MAX));
    // Mass ahead of the list, and the list's own.
    let (mut ahead, mut own) = (0, total);
    let mut round = 0;
    let mut known = first;
    // SAFETY: the caller's promise; every round leaves at least the value that is looked for.
    unsafe {
        while n > FEW {
            let pivot = if let Some(pivot) = known.take() {
                pivot
            } else if round < SAMPLED_ROUNDS {
                let values = sample(work, n);
                let mut below = 0;
                let at = values.iter().rposition(|&x| {
                    below += mass_of(x) / SAMPLE as u64 * n as u64;
                    below >= ahead + own - limit
                });
                let at = at.unwrap_or(0);
                values[if round % 2 == 0 { (at + 2).min(SAMPLE - 1) } else { at.saturating_sub(2) }]
            } else {
                halfway(low, high)
            };
            round += 1;
            // What is weighed is the values up to the pivot: a guess leaves few of them, and they stay.
            let out = Into { values: spare, indices: none };
            let rest = (k.compact)(work, no_indices, n, f32::NEG_INFINITY, pivot, out);
            let rest_mass = (k.masses)(spare, rest, std::ptr::null(), scale, sums);
            let out = Into { values: work, indices: none };
            if ahead + (own - rest_mass) > limit {
                n = (k.compact)(work, no_indices, n, pivot.next_up(), f32::INFINITY, out);
                own -= rest_mass;
                low = key(pivot) + 1;
                continue;
            }
            ahead += own - rest_mass;
            (n, own) = (rest, rest_mass);
            std::mem::swap(&mut work, &mut spare);
            let ties = (k.count)(work, n, pivot).1;
            if ties > 0 {
                let each = mass_of(pivot);
                if ahead + each * ties as u64 > limit {
                    return End { value: pivot, ties: ((limit - ahead) / each + 1).min(ties as u64) as usize };
                }
                ahead += each * ties as u64;
                own -= each * ties as u64;
                let out = Into { values: work, indices: none };
                n = (k.compact)(work, no_indices, n, f32::NEG_INFINITY, pivot.next_down(), out);
            }
            high = key(pivot) - 1;
        }
        let mut end = End { value: f32::INFINITY, ties: 0 };
        for ties in sorted(work, n).chunk_by(|a, b| a == b) {
            if ahead > limit {
                break;
            }
            let (each, count) = (mass_of(ties[0]), ties.len() as u64);
            let kept = (limit - ahead).checked_div(each).map_or(count, |more| (more + 1).min(count));
            end = End { value: ties[0], ties: kept as usize };
            ahead += each * count;
        }
        end
    }
}
