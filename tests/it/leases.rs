//! Concurrency limits and reservations, acquired and released by real Envoys.

mod budget;
mod cancelled;
mod fixture;
mod forms;
mod llm_budget;

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use fixture::{Fixture, Lease, MAX};
use forms::{Form, NEW, OLD, classic, naive};

use crate::support::envoy::slow_upstream;
use crate::support::envoy::{self, NEWEST, OLDEST};
use crate::support::http::stream::Stream;
use crate::support::wait::TIMEOUT;

const RULES: &str = include_str!("../../examples/rules/concurrency.yaml");

/// The rules of the example, with slots that expire after `hold`.
fn rules(hold: &str) -> String {
    let rules = RULES.replace("hold: 30s", &format!("hold: {hold}"));
    assert_ne!(rules, RULES, "the example has another hold");
    rules
}

/// Rules whose slots do not expire during a test, so that every free slot was released.
fn lasting() -> String {
    rules("24h")
}

/// Sends `count` requests at the same time and waits for the head of each response. Returns the
/// running ones and the number of denied ones.
fn open_streams(fixture: &Fixture, count: usize) -> (Vec<Stream>, usize) {
    let streams: Vec<Stream> = thread::scope(|scope| {
        let opening: Vec<_> = (0..count).map(|_| scope.spawn(|| fixture.open())).collect();
        opening.into_iter().map(|one| one.join().expect("the client gets a response")).collect()
    });
    let (running, denied): (Vec<_>, Vec<_>) =
        streams.into_iter().partition(|one| one.status == 200);
    assert!(denied.iter().all(|one| one.status == 429), "every other status is 429");
    (running, denied.len())
}

#[test]
fn each_example_is_accepted_by_its_envoys() {
    let budget = include_str!("../../examples/envoy/token-budget.yaml");
    let money = include_str!("../../examples/envoy/llm-budget.yaml");
    for (version, example, name) in [
        (NEWEST, NEW.example, "concurrency.yaml"),
        (NEWEST, OLD.example, "concurrency-1.36.yaml"),
        (OLDEST, OLD.example, "concurrency-1.36.yaml"),
        (NEWEST, budget, "token-budget.yaml"),
        (OLDEST, budget, "token-budget.yaml"),
        (NEWEST, money, "llm-budget.yaml"),
        (OLDEST, money, "llm-budget.yaml"),
    ] {
        assert_eq!(envoy::validate(version, example), Ok(()), "{name} on {version}");
    }
}

/// The example for older Envoys differs only by fields that they do not support.
#[test]
fn the_old_example_differs_only_where_it_must() {
    let lines = |example: &str| -> Vec<String> {
        let lines = example.lines().filter(|line| !line.trim_start().starts_with('#'));
        lines.map(str::to_owned).collect()
    };
    let mut new = lines(NEW.example);
    new.retain(|line| !line.contains("metadata_namespace") && !line.contains("is_negative_hits"));
    let new = new.iter().map(|line| line.replace("weir.lease", "envoy.filters.http.ratelimit"));
    assert_eq!(new.collect::<Vec<_>>(), lines(OLD.example));
}

#[test]
fn no_more_than_max_run_at_once_with_the_newest_envoy() {
    no_more_than_max_run_at_once(&NEW);
}

#[test]
fn no_more_than_max_run_at_once_with_the_oldest_envoy() {
    no_more_than_max_run_at_once(&OLD);
}

/// 50 slow requests arrive at the same time: 10 run and 40 are denied. When the 10 have ended all
/// slots are free, each by one release of one lease. This is repeated, and then 50 clients connect
/// and disconnect.
fn no_more_than_max_run_at_once(form: &Form) {
    let fixture = Fixture::start(form, &lasting());
    for round in 1..=3 {
        let (running, denied) = open_streams(&fixture, 50);
        assert_eq!((running.len(), denied), (MAX, 40));
        assert_eq!(fixture.free(), 0);
        fixture.upstream.let_all_go();
        for stream in running {
            assert_eq!(stream.finish().body, slow_upstream::body(0));
        }
        let calls = fixture.recorder.wait_for(round * (50 + MAX));
        assert_eq!(calls.len(), round * (50 + MAX), "one call per request, one more per slot");
        assert_eq!(fixture.free(), MAX, "all slots are free");
        fixture.upstream.hold_again();
    }

    fixture.upstream.let_all_go();
    let passed: usize = thread::scope(|scope| {
        let client = || (0..5).filter(|_| fixture.open().finish().status == 200).count();
        let clients: Vec<_> = (0..50).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|one| one.join().expect("the client gets a response")).sum()
    });
    assert!(passed >= MAX, "the first {MAX} found free slots");
    let calls = fixture.recorder.wait_for(3 * (50 + MAX) + 250 + passed);
    assert_eq!(fixture.free(), MAX, "all slots are free");
    assert_eq!(fixture.upstream.most_at_once(), MAX);
    assert_eq!(fixture.upstream.arrived(), 3 * MAX + passed, "denied requests do not reach it");

    let granted: BTreeSet<Lease> = calls.iter().filter_map(Lease::granted).collect();
    let released: Vec<Lease> = calls.iter().filter_map(Lease::released).collect();
    assert_eq!(released.len(), granted.len(), "each is given back once");
    assert_eq!(released.into_iter().collect::<BTreeSet<_>>(), granted);
    let negative = |call| Lease::released(call).is_some() == fixture::is_negative(call);
    assert_eq!(calls.iter().all(negative), form.version == NEWEST, "how a release is sent");
}

#[test]
fn a_gone_client_frees_its_slot_with_newest_envoy() {
    a_client_that_goes_frees_its_slot(&NEW);
}

