//! The staging ring, the parameter table, lent workspaces, limits, and every way a step is refused.

#[path = "../common/mod.rs"]
mod common;

mod refusals;
#[cfg(feature = "cpu")]
mod slow;

use common::{Case, assert_same, devices, generate};
use samedraw::device::{DevPtr, DeviceBuffer, Stream, effective_columns};
use samedraw::pipeline::{Filters, HostRun, StagingRing, Variant};
use samedraw::{Limits, ParamTable, Platform, Sampler, SamplingParams};
use std::sync::Arc;

fn seeded(seed: u64) -> SamplingParams {
    SamplingParams { seq_seed: Some(seed), ..Default::default() }
}

#[test]
fn staged_arrays_arrive_aligned_and_whole() {
    for device in devices() {
        let stream = Stream::new(&device).expect("a stream");
        let mut ring = StagingRing::new(&device, 2, 256).expect("a ring");
        for round in 0..5i64 {
            let mut area = ring.begin().expect("a free area");
            let bytes = area.push(&[round as u8; 3]).expect("room");
            let words = area.push(&[round, -round]).expect("room");
            assert!(words.0.is_multiple_of(8) && words.0 >= bytes.0 + 3, "round {round}");
            let mut back = [0i64; 2];
            // SAFETY: the stream is alive; `back` outlives the wait.
            unsafe {
                area.upload(stream.raw()).expect("a copy");
                device.copy_to_host(stream.raw(), back.as_mut_ptr().cast(), words, 16).expect("a copy");
                area.finish(stream.raw()).expect("an event");
                stream.synchronize().expect("done");
            }
            assert_eq!(back, [round, -round]);
        }
        let mut area = ring.begin().expect("a free area");
        area.push(&[0u8; 250]).expect("room");
        let error = area.push(&[0u8; 10]).expect_err("full").to_string();
        assert_eq!(error, "staging: bytes = 10 is refused: the area holds 256 bytes, 256 are used");
        for (areas, bytes) in [(0, 4), (4, 0)] {
            let error = StagingRing::new(&device, areas, bytes).expect_err("empty").to_string();
            assert_eq!(error, "staging ring: areas * bytes = 0 is refused: at least one area of one byte");
        }
    }
}

#[cfg(feature = "cpu")]
#[test]
fn a_ring_whose_copies_are_in_flight_is_busy_and_never_waits() {
    let slow = Arc::new(slow::SlowDevice::new());
    let stream = Stream::new(&slow).expect("a stream");
    let mut ring = StagingRing::new(&slow, 2, 64).expect("a ring");
    let mut stage = |value: i32| -> samedraw::Result<()> {
        let mut area = ring.begin()?;
        area.push(&[value])?;
        // SAFETY: the stream is alive.
        unsafe {
            area.upload(stream.raw())?;
            area.finish(stream.raw())
        }
    };
    stage(1).and_then(|()| stage(2)).expect("two areas");
    for _ in 0..3 {
        let error = stage(3).expect_err("busy").to_string();
        assert_eq!(error, "staging ring: all 2 areas are in flight; poll again after the stream has moved on");
    }
    slow.catch_up();
    stage(3).and_then(|()| stage(4)).expect("free again");
    assert!(stage(5).is_err());
}

#[cfg(feature = "cpu")]
#[test]
fn a_table_write_that_finds_the_ring_busy_changes_nothing() {
    let slow = Arc::new(slow::SlowDevice::new());
    let stream = Stream::new(&slow).expect("a stream");
    let table = ParamTable::new(&slow, 100).expect("a table");
    // SAFETY: the stream is alive.
    let set = |slot, params: &SamplingParams| unsafe { table.set(stream.raw(), slot, params) };
    (0..64).for_each(|slot| _ = set(slot, &seeded(1)).expect("a slot"));
    let filtered = SamplingParams { top_p: 0.5, ..seeded(1) };
    let error = set(64, &filtered).expect_err("busy").to_string();
    assert_eq!(error, "staging ring: all 64 areas are in flight; poll again after the stream has moved on");
    assert_eq!(table.filters(), Filters::NONE);
    slow.catch_up();
    set(64, &filtered).expect("a slot");
    assert_eq!(table.filters(), Filters { top_p: true, ..Filters::NONE });
}

