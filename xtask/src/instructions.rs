//! Instructions of a step on the CPU device, counted by valgrind: the same on a machine that is busy with other things,
//! so that a slower step is found where times cannot be compared.
//!
//! A release build of this program is its own subject: `instructions-of STEP N` runs a step N times, and the difference
//! between two numbers of runs leaves out everything that happens once. Counts are of the AVX2 lanes on one thread and
//! hold for one compiler, which the committed file names.

use samedraw::device::Device;
use samedraw::device::cpu::{CpuDevice, CpuPath};
use samedraw::params::{FilterOrder, SamplingParams};
use samedraw::pipeline::{HostRun, HostStep};
use samedraw::random::splitmix64;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Where the counts are kept.
const FILE: &str = "benches/instructions.tsv";
const VOCAB: usize = 129_280;
/// Numbers of runs whose difference is counted.
const RUNS: [u64; 2] = [2, 12];
/// Share by which a count may differ from the one that is kept.
const TOLERANCE: f64 = 0.02;

/// Steps by name, with force-top-k and whether the row's values are all equal.
fn steps() -> Vec<(&'static str, SamplingParams, usize, bool)> {
    let plain = SamplingParams { seq_seed: Some(7), ..SamplingParams::default() };
    let top_p = SamplingParams { top_p: 0.9, ..plain.clone() };
    let joint = SamplingParams { top_k: 50, ..top_p.clone() };
    let first = SamplingParams { filter_order: FilterOrder::TopKFirst, ..joint.clone() };
    let min_p = SamplingParams { min_p: 0.05, ..plain.clone() };
    vec![
        ("argmax", SamplingParams { top_k: 1, ..plain.clone() }, 0, false),
        ("temperature", SamplingParams { temperature: 0.8, ..plain }, 0, false),
        ("top-p", top_p.clone(), 0, false),
        ("joint", joint, 0, false),
        ("top-k-first", first, 0, false),
        ("force-top-k", top_p.clone(), 1024, false),
        ("min-p", min_p.clone(), 0, false),
        ("min-p-equal", min_p, 0, true),
        ("top-p-equal", top_p, 0, true),
    ]
}

/// Near normal, deviation 3, by additions alone: no library function that another machine has in another version.
fn row(equal: bool) -> Vec<f32> {
    let unit = |n: u64| (splitmix64(11, n) >> 11) as f64 / (1u64 << 53) as f64;
    let normal = |v: u64| (0..12).map(|i| unit(12 * v + i)).sum::<f64>() - 6.0;
    (0..VOCAB as u64).map(|v| if equal { 1.5 } else { 3.0 * normal(v) as f32 }).collect()
}

/// The subject: the step `name`, `times` times.
pub fn subject(name: &str, times: &str) -> Result<(), String> {
    let times: u64 = times.parse().map_err(|_| format!("{times:?} is not a number of runs"))?;
    let found = steps().into_iter().find(|step| step.0 == name);
    let (_, params, force_topk, equal) = found.ok_or_else(|| format!("no step is called {name:?}"))?;
    let bytes: Vec<u8> = row(equal).iter().flat_map(|x| x.to_le_bytes()).collect();
    let device = CpuDevice::with_path(1, CpuPath::Avx2).map_err(|error| error.to_string())?;
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
    let run = || -> samedraw::Result<()> {
        let mut run = HostRun::new(&(Arc::new(device) as Arc<dyn Device>), &host)?;
        run.tokens_alone();
        (0..times).try_for_each(|_| run.time_ms().map(|_| ()))
    };
    run().map_err(|error| error.to_string())
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(text) } else { Err(format!("{command:?}:\n{text}")) }
}

/// A release build of this program.
fn build(root: &Path) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    output(Command::new(cargo).args(["build", "--release", "--package", "xtask"]).current_dir(root))?;
    let own = std::env::current_exe().map_err(|error| format!("the path of this program: {error}"))?;
    let profiles = own.ancestors().nth(2).ok_or("this program is not in a target folder")?;
    Ok(profiles.join("release").join("xtask"))
}

/// Instructions of one run of a step.
fn count(program: &Path, name: &str) -> Result<u64, String> {
    let collected = |times: u64| -> Result<u64, String> {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
        let text = output(valgrind.args(["instructions-of", name, &times.to_string()]))?;
        let line = text.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
        line.ok_or_else(|| format!("valgrind told no count:\n{text}"))
    };
    let [few, many] = RUNS;
    Ok((collected(many)? - collected(few)?) / (many - few))
}

/// Counts every step and writes the file, or compares with it.
pub fn run(root: &Path, write: bool) -> Result<(), String> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("SKIPPED: valgrind is not installed, no instructions were counted");
        return Ok(());
    }
    if !CpuPath::Avx2.is_available() {
        println!("SKIPPED: the counts are those of AVX2, which this processor does not have");
        return Ok(());
    }
    let compiler = output(Command::new("rustc").arg("--version"))?.trim().to_owned();
    let path = root.join(FILE);
    let kept =
        if write { String::new() } else { std::fs::read_to_string(&path).map_err(|e| format!("{FILE}: {e}"))? };
    let mut lines = kept.lines();
    let counted_with = lines.next().unwrap_or_default();
    if !write && counted_with != compiler {
        println!("SKIPPED: {FILE} was counted with {counted_with}, this is {compiler}");
        return Ok(());
    }
    let kept: Vec<(&str, u64)> =
        lines.filter_map(|line| line.split_once('\t')).filter_map(|(name, n)| Some((name, n.parse().ok()?))).collect();
    let program = build(root)?;
    let mut text = compiler + "\n";
    let mut off = Vec::new();
    for (name, ..) in steps() {
        let counted = count(&program, name)?;
        text += &format!("{name}\t{counted}\n");
        let change = kept.iter().find(|kept| kept.0 == name).map(|kept| counted as f64 / kept.1 as f64 - 1.0);
        let shown = change.map_or("not kept".into(), |change| format!("{:+.2} %", 100.0 * change));
        println!("{name:<14} {counted:>9} instructions a step  {}", if write { "" } else { &shown });
        if !write && change.is_none_or(|change| change.abs() > TOLERANCE) {
            off.push(name);
        }
    }
    if write {
        return std::fs::write(&path, text).map_err(|error| format!("{FILE}: {error}"));
    }
    if off.is_empty() {
        return Ok(());
    }
    let limit = 100.0 * TOLERANCE;
    Err(format!(
        "more than {limit} % from {FILE}: {}; if that is meant: cargo xtask instructions --write",
        off.join(", ")
    ))
}
