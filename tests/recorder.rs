//! The recorder: what a running sampler has just done comes back from a step file, on the device it ran on and on others.

mod common;

use common::{Case, devices, generate};
use samedraw::batch::PositionRule;
use samedraw::device::Stream;
use samedraw::pipeline::{HostRun, Slots, VerifyMode};
use samedraw::step_file::{ResultDocument, StepFile};
use samedraw::{Device, Error, Sampler, SamplingParams, Step};
use std::path::PathBuf;

fn vectors() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    let entries = std::fs::read_dir(folder).expect("tests/data").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "safetensors")).collect();
    files.sort();
    files
}

fn record<D: Device + ?Sized>(run: &mut HostRun<D>, max_bytes: usize) -> Result<StepFile, Error> {
    let (sampler, step, stream) = run.parts();
    // SAFETY: the run made every pointer and holds the memory behind it.
    unsafe { sampler.record(stream, step, max_bytes) }
}

/// Each vector is run, recorded, written, read and replayed: its expected result, which no device computed.
#[test]
fn every_vector_comes_back_from_its_recording() {
    for device in devices() {
        for path in vectors() {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let file = StepFile::read(&path).expect(&name);
            let mut run = match file.bring(&device, None) {
                Err(Error::ForceTopK { .. }) => continue,
                run => run.expect(&name),
            };
            run.run().expect(&name);
            let recorded = record(&mut run, usize::MAX).unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut recorded = StepFile::parse(&recorded.to_bytes().expect(&name)).expect(&name);
            assert_eq!(recorded.logits, file.logits, "{name}");
            for (here, there) in recorded.requests.iter_mut().zip(&file.requests) {
                // A recording knows the widest list alone, and names of its own.
                here.id.clone_from(&there.id);
                here.params.top_logprobs = there.params.top_logprobs;
            }
            let expected = ResultDocument::read(path.with_extension("expected.json")).expect(&name);
            let differences = recorded.run(&device, None).expect(&name).differences(&expected);
            assert_eq!(differences, [""; 0], "{name} on {}", device.info().platform);
        }
    }
}

/// Two of three rows in use, gathered, one masked, in parameters of the caller's own.
fn batch() -> Case {
    let rows: Vec<Vec<f32>> = (0..4).map(|r| (0..40).map(|v| ((v * (r + 3)) % 17) as f32 * 0.3).collect()).collect();
    let rows: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
    let params: Vec<SamplingParams> = [0.7f32, 1.3]
        .map(|temperature| SamplingParams {
            temperature,
            top_p: 0.93,
            min_p: 0.01,
            seq_seed: Some(3),
            ..SamplingParams::default()
        })
        .into();
    Case {
        rows: 3,
        gather: Some(vec![3, 0, 1]),
        row_to_slot: Some(vec![1, -1, 0]),
        positions: Some(vec![41, 0, 100]),
        mask: Some(vec![0x5555_5555, 0x55, 0, 0]),
        mask_index: Some(vec![0, -1, -1]),
        ..Case::f32(&rows, &params)
    }
}

#[test]
fn padding_gather_and_mask_are_resolved_and_the_size_is_bounded() {
    for device in devices() {
        let mut case = batch();
        case.position_offsets = Some(vec![2, 0, -5]);
        let mut run = HostRun::new(&device, &case.host()).expect("a run");
        let ran = run.run().expect("a result");
        let file = record(&mut run, 1 << 20).expect("a recording");
        assert_eq!(file.requests.iter().map(|r| r.seqlen_k).collect::<Vec<_>>(), [43, 95]);
        assert_eq!(file.requests.iter().map(|r| r.id.as_str()).collect::<Vec<_>>(), ["slot 1, row 0", "slot 0, row 2"]);
        assert_eq!(file.mask.as_ref().expect("a mask").words, [0x5555_5555, 0x55, -1, -1]);
        let replayed = file.run(&device, None).expect("a replay");
        for (request, row) in replayed.requests.iter().zip([0, 2]) {
            assert_eq!((request.tokens[0], request.kept[0]), (ran.tokens[row], ran.kept_counts[row].into()));
            assert_eq!(request.logprobs[0].0.to_bits(), ran.logprobs[row].to_bits());
        }
        let bytes = file.to_bytes().expect("bytes").len();
        assert!(record(&mut run, bytes - 1).is_err(), "a bound below the file's {bytes} bytes");
        let refused = record(&mut run, 200).expect_err("too small").to_string();
        assert!(refused.starts_with("record: bytes of the step file = ") && refused.ends_with("max_bytes = 200"));
    }
}

