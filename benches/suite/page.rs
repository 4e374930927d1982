//! The generator of docs/design/performance.md with its charts and data in docs/design/performance/.

use std::fs;
use std::path::Path;

use anyhow::Error;
use weir_charts::{performance, short};

use crate::comparison::{ACHIEVED_MIN, P50_MS_MAX};
use crate::envoy_ratelimit::{ENVIRONMENT, PIPELINES};
use crate::facts::Facts;
use crate::faults::FAULTS;
use crate::figures::Figures;
use crate::fleet::{self, ENVOY_RATELIMIT, FLEETS, SERVICES};
use crate::{
    batches, before, chart_files, many_rules, saturated_peers, size, targets, through_envoy,
};

/// The name of the page.
pub(crate) const PAGE: &str = "performance.md";

/// The text around the figures.
const TEXT: &str = include_str!("page.md");

/// Writes the page. `other` are the figures of another machine.
pub(crate) fn write(
    docs: &Path,
    facts: &Facts,
    figures: &Figures,
    other: Option<&Figures>,
) -> anyhow::Result<()> {
    let beside = docs.join("performance");
    fs::create_dir_all(&beside)?;
    let csv = figures.csv();
    fs::write(beside.join("figures.csv"), &csv)?;
    let charts = performance(&csv).map_err(Error::msg)?;
    chart_files::write(&beside, &charts)?;
    let page = TEXT
        .replace("{{facts}}", facts.rows()?.trim_end())
        .replace("{{fallback}}", &shown(figures, "Redis: decided by fallback, %"))
        .replace("{{p50_max}}", &P50_MS_MAX.to_string())
        .replace("{{achieved_min}}", &ACHIEVED_MIN.to_string())
        .replace("{{summary_rate}}", &through_envoy::SUMMARY_RATE.to_string())
        .replace("{{rounds}}", &figures.rounds("saturated: CPU s per 100 000: memory").to_string())
        .replace("{{result}}", through_envoy::summary(figures).trim_end())
        .replace("{{peers}}", through_envoy::chart(&charts))
        .replace("{{through_envoy}}", through_envoy::table(figures).trim_end())
        .replace("{{many_rules}}", many_rules::table(figures).trim_end())
        .replace("{{targets}}", targets::rows(figures).trim_end())
        .replace("{{servers}}", servers(figures).trim_end())
        .replace("{{builds}}", builds(figures).trim_end())
        .replace("{{saturated_peers}}", saturated_peers::table(figures).trim_end())
        .replace("{{faults}}", faults(figures).trim_end())
        .replace("{{batches}}", batches::rows(figures).trim_end())
        .replace("{{fleets}}", fleets(figures).trim_end())
        .replace("{{before}}", before::rows(figures).trim_end())
        .replace("{{other}}", other_machine(figures, other).trim_end())
        .replace("{{tails}}", size::tails(figures).trim_end())
        .replace("{{algorithms}}", algorithms(figures).trim_end());
    fs::write(docs.join(PAGE), page)?;
    Ok(())
}

/// The targets of this run beside those of another machine.
fn other_machine(figures: &Figures, other: Option<&Figures>) -> String {
    let Some(other) = other else {
        return "This run has no figures of another machine (`--other-machine`).".into();
    };
    let rows = targets::beside(figures, other);
    format!("| what | bound | here | there |\n| --- | --- | --- | --- |\n{rows}")
}

fn shown(figures: &Figures, name: &str) -> String {
    figures.get(name).map_or("-".to_owned(), short)
}

fn servers(figures: &Figures) -> String {
    let mut rows = String::new();
    let row = |name: &str, of: &str| {
        let figure = |name: String| figures.get(&name).map_or("-".to_owned(), short);
        let columns = ["saturated: CPU s per 100 000", "saturated: calls per second"];
        let open = ["open: p50, us", "open: p90, us", "open: p99, us", "open: p99.9, us"];
        let cells: Vec<String> =
            columns.iter().chain(&open).map(|column| figure(format!("{column}: {of}"))).collect();
        format!("| {name} | {} |\n", cells.join(" | "))
    };
    for (name, of) in [
        ("h2 alone, a constant", "h2"),
        ("weir-http2 alone, a constant", "weir-http2"),
        ("baseline", "baseline"),
        ("weir from memory", "memory"),
        ("weir from memory, with a profile", "memory, profiled"),
        ("weir from memory, `grpc.fast_path: false`", "memory, by tonic"),
        ("weir from memory, the build before", "memory, before"),
        ("weir on Redis", "Redis"),
        ("weir on Redis, with a profile", "Redis, profiled"),
        ("weir on Redis, `grpc.fast_path: false`", "Redis, by tonic"),
        ("weir on Redis, the build before", "Redis, before"),
    ] {
        if figures.get(&format!("open: p50, us: {of}")).is_some() {
            rows += &row(name, of);
        }
    }
    rows
}

