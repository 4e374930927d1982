//! A chart of a run over time, as self-contained SVG: per Envoy what was assigned and what was admitted,
//! and the total.

use std::fmt::Write as _;

use super::Run;
use super::assigned::rate_at;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
/// Margins: left, right, top, bottom.
const MARGIN: (f64, f64, f64, f64) = (60.0, 90.0, 60.0, 45.0);
/// Colours that remain distinct with red-green colour blindness (Okabe and Ito).
const COLOURS: [&str; 3] = ["#0072b2", "#d55e00", "#009e73"];
/// The top of the axis, in requests per second, and its steps.
const TOP: f64 = 400.0;
const STEPS: u8 = 4;
/// Seconds between two labels.
const LABELS: usize = 10;

/// The chart. `steps` are the names of the steps, each with its first second. `limit` is the quota.
pub(crate) fn svg(run: &Run, steps: &[(usize, &str)], limit: f64) -> String {
    let (record, actions, seconds) = (run.record(), run.actions(), run.second());
    let (left, right, above, below) = MARGIN;
    let x = |second: f64| left + second / seconds as f64 * (WIDTH - left - right);
    let y = |rate: f64| HEIGHT - below - rate.min(TOP) / TOP * (HEIGHT - above - below);
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
    let title = format!("One quota of {limit:.0} requests per second, divided among Envoys");
    svg += &text(WIDTH / 2.0, 20.0, "middle", "black", &title);
    svg += &text(WIDTH / 2.0, HEIGHT - 8.0, "middle", "black", "seconds");
    for step in 0..=STEPS {
        let rate = TOP * f64::from(step) / f64::from(STEPS);
        let (at, end) = (y(rate), WIDTH - right);
        let _ = writeln!(svg, "<path d=\"M{left} {at:.1}H{end}\" stroke=\"#ddd\"/>");
        svg += &text(left - 6.0, at + 4.0, "end", "black", &format!("{rate:.0}"));
    }
    for second in (0..=seconds).step_by(LABELS) {
        let words = second.to_string();
        svg += &text(x(second as f64), HEIGHT - below + 16.0, "middle", "black", &words);
    }
    for (second, name) in steps {
        let (at, low) = (x(*second as f64), HEIGHT - below);
        let _ = writeln!(svg, "<path d=\"M{at:.1} {above}V{low}\" stroke=\"#bbb\"/>");
        svg += &text(at + 3.0, above - 10.0, "start", "black", name);
    }
    let mut line = |points: &[(f64, f64)], style: &str| {
        let path: Vec<String> =
            points.iter().map(|&(a, b)| format!("{:.1},{:.1}", x(a), y(b))).collect();
        let _ = writeln!(svg, "<polyline points=\"{}\" fill=\"none\" {style}/>", path.join(" "));
        points.last().map_or(0.0, |point| y(point.1))
    };
    let mut names = vec![(line(&[(0.0, limit), (seconds as f64, limit)], QUOTA), "black", "quota")];
    let totals = record.totals(0..seconds);
    let middle = |second: usize, rate: f64| (second as f64 + 0.5, rate);
    let total: Vec<_> = totals.iter().enumerate().map(|(s, sum)| middle(s, *sum as f64)).collect();
    line(&total, TOTAL);
    let envoys = actions.iter().zip(COLOURS).zip(["Envoy 1", "Envoy 2", "Envoy 3"]).enumerate();
    for (envoy, ((actions, colour), name)) in envoys {
        let admitted = |second| record.second(envoy, second).admitted as f64;
        let points: Vec<_> = (0..seconds).map(|second| middle(second, admitted(second))).collect();
        let end = line(&points, &format!("stroke=\"{colour}\" stroke-width=\"2\""));
        names.push((end, colour, name));
        // Assignments change between seconds.
        let tenths = (0..seconds * 10).map(|tenth| {
            let second = tenth as f64 / 10.0;
            let at = run.instant(0) + std::time::Duration::from_millis(tenth as u64 * 100);
            (second, rate_at(actions, at))
        });
        let style = format!("stroke=\"{colour}\" stroke-dasharray=\"4 3\"");
        line(&tenths.collect::<Vec<_>>(), &style);
    }
    // Names that would overlap are moved apart.
    names.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut last = f64::NEG_INFINITY;
    for (at, colour, name) in names {
        last = at.max(last + 14.0);
        svg += &text(WIDTH - right + 6.0, last + 4.0, "start", colour, name);
    }
    let words = "requests per second; solid: admitted; dashed: assigned; grey: admitted by all";
    svg += &text(WIDTH / 2.0, 36.0, "middle", "#555", words);
    svg + "</svg>\n"
}

/// The lines of the quota and of the total.
const QUOTA: &str = "stroke=\"black\" stroke-dasharray=\"1 3\"";
const TOTAL: &str = "stroke=\"#999\" stroke-width=\"1.5\"";
