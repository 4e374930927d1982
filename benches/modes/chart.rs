//! A chart: lines over a logarithmic axis, as self-contained SVG.

use std::fmt::Write as _;

/// Lines in one frame.
pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    /// The labels of the axes.
    pub(crate) across: &'a str,
    pub(crate) up: &'a str,
    pub(crate) series: Vec<Series<'a>>,
}

/// One line.
pub(crate) struct Series<'a> {
    pub(crate) name: &'a str,
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
/// Margins: left, right, top, bottom.
const MARGIN: (f64, f64, f64, f64) = (70.0, 90.0, 40.0, 50.0);
/// Colours that remain distinct with red-green colour blindness (Okabe and Ito).
const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];

impl Chart<'_> {
    /// The SVG.
    pub(crate) fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let low = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
        let high = points().map(|point| point.0).fold(0.0, f64::max);
        let top = nice(points().map(|point| point.1).fold(0.0, f64::max));
        let (left, right, above, below) = MARGIN;
        let x = |value: f64| left + (value / low).ln() / (high / low).ln() * (WIDTH - left - right);
        let y = |value: f64| HEIGHT - below - value / top * (HEIGHT - above - below);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        let text = |x: f64, y: f64, anchor: &str, colour: &str, words: &str| {
            format!(
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" \
                 fill=\"{colour}\">{words}</text>\n"
            )
        };
        svg += &text(WIDTH / 2.0, 22.0, "middle", "black", self.title);
        svg += &text(WIDTH / 2.0, HEIGHT - 12.0, "middle", "black", self.across);
        svg += &text(left, above - 8.0, "middle", "black", self.up);
        for part in 0..=4 {
            let value = top * f64::from(part) / 4.0;
            let at = y(value);
            let end = WIDTH - right;
            let _ = writeln!(svg, "<path d=\"M{left} {at:.1}H{end}\" stroke=\"#ddd\"/>");
            svg += &text(left - 6.0, at + 4.0, "end", "black", &number(value));
        }
        if let Some(first) = self.series.first() {
            for (value, _) in &first.points {
                svg += &text(x(*value), HEIGHT - below + 18.0, "middle", "black", &number(*value));
            }
        }
        for (series, colour) in self.series.iter().zip(COLOURS) {
            let path: Vec<String> =
                series.points.iter().map(|&(a, b)| format!("{:.1},{:.1}", x(a), y(b))).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                path.join(" ")
            );
            if let Some(&(a, b)) = series.points.last() {
                svg += &text(x(a) + 6.0, y(b) + 4.0, "start", colour, series.name);
            }
        }
        svg + "</svg>\n"
    }
}

/// The smallest of 1, 2, 5, 10, ... that is at least `value`.
fn nice(value: f64) -> f64 {
    let unit = 10_f64.powf(value.max(0.01).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|step| step * unit)
        .into_iter()
        .find(|&step| step >= value)
        .unwrap_or(1.0)
}

fn number(value: f64) -> String {
    if value >= 10.0 || value == value.round() {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}