/// Parameters the step brought along are the ones recorded.
#[test]
fn rows_of_parameters_of_the_callers_are_recorded() {
    for device in devices() {
        let case = batch();
        let mut run = HostRun::new(&device, &case.host()).expect("a run");
        let own = [9u64, 8]
            .map(|seed| SamplingParams { top_k: 4, ..SamplingParams::default() }.to_slot(seed).expect("a row"));
        let slots = Slots { ptr: run.put(&own).expect("memory"), count: 2 };
        let (sampler, step, stream) = run.parts();
        let step = Step { slots: Some(slots), ..*step };
        // SAFETY: the run holds the memory.
        let file = unsafe {
            sampler.step(stream, &step).expect("a step");
            sampler.record(stream, &step, 1 << 20).expect("a recording")
        };
        let seen = file.requests.iter().map(|r| (r.params.seq_seed, r.params.top_k)).collect::<Vec<_>>();
        assert_eq!(seen, [(Some(8), 4), (Some(9), 4)]);
        let ran = run.read().expect("a result");
        let replayed = file.run(&device, None).expect("a replay");
        assert_eq!([replayed.requests[0].tokens[0], replayed.requests[1].tokens[0]], [ran.tokens[0], ran.tokens[2]]);
    }
}

/// Random decode batches, whose drafts, masks and golden tokens are all over the place; one slot a request and positions
/// from 1 up, as a stack has them.
#[test]
fn random_verifications_come_back() {
    let device = samedraw::device::open("cpu").expect("the CPU device");
    let mut recorded = 0;
    for number in 0..80 {
        let mut case = generate::random(number, true);
        let of = &case.verify.as_ref().expect("drafts").row_to_request;
        let slots = of.iter().map(|&request| if request < 0 { -1 } else { request % case.params.len() as i32 });
        case.row_to_slot = Some(slots.collect());
        case.positions.iter_mut().flatten().for_each(|position| *position = position.rem_euclid(1000) + 1);
        (case.position_offsets, case.bits) = (None, None);
        let mut run = HostRun::new(&device, &case.host()).expect("a run");
        let ran = run.run().expect("a result");
        let file = match record(&mut run, usize::MAX) {
            Err(Error::StepFile { .. }) => continue, // an index out of range
            file => file.expect("a recording"),
        };
        recorded += 1;
        let replayed = file.run(&device, None).expect("a replay");
        let tokens: Vec<i64> = replayed.requests.iter().flat_map(|request| request.tokens.clone()).collect();
        let live: Vec<i64> = ran.tokens.iter().copied().filter(|&token| token != -7777).collect();
        assert_eq!(tokens, live, "step {number}");
    }
    assert!(recorded >= 40, "{recorded} recorded");
}

