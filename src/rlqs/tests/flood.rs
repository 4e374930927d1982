//! Streams that report all the time.

use super::shared::processes;
use super::*;

/// Time of a flood, and between its reports.
const SECONDS: u64 = 10;
const GAP_MILLIS: u64 = 10;

/// A stream for each item, which reports on these buckets.
fn streams(process: &Process, buckets: &[&str], number: usize) -> Vec<EnvoyStream> {
    let mut all: Vec<EnvoyStream> = (0..number).map(|_| process.open(None)).collect();
    for stream in &mut all {
        let usages: Vec<(&str, u64)> = buckets.iter().map(|id| (*id, 1)).collect();
        stream.report(&report("d", &usages)).expect("valid");
    }
    process.settle();
    all
}

/// Every stream in turn reports, with as many hits as `hits` says. Returns the number of settlements.
fn flooded(
    process: &Process,
    streams: &mut [EnvoyStream],
    buckets: &[&str],
    hits: impl Fn(u64) -> u64,
) -> u64 {
    let settled = || process.engine.metrics().settlements_ok.get();
    let before = settled();
    for number in 0..SECONDS * 1_000 / GAP_MILLIS {
        let usages: Vec<(&str, u64)> = buckets.iter().map(|id| (*id, hits(number))).collect();
        let reporting = number as usize % streams.len();
        streams[reporting].report(&report("d", &usages)).expect("valid");
        process.clock.advance(Micros::from_millis(GAP_MILLIS));
        process.settle();
    }
    settled() - before
}

/// One stream reports on several limits. Each is settled once in 0.75 s, and once more for each change of the
/// demand, which is measured over a second at least.
#[test]
fn a_flood_of_reports_costs_few_settlements() {
    let buckets = ["tenant=a", "tenant=b", "tenant=c", "tenant=d", "tenant=e"];
    for (what, hits, changes) in [("equal", [3, 3], 0), ("changing", [0, 40], SECONDS)] {
        let (all, _) = processes(1);
        let mut streams = streams(&all[0], &buckets, 1);
        let settled = flooded(&all[0], &mut streams, &buckets, |number| {
            hits[usize::try_from(number / 100 % 2).expect("0 or 1")]
        });
        let most = buckets.len() as u64 * (SECONDS * 4 / 3 + 1 + changes);
        assert!(settled <= most, "{settled} settlements of {what} demands, at most {most}");
        assert!(rate_of(&mut streams[0]) > 0.0, "{what}");
        assert_eq!(all[0].engine.metrics().violations.get(), 0);
    }
}

/// Many streams share one limit, and one of them reports at every instant. The limit is settled four times a
/// second, and a new Envoy has its first share at once.
#[test]
fn a_flood_does_not_delay_a_first_share() {
    let (all, _) = processes(1);
    let mut streams = streams(&all[0], &["tenant=a"], 40);
    let settled = flooded(&all[0], &mut streams, &["tenant=a"], |_| 0);
    let most = SECONDS * 4 + 4;
    assert!(settled <= most, "{settled} settlements, at most {most}");
    let mut new = all[0].open(None);
    new.report(&report("d", &[("tenant=a", 1)])).expect("valid");
    all[0].settle();
    assert!(rate_of(&mut new) > 0.0);
}

/// Each of many Envoys that start together costs calls that do not wait. The renewals do not wait for them: a
/// share is valid for two reports.
#[test]
fn many_new_envoys_do_not_delay_renewals() {
    let (all, _) = processes(1);
    let mut streams: Vec<EnvoyStream> = (0..40).map(|_| all[0].open(None)).collect();
    for round in 0..5 {
        for stream in &mut streams {
            stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
            all[0].settle();
            all[0].clock.advance(Micros::from_millis(50));
        }
        all[0].pass(1_000);
        for (number, stream) in streams.iter_mut().enumerate() {
            assert!(!newest(stream).is_empty(), "round {round}: stream {number} has no answer");
        }
        all[0].pass(2_000);
        streams.iter_mut().for_each(|stream| drop(newest(stream)));
    }
}

/// Two reports of a second apart have an answer each.
#[test]
fn reports_of_each_second_are_answered() {
    let (all, _) = processes(1);
    let mut stream = streams(&all[0], &["tenant=a"], 1).remove(0);
    for second in 0..5 {
        assert!(rate_of(&mut stream) > 0.0, "report {second}");
        all[0].pass(1_000);
        assert!(newest(&mut stream).is_empty(), "an answer without a report");
        stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
        all[0].settle();
    }
}

/// The rate of `tenant=a` in the newest message.
fn rate_of(stream: &mut EnvoyStream) -> f64 {
    match newest(stream).get("tenant=a") {
        Some(Got::Rate(rate, _)) => *rate,
        other => panic!("{other:?}"),
    }
}