#[test]
fn the_table_knows_which_filters_its_live_slots_use() {
    for device in devices() {
        let stream = Stream::new(&device).expect("a stream");
        let table = ParamTable::new(&device, 4).expect("a table");
        let filters = |[top_k, top_p, min_p, all_greedy]: [bool; 4]| Filters { top_k, top_p, min_p, all_greedy };
        let (no, yes) = (false, true);
        let top_k = SamplingParams { top_k: 7, ..seeded(1) };
        let top_p = SamplingParams { top_p: 0.5, ..seeded(1) };
        let min_p = SamplingParams { min_p: 0.1, ..seeded(1) };
        let cold = SamplingParams { temperature: 1e-6, top_k: 1, top_p: 0.5, min_p: 0.5, ..seeded(1) };
        let steps: [(usize, Option<&SamplingParams>, [bool; 4]); 12] = [
            (0, Some(&SamplingParams { top_k: 1, ..seeded(1) }), [yes, no, no, yes]),
            (1, Some(&SamplingParams { top_k: 1, ..seeded(1) }), [yes, no, no, yes]),
            (2, Some(&seeded(1)), [yes, no, no, no]),
            (2, None, [yes, no, no, yes]),
            (0, Some(&top_k), [yes, no, no, no]),
            (1, Some(&top_p), [yes, yes, no, no]),
            (0, Some(&min_p), [no, yes, yes, no]),
            (3, Some(&cold), [no, yes, yes, no]),
            (1, Some(&seeded(2)), [no, no, yes, no]),
            (0, None, [no, no, no, no]),
            (1, None, [no, no, no, no]),
            (3, None, [no, no, no, no]),
        ];
        for (number, (slot, params, want)) in steps.into_iter().enumerate() {
            // SAFETY: the stream is alive.
            unsafe {
                match params {
                    Some(params) => assert_eq!(table.set(stream.raw(), slot, params), Ok(params.seq_seed.unwrap_or(0))),
                    None => table.clear(stream.raw(), slot).expect("a slot"),
                }
            }
            assert_eq!(table.filters(), filters(want), "write {number}");
        }
        // SAFETY: the stream is alive.
        unsafe {
            let error = table.set(stream.raw(), 4, &seeded(1)).expect_err("no such slot").to_string();
            assert_eq!(error, "parameter table: slot = 4 is refused: the table has 4 slots");
            let error = table.set(stream.raw(), 0, &SamplingParams { min_p: 2.0, ..seeded(1) }).expect_err("min_p");
            assert_eq!(error.to_string(), "min_p = 2.0 is refused: allowed is 0 to 1");
        }
        assert_eq!(table.filters(), Filters::NONE);
    }
}

#[test]
fn rows_of_an_empty_slot_or_an_excluded_filter_are_bad_and_the_others_are_not() {
    for device in devices() {
        let row: &[f32] = &[0.0, 1.0, 2.0, 3.0];
        let params = [seeded(1), SamplingParams { top_p: 0.5, ..seeded(2) }];
        let case = Case::f32(&[row, row, row], &params);
        let case = Case { row_to_slot: Some(vec![0, 1, 0]), ..case };
        let whole = case.run(&device, "every filter");
        let bad = |case: &Case, variant: Option<Variant>, cleared: Option<usize>| {
            let mut run = HostRun::new(&device, &case.host()).expect("a step");
            let (sampler, step, stream) = run.parts();
            let step = *step;
            // SAFETY: the stream and every pointer are the run's own.
            unsafe {
                if let Some(slot) = cleared {
                    sampler.table().clear(stream, slot).expect("a slot");
                }
                match variant {
                    None => sampler.step(stream, &step).expect("a step"),
                    Some(variant) => {
                        let graph = sampler.capture(stream, &step, variant).expect("a graph");
                        graph.replay(stream).expect("a replay");
                        return run.read().expect("a result");
                    }
                }
            }
            run.read().expect("a result")
        };
        let none = Case { filters: Some(Filters::NONE), ..case.clone() };
        for (what, got) in [
            ("cleared slot", bad(&case, None, Some(1))),
            ("excluded by the step", bad(&none, None, None)),
            ("excluded by the variant", bad(&case, Some(Variant::TopK), None)),
        ] {
            assert_eq!((got.tokens[1], got.status[1], got.kept_counts[1]), (-1, 16, 0), "{what}");
            assert_eq!((got.tokens[0], got.tokens[2]), (whole.tokens[0], whole.tokens[2]), "{what}");
            assert_eq!((got.logprobs[0], got.status[2]), (whole.logprobs[0], 0), "{what}");
        }
    }
}

