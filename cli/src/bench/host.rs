//! Steps on the host's cores, each timed by itself, beside the plain maximum of its rows and the textbook sort.

use super::rows::{self, Character, Mix, Type};
use super::{Arguments, baseline, quantile};
use crate::output::{Failure, Style};
use crate::table::{Column, Table};
use indicatif::ProgressBar;
use samedraw::Device;
use samedraw::pipeline::{DType, HostMask, HostRun, HostStep};
use std::sync::Arc;
use std::time::Instant;

/// The sort takes a hundred times as long as anything else: it is timed that much less often.
const SORTS: usize = 5;

/// The times of one kind of step.
pub struct Timed {
    pub mix: Mix,
    pub character: Character,
    pub dtype: Type,
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

/// Every combination of the command line.
pub fn measure(
    device: &Arc<dyn Device>,
    arguments: &Arguments,
    mixes: &[Mix],
    repeat: u32,
    bar: &ProgressBar,
) -> Result<Vec<Timed>, Failure> {
    if let Some(mix) = mixes.iter().find(|mix| mix.verifies().is_some()) {
        return Err(Failure(format!("\"{mix}\" is measured on a GPU alone, not on {}", device.info().platform)));
    }
    let mut all = Vec::new();
    for &vocab in &arguments.vocab {
        for &dtype in &arguments.dtype {
            for &rows in &arguments.rows {
                for &character in &arguments.row {
                    bar.set_message(format!("{rows} x {vocab} {dtype}, {character} rows"));
                    let shape = (rows as usize, vocab as usize);
                    all.extend(turns(device, mixes, repeat, shape, (character, dtype))?);
                    bar.inc(1);
                }
            }
        }
    }
    Ok(all)
}

/// All mixes over the same rows, in turns, so that whatever else the machine does meets them alike.
fn turns(
    device: &Arc<dyn Device>,
    mixes: &[Mix],
    repeat: u32,
    (rows, vocab): (usize, usize),
    (character, dtype): (Character, Type),
) -> Result<Vec<Timed>, Failure> {
    let values = rows::values(character, rows, vocab);
    let encoded = dtype.encode(&values);
    let mask = rows::mask(character, rows, vocab);
    let mut runs = Vec::new();
    for mix in mixes {
        runs.push(prepare(device, *mix, &encoded, mask.as_deref(), (rows, vocab))?);
    }
    let mut times = vec![Vec::new(); mixes.len()];
    let (mut units, mut sorts) = (Vec::new(), Vec::new());
    for round in 0..=repeat {
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
        Timed { mix, character, dtype, rows, vocab, times, unit, sort }
    });
    Ok(timed.collect())
}

/// The step of a mix on the device; its tokens alone are wanted unless the mix says otherwise.
fn prepare(
    device: &Arc<dyn Device>,
    mix: Mix,
    (bytes, dtype): &(Vec<u8>, DType),
    mask: Option<&[i32]>,
    (rows, vocab): (usize, usize),
) -> Result<HostRun<dyn Device>, Failure> {
    let positions: Vec<i64> = (1..=rows as i64).collect();
    let params = vec![mix.params(); rows];
    let host = HostStep {
        logits: bytes,
        dtype: *dtype,
        vocab,
        stride: vocab,
        logits_rows: rows,
        rows,
        force_topk: mix.force_topk(),
        mask: mask.map(|words| HostMask { words, stride: vocab.div_ceil(32), index: None }),
        params: &params,
        positions: Some(&positions),
        columns: mix.selects(),
        rows_wanted: !mix.selects(),
        top_logprobs: if mix == Mix::Whole { 20.min(vocab) } else { 0 },
        ..HostStep::default()
    };
    let mut run = HostRun::new(device, &host)?;
    if !mix.reports() && !mix.selects() && mix != Mix::Whole {
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

pub fn table(all: &[Timed]) -> String {
    let mut table = Table::new(&[
        ("step", Column::Left),
        ("row", Column::Left),
        ("type", Column::Left),
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
            timed.dtype.to_string(),
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
        let shape = (timed.rows, timed.vocab, timed.character, timed.dtype);
        if last.replace(shape) != Some(shape) {
            text += &format!(
                "{} x {} {}, {}: plain maximum {:.1} us, softmax and full sort {:.0} us\n",
                timed.rows, timed.vocab, timed.dtype, timed.character, timed.unit, timed.sort
            );
        }
    }
    text
}

pub fn json(title: &str, all: &[Timed]) -> String {
    let steps: Vec<serde_json::Value> = all
        .iter()
        .map(|timed| {
            serde_json::json!({
                "step": timed.mix.to_string(),
                "row": timed.character.to_string(),
                "type": timed.dtype.to_string(),
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
