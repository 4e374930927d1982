//! The costs of the model that docs/design/performance/capacity.csv has, and their constants.

use std::path::Path;

/// A service on loopback with a longer median latency is overloaded, as in benches/suite/comparison.rs.
const P50_US_MAX: f64 = 3e3;
/// So is one that completes a smaller share of the offered calls, in percent.
const ACHIEVED_MIN: f64 = 98.0;
/// The loads at a fixed rate that constants come from: the load and the service.
const PACED_LOADS: [(&str, &str); 3] =
    [("open", "memory"), ("open", "Redis"), ("1 x 1000", "weir, fixed_window")];

const FIGURES: &str = include_str!("../../../docs/design/performance/capacity.csv");

/// The median of a row of the figures.
pub(super) fn figure(name: &str) -> f64 {
    median(FIGURES, name).unwrap_or_else(|| panic!("no figure {name}"))
}

fn median(figures: &str, name: &str) -> Option<f64> {
    let start = format!("\"{name}\",");
    let values = figures.lines().find_map(|row| row.strip_prefix(&start))?;
    values.split(',').next()?.parse().ok()
}

/// Constants of `measured.rs` and their values, in three digits.
///
/// The figures of the script before functions have no small fleets. They say nothing about wake-ups.
fn constants(figures: &str) -> Result<Vec<(&'static str, String)>, String> {
    let get = |name: &str| median(figures, name).ok_or_else(|| format!("no figure {name}"));
    refuse_overload(figures)?;
    let saturated = |name: &str| get(&format!("saturated: CPU s per 100 000: {name}"));
    let round_trip = (get("open: p50, us: Redis")? - get("open: p50, us: memory")?) / 1e6;
    let mut costs = vec![
        ("INSTANCE_CALL", saturated("memory")? / 1e5),
        ("INSTANCE_CALL_WITH_STEP", saturated("Redis")? / 1e5),
        ("ROUND_TRIP", round_trip),
    ];
    let lone_instance = "1 x 1000: CPU s per 100 000: weir, fixed_window";
    if let Some(lone_instance) = median(figures, lone_instance) {
        let lone_redis = "1 x 1000: Redis CPU s per 100 000: weir, fixed_window";
        costs.push(("INSTANCE_CALL_WITH_STEP_AND_WAKE_UPS", lone_instance / 1e5));
        costs.push(("REDIS_CALL_WITH_WAKE_UP", get(lone_redis)? / 1e5));
    }
    let [function, script] = ["FCALL", "EVALSHA"]
        .map(|command| median(figures, &format!("one {command} each: Redis CPU s per million")));
    let (per_million, ratio) = match (function, script) {
        (Some(function), None) => (function, "FUNCTION_RATIO"),
        (None, Some(script)) => (script, "FORMER_SCRIPT_RATIO"),
        (None, None) => return Err("neither one FCALL each nor one EVALSHA each".to_owned()),
        (Some(_), Some(_)) => {
            return Err("both one FCALL each and one EVALSHA each, of different runs".to_owned());
        }
    };
    costs.push(("REDIS_CALL", per_million / 1e6));
    let costs = costs.into_iter().map(|(name, seconds)| (name, format!("{seconds:.2e}")));
    Ok(costs.chain([("REDIS_CALL_RATIO", ratio.to_owned())]).collect())
}

/// The costs and latencies of an overloaded service are those of its queue.
fn refuse_overload(figures: &str) -> Result<(), String> {
    for (load, service) in PACED_LOADS {
        // Older figures lack the share of completed calls.
        let figure = |what: &str| median(figures, &format!("{load}: {what}: {service}"));
        let (p50, achieved) = (figure("p50, us"), figure("achieved, %"));
        let is_fast = p50.is_none_or(|p50| p50 <= P50_US_MAX);
        let is_complete = achieved.is_none_or(|achieved| achieved >= ACHIEVED_MIN);
        if !(is_fast && is_complete) {
            return Err(format!("overloaded, so measure again: {load}: {service}"));
        }
    }
    Ok(())
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
    let constants = constants(FIGURES).unwrap_or_else(|problem| panic!("figures.csv: {problem}"));
    for (name, value) in constants {
        generated = with_value(&generated, name, &value);
    }
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() && generated != code {
        std::fs::write(&path, &generated).expect("src/ is writable");
    }
    let found = std::fs::read_to_string(&path).expect("src/capacity/measured.rs");
    assert!(found == generated, "measured.rs differs from figures.csv; run `make docs`");
}

