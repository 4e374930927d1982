//! `weir bench`: its figures with a real service, and its errors without one.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use serde_json::Value;

use crate::support::http::get;
use crate::support::process::Process;
use crate::support::rls::{costing, descriptor, request};
use crate::support::weir::cli::{Run, run};
use crate::support::weir::{Weir, weir};

const RULES: &str = "
domain: shop
descriptors:
  - key: free
    rate_limit: { unlimited: true }
  - key: few
    rate_limit: { unit: year, requests_per_unit: 5 }
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: many
    rate_limit: { unit: year, requests_per_unit: 1000 }
";

/// clap would replace the placeholder by a newline.
#[test]
fn the_help_shows_the_placeholder() {
    let help = run(Path::new("."), &["bench", "--help"]);
    assert_eq!(help.code, Some(0), "{help:?}");
    for text in ["number of the key replaces {n} in a value", "if a value contains {n}, else 1]"] {
        assert!(help.stdout.contains(text), "{help:?}");
    }
}

/// A run that is long enough for some calls on any machine.
const SHORT: [&str; 4] = ["--warmup", "0", "--duration", "0.5"];

fn bench(to: SocketAddr, args: &[&str]) -> Run {
    let address = to.to_string();
    let head = ["bench", "--addr", &address, "--domain", "shop"];
    run(Path::new("."), &[&head, &SHORT[..], args].concat())
}

