//! Steps past what 32 bits count: elements above 2^31, rows above 65535.

use super::common::{Rng, assert_same};
use super::{Case, gpu};
use half::bf16;
use samedraw::device::{CpuDevice, DevPtr, Device, DeviceBuffer, Stream};
use samedraw::pipeline::{Columns, DType, Index, Logits, Outputs};
use samedraw::{Limits, ParamTable, Sampler, SamplingParams, Step};
use std::sync::Arc;

const ROWS: usize = 14_200;
const VOCAB: usize = 151_936;
/// Rows that differ. A prime: where an offset wraps, another row is read.
const POOL: usize = 37;
const SLOTS: usize = 16;
const N: usize = 24;

/// What a step over all rows gives.
#[derive(Debug, PartialEq)]
struct Given {
    tokens: Vec<i32>,
    logprobs: Vec<u32>,
    ranks: Vec<i32>,
    kept: Vec<i32>,
    ids: Vec<i32>,
    values: Vec<u32>,
}

/// Runs the step over `logits` of a device, whose row r is row `gather[r]` of it, or r.
fn run<D: Device>(
    device: &Arc<D>,
    logits: DevPtr,
    rows_there: usize,
    gather: Option<&[i32]>,
    params: &SamplingParams,
    n: usize,
) -> Given {
    let stream = Stream::new(device).expect("a stream");
    let table = Arc::new(ParamTable::new(device, SLOTS).expect("a table"));
    for slot in 0..SLOTS {
        let params = SamplingParams { seq_seed: Some(slot as u64), ..params.clone() };
        // SAFETY: the stream is ours and not capturing.
        unsafe { table.set(stream.raw(), slot, &params) }.expect("a slot");
    }
    let put = |data: &[i32]| DeviceBuffer::from_slice(device, &stream, data).expect("room");
    let slots = put(&(0..ROWS).map(|row| (row % SLOTS) as i32).collect::<Vec<_>>());
    let positions: Vec<i64> = (0..ROWS as i64).collect();
    let positions = DeviceBuffer::from_slice(device, &stream, &positions).expect("room");
    let gather = gather.map(put);
    let outputs: Vec<_> = (0..4).map(|_| put(&vec![-7777; ROWS])).collect();
    let columns: Vec<_> = (0..2).map(|_| put(&vec![-7777; ROWS * n.max(1)])).collect();
    let step = Step {
        logits: Logits { ptr: logits, dtype: DType::BF16, rows: rows_there, vocab: VOCAB, stride: VOCAB },
        rows: ROWS,
        gather: gather.as_ref().map(|gather| Index::i32(gather.ptr())),
        force_topk: n,
        row_to_slot: Some(Index::i32(slots.ptr())),
        positions: positions.ptr(),
        outputs: Outputs {
            tokens: Some(Index::i32(outputs[0].ptr())),
            logprobs: outputs[1].ptr(),
            ranks: outputs[2].ptr(),
            kept_counts: outputs[3].ptr(),
            columns: (n > 0).then(|| Columns { values: columns[0].ptr(), ids: columns[1].ptr() }),
            ..Outputs::default()
        },
        ..Step::default()
    };
    let limits = Limits { force_topk: n, ..Limits::new(ROWS, VOCAB) };
    let mut sampler = Sampler::new(device, limits, &table).expect("a sampler");
    // SAFETY: every buffer is of the size the step states and outlives the wait in `read`.
    unsafe { sampler.step(stream.raw(), &step) }.expect("a step");
    let ints = |buffer: &DeviceBuffer<D>| {
        let mut read = vec![0i32; buffer.bytes() / 4];
        buffer.read(&stream, &mut read).expect("a result");
        read
    };
    let bits = |buffer: &DeviceBuffer<D>| ints(buffer).into_iter().map(|i| i as u32).collect();
    Given {
        tokens: ints(&outputs[0]),
        logprobs: bits(&outputs[1]),
        ranks: ints(&outputs[2]),
        kept: ints(&outputs[3]),
        values: bits(&columns[0]),
        ids: ints(&columns[1]),
    }
}

