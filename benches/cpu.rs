//! Steps of one row on one thread of the CPU device, beside the plain maximum of the row and the textbook sort.
//!
//! `samedraw bench` measures more combinations, in turns; this is for comparing one build with the next.

use criterion::{Criterion, criterion_group, criterion_main};
use samedraw::params::FilterOrder;
use samedraw::pipeline::{HostRun, HostStep};
use samedraw::random::splitmix64;
use samedraw::{Device, SamplingParams};
use std::hint::black_box;
use std::sync::Arc;

const VOCAB: usize = 129_280;

/// Normal, deviation 3, the same in every run.
fn row() -> Vec<f32> {
    let unit = |n: u64| (splitmix64(11, n) >> 11) as f64 / (1u64 << 53) as f64;
    let normal = |n: u64| (-2.0 * (1.0 - unit(2 * n)).ln()).sqrt() * (std::f64::consts::TAU * unit(2 * n + 1)).cos();
    (0..VOCAB as u64).map(|n| 3.0 * normal(n) as f32).collect()
}

fn steps(c: &mut Criterion) {
    let device: Arc<dyn Device> = Arc::new(samedraw::device::CpuDevice::with_threads(1));
    let row = row();
    let bytes: Vec<u8> = row.iter().flat_map(|x| x.to_le_bytes()).collect();
    let plain = SamplingParams { seq_seed: Some(7), ..SamplingParams::default() };
    let top_p = SamplingParams { top_p: 0.9, ..plain.clone() };
    let joint = SamplingParams { top_k: 50, ..top_p.clone() };
    let first = SamplingParams { filter_order: FilterOrder::TopKFirst, ..joint.clone() };
    let argmax = SamplingParams { top_k: 1, ..plain.clone() };
    let mixes = [
        ("argmax", argmax, 0),
        ("temperature", plain, 0),
        ("top_p", top_p.clone(), 0),
        ("joint", joint, 0),
        ("top_k_first", first, 0),
        ("force_topk", top_p, 1024),
    ];
    for (name, params, force_topk) in mixes {
        let host = HostStep {
            logits: &bytes,
            vocab: VOCAB,
            stride: VOCAB,
            logits_rows: 1,
            rows: 1,
            force_topk,
            params: &[params],
            positions: Some(&[1]),
            ..HostStep::default()
        };
        let mut run = HostRun::new(&device, &host).expect("a step");
        run.tokens_alone();
        c.bench_function(name, |b| b.iter(|| run.time_ms().expect("a time")));
    }
    c.bench_function("plain maximum", |b| {
        b.iter(|| black_box(&row).iter().fold(f32::NEG_INFINITY, |max, &x| if x > max { x } else { max }))
    });
    let mut order = Vec::new();
    c.bench_function("softmax and full sort", |b| {
        b.iter(|| {
            let max = row.iter().fold(f32::NEG_INFINITY, |max, &x| if x > max { x } else { max });
            order.clear();
            order.extend(row.iter().zip(0u32..).map(|(&x, id)| ((x - max).exp(), id)));
            order.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
            black_box(order[0])
        })
    });
}

criterion_group!(benches, steps);
criterion_main!(benches);
