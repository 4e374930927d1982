//! Hostile streams: what they send is refused or bounded, and costs no other Envoy its assignment.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use envoy_types::pb::google::protobuf::Duration as TheirDuration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Status, Streaming};

use super::{assert_no_violation, envoy, serving, tenant, tenants, until_stable};
use crate::support::rlqs::{
    BucketId, BucketQuotaUsage, RateLimitQuotaResponse, RateLimitQuotaServiceClient,
    RateLimitQuotaUsageReports, SmallEnvoy, bucket,
};
use crate::support::rls::Client;
use crate::support::wait::TIMEOUT;
use crate::support::weir::Weir;

/// Maximum growth in KiB after reports that add up to many times this.
const GROWTH_KIB: u64 = 64 * 1024;

/// A stream that sends what a test wants. The client runs while the stream waits.
struct HostileStream {
    client: Client,
    reports: Option<UnboundedSender<RateLimitQuotaUsageReports>>,
    actions: Streaming<RateLimitQuotaResponse>,
}

impl HostileStream {
    /// Opens a stream with a first report. The error is the status of a stream that was refused.
    fn open(weir: &Weir, first: RateLimitQuotaUsageReports) -> Result<HostileStream, Status> {
        HostileStream::open_on(weir.client(), first)
    }

    fn open_on(client: Client, first: RateLimitQuotaUsageReports) -> Result<HostileStream, Status> {
        let (reports, to_send) = unbounded_channel();
        reports.send(first).expect("an open channel");
        let mut service = RateLimitQuotaServiceClient::new(client.channel());
        let opening = service.stream_rate_limit_quotas(UnboundedReceiverStream::new(to_send));
        let actions = client.block_on(opening)?.into_inner();
        Ok(HostileStream { client, reports: Some(reports), actions })
    }

    fn send(&self, report: RateLimitQuotaUsageReports) {
        // It fails when the stream has ended.
        let _ = self.reports.as_ref().expect("an open half").send(report);
    }

    /// The next message; an error at the end of the stream.
    fn next(&mut self) -> Result<RateLimitQuotaResponse, Status> {
        let HostileStream { client, actions, .. } = self;
        let waited = client.block_on(async {
            tokio::time::timeout(TIMEOUT, actions.message()).await.expect("a message in time")
        });
        waited?.ok_or_else(|| Status::new(Code::Ok, ""))
    }

    /// How the stream ends.
    fn end(&mut self) -> Status {
        loop {
            if let Err(status) = self.next() {
                return status;
            }
        }
    }

    /// Ends the client's half of the stream, and returns how the other half ends.
    fn finish(mut self) -> Status {
        drop(self.reports.take());
        self.end()
    }
}

fn report(domain: &str, usages: Vec<BucketQuotaUsage>) -> RateLimitQuotaUsageReports {
    RateLimitQuotaUsageReports { domain: domain.to_owned(), bucket_quota_usages: usages }
}

fn usage(entries: &[(&str, &str)]) -> BucketQuotaUsage {
    let bucket = bucket(entries).into_iter().collect();
    BucketQuotaUsage {
        bucket_id: Some(BucketId { bucket }),
        num_requests_allowed: 1,
        ..BucketQuotaUsage::default()
    }
}

fn numbered(buckets: std::ops::Range<usize>) -> Vec<BucketQuotaUsage> {
    buckets.map(|number| usage(&[("tenant", &number.to_string())])).collect()
}

/// The status of a stream that sends `reports` and then ends its half.
fn outcome(weir: &Weir, reports: Vec<RateLimitQuotaUsageReports>) -> Status {
    let mut reports = reports.into_iter();
    let first = reports.next().expect("a first report");
    match HostileStream::open(weir, first) {
        Err(status) => status,
        Ok(stream) => {
            reports.for_each(|report| stream.send(report));
            stream.finish()
        }
    }
}

