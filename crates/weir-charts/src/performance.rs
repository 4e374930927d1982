//! The charts of docs/design/performance/, of the figures that `make bench` measures.

use std::collections::BTreeMap;

use crate::ChartFile;
use crate::palette::{BLUE, Colour, GREY, ORANGE};
use crate::rows::{Form, Group, Measured, rows};

/// The names of figures of requests through Envoy: the rate, what, and the service.
const THROUGH_ENVOY: &str = "through Envoy, ";
const SERVICE: &str = "CPU s of the service";
const REDIS: &str = "CPU s of Redis";

/// The charts of figures.csv that have figures.
///
/// # Errors
/// The line without a median.
pub fn performance(figures_csv: &str) -> Result<Vec<ChartFile>, String> {
    let figures = Medians::read(figures_csv)?;
    let charts = [("cpu.svg", cpu(&figures)), ("latency.svg", latency(&figures))];
    let peers = peers(&figures).map(|chart| ("peers.svg", chart));
    let charts = charts.into_iter().filter_map(|(name, chart)| Some((name, chart?)));
    Ok(charts.chain(peers).map(|(name, svg)| ChartFile { name, svg }).collect())
}

/// The medians, in the order of the file.
struct Medians<'a> {
    order: Vec<&'a str>,
    medians: BTreeMap<&'a str, f64>,
}

impl<'a> Medians<'a> {
    fn read(csv: &'a str) -> Result<Medians<'a>, String> {
        let (mut order, mut medians) = (Vec::new(), BTreeMap::new());
        for line in csv.lines().skip(1) {
            // "name",median,rounds
            let read = line.strip_prefix('"').and_then(|line| {
                let (name, numbers) = line.split_once("\",")?;
                Some((name, numbers.split(',').next()?.parse().ok()?))
            });
            let (name, median) = read.ok_or_else(|| format!("no median: {line}"))?;
            order.push(name);
            medians.insert(name, median);
        }
        Ok(Medians { order, medians })
    }

    /// A row, if its figure was measured.
    fn row(&self, name: &str, colour: Colour, figure: &str, divisor: f64) -> Option<Measured> {
        let value = self.medians.get(figure)? / divisor;
        Some(Measured { name: name.to_owned(), value, colour })
    }
}

fn cpu(figures: &Medians) -> Option<String> {
    let calls = |name, colour, of: &str| {
        figures.row(name, colour, &format!("saturated: CPU s per 100 000: {of}"), 1.0)
    };
    // These are per million calls.
    let of_redis = |name, figure| figures.row(name, ORANGE, figure, 10.0);
    let rows = [
        calls("h2 alone", GREY, "h2"),
        calls("baseline", GREY, "baseline"),
        calls("weir from memory", BLUE, "memory"),
        calls("weir on Redis", BLUE, "Redis"),
        of_redis("Redis under weir", "saturated: Redis CPU s per million"),
        of_redis("Redis, one FCALL each", "one FCALL each: Redis CPU s per million"),
        // Before weir had a library of functions.
        of_redis("Redis, one EVALSHA each", "one EVALSHA each: Redis CPU s per million"),
    ];
    bars("CPU time per 100 000 calls, saturated", rows.into_iter().flatten().collect())
}

fn latency(figures: &Medians) -> Option<String> {
    let services = [
        ("baseline", GREY, "baseline"),
        ("from memory", BLUE, "memory"),
        ("on Redis", ORANGE, "Redis"),
    ];
    let groups = ["p50", "p90", "p99", "p99.9"].map(|point| {
        let row = |(name, colour, of): (&str, Colour, &str)| {
            figures.row(name, colour, &format!("open: {point}, us: {of}"), 1.0)
        };
        Group { name: point, rows: services.into_iter().filter_map(row).collect() }
    });
    let measured = groups.iter().any(|group| !group.rows.is_empty());
    let title = "Latency at 5 000 calls per second";
    measured.then(|| rows(title, "microseconds", Form::Dots, &groups))
}

/// The services through Envoy at the lowest rate, each with its Redis. It overloads none of them.
fn peers(figures: &Medians) -> Option<String> {
    let services = figures.order.iter().filter_map(|figure| {
        let (rate, rest) = figure.strip_prefix(THROUGH_ENVOY)?.split_once(": ")?;
        let name = rest.strip_prefix(SERVICE)?.strip_prefix(": ")?;
        Some((rate.parse::<u32>().ok()?, name))
    });
    let services: Vec<_> = services.collect();
    let rate = services.iter().map(|(rate, _)| *rate).min()?;
    let mut rows = Vec::new();
    for (_, name) in services.into_iter().filter(|(of, _)| *of == rate) {
        let figure = |what: &str| format!("{THROUGH_ENVOY}{rate}: {what}: {name}");
        let colour = if name.starts_with("weir") { BLUE } else { GREY };
        rows.extend(figures.row(name, colour, &figure(SERVICE), 1.0));
        rows.extend(figures.row(&format!("{name}: Redis"), ORANGE, &figure(REDIS), 1.0));
    }
    bars(&format!("CPU time per 100 000 requests, {rate} per second through Envoy"), rows)
}

fn bars(title: &str, measured: Vec<Measured>) -> Option<String> {
    let group = Group { name: "", rows: measured };
    (!group.rows.is_empty()).then(|| rows(title, "seconds", Form::Bars, &[group]))
}

#[test]
fn what_was_not_measured_has_no_chart() {
    let names = |csv: &str| {
        performance(csv).map(|files| files.iter().map(|file| file.name).collect::<Vec<_>>())
    };
    assert_eq!(names("figure,median,rounds\n"), Ok(vec![]));
    let head = "figure,median,rounds\n\"saturated: CPU s per 100 000: memory\",1.5,1 2\n";
    assert_eq!(names(head), Ok(vec!["cpu.svg"]));
    let open = format!("{head}\"open: p50, us: memory\",300,300\n");
    assert_eq!(names(&open), Ok(vec!["cpu.svg", "latency.svg"]));
    assert_eq!(names(&format!("{head}memory,x\n")), Err("no median: memory,x".to_owned()));
}

#[test]
fn peers_are_those_of_the_lowest_rate() {
    let figure = |rate, what, name| format!("\"through Envoy, {rate}: {what}: {name}\",0.5,0.5\n");
    let mut csv = "figure,median,rounds\n".to_owned();
    csv += &figure(5000, SERVICE, "baseline");
    csv += &figure(500, SERVICE, "baseline");
    csv += &figure(500, SERVICE, "weir, exact");
    csv += &figure(500, REDIS, "weir, exact");
    csv += &figure(500, "CPU s of both", "weir, exact");
    let files = performance(&csv).expect("good figures");
    let [peers] = &files[..] else { panic!("one chart") };
    for shown in ["500 per second", "\nbaseline\n", "\nweir, exact\n", "\nweir, exact: Redis\n"] {
        assert!(peers.svg.contains(shown), "{shown}: {}", peers.svg);
    }
    assert_eq!(peers.svg.matches("\nbaseline\n").count(), 1);
}
