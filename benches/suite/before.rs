//! This build beside the build before, by the figures of one run.

use std::fmt::Write;

use weir_charts::short;

use crate::comparison::Comparison;
use crate::figures::Figures;
use crate::fleet::FLEETS;
use crate::{batches, many_rules, rounds, size};

/// A row: what is compared, and the ratio.
type Row = (String, Comparison);

/// The rows of the table, without those that have no figures.
pub(crate) fn rows(figures: &Figures) -> String {
    let mut text = String::new();
    for (what, ratio) in all(figures) {
        if ratio != Comparison::NotMeasured {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "| {what} | {} |", ratio.cell(short));
        }
    }
    text
}

fn all(figures: &Figures) -> Vec<Row> {
    let plain = |what: String, ratio| (what, Comparison::new(ratio, [], []));
    let mut rows = Vec::new();
    for server in ["memory", "Redis"] {
        let figure = |end: &str| format!("saturated: CPU s per 100 000: {server}{end}");
        let ratio = figures.ratio(&figure(""), &figure(", before"));
        rows.push(plain(format!("{server}, saturated: server CPU"), ratio));
    }
    let [of, by] = ["Redis", "Redis, before"].map(rounds::redis_cpu_figure);
    rows.push(plain("Redis, saturated: CPU of Redis".into(), figures.ratio(&of, &by)));
    for server in ["memory", "Redis"] {
        let before = format!("{server}, before");
        let [of, by] = [server, &before].map(|name| format!("open: p99, us: {name}"));
        let [subject, reference] = [server, &before].map(|name| rounds::paced(figures, name));
        let ratio = Comparison::new(figures.ratio(&of, &by), [subject], [reference]);
        rows.push((format!("{server}, 5 000 per second: p99"), ratio));
    }
    for fleet in FLEETS {
        let what = format!("{}: CPU of Redis, fixed_window", fleet.name());
        rows.push((what, fleet.of_before(figures)));
    }
    for (name, [of, by]) in batches::builds() {
        rows.push(plain(format!("batches, {name}: CPU of Redis"), figures.ratio(&of, &by)));
    }
    // The build before has fewer starts and loads.
    for (what, [of, by]) in many_rules::builds() {
        rows.push(plain(what, figures.ratio_of_medians(&of, &by)));
    }
    for (what, [of, by]) in size::builds() {
        rows.push(plain(what, figures.ratio_of_medians(&of, &by)));
    }
    rows
}
