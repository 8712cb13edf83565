//! Radix descent: finds the last token of a prefix of the order, by count or by mass, without sorting.
//!
//! Three levels of 11, 11 and 10 key bits. At each level the bins hold the count (and the mass) of the tokens whose
//! higher bits match the path so far; the walk from the highest bin down finds the bin the prefix ends in.

use super::source::{Cut, Source, key};

const BINS: usize = 1 << 11;
/// (shift, bits) of the levels, highest first.
const LEVELS: [(u32, u32); 3] = [(21, 11), (10, 11), (0, 10)];

/// Calls `f(key, id, value)` for the tokens of `row` within `cut`, ascending id.
#[inline(always)]
pub(super) fn each_within(row: &Source, cut: Cut, mut f: impl FnMut(u32, u32, f32)) {
    row.each(|_, id, x| {
        let k = key(x);
        if cut.has(k, id) {
            f(k, id, x);
        }
    });
}

/// The prefix of the first `n` tokens of `row` within `cut`; `cut` itself when it has no more than `n`. `n` is at
/// least 1.
pub(super) fn by_count(row: &Source, cut: Cut, n: u64) -> Cut {
    let mut prefix = 0u32;
    let mut left = n;
    for (level, (shift, bits)) in LEVELS.into_iter().enumerate() {
        let mut counts = [0u32; BINS];
        each_within(row, cut, |k, _, _| {
            if level == 0 || k >> (shift + bits) == prefix {
                counts[bin(k, shift, bits)] += 1;
            }
        });
        let Some(found) = (0..1usize << bits).rev().find(|&b| {
            let here = u64::from(counts[b]);
            let ends = here >= left;
            if !ends {
                left -= here;
            }
            ends
        }) else {
            return cut;
        };
        prefix = (prefix << bits) | found as u32;
    }
    Cut { key: prefix, id: nth_tie(row, cut, prefix, left) }
}

/// The prefix of `row` within `cut` of the tokens whose preceding mass is at most `limit`. The first token always is
/// one of them.
pub(super) fn by_mass(row: &Source, cut: Cut, limit: u64, mass_of: impl Fn(f32) -> u64) -> Cut {
    let mut prefix = 0u32;
    let mut before = 0u64;
    let mut last_bin = (0u64, 0u32);
    for (level, (shift, bits)) in LEVELS.into_iter().enumerate() {
        let mut masses = [0u64; BINS];
        let mut counts = [0u32; BINS];
        each_within(row, cut, |k, _, x| {
            if level == 0 || k >> (shift + bits) == prefix {
                masses[bin(k, shift, bits)] += mass_of(x);
                counts[bin(k, shift, bits)] += 1;
            }
        });
        // The prefix ends in the last occupied bin whose first token still has a preceding mass within the limit.
        let mut ahead = before;
        let mut found = None;
        for b in (0..1usize << bits).rev() {
            if counts[b] == 0 {
                continue;
            }
            if ahead > limit {
                break;
            }
            found = Some((b, ahead));
            ahead += masses[b];
        }
        let Some((b, ahead)) = found else { return cut };
        prefix = (prefix << bits) | b as u32;
        before = ahead;
        last_bin = (masses[b], counts[b]);
    }
    // All tokens of the last bin share one key, hence one mass.
    let (mass, count) = last_bin;
    let each = mass / u64::from(count);
    let kept = match (limit - before).checked_div(each) {
        None => u64::from(count),
        Some(more) => (more + 1).min(u64::from(count)),
    };
    Cut { key: prefix, id: nth_tie(row, cut, prefix, kept) }
}

#[inline(always)]
fn bin(k: u32, shift: u32, bits: u32) -> usize {
    (k >> shift & ((1 << bits) - 1)) as usize
}

/// Id of the `n`-th token (from 1) within `cut` whose key is `key_of_ties`.
fn nth_tie(row: &Source, cut: Cut, key_of_ties: u32, n: u64) -> u32 {
    let (mut seen, mut found) = (0, 0);
    each_within(row, cut, |k, id, _| {
        if k == key_of_ties {
            seen += 1;
            if seen == n {
                found = id;
            }
        }
    });
    found
}
