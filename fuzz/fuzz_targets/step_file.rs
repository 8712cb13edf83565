//! Step files: parsed, written and parsed again, run by the scalar code and by the widest lanes.
//!
//! A file is a length, a header of so many bytes and tensors. Mutations that move the header's end would all be refused for
//! the length alone, so the mutator sets it anew.

#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use samedraw::device::Device;
use samedraw::device::cpu::{CpuDevice, CpuPath};
use samedraw::step_file::{ResultDocument, StepFile};
use std::sync::{Arc, LazyLock};

const LENGTH: usize = 8;
/// Cells of the outputs of a step that is run.
const MOST_CELLS: usize = 1 << 20;

static DEVICES: LazyLock<[Arc<dyn Device>; 2]> = LazyLock::new(|| {
    let scalar = CpuDevice::with_path(1, CpuPath::Scalar).expect("the scalar code runs everywhere");
    [Arc::new(scalar), Arc::new(CpuDevice::with_threads(1))]
});

fn run(step: &StepFile) {
    let [scalar, lanes] = &*DEVICES;
    match (step.run(scalar, None), step.run(lanes, None)) {
        (Ok(want), Ok(got)) => {
            assert_eq!(want.differences(&got), Vec::<String>::new(), "the lanes differ from the scalar code");
            let json = want.to_json().expect("a result is written");
            let read = ResultDocument::parse(&json).expect("a result that was written is read");
            assert_eq!(want.differences(&read), Vec::<String>::new(), "a result changes by being written");
        }
        (Err(a), Err(b)) => assert_eq!(a.to_string(), b.to_string()),
        (a, b) => panic!("one path runs what the other refuses: {:?}, {:?}", a.err(), b.err()),
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(step) = StepFile::parse(data) else { return };
    let bytes = step.to_bytes().expect("a step that was read is written");
    let again = StepFile::parse(&bytes).expect("a step that was written is read");
    assert_eq!(again.to_bytes().expect("written"), bytes, "a step changes by being written");
    if step.logits.rows.saturating_mul(step.logits.vocab) <= MOST_CELLS {
        run(&step);
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let header = data.first_chunk::<LENGTH>().map_or(0, |length| u64::from_le_bytes(*length));
    let whole = size >= LENGTH && header <= (size - LENGTH) as u64;
    // One mutation in eight is free; half of the others are of the header, half of the tensors.
    if !whole || seed.is_multiple_of(8) {
        return fuzzer_mutate(data, size, max_size);
    }
    let end = LENGTH + header as usize;
    if seed.is_multiple_of(2) {
        return end + fuzzer_mutate(&mut data[end..], size - end, max_size - end);
    }
    let tensors = data[end..size].to_vec();
    let room = max_size - LENGTH - tensors.len();
    let len = fuzzer_mutate(&mut data[LENGTH..], header as usize, room);
    data[..LENGTH].copy_from_slice(&(len as u64).to_le_bytes());
    data[LENGTH + len..LENGTH + len + tensors.len()].copy_from_slice(&tensors);
    LENGTH + len + tensors.len()
});
