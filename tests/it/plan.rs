//! `weir plan`: its report for rule files, and its errors.

use serde_json::Value;
use tempfile::TempDir;

use crate::support::weir::cli::{Run, run};
use crate::support::weir::write;

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: hour, requests_per_unit: 1000 }
  - key: tenant
    rate_limit: { unit: hour, requests_per_unit: 100000, mode: leased }
  - key: all
    value: x
    rate_limit: { unit: hour, requests_per_unit: 100000, mode: synced }
  - key: free
    rate_limit: { unlimited: true }
";

fn plan(args: &[&str]) -> Run {
    let folder = TempDir::new().expect("a temporary folder");
    write(&folder.path().join("rules.yaml"), RULES);
    write(&folder.path().join("free.yaml"), "domain: d\ndescriptors: [{ key: free }]\n");
    let concurrency = "{ key: jobs, rate_limit: { algorithm: concurrency, max: 9, hold: 1m } }";
    let several = format!("domain: several\ndescriptors: [{concurrency}]\n");
    write(&folder.path().join("several.yaml"), &several);
    write(
        &folder.path().join("weir.yaml"),
        "grpc: { workers: 4 }\nrules: { paths: [rules.yaml] }\n",
    );
    run(folder.path(), &[&["plan"], args].concat())
}

/// A plan that must succeed.
fn json(args: &[&str]) -> Value {
    let run = plan(&[args, &["--json"]].concat());
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"))
}

/// The name of a rule without `name` has the value of its path.
#[test]
fn json_has_no_raw_special_characters() {
    let folder = TempDir::new().expect("a temporary folder");
    let rule = r#"{ key: user, value: "a\x9b\u202eb", rate_limit: { requests: 9, window: 1h } }"#;
    write(&folder.path().join("rules.yaml"), &format!("domain: d\ndescriptors: [{rule}]\n"));
    let args = ["plan", "--rules", "rules.yaml", "--rps", "10", "--keys", "10", "--json"];
    let run = run(folder.path(), &args);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(!run.stdout.contains(['\u{9b}', '\u{202e}']), "{run:?}");
    let plan: Value = serde_json::from_str(&run.stdout).expect("one object");
    assert!(plan.to_string().contains("user=a\u{9b}\u{202e}b"), "{plan}");
}

#[test]
fn json_has_every_part_of_the_plan() {
    let args = ["--rules", "rules.yaml", "--rps", "30000", "--keys", "1000"];
    let plan = json(&[&args[..], &["--instances", "4", "--primaries", "3"]].concat());
    let parts: [(&str, &[&str]); 11] = [
        ("", &["instances", "primaries", "instances_needed", "primaries_needed"]),
        ("/instance", &["calls_per_second", "steps_per_second", "credit_pools", "replicas"]),
        ("/instance/cores", &["low", "high"]),
        ("/redis", &["connections_per_primary", "connections", "script_calls_per_second"]),
        ("/redis", &["request_bytes_per_second", "reply_bytes_per_second", "counters_max"]),
        ("/hottest_primary", &["share", "steps_per_script_call", "script_calls_per_second"]),
        ("/hottest_primary/cores", &["low", "high"]),
        ("/redis", &["hottest_slot_share"]),
        ("/cost", &["instance_memory_bytes", "redis_memory_bytes"]),
        ("/cost/redis_cores", &["low", "high"]),
        ("/bounds/0", &["used"]),
    ];
    for (part, fields) in parts {
        let part = plan.pointer(part).unwrap_or_else(|| panic!("no {part}: {plan}"));
        let missing: Vec<_> = fields.iter().filter(|field| !part[**field].is_number()).collect();
        assert!(missing.is_empty(), "{missing:?} of {part}");
    }
    assert_eq!([&plan["instances"], &plan["primaries"]], [4, 3]);
    assert_eq!(plan["instance"]["calls_per_second"], 7_500.0);
    let rules = plan["rules"].as_array().expect("a list");
    let rules: Vec<_> = rules.iter().map(|rule| [&rule["rule"], &rule["mode"]]).collect();
    assert_eq!(rules, [["per-user", "exact"], ["tenant", "leased"], ["all=x", "synced"]]);
    // One exact step per call of its rule.
    let exact = plan["rules"][0]["steps_per_second"].as_f64().expect("a number");
    assert!((exact - 10_000.0).abs() < 1e-3, "{exact}");
}

