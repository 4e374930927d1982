//! How often quotas with many holders plan.

use super::*;

/// The Envoys of one quota, which all have other demands with each report.
const ENVOYS: usize = 1_000;

/// Reports of all in 5 s, as many in each 50 ms, while the driver settles after each of them.
fn plans_in_five_seconds(process: &Process, streams: &mut [EnvoyStream], round: u64) -> usize {
    let plans = || {
        let (key, mut plans) = (process.counter("a"), 0);
        process.engine.for_each(|other, quota| {
            plans += if *other == key { quota.plans() } else { 0 };
        });
        plans
    };
    let before = plans();
    for part in 0..100 {
        for (number, stream) in streams.iter_mut().enumerate().skip(part).step_by(100) {
            let hits = (number as u64 * 7 + round * 13) % 40;
            stream.report(&report("d", &[("tenant=a", hits)])).expect("valid");
        }
        process.clock.advance(Micros::from_millis(50));
        process.settle();
    }
    plans() - before
}

/// Each plan divides a quota among all holders, so changes of demand wait for the next tick of the driver.
#[test]
fn changing_demand_plans_once_per_tick() {
    let config = RlqsConfig { max_streams: 3_000, max_buckets: 3_000, ..config() };
    let process = Process::new(config);
    let mut streams: Vec<EnvoyStream> = (0..ENVOYS).map(|_| process.open(None)).collect();
    for round in 0..2 {
        plans_in_five_seconds(&process, &mut streams, round);
    }
    let plans = plans_in_five_seconds(&process, &mut streams, 2);
    assert!((20..=25).contains(&plans), "{plans} plans in 20 ticks, of 200 ms at least");
    // A new holder waits for the pause of a settlement at most, here 45 ms.
    let mut new = process.open(None);
    new.report(&report("d", &[("tenant=a", 1)])).expect("valid");
    process.clock.advance(Micros::from_millis(45));
    process.settle();
    assert_eq!(actions(&mut new).len(), 1);
    assert_eq!(process.engine.metrics().violations.get(), 0);
}

/// What most Envoys had before is not known yet, so they are sent nothing for 13 s, and nothing waits for a plan.
#[test]
fn envoys_after_a_restart_plan_once_per_tick() {
    let config = RlqsConfig { max_streams: 3_000, max_buckets: 3_000, relearn: true, ..config() };
    let process = Process::new(config);
    let mut streams: Vec<EnvoyStream> = (0..ENVOYS).map(|_| process.open(None)).collect();
    for stream in &mut streams {
        stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
    }
    process.settle();
    let plans = plans_in_five_seconds(&process, &mut streams, 0);
    assert!((20..=25).contains(&plans), "{plans} plans in 20 ticks, of 200 ms at least");
    let sent: usize = streams.iter_mut().map(|stream| actions(stream).len()).sum();
    assert_eq!(sent, 0, "they are still unknown");
}
