//! Clients that send too much, or what no Envoy sends.

use super::*;
use crate::rlqs::bucket_id::put_bytes;

fn refused(process: &Process, reason: RefusedReason) -> u64 {
    process.engine.metrics().refused(reason)
}

#[test]
fn streams_and_buckets_are_bounded() {
    let mut config = config();
    // One address gets half of the streams and of the buckets.
    (config.max_streams, config.max_buckets_per_stream, config.max_buckets) = (8, 10, 50);
    let process = Process::new(config);
    let mut streams: Vec<EnvoyStream> = (0..4).map(|_| process.open(None)).collect();
    assert_eq!(process.engine.open(address(1), None).err(), Some(StreamsFull { max: 8 }));
    assert_eq!(refused(&process, RefusedReason::StreamsOfAddress), 1);
    let ids: Vec<String> = (0..100).map(|number| format!("tenant={number}")).collect();
    let usages: Vec<(&str, u64)> = ids.iter().map(|id| (&**id, 1)).collect();
    for stream in &mut streams {
        stream.report(&report("d", &usages)).expect("valid");
    }
    assert_eq!(process.engine.metrics().buckets.get(), 25);
    assert_eq!(refused(&process, RefusedReason::BucketsOfStream), 2 * 90);
    assert_eq!(refused(&process, RefusedReason::BucketsOfAddress), 95 + 100);
    process.settle();
    assert_eq!(actions(&mut streams[0]).len(), 10, "the permitted ones have assignments");
    assert!(streams[0].bytes() > 10 * 100 && streams[0].bytes() < 100_000);
    // Ended buckets count until their assignments have expired.
    streams.truncate(1);
    let mut next = process.open(None);
    next.report(&report("d", &usages)).expect("valid");
    assert_eq!(process.engine.metrics().buckets.get(), 10);
    process.pass(15_000);
    next.report(&report("d", &usages)).expect("valid");
    assert_eq!(process.engine.metrics().buckets.get(), 20);
}

/// A thousand streams after one another leave no more than the bound in memory.
#[test]
fn reconnecting_does_not_exceed_the_bound() {
    let mut config = config();
    config.max_buckets = 60;
    let process = Process::new(config);
    let ids: Vec<String> = (0..10).map(|number| format!("tenant={number}")).collect();
    let usages: Vec<(&str, u64)> = ids.iter().map(|id| (&**id, 1)).collect();
    for _ in 0..1_000 {
        let mut stream = process.open(None);
        stream.report(&report("d", &usages)).expect("valid");
        process.settle();
    }
    let shown = process.engine.shown(1_000);
    assert_eq!(shown.total, 10);
    assert!(refused(&process, RefusedReason::BucketsOfAddress) >= 9_970);
    process.pass(15_000);
    assert_eq!(process.engine.metrics().quotas.get(), 0);
}

/// One address opens streams, reports many buckets, closes them and begins again. The Envoys of another
/// address have streams and shares all the time.
#[test]
fn a_flood_leaves_streams_and_buckets_to_others() {
    let config = RlqsConfig { max_streams: 8, max_buckets: 100, ..config() };
    let process = Process::new(config);
    let ids: Vec<String> = (0..100).map(|number| format!("tenant={number}")).collect();
    let usages: Vec<(&str, u64)> = ids.iter().map(|id| (&**id, 1)).collect();
    for round in 0..20 {
        let open = |_| process.engine.open(address(1), None).ok();
        let mut flood: Vec<EnvoyStream> = (0..10).map_while(open).collect();
        assert_eq!(flood.len(), 4);
        for stream in &mut flood {
            stream.report(&report("d", &usages)).expect("valid");
        }
        let mut honest = process.engine.open(address(2), None).expect("a free stream");
        let id = format!("tenant=honest-{round}");
        honest.report(&report("d", &[(&*id, 1)])).expect("valid");
        process.settle();
        assert_eq!(newest(&mut honest)[&*id], Got::Rate(100.0, 20), "{round}");
        drop((flood, honest));
        process.pass(1_000);
    }
    assert_eq!(refused(&process, RefusedReason::Streams), 0);
    assert_eq!(refused(&process, RefusedReason::Buckets), 0);
    assert!(refused(&process, RefusedReason::BucketsOfAddress) > 0);
}