/// Two domains may have rules of one name. A mode without rules has no entries, and not -0.0 of them.
#[test]
fn json_and_text_name_the_domain_of_a_rule() {
    let folder = TempDir::new().expect("a temporary folder");
    for domain in ["one", "two"] {
        let rule =
            "{ key: user, rate_limit: { requests: 9, window: 1h, algorithm: token_bucket } }";
        let text = format!("domain: {domain}\ndescriptors: [{rule}]\n");
        write(&folder.path().join(format!("{domain}.yaml")), &text);
    }
    let args = ["plan", "--rules", ".", "--rps", "10", "--keys", "10"];
    let text = run(folder.path(), &args).stdout;
    for part in ["user in domain one (exact)", "user in domain two (exact)", "unknown memory"] {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
    let text = run(folder.path(), &[&args[..], &["--json"]].concat()).stdout;
    assert!(!text.contains("-0.0"), "{text}");
    let plan: Value = serde_json::from_str(&text).expect("one object");
    let domains = ["/rules/0/domain", "/rules/1/domain"].map(|domain| plan.pointer(domain));
    assert_eq!(domains.map(|domain| domain.and_then(Value::as_str)), [Some("one"), Some("two")]);
    assert_eq!([0, 1].map(|rule| &plan["rules"][rule]["has_known_cost"]), [true, true]);
    assert_eq!(plan["cost"]["redis_memory_bytes"], Value::Null);
}

#[test]
fn rules_of_unknown_cost_are_named() {
    let args = ["--rules", "rules.yaml", "several.yaml", "--rps", "1000", "--keys", "10"];
    let text = plan(&args).stdout;
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("costs more cores")).collect();
    assert!(lines.len() == 1 && lines[0].contains("jobs in domain several"), "{text}");
}

#[test]
fn rules_are_chosen_and_weighted_by_name() {
    let args = ["--rules", "rules.yaml", "--rps", "1000", "--keys", "10", "--instances", "1"];
    let steps = |rules: &[&str]| {
        let plan = json(&[&args[..], rules].concat());
        let rules = plan["rules"].as_array().expect("a list").clone();
        rules.iter().map(|rule| rule["steps_per_second"].as_f64().expect("a number")).collect()
    };
    let all: Vec<f64> = steps(&["--rule", "per-user=3", "--rule", "tenant"]);
    assert_eq!(all.len(), 2);
    assert!((all[0] - 750.0).abs() < 1e-6, "{all:?}");
    // `all=x` is a selector, and the last number of `all=x=3` a weight.
    for all in [["all=x", "user=3"], ["all=x=1", "per-user=3"], ["per-user=3", "all=x"]] {
        let mut both: Vec<f64> = steps(&["--rule", all[0], "--rule", all[1]]);
        both.sort_by(f64::total_cmp);
        assert_eq!(both.len(), 2, "{all:?}");
        assert!((both[1] - 750.0).abs() < 1e-6, "{all:?}: {both:?}");
    }
    let one: Vec<f64> = steps(&["--rule", "per-user"]);
    assert!(one.len() == 1 && (one[0] - 1_000.0).abs() < 1e-6, "{one:?}");
}

#[test]
fn the_settings_give_rules_and_workers() {
    let plan =
        json(&["--config", "weir.yaml", "--rps", "1000", "--keys", "10", "--instances", "2"]);
    // Four workers, the background thread and discovery.
    assert_eq!(plan["redis"]["connections_per_primary"], 12.0);
}

#[test]
fn the_text_names_the_first_bound() {
    let args = ["--rules", "rules.yaml", "--rps", "2000000", "--keys", "1", "--rule", "per-user"];
    let run = plan(&args);
    assert_eq!(run.code, Some(0), "{run:?}");
    for part in ["needed: no number suffices", "bound  ", "`mode: leased` for per-user"] {
        assert!(run.stdout.contains(part), "no {part} in:\n{}", run.stdout);
    }
}