/// A new Envoy is assigned the quota of `tenant` at once, which no other one had.
fn assert_served(weir: &Weir, tenant: &str, limit: f64) {
    let began = Instant::now();
    let envoy = SmallEnvoy::start(weir.grpc, "d");
    let honest = bucket(&[("tenant", tenant)]);
    envoy.demand(&honest, 10.0);
    // A tenth may stay free for others once its demand is known.
    envoy.until_rate(&honest, |rate| rate >= 0.899 * limit);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn broken_reports_end_their_stream() {
    let weir = serving(&tenants("second", 300)).start();
    let valid = || report("d", vec![usage(&[("tenant", "a")])]);
    let long = "v".repeat(2 << 20);
    let table = [
        ("no domain", vec![report("", numbered(0..1))], Code::InvalidArgument),
        ("a domain of 2 MiB", vec![report(&long, numbered(0..1))], Code::ResourceExhausted),
        (
            "a domain of 500 kB",
            vec![report(&long[..500_000], numbered(0..1))],
            Code::InvalidArgument,
        ),
        ("another domain", vec![valid(), report("e", numbered(0..1))], Code::InvalidArgument),
        (
            "a value of 2 MiB",
            vec![valid(), report("d", vec![usage(&[("tenant", &long)])])],
            Code::ResourceExhausted,
        ),
        ("200 000 buckets in a report", vec![report("d", numbered(0..200_000))], {
            Code::ResourceExhausted
        }),
    ];
    for (what, reports, code) in table {
        let status = outcome(&weir, reports);
        assert_eq!(status.code(), code, "{what}: {status:?}");
        assert!(!status.message().is_empty(), "{what}");
    }
    assert_served(&weir, "honest-1", 300.0);
    assert_no_violation(&weir);
}

/// Ids that can be no descriptor have no assignment. The others of their reports have theirs.
#[test]
fn impossible_buckets_are_left_out() {
    let weir = serving(&tenants("second", 300)).start();
    let long = "v".repeat(100_000);
    let many: Vec<(String, String)> =
        (0..20_000).map(|number| (number.to_string(), String::new())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let usages = vec![
        usage(&[]),
        usage(&[("", "x")]),
        usage(&[("tenant", &long)]),
        usage(&[(&long, "x")]),
        usage(&many),
        BucketQuotaUsage { bucket_id: None, ..usage(&[]) },
        usage(&[("tenant", "a")]),
    ];
    let mut stream = HostileStream::open(&weir, report("d", usages)).expect("a stream");
    let message = stream.next().expect("an assignment");
    let ids: Vec<_> = message.bucket_action.into_iter().map(|action| action.bucket_id).collect();
    assert_eq!(ids, [usage(&[("tenant", "a")]).bucket_id]);
    assert_eq!(stream.finish().code(), Code::Ok);
    assert_no_violation(&weir);
}

/// Counts and times that no Envoy can have take nothing from an honest one for long.
#[test]
fn absurd_counts_are_bounded() {
    let weir = serving(&tenants("second", 300)).start();
    let honest = envoy(&weir, 500.0);
    honest.until_assigned(&tenant());
    let absurd = |elapsed: Option<(i64, i32)>, allowed: u64, denied: u64| BucketQuotaUsage {
        time_elapsed: elapsed.map(|(seconds, nanos)| TheirDuration { seconds, nanos }),
        num_requests_allowed: allowed,
        num_requests_denied: denied,
        ..usage(&[("tenant", "a")])
    };
    let liar = HostileStream::open(&weir, report("d", vec![absurd(None, 1, 0)])).expect("a stream");
    for (elapsed, allowed, denied) in [
        (Some((i64::MAX, i32::MAX)), u64::MAX, u64::MAX),
        (Some((i64::MIN, i32::MIN)), u64::MAX, 1),
        (Some((-1, 999_999_999)), 0, u64::MAX),
        (Some((0, 0)), u64::MAX, u64::MAX),
        (None, 1 << 53, 1 << 63),
    ] {
        liar.send(report("d", vec![absurd(elapsed, allowed, denied); 3]));
    }
    assert_served(&weir, "honest-2", 300.0);
    // A demand without a bound gets the fair part, and no more.
    honest.until_rate(&tenant(), |rate| (140.0..=151.0).contains(&rate));
    assert_eq!(liar.finish().code(), Code::Ok);
    honest.until_rate(&tenant(), |rate| rate > 290.0);
    assert_no_violation(&weir);
}

/// All streams of one address have one part of a limit together.
#[cfg(target_os = "linux")]
#[test]
fn streams_of_one_address_have_one_part() {
    let weir = serving(&tenants("second", 300)).start();
    let honest = envoy(&weir, 500.0);
    honest.until_rate(&tenant(), |rate| rate > 290.0);
    let open = |_| {
        let client = Client::connect_from(IpAddr::from([127, 0, 0, 2]), weir.grpc);
        let first = report("d", vec![usage(&[("tenant", "a")])]);
        HostileStream::open_on(client, first).expect("a stream")
    };
    let mut streams: Vec<HostileStream> = (0..40).map(open).collect();
    for stream in &mut streams {
        assert_eq!(stream.next().expect("an assignment").bucket_action.len(), 1);
    }
    until_stable("a half of the limit", || (145.0..=155.0).contains(&honest.rate(&tenant())));
    drop(streams);
    assert_no_violation(&weir);
}

/// A stream has its maximum of buckets. Further ones are left out, and the rest of the streams have room.
#[test]
fn many_buckets_are_bounded() {
    let mut weir = serving(&tenants("second", 300)).start();
    assert_served(&weir, "honest-3", 300.0);
    let before = weir.process().resident_kib();
    let mut stream = HostileStream::open(&weir, report("d", numbered(0..10))).expect("a stream");
    for start in (10..100_000).step_by(10_000) {
        stream.send(report("d", numbered(start..start + 10_000)));
    }
    let mut assigned = 0;
    while assigned < 10_000 {
        let message = stream.next().expect("assignments");
        assert!(message.bucket_action.len() <= 1000, "{}", message.bucket_action.len());
        assigned += message.bucket_action.len();
    }
    assert_served(&weir, "honest-4", 300.0);
    assert!(weir.metric("weir_rlqs_buckets", &[]) <= 10_010);
    assert!(weir.metric("weir_rlqs_refused_total", &[]) > 0);
    let grown = weir.process().resident_kib().saturating_sub(before);
    assert!(grown < GROWTH_KIB, "{grown} KiB for 10 000 buckets");
    drop(stream);
    assert_no_violation(&weir);
}

/// Streams that send reports as fast as they can, and read nothing.
#[test]
fn floods_cost_their_sender_alone() {
    let mut weir = serving(&tenants("second", 300)).start();
    assert_served(&weir, "honest-5", 300.0);
    let before = weir.process().resident_kib();
    let floods: Vec<HostileStream> = (0..20)
        .map(|number| {
            let first = report("d", numbered(number * 10..number * 10 + 10));
            HostileStream::open(&weir, first).expect("a stream")
        })
        .collect();
    let again = report("d", numbered(0..500));
    for _ in 0..50 {
        floods.iter().for_each(|flood| flood.send(again.clone()));
    }
    // A client sends while it is polled. None of them reads.
    for flood in &floods {
        flood.client.block_on(async { tokio::time::sleep(Duration::from_millis(100)).await });
    }
    assert_served(&weir, "honest-6", 300.0);
    let grown = weir.process().resident_kib().saturating_sub(before);
    assert!(grown < GROWTH_KIB, "{grown} KiB");
    assert!(weir.process().is_alive());
    assert_no_violation(&weir);
}