#[test]
fn invalid_reports_end_the_stream() {
    let process = Process::new(RlqsConfig { max_message_bytes: 1_000, ..config() });
    let error = |messages: &[Vec<u8>]| {
        let mut stream = process.open(None);
        let results: Vec<_> = messages.iter().map(|message| stream.report(message)).collect();
        let (last, others) = results.split_last().expect("a message");
        assert!(others.iter().all(Result::is_ok));
        last.clone().expect_err("an error")
    };
    let too_large = error(&[vec![0; 1_001]]);
    assert!(
        matches!(&too_large, ReportError::TooLarge(text) if text.contains("max_message_bytes"))
    );
    let invalid = [
        error(&[vec![0xff; 9]]),
        error(&[report("", &[("tenant=a", 1)])]),
        error(&[report(&"x".repeat(101), &[])]),
        error(&[report("d", &[]), report("e", &[])]),
        error(&[report("d", &[("tenant=a", 1)]), vec![0x12, 2, 0x08, 1]]),
    ];
    for error in invalid {
        assert!(matches!(error, ReportError::Invalid(_)), "{error}");
    }
    let mut stream = process.open(None);
    for domain in ["d", "", "d"] {
        stream.report(&report(domain, &[("tenant=a", 1)])).expect("one domain");
    }
}

#[test]
fn strange_ids_are_left_out() {
    let process = Process::new(config());
    let mut stream = process.open(None);
    let long = format!("tenant={}", "x".repeat(101));
    let usages = [("", 1), ("=v", 1), (&*long, 1), ("a=1,b=1,c=1,d=1,e=1", 1)];
    stream.report(&report("d", &usages)).expect("valid");
    // A usage without an id, and thousands of empty ones.
    let mut empty = report("d", &[]);
    (0..10_000).for_each(|_| put_bytes(&mut empty, 2, &[]));
    stream.report(&empty).expect("valid");
    assert_eq!(refused(&process, RefusedReason::EmptyId), 10_002);
    assert_eq!(refused(&process, RefusedReason::LongId), 2);
    assert_eq!(process.engine.metrics().buckets.get(), 0);
    // Control characters are values like any other.
    stream.report(&report("d", &[("tenant=a\n\u{202e}\0", 1)])).expect("valid");
    process.settle();
    assert_eq!(newest(&mut stream)["tenant=a\n\u{202e}\0"], Got::Rate(100.0, 20));
}

/// Absurd numbers of one client take at most what a saturated client takes.
#[test]
fn absurd_counts_take_a_fair_part() {
    let process = Process::new(config());
    let (mut hostile, mut honest) = (process.open(None), process.open(None));
    for _ in 0..8 {
        for _ in 0..50 {
            hostile.report(&report("d", &[("tenant=a", u64::MAX)])).expect("valid");
        }
        honest.report(&report("d", &[("tenant=a", 5_000)])).expect("valid");
        process.pass(5_000);
    }
    honest.report(&report("d", &[("tenant=a", 5_000)])).expect("valid");
    process.pass(1_000);
    let Got::Rate(rate, _) = newest(&mut honest)["tenant=a"] else { panic!("no rate") };
    assert!(rate > 45.0, "{rate}");
    assert_eq!(process.engine.metrics().violations.get(), 0);
}

/// A report of one bucket.
fn of_one_bucket(hits: u64) -> Vec<u8> {
    report("d", &[("tenant=a", hits)])
}

/// An honest Envoy at another address.
struct HonestEnvoy {
    stream: EnvoyStream,
    rate: f64,
}

impl HonestEnvoy {
    fn open(process: &Process, host: u8) -> HonestEnvoy {
        let stream = process.engine.open(address(host), None).expect("a free stream");
        HonestEnvoy { stream, rate: 0.0 }
    }

    /// Reports 500 requests per second since the last report, and returns the rate that it has.
    fn report(&mut self, seconds: u64) -> f64 {
        self.stream.report(&of_one_bucket(500 * seconds)).expect("valid");
        match newest(&mut self.stream).get("tenant=a") {
            Some(Got::Rate(rate, _)) => self.rate = *rate,
            Some(Got::Deny) => self.rate = 0.0,
            _ => {}
        }
        self.rate
    }
}

/// Bounds that 400 streams of one address fit into.
fn roomy() -> RlqsConfig {
    RlqsConfig { max_streams: 2_000, max_buckets: 50_000, ..config() }
}