#[test]
fn a_lent_workspace_serves_as_an_owned_one_does_and_is_measured_first() {
    for device in devices() {
        let case = generate::random(12, true);
        let want = case.run(&device, "an owned workspace");
        let mut run = HostRun::new(&device, &case.host()).expect("a step");
        let (sampler, step, stream) = run.parts();
        let (limits, table, step) = (*sampler.limits(), Arc::clone(sampler.table()), *step);
        let bytes = Sampler::workspace_bytes(&*device, &limits).expect("limits");
        let memory = DeviceBuffer::new(&device, bytes + 256).expect("room");
        // SAFETY: the memory is lent to one sampler at a time and outlives them all.
        let lent = |ptr: DevPtr, bytes: usize| unsafe { Sampler::with_workspace(&device, limits, &table, ptr, bytes) };
        for (ptr, given) in [(memory.ptr(), bytes - 1), (memory.ptr().offset(128), bytes), (DevPtr::NULL, bytes)] {
            let error = lent(ptr, given).expect_err("refused").to_string();
            assert_eq!(error, format!("workspace: {given} bytes lent, {bytes} needed, aligned to 256 bytes"));
        }
        let mut sampler = lent(memory.ptr().offset(256), bytes).expect("a sampler");
        // SAFETY: the step's pointers belong to `run`; the stream is its own.
        unsafe { sampler.step(stream, &step) }.expect("a step");
        assert_same(&want, &run.read().expect("a result"), || "a lent workspace".into());
    }
}

#[test]
fn limits_are_checked_by_name() {
    for device in devices() {
        let bytes = |limits: Limits| Sampler::workspace_bytes(&*device, &limits);
        let table = Arc::new(ParamTable::new(&device, 1).expect("a table"));
        for (limits, message) in [
            (Limits::new(0, 8), "limits: rows = 0 is refused: 1 to 2147483647"),
            (Limits::new(1 << 31, 8), "limits: rows = 2147483648 is refused: 1 to 2147483647"),
            (Limits::new(1, 0), "limits: vocab = 0 is refused: 1 to 8388608"),
            (Limits::new(1, (1 << 23) + 1), "limits: vocab = 8388609 is refused: 1 to 8388608"),
        ] {
            assert_eq!(bytes(limits).expect_err("refused").to_string(), message);
            assert_eq!(Sampler::new(&device, limits, &table).expect_err("refused").to_string(), message);
        }
        assert!(bytes(Limits::new(1, 1 << 23)).is_ok());
        let error = ParamTable::new(&device, 0).expect_err("no slots").to_string();
        assert_eq!(error, "parameter table: slots = 0 is refused: 1 to 2147483647");
    }
}

#[test]
fn force_topk_limits_name_platform_request_and_limit() {
    let refused = |platform, n, vocab| effective_columns(platform, n, vocab).expect_err("above the limit").to_string();
    assert_eq!(refused(Platform::Cuda, 16_385, 50_000), "force_topk = 16385 is above the limit of 16384 on cuda");
    assert_eq!(refused(Platform::Ascend, 4097, 50_000), "force_topk = 4097 is above the limit of 4096 on ascend");
    // min(N, V) counts.
    assert_eq!(refused(Platform::Ascend, 90_000, 50_000), "force_topk = 50000 is above the limit of 4096 on ascend");
    for (platform, n, vocab, columns) in [
        (Platform::Cuda, 16_384, 50_000, 16_384),
        (Platform::Cuda, 90_000, 16_384, 16_384),
        (Platform::Ascend, 4096, 50_000, 4096),
        (Platform::Ascend, 0, 50_000, 50_000),
        (Platform::Cpu, 49_999, 50_000, 49_999),
        (Platform::Cpu, 90_000, 50_000, 50_000),
        (Platform::Cuda, 0, 1, 1),
    ] {
        assert_eq!(effective_columns(platform, n, vocab), Ok(columns), "{n} of {vocab} on {platform}");
    }
}