/// 14200 rows of 151936 bf16 logits: 2,157,491,200 elements, the last rows behind the 2^31st. Every row is compared.
#[test]
fn more_than_two_to_the_31_elements() {
    let _turn = super::among_others();
    let Some(device) = gpu("more_than_two_to_the_31_elements", None) else { return };
    const { assert!(ROWS * VOCAB > 1 << 31) };
    let mut rng = Rng::new(31);
    let mut pool = vec![bf16::ZERO; POOL * VOCAB];
    pool.chunks_mut(3).for_each(|chunk| {
        let noise = 3.0 * rng.normal();
        chunk.iter_mut().zip([noise, noise * 0.5 + 0.3, noise * -0.7]).for_each(|(x, y)| *x = bf16::from_f32(y));
    });
    let row_bytes = VOCAB * 2;
    let stream = Stream::new(&device).expect("a stream");
    let logits = match DeviceBuffer::new(&device, ROWS * row_bytes) {
        Ok(logits) => logits,
        Err(why) => {
            assert!(std::env::var("SAMEDRAW_REQUIRE_CUDA").is_err(), "{why}");
            eprintln!("SKIPPED more_than_two_to_the_31_elements: {why}");
            return;
        }
    };
    for start in (0..ROWS).step_by(POOL) {
        let bytes = (ROWS - start).min(POOL) * row_bytes;
        // SAFETY: the range lies within the buffer; `pool` outlives the wait below.
        unsafe {
            device.copy_to_device(stream.raw(), logits.ptr().offset(start * row_bytes), pool.as_ptr().cast(), bytes)
        }
        .expect("a copy");
    }
    stream.synchronize().expect("copied");
    let cpu = Arc::new(CpuDevice::open().expect("the CPU device opens everywhere"));
    let gather: Vec<i32> = (0..ROWS).map(|row| (row % POOL) as i32).collect();
    let plain = SamplingParams::default();
    for (name, params, n) in [
        ("no filter", plain.clone(), 0),
        ("top-p", SamplingParams { top_p: 0.9, ..plain.clone() }, 0),
        ("argmax", SamplingParams { top_k: 1, ..plain.clone() }, 0),
        ("columns", SamplingParams { top_p: 0.8, ..plain }, N),
    ] {
        let want = run(&cpu, DevPtr::from_host(&pool), POOL, Some(&gather), &params, n);
        let got = run(&device, logits.ptr(), ROWS, None, &params, n);
        let differ =
            (0..ROWS).filter(|&row| (want.tokens[row], want.logprobs[row]) != (got.tokens[row], got.logprobs[row]));
        let differ: Vec<usize> = differ.collect();
        assert!(differ.is_empty(), "{name}: {} rows differ, from row {}", differ.len(), differ[0]);
        assert!(want == got, "{name}: ranks, kept counts or columns differ");
        // What the rows say is worth comparing.
        let distinct: std::collections::BTreeSet<i32> = got.tokens.iter().copied().collect();
        assert!(distinct.len() >= POOL / 2, "{name}: {} tokens", distinct.len());
    }
}

#[test]
fn seventy_thousand_rows() {
    let _turn = super::among_others();
    let Some(device) = gpu("seventy_thousand_rows", None) else { return };
    const ROWS: usize = 70_000;
    let (mut rng, vocab) = (Rng::new(70), 97);
    let rows: Vec<Vec<f32>> = (0..61).map(|_| (0..vocab).map(|_| 2.0 * rng.normal()).collect()).collect();
    let rows: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
    let params: Vec<SamplingParams> = (0..29u64)
        .map(|n| SamplingParams { seq_seed: Some(n), top_p: if n % 2 == 0 { 0.9 } else { 1.0 }, ..Default::default() })
        .collect();
    let mut case = Case {
        rows: ROWS,
        gather: Some((0..ROWS as i64).map(|row| row % 61).collect()),
        row_to_slot: Some((0..ROWS as i32).map(|row| row % 29).collect()),
        positions: Some((0..ROWS as i64).collect()),
        top_logprobs: 3,
        kept_ids: 4,
        dense: false,
        ..Case::f32(&rows, &params)
    };
    let (device, cpu): (Arc<dyn Device>, Arc<dyn Device>) = (device, Arc::new(CpuDevice::with_threads(2)));
    assert_same(&case.run(&cpu, "sample"), &case.run(&device, "sample"), || "70000 rows, sample".into());
    (case.force_topk, case.columns) = (5, true);
    assert_same(&case.run(&cpu, "select"), &case.run(&device, "select"), || "70000 rows, select".into());
    let drafts: Vec<i64> = (0..ROWS as i64).map(|row| row % 3).collect();
    let ends = (0..=ROWS as i32).step_by(7).collect::<Vec<_>>();
    let mut verify = Case { columns: false, force_topk: 0, ..case.clone() };
    verify.positions = Some((0..ends.len() as i64 - 1).collect());
    verify.row_to_slot = Some((0..ROWS as i32).map(|row| row / 7 % 29).collect());
    verify.verify = Some(super::common::Drafted {
        mode: Some(samedraw::pipeline::VerifyMode::OneHot),
        first_rows: ends,
        row_to_request: (0..ROWS as i32).map(|row| row / 7).collect(),
        position_stride: 10_000_019,
        ids: drafts,
        ..Default::default()
    });
    assert_same(&verify.run(&cpu, "verify"), &verify.run(&device, "verify"), || "70000 rows, verify".into());
}