#[test]
fn what_a_step_file_cannot_say_is_refused() {
    let device = samedraw::device::open("cpu").expect("the CPU device");
    type Change = fn(&mut Case);
    let cases: [(Change, &str); 8] = [
        (|c| c.positions = Some(vec![0, 0, 1]), "row 0: position 0 where 1 and up is expected"),
        (|c| c.row_to_slot = Some(vec![1, -1, 7]), "row 2: slot 7 of 2"),
        (|c| c.row_to_slot = Some(vec![-1, -1, -1]), "step: every row is padding"),
        (|c| c.gather = Some(vec![4, 0, 0]), "row 0: logits row 4 of 4"),
        (|c| c.mask_index = Some(vec![2, -1, -1]), "row 0: mask row 2 of 2"),
        (|c| c.mask_index = Some(vec![-2, -1, -1]), "row 0: mask row -2 of 2"),
        (|c| c.filters = Some(samedraw::pipeline::Filters::NONE), "row 0: slot 1 uses a filter that the step excludes"),
        (|c| c.draft_step = Some(0), "draft_step: 0 where 1 to 2147483647 is expected"),
    ];
    for (change, message) in cases {
        let mut case = batch();
        change(&mut case);
        let mut run = HostRun::new(&device, &case.host()).expect("a run");
        assert_eq!(record(&mut run, 1 << 20).expect_err(message).to_string(), format!("step file: {message}"));
    }
    let mut verifying =
        Case::f32(&[&[0.0; 8][..]; 3], &vec![SamplingParams::default(); 3]).verifying(VerifyMode::OneHot, &[1, 2], &[]);
    let verify = verifying.verify.as_mut().expect("drafts");
    verify.position_stride = PositionRule::Strided.stride() + 1;
    verifying.positions = Some(vec![5]);
    verifying.row_to_slot = Some(vec![0; 3]);
    let mut run = HostRun::new(&device, &verifying.host()).expect("a run");
    let refused = record(&mut run, 1 << 20).expect_err("a stride of its own").to_string();
    assert_eq!(refused, "step file: positions: 10000020 between rows is no rule of a step file");
    verifying.verify.as_mut().expect("drafts").position_stride = 1;
    verifying.row_to_slot = Some(vec![0, 0, -1]);
    let mut run = HostRun::new(&device, &verifying.host()).expect("a run");
    let refused = record(&mut run, 1 << 20).expect_err("padding").to_string();
    assert_eq!(refused, "step file: request 0: padding among its rows, which a step file cannot say");
}

/// A copy in a capture would become part of the graph.
#[test]
fn a_capturing_stream_is_refused() {
    for device in devices() {
        let case = batch();
        let mut run = HostRun::new(&device, &case.host()).expect("a run");
        let stream = Stream::new(&device).expect("a stream");
        let (sampler, step, _) = run.parts();
        let sampler: &Sampler<dyn Device> = sampler;
        // SAFETY: the stream is ours; nothing else is captured.
        unsafe {
            device.begin_capture(stream.raw()).expect("a capture");
            let refused = sampler.record(stream.raw(), step, 1 << 20);
            let graph = device.end_capture(stream.raw()).expect("a graph");
            device.destroy_graph(graph).expect("destroyed");
            assert!(matches!(refused, Err(Error::Capture { .. })), "{refused:?}");
        }
    }
}

/// Each row's own decision, beside what becomes of the request.
#[test]
fn a_row_says_whether_it_accepts_its_draft_by_itself() {
    for device in devices() {
        // Rows sure of tokens 1, 2, 3, 0; drafts 1, 9, 3: the third is accepted by itself, though the second is not.
        let row = |token: usize| (0..16).map(|v| if v == token { 50.0 } else { 0.0 }).collect::<Vec<f32>>();
        let rows = [row(1), row(2), row(3), row(0)];
        let rows: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
        let case = Case::f32(&rows, &[SamplingParams { seq_seed: Some(1), ..Default::default() }]).verifying(
            VerifyMode::OneHot,
            &[1, 9, 3],
            &[],
        );
        let mut run = HostRun::new(&device, &case.host()).expect("a run");
        let own = run.put(&[-7i32; 4]).expect("memory");
        let (sampler, step, stream) = run.parts();
        let mut step = *step;
        step.verify.as_mut().expect("verification").row_accepts = own;
        let mut accepts = [-7i32; 4];
        // SAFETY: the run holds the memory; `accepts` outlives the wait.
        unsafe {
            sampler.step(stream, &step).expect("a step");
            device.copy_to_host(stream, accepts.as_mut_ptr().cast(), own, 16).expect("a copy");
            device.synchronize(stream).expect("done");
        }
        assert_eq!(accepts, [1, 0, 1, 0]);
        let result = run.read().expect("a result");
        assert_eq!((result.accepted[0], &result.tokens[..]), (1, &[1, 2, -1, -1][..]));
    }
}
