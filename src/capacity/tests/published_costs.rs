//! The costs of the model that docs/design/performance/capacity.csv has, and their constants.

use std::path::Path;

/// A service on loopback with a longer median latency is overloaded, as in benches/suite/comparison.rs.
const P50_US_MAX: f64 = 3e3;
/// So is one that completes a smaller share of the offered calls, in percent.
const ACHIEVED_MIN: f64 = 98.0;
/// The loads at a fixed rate that constants come from, and their services.
const PACED_LOADS: [(&str, &[&str]); 6] = [
    ("open", &["memory", "Redis"]),
    ("through Envoy, 500", &["weir from memory", "weir, exact"]),
    ("1 x 1000", &ALGORITHMS),
    ("8 x 50", &ALGORITHMS),
    ("50 x 8", &ALGORITHMS),
    ("8 x 500", &ALGORITHMS),
];

/// The algorithms of the small fleets.
pub(super) const ALGORITHMS: [&str; 4] =
    ["weir, fixed_window", "weir, sliding_window", "weir, token_bucket", "weir, leaky_bucket"];
/// The counters of the batches that a cost comes from.
const CHEAPEST_BATCH: &str = "10 counters, uniform";
/// The steps of the calls that a cost comes from.
const CALL_STEPS: f64 = 16.0;

const FIGURES: &str = include_str!("../../../docs/design/performance/capacity.csv");

/// The median of a row of the figures.
pub(super) fn figure(name: &str) -> f64 {
    median(FIGURES, name).unwrap_or_else(|| panic!("no figure {name}"))
}

/// Whether a service was overloaded, so that its costs and latencies are those of its queue.
pub(super) fn was_overloaded(load: &str, service: &str) -> bool {
    is_overloaded(FIGURES, load, service)
}

fn is_overloaded(figures: &str, load: &str, service: &str) -> bool {
    let figure = |what: &str| median(figures, &format!("{load}: {what}: {service}"));
    let is_fast = figure("p50, us").is_some_and(|p50| p50 <= P50_US_MAX);
    let is_complete = figure("achieved, %").is_some_and(|achieved| achieved >= ACHIEVED_MIN);
    !(is_fast && is_complete)
}

fn median(figures: &str, name: &str) -> Option<f64> {
    let start = format!("\"{name}\",");
    let values = figures.lines().find_map(|row| row.strip_prefix(&start))?;
    values.split(',').next()?.parse().ok()
}

/// Constants of `measured.rs` and their values, in three digits.
fn constants(figures: &str) -> Result<Vec<(&'static str, String)>, String> {
    for (load, services) in PACED_LOADS {
        if let Some(service) = services.iter().find(|of| is_overloaded(figures, load, of)) {
            return Err(format!("overloaded or missing, so measure again: {load}: {service}"));
        }
    }
    let get = |name: &str| median(figures, name).ok_or_else(|| format!("no figure {name}"));
    let saturated = |name: &str| get(&format!("saturated: CPU s per 100 000: {name}"));
    let of_envoy = |name: &str| get(&format!("through Envoy, 500: CPU s of the service: {name}"));
    let of_batch = |what: &str| get(&format!("batches: {what}: {CHEAPEST_BATCH}"));
    let of_fleet = |what: &str| -> Result<Vec<f64>, String> {
        let of = |algorithm: &str| get(&format!("{what} per 100 000: {algorithm}"));
        ALGORITHMS.into_iter().map(of).collect()
    };
    let of_fleets = |one: &str, other: &str| -> Result<Vec<f64>, String> {
        Ok([of_fleet(one)?, of_fleet(other)?].concat())
    };
    let slow = of_fleet("50 x 8: CPU s")?;
    let redis_slow = of_fleets("8 x 50: Redis CPU s", "50 x 8: Redis CPU s")?;
    let redis_fast = of_fleet("8 x 500: Redis CPU s")?;
    let function_call = get("one FCALL each: Redis CPU s per million")?;
    // A call of `steps` steps, each at this cost, costs as much as a call of one step and the others.
    let further_step =
        |cost: f64, steps: f64| ((steps * cost - function_call) / (steps - 1.0)).max(0.0);
    let cheapest =
        further_step(of_batch("Redis CPU s per million")?, of_batch("decisions per script call")?);
    let costliest =
        further_step(get("calls of 16 steps each: Redis CPU s per million")?, CALL_STEPS);
    let costs = [
        ("INSTANCE_IDLE", get("idle: CPU, %")? / 100.0),
        ("INSTANCE_RESIDENT", get("idle: resident, MiB")? * 1_048_576.0),
        ("INSTANCE_CALL", saturated("memory")? / 1e5),
        ("INSTANCE_CALL_WITH_STEP", saturated("Redis")? / 1e5),
        ("INSTANCE_CALL_AT_8_LEAST", least(&slow) / 1e5),
        ("INSTANCE_CALL_AT_8_MOST", most(&slow) / 1e5),
        ("INSTANCE_CALL_AT_1000_LEAST", least(&of_fleet("1 x 1000: CPU s")?) / 1e5),
        ("INSTANCE_CALL_AT_500_MOST", most(&of_fleet("8 x 500: CPU s")?) / 1e5),
        ("MEMORY_SHARE", (of_envoy("weir from memory")? / of_envoy("weir, exact")?).min(1.0)),
        ("ROUND_TRIP", (get("open: p50, us: Redis")? - get("open: p50, us: memory")?) / 1e6),
        ("REDIS_FUNCTION_CALL", function_call / 1e6),
        ("REDIS_STEP_CHEAPEST", cheapest / 1e6),
        ("REDIS_STEP_COSTLIEST", costliest / 1e6),
        ("REDIS_CALL_AT_400_LEAST", least(&redis_slow) / 1e5),
        ("REDIS_CALL_AT_400_MOST", most(&redis_slow) / 1e5),
        ("REDIS_CALL_AT_4000_LEAST", least(&redis_fast) / 1e5),
        ("REDIS_CALL_AT_4000_MOST", most(&redis_fast) / 1e5),
    ];
    Ok(costs.into_iter().map(|(name, value)| (name, format!("{value:.2e}"))).collect())
}