/// Figures that all files have.
const COMMON: &str = "figure,median,rounds\n\
    \"saturated: CPU s per 100 000: memory\",0.3644,0.3 0.4\n\
    \"saturated: CPU s per 100 000: Redis\",0.6011,0.6011\n\
    \"open: p50, us: memory\",100.5000,100.5\n\
    \"open: p50, us: Redis\",300.7500,300.75\n";
const SCRIPT: &str = "\"one EVALSHA each: Redis CPU s per million\",21.1422,21\n";
const FUNCTION: &str = "\"one FCALL each: Redis CPU s per million\",11.0900,11\n";
const LONE_INSTANCE: &str = "\
    \"1 x 1000: Redis CPU s per 100 000: weir, fixed_window\",3.2960,3.3\n\
    \"1 x 1000: CPU s per 100 000: weir, fixed_window\",8.0000,8\n";

#[test]
fn constants_come_from_the_way_that_was_measured() {
    let start = [
        ("INSTANCE_CALL", "3.64e-6"),
        ("INSTANCE_CALL_WITH_STEP", "6.01e-6"),
        ("ROUND_TRIP", "2.00e-4"),
    ];
    let wake_ups = [
        ("INSTANCE_CALL_WITH_STEP_AND_WAKE_UPS", "8.00e-5"),
        ("REDIS_CALL_WITH_WAKE_UP", "3.30e-5"),
    ];
    let script = [("REDIS_CALL", "2.11e-5"), ("REDIS_CALL_RATIO", "FORMER_SCRIPT_RATIO")];
    let function = [("REDIS_CALL", "1.11e-5"), ("REDIS_CALL_RATIO", "FUNCTION_RATIO")];
    // With and without small fleets, which a run may lack.
    let none: &[(&str, &str)] = &[];
    for (figure, rest) in [(SCRIPT, script), (FUNCTION, function)] {
        for (fleets, of_fleets) in [("", none), (LONE_INSTANCE, &wake_ups[..])] {
            let expected = start.iter().chain(of_fleets).chain(&rest);
            let expected = expected.map(|(name, value)| (*name, (*value).to_owned()));
            let found = constants(&format!("{COMMON}{figure}{fleets}"));
            assert_eq!(found, Ok(expected.collect::<Vec<_>>()));
        }
    }
    for figures in [COMMON.to_owned(), format!("{COMMON}{FUNCTION}{SCRIPT}")] {
        constants(&figures).expect_err("the way is unknown");
    }
}

#[test]
fn figures_of_overloaded_runs_are_refused() {
    let with = |figures: &str| constants(&format!("{COMMON}{FUNCTION}{LONE_INSTANCE}{figures}"));
    for (load, service) in PACED_LOADS {
        let problem = Err(format!("overloaded, so measure again: {load}: {service}"));
        let achieved = |share| with(&format!("\"{load}: achieved, %: {service}\",{share},1\n"));
        assert!(achieved("98.0000").is_ok(), "{load}: {service}");
        assert_eq!(achieved("97.9000"), problem);
        assert_eq!(achieved("NaN"), problem);
    }
    let lone = |p50| with(&format!("\"1 x 1000: p50, us: weir, fixed_window\",{p50},1\n"));
    assert!(lone("3000.0000").is_ok());
    for p50 in ["3000.1000", "NaN"] {
        assert!(lone(p50).is_err(), "{p50}");
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
