//! `samedraw bench`: the time of a step, in microseconds and in units of the plain maximum of its rows.

mod baseline;
mod chart;
mod rows;

use crate::Outcome;
use crate::output::{Failure, Style, print};
use crate::table::{Column, Table};
use indicatif::{ProgressBar, ProgressStyle};
use rows::{Character, Mix};
use samedraw::Device;
use samedraw::device::{CpuDevice, open};
use samedraw::pipeline::{DType, HostRun, HostStep};
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The sort takes a hundred times as long as anything else: it is timed that much less often.
const SORTS: usize = 5;

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
    /// Filters, one or more; all if not given
    #[arg(long, value_delimiter = ',', value_enum)]
    mix: Vec<Mix>,
    /// What the rows look like, one or more
    #[arg(long, value_delimiter = ',', value_enum, default_value = "normal")]
    row: Vec<Character>,
    /// Type of the logits
    #[arg(long, value_enum, default_value = "f32")]
    dtype: rows::Type,
    /// Times each step is run
    #[arg(long, value_name = "N", default_value = "101", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a chart to this file as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// The times of one kind of step.
pub struct Timed {
    pub mix: Mix,
    pub character: Character,
    pub rows: usize,
    pub vocab: usize,
    /// Microseconds, ascending.
    pub times: Vec<f64>,
    /// Median of the plain maximum of the same rows, in the same run.
    pub unit: f64,
    /// Median of softmax and a full sort of the same rows.
    pub sort: f64,
}

impl Timed {
    /// The time below which a share of the times lie.
    pub fn quantile(&self, share: f64) -> f64 {
        quantile(&self.times, share)
    }

    /// Median in units.
    pub fn units(&self) -> f64 {
        self.quantile(0.5) / self.unit
    }
}

fn quantile(ascending: &[f64], share: f64) -> f64 {
    ascending[((ascending.len() - 1) as f64 * share).round() as usize]
}

