//! Streams that end, come back or fall silent, and processes that start again.

use std::time::{Duration, Instant};

use super::{
    CONVERGED, TTL, assert_no_violation, assert_within, envoy, serving, tenant, tenants,
    until_stable,
};
use crate::support::rlqs::{Assigned, SmallEnvoy};
use crate::support::wait::until;
use crate::support::weir::Weir;

const LIMIT: u64 = 300;

fn saturated(weir: &Weir, name: Option<&str>) -> SmallEnvoy {
    let envoy = SmallEnvoy::named(weir.grpc, "d", name);
    envoy.demand(&tenant(), 500.0);
    envoy
}

fn until_halves(envoys: [&SmallEnvoy; 2]) {
    let is_half = |envoy: &SmallEnvoy| (140.0..=151.0).contains(&envoy.rate(&tenant()));
    until_stable("halves", || envoys.into_iter().all(is_half));
}

/// The instant from which the last assignment of `envoy` is no longer valid.
fn last_expiry(envoy: &SmallEnvoy) -> Instant {
    envoy.actions().last().expect("an assignment").at + TTL
}

/// An Envoy whose stream has ended may use its share until its assignment expires. Only then does the
/// other one get it.
#[test]
fn a_lost_share_is_free_after_the_ttl_not_sooner() {
    let weir = serving(&tenants("second", LIMIT)).start();
    let (lost, other) = (saturated(&weir, None), saturated(&weir, None));
    until_halves([&lost, &other]);
    // A moment of the last report may be missing here: its assignment came before this.
    let expires = last_expiry(&lost) - Duration::from_millis(100);
    drop(lost);
    other.until_rate(&tenant(), |rate| rate > 155.0);
    let raised = Instant::now();
    assert!(raised >= expires, "{:?} too soon", expires - raised);
    other.until_rate(&tenant(), |rate| rate > 290.0);
    let late = Instant::now().saturating_duration_since(expires);
    assert!(late < Duration::from_secs(5), "{late:?} after the expiry");
    assert_no_violation(&weir);
}

/// An Envoy that reconnects under its name holds what it held. One without a name is a new one, and
/// its old share must expire first.
#[test]
fn a_name_keeps_its_share() {
    let weir = serving(&tenants("second", LIMIT)).start();
    let began = Instant::now();
    let (named, other) = (saturated(&weir, Some("edge-1")), saturated(&weir, Some("edge-2")));
    until_halves([&named, &other]);
    drop(named);
    // A name that an open stream has is ignored.
    until("the end of the stream", || weir.metric("weir_rlqs_streams", &[]) == 1);
    let again = Instant::now();
    let named = saturated(&weir, Some("edge-1"));
    named.until_rate(&tenant(), |rate| rate > 140.0);
    assert!(again.elapsed() < TTL / 2, "{:?}", again.elapsed());
    drop(named);
    let again = Instant::now();
    let unnamed = saturated(&weir, None);
    unnamed.until_rate(&tenant(), |rate| rate > 140.0);
    assert!(again.elapsed() > TTL / 2, "{:?}", again.elapsed());
    assert_within(&[&other, &unnamed], LIMIT, began);
    assert_no_violation(&weir);
}

/// Two live streams cannot share a name: the second one is a new Envoy.
#[test]
fn a_name_of_a_live_stream_is_ignored() {
    let weir = serving(&tenants("second", LIMIT)).start();
    let began = Instant::now();
    let [first, second] = [(); 2].map(|()| saturated(&weir, Some("%HOSTNAME%")));
    until_halves([&first, &second]);
    assert_within(&[&first, &second], LIMIT, began);
    assert_no_violation(&weir);
}

/// A bucket without requests is abandoned. Its next request begins again.
#[test]
fn an_idle_bucket_is_abandoned() {
    let weir = serving(&tenants("second", LIMIT)).env("WEIR__RLQS__IDLE_TIMEOUT", "2s").start();
    let envoy = envoy(&weir, 10.0);
    envoy.until_assigned(&tenant());
    envoy.demand(&tenant(), 0.0);
    let is_abandoned =
        |envoy: &SmallEnvoy| envoy.actions().last().is_some_and(|action| action.assigned.is_none());
    until("the bucket is abandoned", || is_abandoned(&envoy));
    until("its memory is free", || weir.metric("weir_rlqs_buckets", &[]) == 0);
    envoy.demand(&tenant(), 10.0);
    envoy.until_assigned(&tenant());
    assert_eq!(weir.metric("weir_rlqs_buckets", &[]), 1);
}

/// At the end of the drain, streams end with OK. Envoys keep their assignments, go elsewhere, and do not
/// exceed the limit there: a process that has started learns what they used before it assigns more.
#[test]
fn a_new_process_learns_what_envoys_use() {
    let mut old = serving(&tenants("second", LIMIT)).start();
    let began = Instant::now();
    let (first, second) = (saturated(&old, None), saturated(&old, None));
    let both = [&first, &second];
    until_halves(both);
    let new = serving(&tenants("second", LIMIT)).env("WEIR__RLQS__RELEARN", "true").start();
    let started = Instant::now();
    both.into_iter().for_each(|envoy| envoy.redirect(new.grpc));
    old.process().terminate();
    until("both streams end", || both.iter().all(|envoy| !envoy.ended().is_empty()));
    for envoy in both {
        assert_eq!(envoy.ended()[0].0, tonic::Code::Ok, "{:?}", envoy.ended());
        assert!(envoy.assigned(&tenant()).is_some(), "an assignment outlives its stream");
    }
    until("both streams are open again", || new.metric("weir_rlqs_streams", &[]) == 2);
    let learnt = TTL + Duration::from_secs(1);
    while started.elapsed() < learnt {
        let sum: f64 = both.iter().map(|envoy| envoy.rate(&tenant())).sum();
        // What an Envoy reports of one second has some of its saved tokens.
        assert!(sum <= LIMIT as f64 * 1.05, "{sum} assigned");
        std::thread::sleep(Duration::from_millis(20));
    }
    until_halves(both);
    assert_within(&both, LIMIT, began);
    assert_no_violation(&new);
}

/// An Envoy of which a new process knows nothing has no assignment before the assignments of the
/// process before have expired.
#[test]
fn an_unknown_envoy_waits_after_a_start() {
    let weir = serving(&tenants("second", LIMIT)).env("WEIR__RLQS__RELEARN", "true").start();
    let started = Instant::now();
    let envoy = envoy(&weir, 10.0);
    envoy.until_rate(&tenant(), |rate| rate > 0.0);
    assert!(started.elapsed() >= TTL, "{:?}", started.elapsed());
    assert!(started.elapsed() < TTL + CONVERGED, "{:?}", started.elapsed());
}

/// When the service is gone, assignments expire, and each Envoy falls back to its configuration.
#[test]
fn assignments_expire_without_the_service() {
    let weir = serving(&tenants("second", LIMIT)).start();
    let envoy = envoy(&weir, 10.0);
    assert!(matches!(envoy.until_assigned(&tenant()), Assigned::Bucket { .. }));
    drop(weir);
    let expires = last_expiry(&envoy);
    until("the assignment expires", || envoy.assigned(&tenant()).is_none());
    let late = Instant::now().saturating_duration_since(expires);
    assert!(late < Duration::from_secs(1), "{late:?} after the expiry");
}
