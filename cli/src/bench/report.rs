//! The figures of a GPU as a table and as JSON.

use super::graph::Figure;
use crate::output::Style;
use crate::table::{Column, Table};

pub fn table(all: &[Figure]) -> String {
    let mut table = Table::new(&[
        ("step", Column::Left),
        ("row", Column::Left),
        ("type", Column::Left),
        ("vocab", Column::Right),
        ("rows", Column::Right),
        ("inputs", Column::Right),
        ("median us", Column::Main),
        ("p10", Column::Right),
        ("p90", Column::Right),
        ("read us", Column::Right),
        ("x read", Column::Right),
    ]);
    for figure in all {
        table.row(vec![
            figure.step.clone(),
            figure.character.to_string(),
            figure.dtype.to_string(),
            figure.vocab.to_string(),
            figure.rows.to_string(),
            figure.inputs.to_string(),
            format!("{:.2}", figure.quantile(0.5)),
            format!("{:.2}", figure.quantile(0.1)),
            format!("{:.2}", figure.quantile(0.9)),
            format!("{:.2}", figure.read),
            format!("{:.2}", figure.reads()),
        ]);
    }
    table.render(Style::of_stdout())
}

pub fn json(title: &str, all: &[Figure]) -> String {
    let steps: Vec<serde_json::Value> = all
        .iter()
        .map(|figure| {
            serde_json::json!({
                "step": figure.step,
                "row": figure.character.to_string(),
                "type": figure.dtype.to_string(),
                "rows": figure.rows,
                "vocab": figure.vocab,
                "inputs": figure.inputs,
                "median_us": figure.quantile(0.5),
                "p10_us": figure.quantile(0.1),
                "p90_us": figure.quantile(0.9),
                "read_us": figure.read,
            })
        })
        .collect();
    serde_json::json!({ "title": title, "steps": steps }).to_string()
}
