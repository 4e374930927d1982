//! The costs of the model that docs/design/performance/figures.csv has, and their constants.

use std::path::Path;

const FIGURES: &str = include_str!("../../../docs/design/performance/figures.csv");

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
fn constants(figures: &str) -> Vec<(&'static str, String)> {
    let get = |name: &str| median(figures, name).unwrap_or_else(|| panic!("no figure {name}"));
    let saturated = |name: &str| get(&format!("saturated: CPU s per 100 000: {name}")) / 1e5;
    let round_trip = (get("open: p50, us: Redis") - get("open: p50, us: memory")) / 1e6;
    let mut costs = vec![
        ("INSTANCE_CALL", saturated("memory")),
        ("INSTANCE_CALL_WITH_STEP", saturated("Redis")),
        ("ROUND_TRIP", round_trip),
    ];
    let lone_instance = "1 x 1000: CPU s per 100 000: weir, fixed_window";
    let (call, ratio) = if median(figures, lone_instance).is_some() {
        let lone_redis = "1 x 1000: Redis CPU s per 100 000: weir, fixed_window";
        costs.push(("INSTANCE_CALL_WITH_STEP_AND_WAKE_UPS", get(lone_instance) / 1e5));
        costs.push(("REDIS_CALL_WITH_WAKE_UP", get(lone_redis) / 1e5));
        ("one FCALL each", "FUNCTION_RATIO")
    } else {
        ("one EVALSHA each", "FORMER_SCRIPT_RATIO")
    };
    costs.push(("REDIS_CALL", get(&format!("{call}: Redis CPU s per million")) / 1e6));
    let costs = costs.into_iter().map(|(name, seconds)| (name, format!("{seconds:.2e}")));
    costs.chain([("REDIS_CALL_RATIO", ratio.to_owned())]).collect()
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
    for (name, value) in constants(FIGURES) {
        generated = with_value(&generated, name, &value);
    }
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() && generated != code {
        std::fs::write(&path, &generated).expect("src/ is writable");
    }
    let found = std::fs::read_to_string(&path).expect("src/capacity/measured.rs");
    assert!(found == generated, "measured.rs differs from figures.csv; run `make docs`");
}

#[test]
fn constants_come_from_the_way_that_was_measured() {
    let common = "figure,median,rounds\n\
        \"saturated: CPU s per 100 000: memory\",0.3644,0.3 0.4\n\
        \"saturated: CPU s per 100 000: Redis\",0.6011,0.6011\n\
        \"open: p50, us: memory\",100.5000,100.5\n\
        \"open: p50, us: Redis\",300.7500,300.75\n";
    let former = format!("{common}\"one EVALSHA each: Redis CPU s per million\",21.1422,21\n");
    let present = format!(
        "{common}\"one FCALL each: Redis CPU s per million\",11.0900,11\n\
         \"1 x 1000: Redis CPU s per 100 000: weir, fixed_window\",3.2960,3.3\n\
         \"1 x 1000: CPU s per 100 000: weir, fixed_window\",8.0000,8\n"
    );
    let start = [
        ("INSTANCE_CALL", "3.64e-6"),
        ("INSTANCE_CALL_WITH_STEP", "6.01e-6"),
        ("ROUND_TRIP", "2.00e-4"),
    ];
    let of_former = [("REDIS_CALL", "2.11e-5"), ("REDIS_CALL_RATIO", "FORMER_SCRIPT_RATIO")];
    let of_present = [
        ("INSTANCE_CALL_WITH_STEP_AND_WAKE_UPS", "8.00e-5"),
        ("REDIS_CALL_WITH_WAKE_UP", "3.30e-5"),
        ("REDIS_CALL", "1.11e-5"),
        ("REDIS_CALL_RATIO", "FUNCTION_RATIO"),
    ];
    for (figures, rest) in [(former, &of_former[..]), (present, &of_present[..])] {
        let expected = start.iter().chain(rest).map(|(name, value)| (*name, (*value).to_owned()));
        assert_eq!(constants(&figures), expected.collect::<Vec<_>>());
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
