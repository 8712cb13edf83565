//! Steps on a GPU in graphs over inputs its caches do not hold, timed by events.
//!
//! `samedraw bench --device cuda` measures more combinations, in turns, beside the plain read; this is for comparing one
//! build with the next. Skipped, with a line on stderr, where there is no GPU.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use samedraw::device::{CudaDevice, DeviceBuffer, Stream, TimedGraph};
use samedraw::params::FilterOrder;
use samedraw::pipeline::{Columns, Index, Logits, Outputs};
use samedraw::random::splitmix64;
use samedraw::{Device, Limits, ParamTable, Result, Sampler, SamplingParams, Step};
use std::sync::Arc;
use std::time::Duration;

const VOCAB: usize = 129_280;
/// Rows that differ; the inputs repeat them at other addresses.
const POOL: usize = 32;
/// Rows of all inputs: 1.06 GB.
const ALL: usize = 2048;
const SLOTS: usize = 64;

/// Normal, deviation 3, the same in every run.
fn pool() -> Vec<f32> {
    let unit = |n: u64| (splitmix64(11, n) >> 11) as f64 / (1u64 << 53) as f64;
    let normal = |n: u64| (-2.0 * (1.0 - unit(2 * n)).ln()).sqrt() * (std::f64::consts::TAU * unit(2 * n + 1)).cos();
    (0..(POOL * VOCAB) as u64).map(|n| 3.0 * normal(n) as f32).collect()
}

struct Bench {
    device: Arc<dyn Device>,
    stream: Arc<Stream<dyn Device>>,
    logits: DeviceBuffer<dyn Device>,
}

impl Bench {
    fn new(device: CudaDevice) -> Result<Self> {
        let device: Arc<dyn Device> = Arc::new(device);
        let stream = Arc::new(Stream::new(&device)?);
        let logits = DeviceBuffer::new(&device, ALL * VOCAB * 4)?;
        let pool = pool();
        for start in (0..ALL).step_by(POOL) {
            logits.write(&stream, start * VOCAB, &pool)?;
        }
        Ok(Bench { device, stream, logits })
    }

    /// Times the step over `rows` rows with these parameters; `columns` asks for the columns of force-top-k and no token.
    fn step(&self, c: &mut Criterion, name: &str, rows: usize, params: &SamplingParams, columns: usize) -> Result<()> {
        let table = Arc::new(ParamTable::new(&self.device, SLOTS)?);
        for slot in 0..SLOTS {
            // SAFETY: the stream is ours and not capturing; waiting keeps the staging ring free.
            unsafe { table.set(self.stream.raw(), slot, params)? };
            self.stream.synchronize()?;
        }
        let limits = Limits { force_topk: columns, ..Limits::new(rows, VOCAB) };
        let mut sampler = Sampler::new(&self.device, limits, &table)?;
        let slots: Vec<i32> = (0..rows).map(|row| (row % SLOTS) as i32).collect();
        let slots = DeviceBuffer::from_slice(&self.device, &self.stream, &slots)?;
        let positions: Vec<i64> = (0..rows as i64).collect();
        let positions = DeviceBuffer::from_slice(&self.device, &self.stream, &positions)?;
        let tokens = DeviceBuffer::new(&self.device, rows * 4)?;
        let values = DeviceBuffer::new(&self.device, rows * columns * 4)?;
        let ids = DeviceBuffer::new(&self.device, rows * columns * 4)?;
        let outputs = if columns == 0 {
            Outputs { tokens: Some(Index::i32(tokens.ptr())), ..Outputs::default() }
        } else {
            Outputs { columns: Some(Columns { values: values.ptr(), ids: ids.ptr() }), ..Outputs::default() }
        };
        let step = Step {
            logits: Logits { rows, vocab: VOCAB, stride: VOCAB, ..Logits::default() },
            rows,
            force_topk: columns,
            row_to_slot: Some(Index::i32(slots.ptr())),
            positions: positions.ptr(),
            outputs,
            ..Step::default()
        };
        let enqueue = |on, input: usize| {
            let ptr = self.logits.ptr().offset(input * rows * VOCAB * 4);
            let step = Step { logits: Logits { ptr, ..step.logits }, ..step };
            // SAFETY: inputs and outputs are of the sizes the step states and outlive the graph below.
            unsafe { sampler.step(on, &step) }
        };
        // SAFETY: as above.
        let mut graph = unsafe { TimedGraph::capture(&self.device, &self.stream, ALL / rows, enqueue)? };
        let steps = graph.steps() as u64;
        let mut group = c.benchmark_group(name);
        group.sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
        group.bench_function(BenchmarkId::from_parameter(rows), |b| {
            b.iter_custom(|iterations| {
                let replays = iterations.div_ceil(steps);
                let us = graph.step_us(replays as usize).expect("a time");
                Duration::from_secs_f64(us * 1e-6 * iterations as f64)
            })
        });
        group.finish();
        Ok(())
    }
}

fn steps(c: &mut Criterion) {
    let device = match CudaDevice::open(0) {
        Ok(device) => device,
        Err(why) => {
            eprintln!("SKIPPED benches of the CUDA device: {why}");
            return;
        }
    };
    let bench = Bench::new(device).expect("inputs");
    let plain = SamplingParams { seq_seed: Some(7), ..SamplingParams::default() };
    let top_p = SamplingParams { top_p: 0.9, ..plain.clone() };
    let first = SamplingParams { top_k: 50, filter_order: FilterOrder::TopKFirst, ..top_p.clone() };
    let argmax = SamplingParams { top_k: 1, ..plain.clone() };
    let mixes = [
        ("argmax", argmax, 0),
        ("temperature", plain.clone(), 0),
        ("top_p", top_p, 0),
        ("top_k_first", first, 0),
        ("select_1024", plain, 1024),
    ];
    for (name, params, columns) in mixes {
        for rows in [1, 64, 512] {
            bench.step(c, name, rows, &params, columns).expect("a step");
        }
    }
}

criterion_group!(benches, steps);
criterion_main!(benches);