/// Streams of one address have one part of a limit together.
#[test]
fn many_streams_of_one_address_have_one_part() {
    let process = Process::new(roomy());
    let mut honest = HonestEnvoy::open(&process, 2);
    let mut hostile: Vec<EnvoyStream> = (0..400).map(|_| process.open(None)).collect();
    for round in 0..6 {
        for stream in &mut hostile {
            stream.report(&of_one_bucket(u64::MAX)).expect("valid");
        }
        let rate = honest.report(5);
        assert!(round < 4 || rate > 48.0, "{rate} in round {round}");
        process.pass(5_000);
    }
    assert_eq!(process.engine.metrics().violations.get(), 0);
}

/// Streams that end leave shares behind, which are a part of what their address has. An Envoy at another
/// address that is new has its part too.
#[test]
fn streams_that_end_cost_their_address_alone() {
    let process = Process::new(roomy());
    let mut old = HonestEnvoy::open(&process, 2);
    let mut new: Option<HonestEnvoy> = None;
    for second in 0..90 {
        let mut hostile: Vec<EnvoyStream> = (0..40).map(|_| process.open(None)).collect();
        for stream in &mut hostile {
            stream.report(&of_one_bucket(1)).expect("valid");
        }
        process.pass(500);
        for stream in &mut hostile {
            stream.report(&of_one_bucket(u64::MAX)).expect("valid");
        }
        process.pass(500);
        if second % 5 == 0 {
            if second >= 45 {
                new.get_or_insert_with(|| HonestEnvoy::open(&process, 3));
            }
            // Until the shares of ended streams expire, they are more than a third.
            let least = if second < 45 { 45.0 } else { 24.0 };
            let rate = old.report(5);
            assert!(second < 30 || rate > least, "{rate} at {second}");
            assert!(second < 75 || rate > 30.0, "{rate} at {second}");
            if let Some(new) = &mut new {
                let rate = new.report(5);
                assert!(second < 75 || rate > 30.0, "the new one has {rate} at {second}");
            }
        }
    }
    assert_eq!(process.engine.metrics().violations.get(), 0);
}

/// A name is one of an address: no other address takes over its share.
#[test]
fn a_name_of_another_address_takes_nothing_over() {
    let process = Process::new(config());
    let open = |host| process.engine.open(address(host), Some("envoy")).expect("a free stream");
    let (mut honest, mut hostile) = (open(2), open(1));
    for stream in [&mut honest, &mut hostile] {
        stream.report(&of_one_bucket(1)).expect("valid");
        process.settle();
    }
    drop((hostile, honest));
    (hostile, honest) = (open(1), open(2));
    for stream in [&mut hostile, &mut honest] {
        stream.report(&of_one_bucket(1)).expect("valid");
    }
    process.settle();
    assert_eq!(newest(&mut hostile)["tenant=a"], Got::Deny);
    // The other address has a part too, so this is a half of the share that it had. A lowered share of a new
    // stream is renewed after the grace.
    process.pass(500);
    assert_eq!(newest(&mut honest)["tenant=a"], Got::Rate(50.0, 10));
    assert_eq!(refused(&process, RefusedReason::NameInUse), 0);
}

/// A quota with many holders settles once in a while, however many of them report.
#[test]
fn reports_do_not_keep_a_large_ledger_busy() {
    let process = Process::new(RlqsConfig { max_streams: 600, max_buckets: 600, ..config() });
    let mut streams: Vec<EnvoyStream> = (0..300).map(|_| process.open(None)).collect();
    for stream in &mut streams {
        stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
    }
    process.settle();
    assert!(streams.iter_mut().all(|stream| !actions(stream).is_empty()));
    // Each holder may be renewed again.
    process.pass(1_000);
    let settled = || process.engine.metrics().settlements_ok.get();
    let mut before = settled();
    for (number, stream) in streams[..50].iter_mut().enumerate() {
        stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
        process.settle();
        if number == 0 {
            assert!(settled() > before, "the first report is answered");
            before = settled();
        }
    }
    assert_eq!(settled(), before);
    // The pause of a plan over 300 holders.
    process.clock.advance(Micros::from_millis(50));
    process.settle();
    assert!(settled() > before);
}

/// A client that never reads has one action per bucket.
#[test]
fn a_client_that_never_reads_is_bounded() {
    let process = Process::new(config());
    let mut stream = process.open(None);
    for _ in 0..100 {
        stream.report(&report("d", &[("tenant=a", 50), ("open=1", 1)])).expect("valid");
        process.pass(250);
    }
    assert_eq!(actions(&mut stream).len(), 2);
}