#[test]
fn a_gone_client_frees_its_slot_with_oldest_envoy() {
    a_client_that_goes_frees_its_slot(&OLD);
}

#[test]
fn a_gone_client_frees_its_slot_in_classic_form() {
    a_client_that_goes_frees_its_slot(&Form { version: NEWEST, example: &classic() });
}

/// Ten run and an eleventh is denied. Four clients disconnect in the middle of their responses, so
/// four more run and a fifth is denied. Slots last for hours and no other request ended.
fn a_client_that_goes_frees_its_slot(form: &Form) {
    let fixture = Fixture::start(form, &lasting());
    let (mut running, denied) = open_streams(&fixture, MAX + 1);
    assert_eq!((running.len(), denied), (MAX, 1));
    for stream in running.drain(..4) {
        stream.abandon();
    }
    let calls = fixture.recorder.wait_for(11 + 4);
    assert_eq!(calls.iter().filter_map(Lease::released).count(), 4);
    assert_eq!(fixture.free(), 4);
    let (more, denied) = open_streams(&fixture, 5);
    assert_eq!((more.len(), denied), (4, 1));

    fixture.upstream.let_all_go();
    for stream in running.into_iter().chain(more) {
        assert_eq!(stream.finish().body, slow_upstream::body(0), "the open stream is unaffected");
    }
    fixture.recorder.wait_for(11 + 4 + 5 + MAX);
    assert_eq!(fixture.free(), MAX);
}

#[test]
fn denied_requests_free_nothing_with_the_newest_envoy() {
    denied_requests_free_nothing(&NEW);
}

#[test]
fn denied_requests_free_nothing_with_the_oldest_envoy() {
    denied_requests_free_nothing(&OLD);
}

/// After twenty denials ten slots are still held. One request ends, and exactly one more can run.
/// Envoy would have sent a release for a denial before that.
fn denied_requests_free_nothing(form: &Form) {
    let fixture = Fixture::start(form, &lasting());
    let (running, _) = open_streams(&fixture, MAX);
    assert_eq!(open_streams(&fixture, 20).1, 20);
    fixture.upstream.let_one_go();
    let calls = fixture.recorder.wait_for(MAX + 20 + 1);
    assert!(Lease::released(&calls[MAX + 20]).is_some(), "the one that has ended");
    assert_eq!(calls.iter().filter_map(Lease::granted).count(), MAX, "a denial grants nothing");
    assert_eq!(fixture.free(), 1);
    let (more, denied) = open_streams(&fixture, 2);
    assert_eq!((more.len(), denied), (1, 1));

    fixture.upstream.let_all_go();
    for stream in running.into_iter().chain(more) {
        stream.finish();
    }
    let calls = fixture.recorder.wait_for(MAX + 20 + 1 + 2 + MAX);
    assert_eq!(calls.iter().filter_map(Lease::released).count(), MAX + 1);
    assert_eq!(fixture.free(), MAX);
}

/// Envoy is killed (SIGKILL) while ten requests run. Their slots are not released, so they expire
/// after `hold` and not before.
#[test]
fn slots_expire_within_hold_after_a_crash() {
    let hold = Duration::from_secs(3);
    let fixture = Fixture::start(&NEW, &rules("3s"));
    let mut opened = Instant::now();
    let mut running = Vec::new();
    for _ in 0..MAX {
        opened = Instant::now();
        running.push(fixture.open());
    }
    assert!(running.iter().all(|stream| stream.status == 200));
    let fixture = fixture.without_envoy();
    // An expiry causes no event, so poll until it has happened. Each peek reports the time until
    // the next slot is free, which is always within `hold`.
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let look = fixture.look();
        if look.limit_remaining as usize == MAX {
            break;
        }
        let next = look.duration_until_reset.expect("a slot is held");
        let next = Duration::from_secs_f64(next.seconds as f64 + f64::from(next.nanos) / 1e9);
        assert!(next <= hold, "the next slot is free in {next:?}");
        assert!(Instant::now() < deadline, "{look:?}");
        fixture.pause();
    }
    assert!(opened.elapsed() >= hold, "the last slot was taken less than {hold:?} ago");
    let calls = fixture.recorder.wait_for(MAX);
    assert_eq!(calls.iter().filter_map(Lease::released).count(), 0, "none was released");
}

/// Without leases Envoy releases for denied requests too, so each denial admits one more request.
/// The effect is bounded: a counter never falls below 0, so when all requests have ended exactly
/// `max` run.
#[test]
fn without_leases_a_denial_frees_a_slot() {
    let example = naive();
    let fixture = Fixture::start(&Form { version: NEWEST, example: &example }, &lasting());
    let (running, denied) = open_streams(&fixture, MAX + 1);
    assert_eq!((running.len(), denied), (MAX, 1));
    fixture.recorder.wait_for(MAX + 1 + 1);
    assert_eq!(fixture.free(), 1, "the denied request has freed a slot in use");
    let late = fixture.open();
    assert_eq!((late.status, fixture.upstream.most_at_once()), (200, MAX + 1), "one too many");

    fixture.upstream.let_all_go();
    for stream in running.into_iter().chain([late]) {
        stream.finish();
    }
    // Eleven hits were taken, and twelve released.
    let calls = fixture.recorder.wait_for(MAX + 3 + MAX + 1);
    assert_eq!(calls.iter().filter(|call| fixture::is_negative(call)).count(), MAX + 2);
    assert_eq!(fixture.free(), MAX, "not more than there are");
    fixture.upstream.hold_again();
    let (running, denied) = open_streams(&fixture, MAX + 1);
    assert_eq!((running.len(), denied), (MAX, 1));
}