/// The report of a run that must succeed.
fn report(to: SocketAddr, args: &[&str]) -> Value {
    let run = bench(to, &[args, &["--json"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"))
}

/// The report of a run that was interrupted after the service had decided `calls` calls, however
/// long that took. Up to 256 of them are in flight then and in no report.
fn report_of(service: &Weir, calls: u64, args: &[&str]) -> Value {
    let answered = || -> u64 {
        let page = get(service.admin, "/metrics").body;
        let counts = page.lines().filter(|line| line.starts_with("weir_requests_total{"));
        let number = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
        counts.map(|line| number(line).expect("a line ends with a number")).sum()
    };
    let mut command = weir();
    command.args(["bench", "--addr", &service.grpc.to_string(), "--domain", "shop"]);
    command.args(["--warmup", "0", "--duration", "36000", "--json"]).args(args);
    let mut load = Process::spawn("bench", command);
    let before = answered();
    while answered() < before + calls {}
    load.signal("INT");
    assert_eq!(load.wait_for_exit().code(), Some(0));
    serde_json::from_str(&load.output()).expect("a report")
}

fn number(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("{field}: {report:#}"))
}

#[test]
fn a_closed_loop_counts_calls_by_decision() {
    let weir = Weir::start(RULES);
    let free = report_of(&weir, 500, &["free={n}", "--connections", "2", "--streams", "3"]);
    assert!(number(&free, "ok") > 0, "{free:#}");
    assert_eq!(number(&free, "over_limit") + number(&free, "failed"), 0, "{free:#}");
    assert_eq!(free["by_fallback"], Value::Null, "responses do not name the cause");
    let p50 = free["latency_us"]["p50"].as_f64().expect("a number");
    assert!(p50 > 0.0 && p50 <= free["latency_us"]["max"].as_f64().expect("a number"));

    // The limit is five per year. If a year ends during the test, five more calls are allowed.
    let few = report_of(&weir, 500, &["few=one"]);
    assert!((1..=10).contains(&number(&few, "ok")), "{few:#}");
    assert!(number(&few, "over_limit") > 0, "{few:#}");
}

/// An open loop sends the requested number of calls for the requested keys.
#[test]
fn an_open_loop_keeps_its_rate_and_keys() {
    let weir = Weir::start(RULES);
    let args = ["user=u{n}", "--keys", "7", "--rate", "400", "--hits", "1"];
    let all = report(weir.grpc, &args);
    assert_eq!(number(&all, "decided"), 200, "half a second at 400 per second: {all:#}");
    assert!((7..=14).contains(&number(&all, "ok")), "one for each of 7 keys: {all:#}");
    assert_eq!(all["lateness_us"]["p50"].as_f64().map(|p50| p50 >= 0.0), Some(true));
    let args = ["user=z{n}", "--keys", "1000000", "--zipf", "2", "--threads", "2"];
    let zipf = report_of(&weir, 1000, &args);
    let (ok, over) = (number(&zipf, "ok"), number(&zipf, "over_limit"));
    assert!(ok > 0 && over > ok, "most requests are for few keys: {zipf:#}");
}

#[test]
fn fallbacks_are_counted_by_their_header() {
    let nowhere = free_port();
    let weir = Weir::setup()
        .rules("rules.yaml", RULES)
        .env("WEIR__RESPONSE__DECISION_HEADER", "true")
        .env("WEIR__STORE__KIND", "redis")
        .env("WEIR__REDIS__URL", &format!("redis://{nowhere}"))
        .start();
    let all = report(weir.grpc, &["user={n}", "--rate", "200"]);
    assert_eq!(number(&all, "by_fallback"), 100, "{all:#}");
    assert_eq!(number(&all, "ok"), 100, "on_error is allow: {all:#}");
}

#[test]
fn refused_calls_are_found_before_the_load() {
    let weir = Weir::start(RULES);
    let run = bench(weir.grpc, &[&format!("user={}", "x".repeat(70_000))]);
    assert_eq!(run.code, Some(69), "{run:?}");
    assert!(run.stderr.contains("INVALID_ARGUMENT"), "{run:?}");
}

#[test]
fn a_service_that_goes_away_is_in_the_report() {
    let service = Weir::start(RULES);
    let address = service.grpc;
    let mut command = weir();
    command.args(["bench", "--addr", &address.to_string(), "--domain", "shop", "many=one"]);
    command.args(["--warmup", "0", "--duration", "36000", "--timeout", "1", "--json"]);
    let client = service.client();
    let mut load = Process::spawn("bench", command);
    let look = || costing(0, descriptor(&[("many", "one")]));
    // At most 256 are in flight, so most of them have been decided by then.
    while client.check(request("shop", vec![look()])).statuses[0].limit_remaining > 0 {}
    drop(service);
    // A new connection shows that the generator has detected the loss.
    let place = TcpListener::bind(address).expect("the port is free again");
    let (stopped_tx, stopped) = mpsc::channel();
    // Every connection is closed until the end. One that is not accepted looks open, and its calls
    // would wait.
    thread::spawn(move || {
        place.incoming().try_for_each(|stream| {
            drop(stream);
            stopped_tx.send(())
        })
    });
    stopped.recv().expect("a connection that was lost is opened again");
    load.signal("INT");
    assert_eq!(load.wait_for_exit().code(), Some(1));
    let report: Value = serde_json::from_str(&load.output()).expect("a report");
    assert!(number(&report, "decided") > 0 && number(&report, "failed") > 0, "{report:#}");
    let errors = report["errors"].as_object().expect("an object");
    assert!(errors.keys().all(|error| error.contains("connect")), "{report:#}");
}

/// Both loops, with a duration of ten hours.
#[test]
fn an_interrupted_run_reports_its_figures() {
    let service = Weir::start(RULES);
    for pace in [&["--rate", "200"][..], &[]] {
        let report = report_of(&service, 350, &[pace, &["free=one"]].concat());
        assert!(number(&report, "decided") >= 350 - 256, "{report:#}");
        assert_eq!(number(&report, "failed"), 0, "{report:#}");
        let seconds = report["seconds"].as_f64().expect("a number");
        let rate = number(&report, "decided") as f64 / seconds;
        let per_second = report["per_second"].as_f64().expect("a number");
        assert!((per_second - rate).abs() < 1e-6 && seconds < 36000.0, "{report:#}");
    }
}

/// No listener, or another service at the address, is reported as such.
#[test]
fn an_address_without_weir_is_reported() {
    let unreachable = bench(free_port(), &["user={n}"]);
    assert_eq!(unreachable.code, Some(69), "{unreachable:?}");
    assert!(unreachable.stderr.contains("no service answers at"), "{unreachable:?}");

    let weir = Weir::start(RULES);
    let http = bench(weir.http, &["user={n}", "--timeout", "30"]);
    assert_eq!(http.code, Some(69), "{http:?}");
    assert!(http.stderr.contains("does not speak HTTP/2"), "{http:?}");

    let name = run(Path::new("."), &["bench", "--addr", "no-port", "--domain", "d", "a=b"]);
    assert_eq!(name.code, Some(69), "{name:?}");
    assert!(name.stderr.contains("host:port"), "{name:?}");

    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("a bound listener");
    let silent = bench(address, &["user={n}", "--timeout", "0.2"]);
    assert_eq!(silent.code, Some(69), "{silent:?}");
    assert!(silent.stderr.contains("no answer within 200ms"), "{silent:?}");
}

/// An invalid plan is rejected before the first call.
#[test]
fn an_impossible_plan_is_refused() {
    let plan = run(Path::new("."), &["bench", "--domain", "d", "user=alice", "--keys", "5"]);
    assert_eq!(plan.code, Some(64), "{plan:?}");
    assert!(plan.stderr.contains("write {n} where keys differ"), "{plan:?}");
}

/// An address without a listener.
fn free_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound listener")
}