fn least(costs: &[f64]) -> f64 {
    costs.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(costs: &[f64]) -> f64 {
    costs.iter().copied().fold(0.0, f64::max)
}

/// `code` with another value of a constant.
fn with_value(code: &str, name: &str, value: &str) -> String {
    let start = format!("const {name}: f64 = ");
    let (head, rest) = code.split_once(&start).unwrap_or_else(|| panic!("no constant {name}"));
    let (_, tail) = rest.split_once(';').expect("the end of the constant");
    format!("{head}{start}{value};{tail}")
}

/// `make docs` writes the values.
#[test]
fn measured_costs_match_their_sources() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/capacity/measured.rs");
    let code = std::fs::read_to_string(&path).expect("src/capacity/measured.rs");
    let mut generated = code.clone();
    let constants = constants(FIGURES).unwrap_or_else(|problem| panic!("capacity.csv: {problem}"));
    for (name, value) in constants {
        generated = with_value(&generated, name, &value);
    }
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() && generated != code {
        std::fs::write(&path, &generated).expect("src/ is writable");
    }
    let found = std::fs::read_to_string(&path).expect("src/capacity/measured.rs");
    assert!(found == generated, "measured.rs differs from capacity.csv; run `make docs`");
}

/// The published figures with another value of one.
fn with_figure(name: &str, value: f64) -> String {
    format!("\"{name}\",{value},1\n{FIGURES}")
}

#[test]
fn constants_come_from_their_figures() {
    let batch = "batches: Redis CPU s per million: 10 counters, uniform";
    let of_16 = "calls of 16 steps each: Redis CPU s per million";
    let function_call = figure("one FCALL each: Redis CPU s per million");
    let lone = "50 x 8: CPU s per 100 000: weir, leaky_bucket";
    let fast = "8 x 500: CPU s per 100 000: weir, token_bucket";
    let redis = "8 x 500: Redis CPU s per 100 000: weir, token_bucket";
    for (name, value, constant, expected) in [
        ("idle: CPU, %", 0.5, "INSTANCE_IDLE", "5.00e-3"),
        ("idle: resident, MiB", 2.0, "INSTANCE_RESIDENT", "2.10e6"),
        ("saturated: CPU s per 100 000: memory", 0.3644, "INSTANCE_CALL", "3.64e-6"),
        ("saturated: CPU s per 100 000: Redis", 0.6011, "INSTANCE_CALL_WITH_STEP", "6.01e-6"),
        (lone, 1e3, "INSTANCE_CALL_AT_8_MOST", "1.00e-2"),
        (lone, 1e-2, "INSTANCE_CALL_AT_8_LEAST", "1.00e-7"),
        (fast, 1e3, "INSTANCE_CALL_AT_500_MOST", "1.00e-2"),
        (redis, 1e3, "REDIS_CALL_AT_4000_MOST", "1.00e-2"),
        (redis, 1e-2, "REDIS_CALL_AT_4000_LEAST", "1.00e-7"),
        ("one FCALL each: Redis CPU s per million", 11.09, "REDIS_FUNCTION_CALL", "1.11e-5"),
        (batch, 0.01, "REDIS_STEP_CHEAPEST", "0.00e0"),
        (of_16, (function_call + 15.0 * 2.0) / 16.0, "REDIS_STEP_COSTLIEST", "2.00e-6"),
    ] {
        let found = constants(&with_figure(name, value)).expect("all figures");
        let found = found.iter().find(|(found, _)| *found == constant);
        assert_eq!(found.map(|(_, value)| value.as_str()), Some(expected), "{name}");
    }
    constants("figure,median,rounds\n").expect_err("no figures");
}

#[test]
fn figures_of_overloaded_runs_are_refused() {
    for (load, services) in PACED_LOADS {
        for service in services {
            for (what, value, is_valid) in [
                ("achieved, %", 98.0, true),
                ("achieved, %", 97.9, false),
                ("achieved, %", f64::NAN, false),
                ("p50, us", 3_000.1, false),
                ("p50, us", f64::NAN, false),
            ] {
                let figures = with_figure(&format!("{load}: {what}: {service}"), value);
                assert_eq!(constants(&figures).is_ok(), is_valid, "{load}, {service}: {what}");
            }
        }
    }
}

#[test]
fn only_the_value_of_a_constant_changes() {
    let code = "/// A.\nconst A: f64 = 1.0;\n/// `A` more.\npub(super) const AB: f64 = A;\n";
    let table = [
        ("A", "2.5e-5", code.replace("1.0", "2.5e-5")),
        ("AB", "B", code.replace("= A;", "= B;")),
        ("A", "1.0", code.to_owned()),
    ];
    for (name, value, expected) in table {
        assert_eq!(with_value(code, name, value), expected, "{name}");
    }
}
