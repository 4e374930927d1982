//! The whole acceptance, with its table and chart.

use std::fs::write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::course::Course;
use super::many_buckets::many_buckets;
use super::settling;
use super::{
    QUOTA, TTL, check_invariant, check_invariant_in_use, first_in_memory, in_memory, on_redis,
    three,
};
use crate::support::envoy::{NEWEST, OLDEST};
use crate::support::on_redis::ready;
use crate::support::quota_run::record::check;
use crate::support::quota_run::{CSV_HEAD, Fallback, NodeSetup, Run, address, full_quota};
use crate::support::redis::server::Server;
use crate::support::schedule::exclusive;

/// Envoys between the others, which `make rlqs` fetches.
const BETWEEN: [&str; 2] = ["1.38.3", "1.39.3"];

/// The life of an assignment by default.
const DEFAULT_TTL: Duration = Duration::from_secs(12);

/// What an Envoy allows per second after its last assignment, in the steps with fallbacks.
const ISLAND: u32 = 30;

/// The results of all steps. Later steps run after a failure too.
pub(super) struct Results {
    /// The commit of weir, as Git describes it.
    commit: String,
    failures: Vec<String>,
    csv: String,
}

impl Results {
    pub(super) fn add(&mut self, step: &str, result: Result<(), String>) {
        match result {
            Ok(()) => eprintln!("{step}: passed"),
            Err(error) => {
                eprintln!("{step}: FAILED: {error}");
                self.failures.push(format!("{step}: {error}"));
            }
        }
    }

    /// What must hold at the end of a course of weir.
    fn end(&mut self, part: &str, course: &mut Course) {
        self.add(&format!("{part}, K"), course.check_messages());
        self.add(&format!("{part}, admitted"), course.check_admitted());
        self.save(part, course);
    }

    /// Ends a course, and keeps its table.
    fn save(&mut self, part: &str, course: &mut Course) {
        self.add(&format!("{part}, counts"), course.run.check_counts());
        let seconds = 0..course.run.second();
        let most = course.run.record().most_in_any_second(seconds);
        eprintln!("{part}: at most {most} requests in any second");
        self.csv += &course.run.csv(&self.commit, part, &course.steps, QUOTA);
    }
}

