//! Times against rows, both on logarithmic scales, as SVG: a panel for every kind of row, a line for every step.

use super::chart::escaped;
use super::graph::Figure;
use std::fmt::Write;

const LEFT: f64 = 70.0;
const WIDTH: f64 = 520.0;
const NAMES: f64 = 300.0;
const HEIGHT: f64 = 340.0;
const TOP: f64 = 60.0;
const PANEL: f64 = HEIGHT + 80.0;
const COLOURS: [&str; 10] =
    ["#3b6ea5", "#c0504d", "#5b9a3c", "#8064a2", "#d98c2b", "#2b9aa0", "#a05b7f", "#7f7f2b", "#4f4f9f", "#8c5a3c"];

/// The chart of all figures.
pub fn svg(title: &str, all: &[Figure]) -> String {
    let mut panels: Vec<Vec<&Figure>> = Vec::new();
    for figure in all {
        let kind = (figure.vocab, figure.dtype, figure.character);
        match panels.iter_mut().find(|panel| kind == (panel[0].vocab, panel[0].dtype, panel[0].character)) {
            Some(panel) => panel.push(figure),
            None => panels.push(vec![figure]),
        }
    }
    let (width, height) = (LEFT + WIDTH + NAMES, TOP + PANEL * panels.len() as f64);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"10\" y=\"22\" font-size=\"15\">{}</text>\n\
         <text x=\"10\" y=\"42\" fill=\"#555\">median microseconds of a step against its rows; dashed: the plain read of \
         the same logits</text>\n",
        escaped(title),
    );
    for (number, panel) in panels.iter().enumerate() {
        draw(&mut text, panel, TOP + PANEL * number as f64);
    }
    text + "</svg>\n"
}

fn draw(text: &mut String, panel: &[&Figure], top: f64) {
    let times = || panel.iter().flat_map(|figure| [figure.quantile(0.5), figure.read]);
    let most_rows = panel.iter().map(|figure| figure.rows).max().unwrap_or(1).max(2) as f64;
    let low = times().fold(f64::INFINITY, f64::min).log10().floor();
    let high = times().fold(0.0, f64::max).log10().ceil().max(low + 1.0);
    let x = |rows: usize| LEFT + (rows as f64).log2() / most_rows.log2() * WIDTH;
    let y = |time: f64| top + 24.0 + (high - time.log10()) / (high - low) * HEIGHT;
    // Writing to a string does not fail.
    let mut put = |line: String| _ = writeln!(text, "{line}");
    let heading = format!("{} logits, V = {}, {} rows", panel[0].dtype, panel[0].vocab, panel[0].character);
    put(format!("<text x=\"{LEFT}\" y=\"{:.1}\" font-size=\"13\">{heading}</text>", top + 12.0));
    for decade in low as i32..=high as i32 {
        let (at, label) = (y(10f64.powi(decade)), 10f64.powi(decade));
        put(format!("<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>", LEFT + WIDTH));
        put(format!(
            "<text x=\"{}\" y=\"{:.1}\" fill=\"#555\" text-anchor=\"end\">{label}</text>",
            LEFT - 6.0,
            at + 4.0
        ));
    }
    let mut rows: Vec<usize> = panel.iter().map(|figure| figure.rows).collect();
    rows.sort_unstable();
    rows.dedup();
    let bottom = top + 24.0 + HEIGHT;
    for &rows in &rows {
        let at = x(rows);
        put(format!(
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{bottom:.1}\" stroke=\"#eee\"/>",
            top + 24.0
        ));
        put(format!(
            "<text x=\"{at:.1}\" y=\"{:.1}\" fill=\"#555\" text-anchor=\"middle\">{rows}</text>",
            bottom + 16.0
        ));
    }
    let mut names: Vec<&str> = panel.iter().map(|figure| figure.step.as_str()).collect();
    let mut seen = Vec::new();
    names.retain(|name| {
        !seen.contains(name) && {
            seen.push(*name);
            true
        }
    });
    let line = |mut points: Vec<(usize, f64)>, style: &str| {
        points.sort_by_key(|&(rows, _)| rows);
        points.dedup_by_key(|&mut (rows, _)| rows);
        let joined: Vec<String> = points.iter().map(|&(rows, time)| format!("{:.1},{:.1}", x(rows), y(time))).collect();
        let dots: String = points
            .iter()
            .map(|&(rows, time)| format!("<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\" {style}/>", x(rows), y(time)))
            .collect();
        format!("<polyline points=\"{}\" fill=\"none\" {style}/>{dots}", joined.join(" "))
    };
    let reads = panel.iter().map(|figure| (figure.rows, figure.read)).collect();
    put(line(reads, "stroke=\"#555\" stroke-dasharray=\"5 4\""));
    for (number, name) in names.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let points = panel.iter().filter(|figure| figure.step == *name);
        let points = points.map(|figure| (figure.rows, figure.quantile(0.5))).collect();
        put(line(points, &format!("stroke=\"{colour}\"")));
        put(format!(
            "<text x=\"{}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
            LEFT + WIDTH + 16.0,
            top + 34.0 + 18.0 * number as f64,
            escaped(name)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rows::{Character, Type};

    #[test]
    fn a_panel_for_every_kind_of_row_and_a_line_for_every_step() {
        let figure = |step: &str, rows, character| Figure {
            step: step.to_owned(),
            character,
            dtype: Type::F32,
            rows,
            vocab: 1000,
            inputs: 4,
            times: vec![9.0, 10.0, 11.0],
            read: 5.0,
        };
        let normal = [("a", 1), ("a", 64), ("b <c>", 1), ("b <c>", 64)]
            .map(|(step, rows)| figure(step, rows, Character::Normal));
        let chart = svg("t & t", &normal.into_iter().chain([figure("a", 384, Character::Equal)]).collect::<Vec<_>>());
        // Two steps and the read of the one, one step and the read of the other.
        assert_eq!(chart.matches("<polyline").count(), 5);
        assert_eq!(chart.matches("<circle").count(), 3 * 2 + 2);
        assert!(chart.contains("b &lt;c&gt;") && chart.contains("t &amp; t") && !chart.contains("NaN"));
        assert!(chart.contains("f32 logits, V = 1000, equal rows"));
    }
}
