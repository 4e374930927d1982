//! The whole acceptance, with its table and chart.

use std::collections::BTreeMap;
use std::fs::write;
use std::path::Path;
use std::time::Duration;

use super::course::Course;
use super::{QUOTA, TTL, check_invariant, first_in_memory, in_memory, on_redis, three};
use crate::support::envoy::{NEWEST, OF_GATEWAY, OLDEST};
use crate::support::on_redis::ready;
use crate::support::quota_run::record::check;
use crate::support::quota_run::{CSV_HEAD, Run, full_quota};
use crate::support::redis::server::Server;
use crate::support::schedule::exclusive;
use crate::support::wait::until;
use crate::support::weir::Weir;

/// An Envoy between the others, which `make rlqs` fetches.
const BETWEEN: &str = "1.38.3";

/// The life of an assignment by default.
const DEFAULT_TTL: Duration = Duration::from_secs(12);

/// `rlqs.idle_timeout` in step I.
const IDLE: Duration = Duration::from_secs(15);

/// Buckets in step I.
const BUCKETS: usize = 2_000;

/// The results of all steps. Later steps run after a failure too.
struct Results {
    failures: Vec<String>,
    csv: String,
}

impl Results {
    fn add(&mut self, step: &str, result: Result<(), String>) {
        match result {
            Ok(()) => eprintln!("{step}: passed"),
            Err(error) => {
                eprintln!("{step}: FAILED: {error}");
                self.failures.push(format!("{step}: {error}"));
            }
        }
    }

    /// What must hold at the end of a course.
    fn end(&mut self, part: &str, course: &Course) {
        self.add(&format!("{part}, K"), course.check_messages());
        let seconds = 0..course.run.second();
        let most = course.run.record().most_in_any_second(seconds);
        eprintln!("{part}: at most {most} requests in any second");
        self.csv += &course.run.csv(part, &course.steps, QUOTA);
    }
}

/// All steps. Writes docs/guides/rlqs/acceptance.csv and its chart.
#[test]
#[ignore = "`make rlqs` runs it"]
fn rlqs_passes_the_acceptance() {
    let _alone = exclusive();
    let mut results = Results { failures: Vec::new(), csv: CSV_HEAD.to_owned() };
    all_steps(&mut results);
    for version in [OLDEST, BETWEEN, OF_GATEWAY] {
        other_version(&mut results, version);
    }
    two_instances(&mut results);
    many_buckets(&mut results);
    control(&mut results);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guides/rlqs");
    let save = |name: &str, text: &str| {
        write(folder.join(name), text).expect("a file that can be written");
    };
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
            drop(weir);
            let again = course.restarted("F again", 1, 220.0, || in_memory().start());
            results.add("F, valid assignments", again.and_then(|weir| check_invariant(&weir)));
        }
    }
    results.end(part, &course);
}

/// Step J.
fn other_version(results: &mut Results, version: &str) {
    let weir = first_in_memory();
    let mut course = three(version, weir.grpc);
    results.add(&format!("A, {version}"), course.steady(10, 10));
    results.add(&format!("D, {version}"), course.envoy_killed(1, 0, 220.0, TTL));
    results.add(&format!("sum of the assignments, {version}"), course.check_sum());
    results.add(&format!("invariant, {version}"), check_invariant(&weir));
    results.end(&format!("envoy {version}"), &course);
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
    results.end("two instances", &course);
}

/// Step I.
fn many_buckets(results: &mut Results) {
    let idle = format!("{}s", IDLE.as_secs());
    let weir = in_memory().env("WEIR__RLQS__RELEARN", "false");
    let weir = weir.env("WEIR__RLQS__IDLE_TIMEOUT", &idle).start();
    let tenants: Vec<String> = (0..BUCKETS).map(|number| format!("tenant-{number}")).collect();
    let mut run = Run::of_tenants(NEWEST, &[(&[weir.grpc][..], 800)], &tenants);
    run.until_second(6);
    run.demand(&[0]);
    let abandoned = || run.actions()[0].iter().filter(|sent| sent.assigned.is_none()).count();
    until("weir abandons all buckets", || abandoned() >= BUCKETS);
    results.add("I, assigned in 1 s, abandoned when idle", buckets(&run));
    // The ledgers keep the holders of abandoned buckets until their shares have expired.
    until("no quota is left", || weir.metric("weir_rlqs_quotas", &[]) == 0);
    let left = weir.metric("weir_rlqs_buckets", &[]);
    results.add("I, no bucket is left", check(left == 0, || format!("{left} buckets")));
    eprintln!("I: {} KiB are resident", weir_memory(weir));
}

/// Each bucket was assigned a rate within 1 s, and abandoned no sooner than its idle timeout.
fn buckets(run: &Run) -> Result<(), String> {
    let mut reports = BTreeMap::new();
    for report in run.reports(0) {
        let id = report.usage.bucket_id.clone().unwrap_or_default().bucket;
        let id: BTreeMap<String, String> = id.into_iter().collect();
        let asked = report.usage.num_requests_allowed + report.usage.num_requests_denied > 0;
        let (_, last) = reports.entry(id).or_insert((report.at, report.at));
        if asked {
            *last = report.at;
        }
    }
    check(reports.len() == BUCKETS, || format!("{} buckets", reports.len()))?;
    let (actions, mut assigned) = (run.actions(), BTreeMap::new());
    for sent in &actions[0] {
        let (first, last) = reports.get(&sent.bucket).ok_or("an unknown bucket")?;
        if sent.assigned.is_none() {
            let idle = sent.at - *last;
            check(idle + Duration::from_millis(500) >= IDLE, || format!("idle for {idle:?}"))?;
        } else {
            assigned.entry(&sent.bucket).or_insert(sent.at - *first);
        }
    }
    let slowest = assigned.values().max().copied().unwrap_or_default();
    check(assigned.len() == BUCKETS && slowest <= Duration::from_secs(1), || {
        format!("{} buckets were assigned a rate, the last after {slowest:?}", assigned.len())
    })
}

fn weir_memory(mut weir: Weir) -> u64 {
    weir.process().resident_kib()
}

/// The same checks with a server that does not divide. They must fail.
fn control(results: &mut Results) {
    let mut course = three(NEWEST, full_quota::start(QUOTA));
    let steady = course.steady(10, 10);
    results.add("control, A fails", check(steady.is_err(), || "it passed".to_owned()));
    let large = course.two_large(4);
    results.add("control, C fails", check(large.is_err(), || "it passed".to_owned()));
    let sum = course.check_sum();
    results.add("control, the sum fails", check(sum.is_err(), || "it passed".to_owned()));
    results.end("control", &course);
}
