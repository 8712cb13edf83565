//! Kernels of the device on the model of Ascend C (`tests/ascend_model`): broken rules reach the caller, work is counted, and
//! arithmetic can be made inexact.

use crate::run::{Made, copy_add, load};
use crate::sim::{Sim, says};
use samedraw::device::ascend::AscendDevice;
use samedraw::device::ascend::kernels::Unit;
use samedraw::device::ascend::launch::{Arguments, Kernel};
use samedraw::device::{Device, DeviceBuffer, RawStream, Stream};
use samedraw::pipeline::blocks::{RowBlock, VerifyBlock};
use std::ffi::CStr;
use std::sync::Arc;

const SOURCE: &str = include_str!("model.asc");
const ENTRIES: [&CStr; 2] = [c"without_a_wait", c"product"];

fn kernels(device: &AscendDevice) -> Vec<Kernel> {
    device.load(&Unit { name: "model", source: SOURCE, entries: &ENTRIES }).unwrap()
}

#[test]
fn a_broken_rule_is_told_with_its_call_and_its_reason() {
    let sim = Sim::take();
    let device = Arc::new(sim.open().unwrap());
    let kernels = kernels(&device);
    let memory = DeviceBuffer::new(&device, 64).unwrap();
    let arguments = Arguments::default().and(&[memory.ptr().0, 0]).unwrap();
    // SAFETY: the kernel writes 32 bytes; the stream is the default one.
    let error = unsafe {
        device.launch(RawStream::default(), kernels[0], 2, &arguments).unwrap();
        device.synchronize(RawStream::default()).unwrap_err()
    };
    says(
        &error.to_string(),
        &["aclrtSynchronizeStream", "507035", "DataCopyPad at", "reads what PIPE_V writes", "HardEvent::V_MTE3"],
    );
}

#[test]
fn work_on_the_model_is_counted_on_any_number_of_cores() {
    let sim = Sim::take();
    let device = sim.open().unwrap();
    let kernel = load(&device).unwrap();
    let shown = size_of::<RowBlock>() + size_of::<VerifyBlock>();
    for cores in [1, 3, 48] {
        sim.runtime.reset();
        let mut made = Made::new(&device, || 0);
        copy_add(&mut made, kernel, cores, 5, false).unwrap();
        made.release().unwrap();
        let counted = ["gm_read", "gm_written", "scalar_read", "vector_calls"].map(|name| sim.runtime.counter(name));
        assert_eq!(counted, [8000, 8000 + shown, 0, 0], "{cores} cores");
        assert_eq!(sim.runtime.count("aclrtLaunchKernelWithHostArgs"), 1);
    }
}

#[test]
fn arithmetic_is_made_inexact_by_a_setting() {
    let sim = Sim::take();
    let device = Arc::new(sim.open().unwrap());
    let kernel = kernels(&device)[1];
    let stream = Stream::new(&device).unwrap();
    // 11184809 * 2^-25 * 3 is a tie between two f32, which goes up to even and down to zero; the subnormal is half of the
    // smallest normal number.
    for (setting, expected) in [
        ("", [0x3F7F_FFFE_u32, 0x0040_0000]),
        ("truncate", [0x3F7F_FFFD, 0x0040_0000]),
        ("flush", [0x3F7F_FFFE, 0]),
        ("truncate,flush", [0x3F7F_FFFD, 0]),
    ] {
        sim.runtime.set("INEXACT", setting);
        for (bits, factor, expected) in [(0x3EAA_AAA9_u32, 3.0_f32, expected[0]), (0x0080_0000, 0.5, expected[1])] {
            let memory = DeviceBuffer::new(&device, 64).unwrap();
            let operands = u64::from(bits) | u64::from(factor.to_bits()) << 32;
            let arguments = Arguments::default().and(&[memory.ptr().0, operands]).unwrap();
            let mut product = [0u32; 8];
            // SAFETY: the kernel writes 32 bytes to memory that is alive.
            unsafe { device.launch(stream.raw(), kernel, 1, &arguments).unwrap() };
            memory.read(&stream, &mut product).unwrap();
            assert_eq!(product, [expected; 8], "{setting:?} {bits:#x}");
        }
    }
}

#[test]
fn what_device_code_has_not_is_refused_by_its_line() {
    let sim = Sim::take();
    let device = sim.open().unwrap();
    let source = |line: &str| {
        format!(
            "#include \"kernel_operator.h\"\n// std, and virtual, in a comment\n{line}\n\
             extern \"C\" __global__ __vector__ __aicore__ void product(GM_ADDR, uint64_t) {{}}\n"
        )
    };
    for (line, what) in [
        ("inline int least(int a) { return std::min(a, 1); }", "line 3: device code has no 'std'"),
        ("struct Base { virtual int get() { return 1; } };", "line 3: device code has no 'virtual'"),
        ("inline int *made() { return new int; }", "line 3: device code has no 'new'"),
        ("#include <vector>", "line 3: device code includes kernel_operator.h"),
    ] {
        let text = source(line);
        let unit = Unit { name: "model", source: &text, entries: &ENTRIES[1..] };
        says(&device.load(&unit).unwrap_err().to_string(), &["aclrtcCompileProg", "176003", what]);
    }
    let text = source("struct Alone { Alone(const Alone &) = delete; };");
    device.load(&Unit { name: "model", source: &text, entries: &ENTRIES[1..] }).unwrap();
}
