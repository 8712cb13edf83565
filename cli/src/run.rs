//! `samedraw run`.

use crate::Outcome;
use crate::output::{Failure, Style, note, print};
use crate::table::{Column, Table};
use samedraw::Device;
use samedraw::device::open;
use samedraw::step_file::{ResultDocument, StepFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Differences that are listed; the rest is counted.
const LISTED: usize = 20;

/// Arguments of `samedraw run`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The step file
    file: PathBuf,
    /// Device to run on: `cpu`, `cuda[:i]` or `ascend[:i]`
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Keep the first N tokens of the order, in place of the file's own setting; 0 = off
    #[arg(long, value_name = "N")]
    force_topk: Option<usize>,
    /// Write the result document to this file, - for standard output
    #[arg(long, value_name = "RESULT.json")]
    out: Option<PathBuf>,
    /// Compare, to the last bit, with another device or with a result document (a file of a device's name: ./cpu)
    #[arg(long, value_name = "OTHER")]
    compare: Option<String>,
}

/// Runs the step, prints or writes its result, compares it.
pub fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let shown = arguments.file.display();
    let step = match StepFile::read(&arguments.file) {
        Err(error @ samedraw::Error::Io { .. }) => return Err(error.into()),
        other => other.map_err(Failure::about(&shown))?,
    };
    let device = open(&arguments.device)?;
    let on = |device: &Arc<dyn Device>| step.run(device, arguments.force_topk).map_err(Failure::about(&shown));
    let result = on(&device)?;

    let to_stdout = arguments.out.as_deref() == Some(Path::new("-"));
    match &arguments.out {
        Some(_) if to_stdout => print(&(result.to_json()? + "\n"))?,
        Some(path) => std::fs::write(path, result.to_json()? + "\n")
            .map_err(|error| Failure(format!("writing {}: {error}", path.display())))?,
        None if arguments.compare.is_none() => print(&table(&result, &device))?,
        None => {}
    }
    let Some(other) = &arguments.compare else { return Ok(Outcome::Done) };
    let theirs = if names_a_device(other) { on(&open(other)?)? } else { read_result(other)? };
    let differences = result.differences(&theirs);
    let report = report(&differences, &arguments.device, other, result.requests.len());
    // Standard output belongs to the document where that goes there.
    if to_stdout {
        note(&report);
    } else {
        print(&report)?;
    }
    Ok(if differences.is_empty() { Outcome::Done } else { Outcome::Different })
}

fn names_a_device(name: &str) -> bool {
    let platform = name.split_once(':').map_or(name, |(platform, _)| platform);
    samedraw::Platform::ALL.iter().any(|known| known.name() == platform)
}

fn read_result(path: &str) -> Result<ResultDocument, Failure> {
    match ResultDocument::read(path) {
        Err(error @ samedraw::Error::Io { .. }) => {
            Err(Failure(format!("{error} (--compare takes a device or a file)")))
        }
        other => other.map_err(Failure::about(path)),
    }
}

fn report(differences: &[String], device: &str, other: &str, requests: usize) -> String {
    if differences.is_empty() {
        return format!("all equal: {requests} requests on {device} and {other}, to the last bit\n");
    }
    let mut text: String = differences.iter().take(LISTED).map(|line| format!("{line}\n")).collect();
    if differences.len() > LISTED {
        text += &format!("... and {} more\n", differences.len() - LISTED);
    }
    text + &format!("{} differences between {device} and {other}\n", differences.len())
}

/// The results a person looks for, one line a row.
fn table(result: &ResultDocument, device: &Arc<dyn Device>) -> String {
    let mut table = Table::new(&[
        ("request", Column::Left),
        ("token", Column::Main),
        ("accepted", Column::Right),
        ("logprob", Column::Right),
        ("rank", Column::Right),
        ("kept", Column::Right),
        ("status", Column::Left),
    ]);
    for request in &result.requests {
        for (row, token) in request.tokens.iter().enumerate() {
            let first = |text: String| if row == 0 { text } else { String::new() };
            table.row(vec![
                first(request.id.clone()),
                if *token < 0 { "-".into() } else { token.to_string() },
                first(format!("{} of {}", request.accepted, request.tokens.len() - 1)),
                if *token < 0 { "-".into() } else { format!("{:.6}", request.logprobs[row].0) },
                request.ranks[row].map_or("-".into(), |rank| rank.to_string()),
                request.kept[row].to_string(),
                request.status[row].join(", "),
            ]);
        }
    }
    let info = device.info();
    format!("{} on {} ({})\n{}", rows(result), info.platform, info.name, table.render(Style::of_stdout()))
}

fn rows(result: &ResultDocument) -> String {
    let rows: usize = result.requests.iter().map(|request| request.tokens.len()).sum();
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    format!("{}, {}", plural(result.requests.len(), "request"), plural(rows, "row"))
}
