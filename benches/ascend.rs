//! Steps of the Ascend device, timed by events of the runtime on the stream the steps are enqueued on.
//!
//! `cargo bench --features ascend --bench ascend`, where CANN and an NPU are. On the simulated runtime the times are those
//! of a model on the host's cores, which this says at the top and in every line: they show that the bench runs and
//! nothing about an NPU.

use samedraw::device::ascend::AscendDevice;
use samedraw::params::FilterOrder;
use samedraw::pipeline::{HostRun, HostStep};
use samedraw::random::splitmix64;
use samedraw::{Device, Error, SamplingParams};
use std::process::ExitCode;
use std::sync::Arc;

/// Bytes a second of global memory that the vendor's own examples measure on Atlas A2.
const BANDWIDTH: f64 = 1.45e12;

/// Normal, deviation 3, the same in every run; every row its own.
fn logits(rows: usize, vocab: usize) -> Vec<u8> {
    let unit = |n: u64| (splitmix64(11, n) >> 11) as f64 / (1u64 << 53) as f64;
    let normal = |n: u64| (-2.0 * (1.0 - unit(2 * n)).ln()).sqrt() * (std::f64::consts::TAU * unit(2 * n + 1)).cos();
    (0..(rows * vocab) as u64).flat_map(|n| (3.0 * normal(n) as f32).to_le_bytes()).collect()
}

fn median(mut times: Vec<f32>) -> f32 {
    times.sort_by(f32::total_cmp);
    times[times.len() / 2]
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Whether the runtime that is open is the test double, which tells by what it exports besides.
fn is_simulated() -> bool {
    use libloading::os::unix::{Library, RTLD_NOW};
    const RTLD_NOLOAD: std::ffi::c_int = 4;
    ["libacl_rt.so", "libascendcl.so"].into_iter().any(|name| {
        // SAFETY: nothing is loaded that is not open already, and no symbol is called.
        unsafe {
            let open = Library::open(Some(name), RTLD_NOW | RTLD_NOLOAD);
            open.is_ok_and(|library| library.get::<*const u8>(b"ascend_sim_counter").is_ok())
        }
    })
}

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Error::Unavailable(why)) => {
            println!("nothing was measured: {why}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> samedraw::Result<()> {
    let device = Arc::new(AscendDevice::open(0)?);
    let on_model = is_simulated();
    let mark = if on_model { "ON THE MODEL, not an NPU" } else { "on an NPU" };
    println!("{}: {mark}", device.info().name);
    // The model takes minutes for what an NPU does in a moment.
    let vocab = number("SAMEDRAW_BENCH_VOCAB", if on_model { 20_000 } else { 129_280 });
    let repeat = number("SAMEDRAW_BENCH_REPEAT", if on_model { 1 } else { 101 });
    let most_rows = number("SAMEDRAW_BENCH_ROWS", if on_model { 1 } else { 256 });
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
        ("N = 1024, top_p", top_p.clone(), 1024),
        ("N = 4096, top_p", top_p, 4096),
    ];
    println!("{:<18} {:>6} {:>8} {:>10} {:>12} {:>9}", "step", "rows", "vocab", "median us", "one read us", "launches");
    for rows in [1, 16, 64, 256].into_iter().filter(|&rows| rows <= most_rows) {
        let logits = logits(rows, vocab);
        let positions: Vec<i64> = (0..rows as i64).collect();
        let one_read = logits.len() as f64 / BANDWIDTH * 1e6;
        for (name, params, force_topk) in &mixes {
            let params = vec![params.clone(); rows];
            let host = HostStep {
                logits: &logits,
                vocab,
                stride: vocab,
                logits_rows: rows,
                rows,
                force_topk: *force_topk,
                params: &params,
                positions: Some(&positions),
                ..HostStep::default()
            };
            let mut run = HostRun::new(&device, &host)?;
            run.tokens_alone();
            // The first one warms up.
            run.time_ms()?;
            let before = device.launches();
            let times = (0..repeat).map(|_| run.time_ms()).collect::<samedraw::Result<Vec<f32>>>()?;
            let launches = (device.launches() - before) / repeat as u64;
            let us = f64::from(median(times)) * 1e3;
            println!("{name:<18} {rows:>6} {vocab:>8} {us:>10.1} {one_read:>12.2} {launches:>9}  {mark}");
        }
    }
    Ok(())
}
