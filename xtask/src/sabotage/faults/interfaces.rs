//! Faults in what stacks meet: the recorder, the rows of parameters they keep, the C ABI.

use super::Fault;

pub const FAULTS: &[Fault] = &[
    Fault {
        name: "record_offset_lost",
        breaks: "a recording holds the position a row drew at",
        file: "src/step_file/record.rs",
        find: "let position = positions[request.number].wrapping_add(offset);",
        replace: "let position = positions[request.number].wrapping_add(offset * 0);",
        tests: "--test recorder",
        quick: false,
    },
    Fault {
        name: "record_unbounded",
        breaks: "a recording is no larger than it may be",
        file: "src/step_file/record.rs",
        find: "    if bytes > max_bytes {",
        replace: "    if bytes > max_bytes && max_bytes == 0 {",
        tests: "--test recorder",
        quick: true,
    },
    Fault {
        name: "record_of_the_table",
        breaks: "a recording holds the parameters that the step was given",
        file: "src/pipeline/sampler.rs",
        find: "step.slots.unwrap_or(Slots { ptr: self.table.ptr(), count: self.table.slots() })",
        replace: "Slots { ptr: self.table.ptr(), count: self.table.slots().max(step.rows) }",
        tests: "--test recorder",
        quick: false,
    },
    Fault {
        name: "row_accepts_lost",
        breaks: "a row's own decision goes where the caller wants it",
        file: "src/pipeline/sampler.rs",
        find: "                wanted => wanted.0,",
        replace: "                _ => area(self.workspace.layout.row_accepts),",
        tests: "--test recorder",
        quick: false,
    },
    Fault {
        name: "c_newer_field_ignored",
        breaks: "a field that the C library does not know is refused, not ignored",
        file: "ffi/capi/src/sized.rs",
        find: "if unsafe { ptr.cast::<u8>().add(at).read() } != 0 {",
        replace: "if unsafe { ptr.cast::<u8>().add(at).read() } != 0 && T::FIRST == 0 {",
        tests: "--test c misused",
        quick: false,
    },
];
