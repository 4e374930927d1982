//! Step I of the acceptance: many buckets of one Envoy, and their end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::acceptance::Results;
use super::in_memory;
use crate::support::envoy::NEWEST;
use crate::support::quota_run::record::check;
use crate::support::quota_run::{Run, until as until_instant};
use crate::support::wait::until;
use crate::support::weir::Weir;

/// How long freed memory may stay resident.
const RETURNED: Duration = Duration::from_secs(3);

/// The least memory of a bucket: docs/design/rlqs.md measures 944 bytes and more.
const BUCKET_BYTES_MIN: u64 = 944;

/// `rlqs.idle_timeout`.
const IDLE: Duration = Duration::from_secs(15);

/// How long a bucket stays after that at most: weir looks for idle ones with a report, at most once in an
/// eighth of the timeout, and Envoy reports every 5 s. The last second is for messages.
const KEPT: Duration = Duration::from_millis(15_000 / 8 + 5_000 + 1_000);

/// How much sooner than its timeout a bucket may end: a report and its answer are on their way.
const EARLY: Duration = Duration::from_millis(500);

const BUCKETS: usize = 2_000;

/// Requests per second: each bucket has some.
const DEMAND: u64 = 800;

/// Step I, and its controls.
pub(super) fn many_buckets(results: &mut Results) {
    let mut weir = started(IDLE);
    let before = weir.process().resident_kib();
    let mut run = begun(&weir);
    results.add("I, assigned in 1 s", assigned(&run));
    run.demand(&[0]);
    results.add("I, abandoned when idle", abandoned(&run, BUCKETS));
    let first = emptied(results, &mut weir);
    // The same buckets once more: the memory of the first time, with what connections need, suffices.
    run.demand(&[DEMAND]);
    run.until_second(run.second() + 6);
    let full = weir.process().resident_kib();
    run.demand(&[0]);
    results.add("I, abandoned once more", abandoned(&run, 2 * BUCKETS));
    let second = emptied(results, &mut weir);
    eprintln!(
        "I: {before} KiB are resident before any bucket, {first} after all buckets, {full} with \
         them again, then {second}"
    );
    let returned = |before, after| {
        check(is_returned(before, after), || format!("{after} KiB, {before} before"))
    };
    results.add("I, memory", returned(first, second));
    results.add("I, K", run.check_messages());
    results.add("I, counts", run.check_counts());
    let mut fails = |step: &str, result: Result<(), String>| {
        results.add(step, check(result.is_err(), || "it passed".to_owned()));
    };
    fails("control, I fails while there are buckets", returned(first, full));
    drop(run);
    let keeping = started(Duration::from_secs(3_600));
    let mut run = begun(&keeping);
    run.demand(&[0]);
    fails("control, I fails if buckets are kept", abandoned(&run, BUCKETS));
}

/// A weir with this `rlqs.idle_timeout`.
fn started(idle: Duration) -> Weir {
    let idle = format!("{}s", idle.as_secs());
    let weir = in_memory().env("WEIR__RLQS__RELEARN", "false");
    weir.env("WEIR__RLQS__IDLE_TIMEOUT", &idle).start()
}

/// An Envoy that has had requests in each bucket for some seconds.
fn begun(weir: &Weir) -> Run {
    let tenants: Vec<String> = (0..BUCKETS).map(|number| format!("tenant-{number}")).collect();
    let services = &[weir.grpc][..];
    let run = Run::of_tenants(NEWEST, &Run::own_addresses(&[(services, DEMAND)]), &tenants);
    run.until_second(6);
    run
}

/// Waits until no quota is left. Returns the resident memory in KiB.
fn emptied(results: &mut Results, weir: &mut Weir) -> u64 {
    // The ledgers keep the holders of abandoned buckets until their shares have expired.
    until("no quota is left", || weir.metric("weir_rlqs_quotas", &[]) == 0);
    let left = weir.metric("weir_rlqs_buckets", &[]);
    results.add("I, no bucket is left", check(left == 0, || format!("{left} buckets")));
    // The allocator returns freed memory after a second.
    until_instant(Instant::now() + RETURNED);
    weir.process().resident_kib()
}

/// Whether the memory of buckets is free again.
fn is_returned(before: u64, after: u64) -> bool {
    after <= before + BUCKETS as u64 * BUCKET_BYTES_MIN / 1_024 / 2
}

type BucketId = BTreeMap<String, String>;

/// The instants of the reports on each bucket, and whether it had requests.
fn reports(run: &Run) -> BTreeMap<BucketId, Vec<(Instant, bool)>> {
    let mut reports: BTreeMap<BucketId, Vec<(Instant, bool)>> = BTreeMap::new();
    for report in run.reports(0) {
        let id = report.usage.bucket_id.clone().unwrap_or_default().bucket;
        let asked = report.usage.num_requests_allowed + report.usage.num_requests_denied > 0;
        reports.entry(id.into_iter().collect()).or_default().push((report.at, asked));
    }
    reports
}

/// Each bucket was assigned a rate above 0 within 1 s after its first report.
fn assigned(run: &Run) -> Result<(), String> {
    let reports = reports(run);
    check(reports.len() == BUCKETS, || format!("{} buckets", reports.len()))?;
    let (actions, mut assigned) = (run.actions(), BTreeMap::new());
    for sent in &actions[0] {
        let (first, _) = reports.get(&sent.bucket).ok_or("an unknown bucket")?[0];
        if sent.assigned.is_some_and(|assigned| assigned.rate > 0.0) {
            assigned.entry(&sent.bucket).or_insert(sent.at - first);
        }
    }
    let slowest = assigned.values().max().copied().unwrap_or_default();
    check(assigned.len() == BUCKETS && slowest <= Duration::from_secs(1), || {
        format!("{} buckets were assigned a rate, the last after {slowest:?}", assigned.len())
    })
}

/// Waits until idle buckets can have been abandoned. This number has been, in all: none before it was idle for
/// [`IDLE`], and none later than [`KEPT`] after that.
fn abandoned(run: &Run, expected: usize) -> Result<(), String> {
    // Envoy reports the last requests up to 5 s later.
    until_instant(Instant::now() + Duration::from_secs(5) + IDLE + KEPT);
    let (reports, actions) = (reports(run), run.actions());
    let mut count = 0;
    for sent in actions[0].iter().filter(|sent| sent.assigned.is_none()) {
        let of_bucket = reports.get(&sent.bucket).ok_or("an unknown bucket")?;
        let asked = of_bucket.iter().rfind(|(at, asked)| *asked && *at <= sent.at);
        let (last, _) = asked.ok_or("a bucket without requests")?;
        let idle = sent.at - *last;
        let is_in_time = (IDLE..=IDLE + KEPT + EARLY).contains(&(idle + EARLY));
        check(is_in_time, || format!("abandoned after {idle:?}"))?;
        count += 1;
    }
    check(count == expected, || format!("{count} buckets of {expected} are abandoned"))
}