/// The commit of weir.
fn described() -> String {
    let git = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let text = git.map(|git| String::from_utf8_lossy(&git.stdout).trim().to_owned());
    text.ok().filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

/// All steps. Writes docs/guides/rlqs/acceptance.csv and its chart.
#[test]
#[ignore = "`make rlqs` runs it"]
fn rlqs_passes_the_acceptance() {
    let _alone = exclusive();
    let (commit, csv) = (described(), CSV_HEAD.to_owned());
    let mut results = Results { commit, failures: Vec::new(), csv };
    all_steps(&mut results);
    for version in [OLDEST, BETWEEN[0], BETWEEN[1]] {
        other_version(&mut results, version);
    }
    two_instances(&mut results);
    one_address(&mut results);
    fallbacks(&mut results);
    many_buckets(&mut results);
    control(&mut results);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guides/rlqs");
    let save = |name: &str, text: &str| {
        write(folder.join(name), text).expect("a file that can be written");
    };
    let rows = results.csv.strip_prefix(CSV_HEAD).unwrap_or_default();
    eprintln!("\n{}", settling::table(rows));
    save("acceptance.csv", &results.csv);
    let chart = weir_charts::acceptance(&results.csv).expect("a chart of the steps");
    save(chart.name, &chart.svg);
    assert_eq!(results.failures, [""; 0]);
}

/// Steps A to F with the newest Envoy, which the chart shows. At last, weir is restarted while its assignments
/// are valid.
fn all_steps(results: &mut Results) {
    let part = "steps";
    let weir = first_in_memory();
    let mut course = three(NEWEST, weir.grpc);
    results.add("A", course.steady(10, 10));
    results.add("A, invariant", check_invariant_in_use(&weir));
    results.add("B", course.swapped(10));
    results.add("C", course.two_large(7));
    results.add("D", course.envoy_killed(0, 1, 220.0, TTL));
    results.add("sum of the assignments", course.check_sum());
    results.add("invariant", check_invariant(&weir));
    results.add("E", course.weir_killed(weir));
    match course.restarted("F", 1, 220.0, || in_memory().start()) {
        Err(error) => results.add("F", Err(error)),
        Ok(weir) => {
            results.add("F", check_invariant(&weir));
            course.killed_before_restart(weir);
            let again = course.restarted("F again", 1, 220.0, || in_memory().start());
            results.add("F, valid assignments", again.and_then(|weir| check_invariant(&weir)));
        }
    }
    results.end(part, &mut course);
}

/// Step J.
fn other_version(results: &mut Results, version: &str) {
    let weir = first_in_memory();
    let mut course = three(version, weir.grpc);
    results.add(&format!("A, {version}"), course.steady(10, 10));
    results.add(&format!("D, {version}"), course.envoy_killed(1, 0, 220.0, TTL));
    results.add(&format!("sum of the assignments, {version}"), course.check_sum());
    results.add(&format!("invariant, {version}"), check_invariant(&weir));
    results.end(&format!("envoy {version}"), &mut course);
}

/// Steps G and H.
fn two_instances(results: &mut Results) {
    let redis = Server::listening(&[]);
    let url = format!("redis://127.0.0.1:{}", redis.port());
    let (first, second) = (on_redis(&url), on_redis(&url));
    ready(&first);
    ready(&second);
    let [one, other] = [[first.grpc, second.grpc], [second.grpc, first.grpc]];
    let mut course =
        Course::begin(Run::start(NEWEST, &[(&one[..], 400), (&one[..], 100), (&other[..], 50)]));
    results.add("G, as A", course.steady(10, 10));
    results.add("G, as B", course.swapped(10));
    let streams = [&first, &second].map(|weir| weir.metric("weir_rlqs_streams", &[]));
    results.add("G, streams", check(streams == [2, 1], || format!("{streams:?}")));
    results.add("G, invariant", check_invariant(&first));
    results.add("H", course.one_of_two_killed(first, DEFAULT_TTL));
    results.add("H, sum of the assignments", course.check_sum());
    results.add("H, invariant", check_invariant(&second));
    results.end("two instances", &mut course);
}

/// Three Envoys of which the first two have one address.
fn two_of_one_address(service: SocketAddr) -> Course {
    let services = &[service][..];
    let [mut one, mut two, mut three] = [(); 3].map(|()| NodeSetup {
        services,
        demand: 400,
        address: address(0),
        fallback: Fallback::DenyAll,
    });
    (one.address, two.address, three.address) = (address(0), address(0), address(1));
    Course::begin(Run::of_tenants(NEWEST, &[one, two, three], &["acme".to_owned()]))
}

/// Step L.
fn one_address(results: &mut Results) {
    let weir = first_in_memory();
    let mut course = two_of_one_address(weir.grpc);
    results.add("L", course.one_address(8));
    results.add("L, invariant", check_invariant(&weir));
    results.end("one address", &mut course);
}

/// Three Envoys with demands as in step A, of which the first allows 30 per second after its last assignment,
/// and the others everything.
fn with_fallbacks(service: SocketAddr) -> Course {
    let services = &[service][..];
    let mut envoys = Run::own_addresses(&[400, 100, 50].map(|demand| (services, demand)));
    let fallbacks = [Fallback::Rate(ISLAND), Fallback::AllowAll, Fallback::AllowAll];
    for (envoy, fallback) in envoys.iter_mut().zip(fallbacks) {
        envoy.fallback = fallback;
    }
    Course::begin(Run::of_tenants(NEWEST, &envoys, &["acme".to_owned()]))
}

/// Steps A, E and F with fallbacks that allow.
fn fallbacks(results: &mut Results) {
    let weir = first_in_memory();
    let mut course = with_fallbacks(weir.grpc);
    results.add("A, fallbacks", course.steady(10, 5));
    results.add("E, fallbacks", course.server_killed(weir));
    results.add("E, after the assignments", course.fallbacks_decide(ISLAND));
    let mut next = None;
    let started = || next.insert(in_memory().start()).grpc;
    results.add("F, fallbacks", course.restarted_after_fallbacks(started));
    if let Some(weir) = &next {
        results.add("F, fallbacks, invariant", check_invariant(weir));
    }
    results.add("fallbacks, K", course.check_messages());
    results.save("fallbacks", &mut course);
}

/// The same checks with a server that does not divide. They must fail.
fn control(results: &mut Results) {
    let mut fails = |step: &str, result: Result<(), String>| {
        let step = format!("control, {step} fails");
        results.add(&step, check(result.is_err(), || "it passed".to_owned()));
    };
    let full = full_quota::start(QUOTA);
    let mut course = with_fallbacks(full);
    fails("F with fallbacks", course.restarted_after_fallbacks(|| full));
    let mut course = two_of_one_address(full);
    fails("L", course.one_address(4));
    fails("L, admitted", course.check_admitted());
    let mut course = three(NEWEST, full);
    fails("A", course.steady(10, 10));
    fails("C", course.two_large(4));
    fails("the sum", course.check_sum());
    fails("admitted", course.check_admitted());
    results.save("control", &mut course);
}