/// Runs every combination, prints the table, writes the files.
pub fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let device: Arc<dyn Device> = match (arguments.threads, arguments.device.as_str()) {
        (Some(threads), "cpu") => match arguments.path {
            Some(path) => Arc::new(CpuDevice::with_path(threads.into(), path.code())?),
            None => Arc::new(CpuDevice::with_threads(threads.into())),
        },
        (Some(_), device) => return Err(Failure(format!("--threads is for the CPU device, not for {device}"))),
        (None, device) => open(device)?,
    };
    let mixes = if arguments.mix.is_empty() { Mix::ALL.to_vec() } else { arguments.mix.clone() };
    let bar = progress(arguments.vocab.len() * arguments.rows.len() * arguments.row.len());
    let mut all = Vec::new();
    for &vocab in &arguments.vocab {
        for &rows in &arguments.rows {
            for &character in &arguments.row {
                bar.set_message(format!("{rows} x {vocab}, {character} rows"));
                all.extend(measure(&device, arguments, &mixes, rows as usize, vocab as usize, character)?);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    let info = device.info();
    let path = arguments.path.map_or(String::new(), |path| format!(", {path:?}"));
    let name = format!("{} ({}{path})", info.platform, info.name);
    let title = format!("{name}, {:?} logits, {} runs", arguments.dtype, arguments.repeat);
    print(&format!("{title}\n{}", table(&all)))?;
    let write = |path: &PathBuf, text: String| {
        std::fs::write(path, text).map_err(|error| Failure(format!("writing {}: {error}", path.display())))
    };
    if let Some(path) = &arguments.json {
        write(path, json(&title, &all) + "\n")?;
    }
    if let Some(path) = &arguments.svg {
        write(path, chart::svg(&title, &all))?;
    }
    Ok(Outcome::Done)
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

/// All mixes over the same rows, in turns, so that whatever else the machine does meets them alike.
fn measure(
    device: &Arc<dyn Device>,
    arguments: &Arguments,
    mixes: &[Mix],
    rows: usize,
    vocab: usize,
    character: Character,
) -> Result<Vec<Timed>, Failure> {
    let values = rows::values(character, rows, vocab);
    let (bytes, dtype) = arguments.dtype.encode(&values);
    let mut runs = Vec::new();
    for mix in mixes {
        runs.push(prepare(device, *mix, &bytes, dtype, rows, vocab)?);
    }
    let mut times = vec![Vec::new(); mixes.len()];
    let (mut units, mut sorts) = (Vec::new(), Vec::new());
    for round in 0..=arguments.repeat {
        let unit = clock(|| values.chunks(vocab).for_each(|row| _ = std::hint::black_box(baseline::maximum(row))));
        let mut taken = Vec::new();
        for run in &mut runs {
            taken.push(f64::from(run.time_ms()?) * 1e3);
        }
        // The first round warms up.
        if round > 0 {
            units.push(unit);
            times.iter_mut().zip(taken).for_each(|(times, taken)| times.push(taken));
        }
    }
    let mut order = Vec::new();
    for _ in 0..SORTS {
        let sort = |row: &[f32]| _ = std::hint::black_box(baseline::sort_and_draw(row, 0.9, 0.5, &mut order));
        sorts.push(clock(|| values.chunks(vocab).for_each(sort)));
    }
    units.sort_by(f64::total_cmp);
    sorts.sort_by(f64::total_cmp);
    let (unit, sort) = (quantile(&units, 0.5), quantile(&sorts, 0.5));
    let timed = mixes.iter().zip(times).map(|(&mix, mut times)| {
        times.sort_by(f64::total_cmp);
        Timed { mix, character, rows, vocab, times, unit, sort }
    });
    Ok(timed.collect())
}

/// The step of a mix on the device; its tokens alone are wanted unless the mix says otherwise.
fn prepare(
    device: &Arc<dyn Device>,
    mix: Mix,
    bytes: &[u8],
    dtype: DType,
    rows: usize,
    vocab: usize,
) -> Result<HostRun<dyn Device>, Failure> {
    let positions: Vec<i64> = (1..=rows as i64).collect();
    let params = vec![mix.params(); rows];
    let host = HostStep {
        logits: bytes,
        dtype,
        vocab,
        stride: vocab,
        logits_rows: rows,
        rows,
        force_topk: mix.force_topk(),
        params: &params,
        positions: Some(&positions),
        ..HostStep::default()
    };
    let mut run = HostRun::new(device, &host)?;
    if !mix.reports() {
        run.tokens_alone();
    }
    Ok(run)
}

/// Microseconds.
fn clock(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e6
}

fn table(all: &[Timed]) -> String {
    let mut table = Table::new(&[
        ("step", Column::Left),
        ("row", Column::Left),
        ("rows", Column::Right),
        ("vocab", Column::Right),
        ("median us", Column::Right),
        ("p10", Column::Right),
        ("p90", Column::Right),
        ("x maximum", Column::Main),
        ("sort / step", Column::Right),
    ]);
    for timed in all {
        table.row(vec![
            timed.mix.to_string(),
            timed.character.to_string(),
            timed.rows.to_string(),
            timed.vocab.to_string(),
            format!("{:.1}", timed.quantile(0.5)),
            format!("{:.1}", timed.quantile(0.1)),
            format!("{:.1}", timed.quantile(0.9)),
            format!("{:.2}", timed.units()),
            format!("{:.0}", timed.sort / timed.quantile(0.5)),
        ]);
    }
    let mut text = table.render(Style::of_stdout());
    let mut last = None;
    for timed in all {
        let shape = (timed.rows, timed.vocab, timed.character);
        if last.replace(shape) != Some(shape) {
            text += &format!(
                "{} x {}, {}: plain maximum {:.1} us, softmax and full sort {:.0} us\n",
                timed.rows, timed.vocab, timed.character, timed.unit, timed.sort
            );
        }
    }
    text
}

fn json(title: &str, all: &[Timed]) -> String {
    let steps: Vec<serde_json::Value> = all
        .iter()
        .map(|timed| {
            serde_json::json!({
                "step": timed.mix.to_string(),
                "row": timed.character.to_string(),
                "rows": timed.rows,
                "vocab": timed.vocab,
                "median_us": timed.quantile(0.5),
                "p10_us": timed.quantile(0.1),
                "p90_us": timed.quantile(0.9),
                "maximum_us": timed.unit,
                "sort_us": timed.sort,
            })
        })
        .collect();
    serde_json::json!({ "title": title, "steps": steps }).to_string()
}
