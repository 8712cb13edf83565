//! `samedraw demo`: the real thing on real logits, without a model.

use crate::Outcome;
use crate::output::{Failure, Style, print};
use crate::table::{Column, Table};
use samedraw::device::open;
use samedraw::params::FilterOrder;
use samedraw::step_file::{RequestResult, StepFile};
use samedraw::{Device, SamplingParams};
use std::sync::Arc;

/// Logits of 24 decoding steps of SmolLM2-135M-Instruct; tests/data/README.md says where they come from.
const LOGITS: &[u8] = include_bytes!("../../tests/data/smollm2_rows.safetensors");
const WARM_UP: usize = 3;
const TIMED: usize = 21;

/// Arguments of `samedraw demo`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Device to run on: `cpu`, `cuda[:i]` or `ascend[:i]`
    #[arg(long, default_value = "cpu")]
    device: String,
}

/// Samples the rows together, each of them alone, and takes the time.
pub fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let step = StepFile::parse(LOGITS)?;
    let device = open(&arguments.device)?;
    let result = step.run(&device, None)?;
    let alone = alone(&step, &device)?;
    let same = result.requests.iter().zip(&alone).filter(|(together, alone)| together == alone).count();
    let rows = result.requests.len();

    let style = Style::of_stdout();
    let info = device.info();
    let name = format!("{} ({})", info.platform, info.name);
    let mut text = format!(
        "{rows} rows of logits of SmolLM2-135M-Instruct, {} tokens each, sampled in one step on {name}\n\n",
        step.logits.vocab
    );
    let mut table = Table::new(&[
        ("row", Column::Right),
        ("token", Column::Main),
        ("prob", Column::Right),
        ("kept", Column::Right),
        ("parameters", Column::Left),
        ("most likely tokens, id:probability", Column::Left),
    ]);
    for (row, (request, result)) in step.requests.iter().zip(&result.requests).enumerate() {
        table.row(vec![
            row.to_string(),
            result.tokens[0].to_string(),
            probability(result.logprobs[0].0),
            result.kept[0].to_string(),
            parameters(&request.params),
            most_likely(result),
        ]);
    }
    text += &table.render(style);
    text += "\nT temperature, p top-p, k top-k, m min-p; probabilities are those of the kept tokens\n";
    text +=
        &format!("{same} of {rows} rows gave the same result, to the last bit, sampled alone in a step of one row\n");
    text += &format!(
        "a step of {rows} rows with logprobs and top lists: {:.3} ms (median of {TIMED} warm steps, {name})\n",
        median_ms(&step, &device)?
    );
    print(&text)?;
    Ok(if same == rows { Outcome::Done } else { Outcome::Different })
}

/// The result of each row in a step of its own.
fn alone(step: &StepFile, device: &Arc<dyn Device>) -> Result<Vec<RequestResult>, Failure> {
    let row_bytes = step.logits.vocab * step.logits.dtype.bytes();
    let mut one = step.clone();
    one.logits.rows = 1;
    let mut results = Vec::new();
    for (request, bytes) in step.requests.iter().zip(step.logits.bytes.chunks_exact(row_bytes)) {
        one.requests = vec![request.clone()];
        one.logits.bytes = bytes.to_vec();
        results.extend(one.run(device, None)?.requests);
    }
    Ok(results)
}

fn median_ms(step: &StepFile, device: &Arc<dyn Device>) -> Result<f32, Failure> {
    let mut run = step.bring(device, None)?;
    for _ in 0..WARM_UP {
        run.time_ms()?;
    }
    let mut times = (0..TIMED).map(|_| run.time_ms()).collect::<Result<Vec<f32>, _>>()?;
    times.sort_by(f32::total_cmp);
    Ok(times[TIMED / 2])
}

fn probability(logprob: f32) -> String {
    format!("{:.4}", f64::from(logprob).exp())
}

fn most_likely(result: &RequestResult) -> String {
    let list = result.top_logprobs.as_ref().and_then(|rows| rows.first());
    let entries =
        list.into_iter().flatten().map(|(id, logprob)| format!("{:<12}", format!("{id}:{}", probability(logprob.0))));
    entries.collect::<Vec<_>>().join(" ")
}

/// The parameters that are not at their defaults, and the seed.
fn parameters(params: &SamplingParams) -> String {
    let default = SamplingParams::default();
    let mut words = Vec::new();
    let mut add = |changed: bool, word: String| {
        if changed {
            words.push(word)
        }
    };
    add(params.temperature != default.temperature, format!("T {}", params.temperature));
    add(params.top_p != default.top_p, format!("p {}", params.top_p));
    add(params.top_k != default.top_k, format!("k {}", params.top_k));
    add(params.min_p != default.min_p, format!("m {}", params.min_p));
    add(params.filter_order == FilterOrder::TopKFirst, "top-k first".into());
    add(params.seq_seed.is_some(), format!("seed {}", params.seq_seed.unwrap_or_default()));
    words.join(", ")
}
