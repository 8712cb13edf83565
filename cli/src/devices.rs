//! `samedraw devices`.

use crate::Outcome;
use crate::output::{Failure, Style, print};
use samedraw::device::{Probe, probe};
use serde_json::{Value, json};

/// Arguments of `samedraw devices`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Print a JSON list
    #[arg(long)]
    json: bool,
}

/// Lists the platforms.
pub fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let probes = probe();
    if arguments.json {
        let list: Vec<Value> = probes.iter().map(as_json).collect();
        print(&format!("{:#}\n", Value::Array(list)))?;
    } else {
        let style = Style::of_stdout();
        print(&probes.iter().map(|probe| as_text(probe, style)).collect::<String>())?;
    }
    Ok(Outcome::Done)
}

fn as_json(probe: &Probe) -> Value {
    let limit = probe.platform.max_force_topk();
    let name = probe.platform.name();
    match &probe.state {
        Ok(info) => json!({
            "platform": name, "available": true, "name": info.name, "ordinal": info.ordinal, "exact": info.exact,
            "max_force_topk": limit,
        }),
        Err(why) => json!({
            "platform": name, "available": false, "reason": why.reason, "tried": why.tried, "max_force_topk": limit,
        }),
    }
}

fn as_text(probe: &Probe, style: Style) -> String {
    let limit = match probe.platform.max_force_topk() {
        Some(limit) => format!("at most {limit}"),
        None => "no limit".to_owned(),
    };
    let state = match &probe.state {
        Ok(info) => {
            let exact = if info.exact {
                "exact: bit-identical results"
            } else {
                "inexact: a decision may differ at the edge of a mass"
            };
            format!("available: {}\n  {exact}", info.name)
        }
        Err(why) if why.tried.is_empty() => format!("not available: {}", why.reason),
        Err(why) => format!("not available: {}\n  tried: {}", why.reason, why.tried.join(", ")),
    };
    format!("{}\n  {state}\n  force-top-k: {limit}\n", style.bold(probe.platform.name()))
}
