//! Faults in the lanes, which the scalar code does not share.

use super::Fault;

pub const FAULTS: &[Fault] = &[
    Fault {
        name: "lanes_tie_too_many",
        breaks: "a prefix has exactly its tokens, in lanes too",
        file: "src/device/cpu/lanes/prefix.rs",
        find: "let surplus = (k.nth_equal)(out.values, len, value, ties + 1);",
        replace: "let surplus = (k.nth_equal)(out.values, len, value, ties + 2);",
        tests: "--test cpu_paths",
        quick: true,
    },
    Fault {
        name: "lanes_sum_off",
        breaks: "the lanes' masses are the scalar code's",
        file: "src/device/cpu/lanes/kernels.rs",
        find: "sums.add(start / BLOCK).write(sum);",
        replace: "sums.add(start / BLOCK).write(sum | 1);",
        tests: "--test edges",
        quick: false,
    },
    Fault {
        name: "lanes_no_floor",
        breaks: "a token at or below 2^-41 has no mass, in lanes too",
        file: "src/device/cpu/lanes/kernels.rs",
        find: "*f = I::max(t, I::splat(FLOOR));",
        replace: "*f = t;",
        tests: "--test cpu_paths",
        quick: false,
    },
    Fault {
        name: "lanes_signed_zero",
        breaks: "a logprob of 0 has the sign the scalar code gives it",
        file: "src/device/cpu/lanes/row.rs",
        find: "if max == 0.0 {",
        replace: "if max < 0.0 {",
        tests: "--test cpu_paths",
        quick: false,
    },
    Fault {
        name: "lanes_flat_by_groups",
        breaks: "a row whose group maxima are equal is not yet a row of equal values",
        file: "src/device/cpu/lanes/row.rs",
        find: "&& unsafe { (self.k.all_reach)(self.x, self.n, max) }",
        replace: "&& whole > 0",
        tests: "--test cpu_paths",
        quick: false,
    },
];
