//! Bars of the medians, on a logarithmic scale of units, as SVG.

use super::host::Timed;
use std::fmt::Write;

const LEFT: f64 = 330.0;
const WIDTH: f64 = 560.0;
const LINE: f64 = 22.0;
const TOP: f64 = 64.0;

/// The chart of all steps.
pub fn svg(title: &str, all: &[Timed]) -> String {
    let most = all.iter().map(Timed::units).fold(1.0f64, f64::max);
    // From a half of the unit to the next power of two above the slowest.
    let octaves = most.log2().ceil().max(1.0) + 1.0;
    let place = |units: f64| (units.max(0.5).log2() + 1.0) / octaves * WIDTH;
    let height = TOP + LINE * all.len() as f64 + 40.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"10\" y=\"22\" font-size=\"15\">{}</text>\n\
         <text x=\"10\" y=\"42\" fill=\"#555\">median of a step, in units of the plain maximum of its rows</text>\n",
        LEFT + WIDTH + 110.0,
        escaped(title),
    );
    let bottom = TOP + LINE * all.len() as f64;
    for octave in 0..=octaves as i32 {
        let x = LEFT + WIDTH * f64::from(octave) / octaves;
        let label = 2f64.powi(octave - 1);
        text += &format!(
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{bottom:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" fill=\"#555\" text-anchor=\"middle\">{label}</text>\n",
            TOP - 8.0,
            bottom + 16.0,
        );
    }
    for (line, timed) in all.iter().enumerate() {
        let y = TOP + LINE * line as f64;
        let name = format!("{}, {} x {} {}, {}", timed.mix, timed.rows, timed.vocab, timed.dtype, timed.character);
        let width = place(timed.units());
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n\
             <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"14\" fill=\"#3b6ea5\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">{:.2} ({:.0} us)</text>\n",
            LEFT - 8.0,
            y + 12.0,
            escaped(&name),
            y + 1.0,
            LEFT + width + 6.0,
            y + 12.0,
            timed.units(),
            timed.quantile(0.5),
        );
    }
    text + "</svg>\n"
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