/// Ratios of CPU time per call in the same round: weir's HTTP/2 server to h2, tonic to the fast path, and
/// this build to the build before.
fn builds(figures: &Figures) -> String {
    let mut rows = String::new();
    for (name, of, by) in [
        (
            "weir-http2 alone: server CPU, of h2 alone",
            "saturated: CPU s per 100 000: weir-http2",
            "saturated: CPU s per 100 000: h2",
        ),
        (
            "memory: server CPU, `grpc.fast_path: false`, of the fast path's",
            "saturated: CPU s per 100 000: memory, by tonic",
            "saturated: CPU s per 100 000: memory",
        ),
        (
            "Redis: server CPU, `grpc.fast_path: false`, of the fast path's",
            "saturated: CPU s per 100 000: Redis, by tonic",
            "saturated: CPU s per 100 000: Redis",
        ),
        (
            "memory: server CPU, with a profile (`make pgo`), of the same code without",
            "saturated: CPU s per 100 000: memory, profiled",
            "saturated: CPU s per 100 000: memory",
        ),
        (
            "Redis: server CPU, with a profile (`make pgo`), of the same code without",
            "saturated: CPU s per 100 000: Redis, profiled",
            "saturated: CPU s per 100 000: Redis",
        ),
        (
            "memory: server CPU, this build, of the build before",
            "saturated: CPU s per 100 000: memory",
            "saturated: CPU s per 100 000: memory, before",
        ),
        (
            "Redis: server CPU, this build, of the build before",
            "saturated: CPU s per 100 000: Redis",
            "saturated: CPU s per 100 000: Redis, before",
        ),
        (
            "Redis: CPU of Redis, this build, of the build before",
            "saturated: Redis CPU s per million",
            "saturated: Redis CPU s per million, before",
        ),
    ] {
        if let Some(ratio) = figures.ratio(of, by) {
            rows += &format!("| {name} | {} |\n", short(ratio));
        }
    }
    rows
}

fn faults(figures: &Figures) -> String {
    let mut rows = String::new();
    for fault in FAULTS {
        for when in ["before", "across", "after"] {
            let figure = |what: &str| {
                figures.get(&format!("{fault}: {what}: {when}")).map_or("-".to_owned(), short)
            };
            let latencies = ["p50, us", "p99, us", "p99.9, us"].map(figure).join(" | ");
            let fallen = figure("by fallback, %");
            rows += &format!("| {fault}, {when} | {latencies} | {fallen} |\n");
        }
    }
    rows
}

/// The table of the small fleets, and how envoyproxy/ratelimit ran.
pub(crate) fn fleets(figures: &Figures) -> String {
    let mut rows = String::new();
    for fleet in FLEETS {
        for (service, _) in SERVICES {
            let Some(redis) = figures.get(&fleet.redis_cpu_figure(service)) else { continue };
            let ratio = fleet.comparison(figures, service).cell(short);
            let cpu = shown(figures, &fleet.instances_cpu_figure(service));
            let p50 = shown(figures, &fleet.latency_figure(service));
            let (fleet, redis) = (fleet.name(), short(redis));
            rows += &format!("| {fleet} | {service} | {redis} | {ratio} | {cpu} | {p50} |\n");
        }
    }
    if rows.is_empty() {
        return "They were not measured, because the run was without Redis.".into();
    }
    let fallback = fleet::largest_fallback_share(figures).map_or("-".to_owned(), short);
    format!(
        "| instances x calls per second | service | CPU s of Redis | \
         of envoyproxy/ratelimit's | CPU s of the instances | p50, us |\n\
         | --- | --- | --- | --- | --- | --- |\n{rows}\n\
         The fallback of weir decided at most {fallback} % of the calls of a row. {}\n",
        peer(figures)
    )
}

/// How envoyproxy/ratelimit ran, or why it did not.
fn peer(figures: &Figures) -> String {
    if figures.get(&FLEETS[0].redis_cpu_figure(ENVOY_RATELIMIT[0])).is_none() {
        return "envoyproxy/ratelimit was not measured, because the run had no \
                `--envoy-ratelimit`. So its rows are missing, and so are the ratios to it and \
                their targets."
            .into();
    }
    let listed = |variables: &[(&str, &str)]| {
        let listed: Vec<String> =
            variables.iter().map(|(name, value)| format!("`{name}={value}`")).collect();
        listed.join(", ")
    };
    format!(
        "envoyproxy/ratelimit ran with {}. `REDIS_URL` named the same kind of Redis, and \
         `RUNTIME_ROOT` and `RUNTIME_SUBDIRECTORY` the same rule. With pipelines means with {}. \
         Builds with radix v4 use pipelines only for a Redis Cluster.",
        listed(ENVIRONMENT),
        listed(PIPELINES)
    )
}

fn algorithms(figures: &Figures) -> String {
    let mut rows = String::new();
    for name in
        ["fixed_window", "sliding_window", "sliding_window_log", "token_bucket", "leaky_bucket"]
    {
        if let Some(value) = figures.get(&format!("algorithm: CPU s per 100 000: {name}")) {
            rows += &format!("| `{name}` | {} |\n", short(value));
        }
    }
    rows
}
