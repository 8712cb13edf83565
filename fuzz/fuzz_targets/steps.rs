//! Random steps: the input is the tape of decisions that the tests' generator of steps takes. The scalar code gives what
//! the oracle gives, and every set of lanes what the scalar code gives, in every output.

#![no_main]

#[path = "../../tests/common/mod.rs"]
mod common;

use common::{Case, Rng, assert_same, generate};
use libfuzzer_sys::fuzz_target;
use samedraw::device::Device;
use samedraw::device::cpu::{CpuDevice, CpuPath};
use std::sync::{Arc, LazyLock};

/// The paths this processor has, the scalar code first. One thread each: an input then always takes the same way.
static DEVICES: LazyLock<Vec<Arc<dyn Device>>> = LazyLock::new(|| {
    let open = |path| Arc::new(CpuDevice::with_path(1, path).expect("available")) as Arc<dyn Device>;
    CpuPath::ALL.into_iter().filter(|path| path.is_available()).map(open).collect()
});

/// A case of more work than this is left to the conformance tests.
const MOST_CELLS: usize = 20_000;

fn check(case: &Case, what: &str) {
    let want = case.expected();
    let mut names = CpuPath::ALL.into_iter().filter(|path| path.is_available());
    for device in DEVICES.iter() {
        let path = names.next();
        assert_same(&want, &case.run(device, what), || format!("{what} on {path:?}: {case:?}"));
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, tape)) = data.split_first() else { return };
    let case = generate::random_by(&mut Rng::from_tape(tape), first & 1 == 1, None);
    if case.rows * case.vocab <= MOST_CELLS {
        check(&case, "a step");
    }
});
