//! `samedraw bench`: the time of a step, in microseconds and in units of what it cannot do without: on the host the plain
//! maximum of its rows, on a GPU a plain read of them.

mod baseline;
mod chart;
mod drafts;
mod gpu;
mod graph;
mod host;
mod inputs;
mod lines;
mod report;
mod rows;
mod work;

use crate::Outcome;
use crate::output::{Failure, print};
use indicatif::{ProgressBar, ProgressStyle};
use rows::{Character, Mix, Type};
use samedraw::Device;
use samedraw::device::{CpuDevice, open};
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Arguments of `samedraw bench`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Device to run on: `cpu`, `cuda[:i]` or `ascend[:i]`
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Threads of the CPU device; all of the host's cores if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Code of the CPU device; what it takes by itself if not given
    #[arg(long, value_enum, requires = "threads")]
    path: Option<rows::Path>,
    /// Rows of a step, one or more numbers
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    rows: Vec<u32>,
    /// Vocabulary sizes, one or more
    #[arg(long, value_delimiter = ',', default_value = "129280", value_parser = clap::value_parser!(u32).range(1..))]
    vocab: Vec<u32>,
    /// What steps do, one or more; everything the device is measured by if not given
    #[arg(long, value_delimiter = ',', value_enum)]
    mix: Vec<Mix>,
    /// What the rows look like, one or more; verification is measured on normal rows alone
    #[arg(long, value_delimiter = ',', value_enum, default_value = "normal")]
    row: Vec<Character>,
    /// Types of the logits, one or more
    #[arg(long, value_delimiter = ',', value_enum, default_value = "f32")]
    dtype: Vec<Type>,
    /// Times each step is run, or on a GPU each graph; 101 or 9 if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: Option<u32>,
    /// On a GPU: mebibytes of logits that the copies of a step in a graph are spread over, at least 4 steps' worth
    #[arg(long, value_name = "N", default_value = "1024", value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    cold_mib: u32,
    /// On a GPU: requests of a step that verifies, 6 rows each
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(1..))]
    requests: u32,
    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a chart to this file as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn quantile(ascending: &[f64], share: f64) -> f64 {
    ascending[((ascending.len() - 1) as f64 * share).round() as usize]
}

/// What a run leaves behind.
struct Report {
    table: String,
    json: String,
    svg: String,
}

/// Runs every combination, prints the table, writes the files.
pub fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let on_gpu = arguments.device == "cuda" || arguments.device.starts_with("cuda:");
    if arguments.threads.is_some() && arguments.device != "cpu" {
        return Err(Failure(format!("--threads is for the CPU device, not for {}", arguments.device)));
    }
    let report = if on_gpu { run_on_gpu(arguments)? } else { run_on_host(arguments)? };
    print(&report.table)?;
    let write = |path: &PathBuf, text: String| {
        std::fs::write(path, text).map_err(|error| Failure(format!("writing {}: {error}", path.display())))
    };
    if let Some(path) = &arguments.json {
        write(path, report.json + "\n")?;
    }
    if let Some(path) = &arguments.svg {
        write(path, report.svg)?;
    }
    Ok(Outcome::Done)
}

fn chosen(arguments: &Arguments, all: &[Mix]) -> Vec<Mix> {
    if arguments.mix.is_empty() { all.to_vec() } else { arguments.mix.clone() }
}

fn run_on_host(arguments: &Arguments) -> Result<Report, Failure> {
    let device: Arc<dyn Device> = match arguments.threads {
        Some(threads) => match arguments.path {
            Some(path) => Arc::new(CpuDevice::with_path(threads.into(), path.code())?),
            None => Arc::new(CpuDevice::with_threads(threads.into())),
        },
        None => open(&arguments.device)?,
    };
    let (mixes, repeat) = (chosen(arguments, &Mix::HOST), arguments.repeat.unwrap_or(101));
    let steps = arguments.vocab.len() * arguments.dtype.len() * arguments.rows.len() * arguments.row.len();
    let bar = progress(steps);
    let all = host::measure(&device, arguments, &mixes, repeat, &bar)?;
    bar.finish_and_clear();
    let info = device.info();
    let path = arguments.path.map_or(String::new(), |path| format!(", {path:?}"));
    let title = format!("{} ({}{path}), {repeat} runs", info.platform, info.name);
    Ok(Report {
        table: format!("{title}\n{}", host::table(&all)),
        json: host::json(&title, &all),
        svg: chart::svg(&title, &all),
    })
}

fn run_on_gpu(arguments: &Arguments) -> Result<Report, Failure> {
    let (device, read) = gpu::open_with_read(&arguments.device)?;
    let (mixes, repeat) = (chosen(arguments, &Mix::GPU), arguments.repeat.unwrap_or(9));
    let bar = progress(arguments.vocab.len() * arguments.dtype.len() * arguments.row.len() * arguments.rows.len());
    let bench = graph::Bench { device: &device, read: &*read, arguments, repeat };
    let all = bench.measure(&mixes, &bar)?;
    bar.finish_and_clear();
    let info = device.info();
    let title = format!("{} ({}), medians of {repeat} graph replays, cold", info.platform, info.name);
    Ok(Report {
        table: format!("{title}\n{}", report::table(&all)),
        json: report::json(&title, &all),
        svg: lines::svg(&title, &all),
    })
}

/// A bar where somebody watches.
fn progress(steps: usize) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