/// No number of primaries suffices for the busiest counter, so the advice is another mode, with and without
/// `--primaries`, in the text and in the JSON.
#[test]
fn advice_agrees_with_the_needed_primaries() {
    let args = ["--rules", "rules.yaml", "--rps", "1000000", "--keys", "100000", "--zipf", "1"];
    let args = [&args[..], &["--rule", "per-user"]].concat();
    for primaries in [&[][..], &["--primaries", "1"], &["--primaries", "48"]] {
        let args = [&args[..], primaries].concat();
        let text = plan(&args).stdout;
        assert!(text.contains("needed: no number suffices"), "{primaries:?}: {text}");
        let plan = json(&args);
        assert_eq!(plan["primaries_needed"], Value::Null, "{primaries:?}");
        let bounds = plan["bounds"].as_array().expect("a list");
        let changes = bounds.iter().map(|bound| bound["change"].as_str().expect("a text"));
        let changes: Vec<&str> = changes.filter(|change| change.contains("primaries")).collect();
        let [change] = changes[..] else { panic!("{primaries:?}: {bounds:?}") };
        let start = "`mode: leased` for per-user in domain shop; more primaries do not ";
        assert!(change.starts_with(start), "{primaries:?}: {change}");
        assert!(text.contains(&format!("change: {change}")), "{primaries:?}: {text}");
    }
}

#[test]
fn numbers_out_of_bounds_have_clear_errors() {
    let needed = ["--rules", "rules.yaml", "--rps", "1000", "--keys", "10"];
    for (flag, value, part) in [
        ("--rps", "-1", "`-1` is not a number above 0"),
        ("--rps", "-1e-3", "`-1e-3` is not a number above 0"),
        ("--rps", "1e-300", "`1e-300` is not from 0.000001 to 1e12"),
        ("--rps", "1e300", "`1e300` is not from 0.000001 to 1e12"),
        ("--keys", "-1", "`-1` is not a whole number above 0"),
        ("--zipf", "-1", "`-1` is not a number above 0"),
        ("--denied", "-0.5", "`-0.5` is not a number from 0 to 1"),
        ("--descriptors", "-1", "`-1` is not a number above 0"),
        ("--descriptors", "1e-300", "`1e-300` is not from 0.000001 to 1e6"),
        ("--instances", "-1", "-1 is not in 1..=100000"),
        ("--primaries", "-1", "-1 is not in 1..=1024"),
        ("--workers", "-1", "-1 is not in 1..=1024"),
        ("--round-trip", "-1ms", "`-1ms` is not a duration such as 1ms"),
    ] {
        let mut args: Vec<&str> = needed.to_vec();
        match args.iter().position(|arg| *arg == flag) {
            Some(place) => args[place + 1] = value,
            None => args.extend([flag, value]),
        }
        let run = plan(&args);
        assert_eq!(run.code, Some(2), "{flag} {value}: {run:?}");
        assert!(run.stderr.contains(part), "{flag} {value}: {run:?}");
    }
}

#[test]
fn wrong_arguments_say_what_to_do() {
    let load = ["--rps", "1000", "--keys", "10"];
    let wrong: [(&[&str], i32, &str); 8] = [
        (&["--rules", "rules.yaml", "--rule", "per-user=0"], 64, "`0` is not a number above 0"),
        (&["--rules", "rules.yaml", "--rule", "unknown"], 64, "per-user, tenant, all"),
        (&["--rules", "free.yaml"], 64, "no rule has a limit"),
        (&["--rules", "missing.yaml"], 64, "missing.yaml"),
        (&["--rules", "rules.yaml", "--denied", "2"], 2, "from 0 to 1"),
        (&["--rules", "rules.yaml", "--descriptors", "0"], 2, "not a number above 0"),
        (&["--rules", "rules.yaml", "--instances", "0"], 2, "--instances"),
        (&["--rules", "rules.yaml", "--round-trip", "1"], 2, "such as 1ms"),
    ];
    for (args, code, part) in wrong {
        let run = plan(&[args, &load[..]].concat());
        assert_eq!(run.code, Some(code), "{args:?}: {run:?}");
        assert!(run.stderr.contains(part), "{args:?}: {run:?}");
    }
}
