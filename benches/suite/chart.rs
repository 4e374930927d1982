//! Bar charts as SVG, small enough to be read as text.

use std::fmt::Write;

const WIDTH: f64 = 720.0;
const LABEL: f64 = 250.0;
const BAR: f64 = 22.0;
const HEAD: f64 = 34.0;

/// A chart of horizontal bars with their names, in `unit`. Values that were not measured are
/// omitted.
pub(crate) fn bars(title: &str, unit: &str, rows: &[(String, Option<f64>)]) -> String {
    let rows: Vec<(&str, f64)> =
        rows.iter().filter_map(|(name, value)| Some((name.as_str(), (*value)?))).collect();
    let most = rows.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let height = HEAD + BAR * rows.len() as f64 + 10.0;
    let mut svg =
        format!(r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" "#);
    svg += &format!(
        "viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"10\" y=\"20\" font-weight=\"bold\">{}, {unit}</text>\n",
        escape(title)
    );
    for (row, (name, value)) in rows.iter().enumerate() {
        let y = HEAD + BAR * row as f64;
        let length = (WIDTH - LABEL - 80.0) * value / most;
        let (text_y, end) = (y + 14.0, LABEL + length + 6.0);
        let fill = if name.starts_with("baseline") { "#999" } else { "#2a6f97" };
        // Writing to a String cannot fail.
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{text_y}\" text-anchor=\"end\">{}</text>\n\
             <rect x=\"{LABEL}\" y=\"{y}\" width=\"{length:.1}\" height=\"{}\" fill=\"{fill}\"/>\n\
             <text x=\"{end:.1}\" y=\"{text_y}\">{}</text>",
            LABEL - 8.0,
            escape(name),
            BAR - 4.0,
            short(*value)
        );
    }
    svg + "</svg>\n"
}

/// Three significant digits, or all digits before the point.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
