//! Tests of rules whose numbers come from the plans of customers.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::FutureExt;
use tokio::sync::Notify;

use super::*;
use crate::plans::{CustomerSource, PlanBook, PlanSelection, Plans, PlansConfig};
use crate::testing::lock;

const RULES: &str = "
  - key: calls
    rate_limit: {name: calls, unit: minute, requests_per_unit: 1, limit_from: {customer: calls}}
  - key: basic
    rate_limit:
      name: basic
      unit: minute
      requests_per_unit: 1
      limit_from: {customer: basic, limit: calls, default: free}
  - key: slots
    rate_limit:
      name: slots
      algorithm: concurrency
      max: 1
      hold: 30s
      limit_from: {customer: slots}
  - {key: plain, rate_limit: {unit: minute, requests_per_unit: 9}}
";

const BOOK: &str = "
plans:
  free: { calls: 2 }
  pro: { calls: 5, slots: 2 }
  house: { calls: unlimited, slots: unlimited }
";

fn book() -> PlanBook {
    PlanBook::parse_yaml(BOOK, "plans.yaml").expect("valid").0
}

/// Plans whose source has sent these customers.
pub(super) fn plans_of(customers: &[(&str, &str)]) -> Arc<Plans> {
    let plans = Plans::new(PlansConfig { max_customers: 100, asks_per_customer: false });
    publish(&plans, customers);
    plans
}

/// A bench over memory whose source of plans has sent these customers.
fn bench(customers: &[(&str, &str)]) -> (Bench, Arc<Plans>) {
    let plans = plans_of(customers);
    let config = ResponseSettings { headers: LimitHeaders::Both, ..Default::default() };
    let Bench { rules, limiter } = Bench::new(RULES, config);
    plans.use_rules(&rules);
    (Bench { rules, limiter: limiter.with_plans(plans.clone(), None) }, plans)
}

fn publish(plans: &Plans, customers: &[(&str, &str)]) {
    let book = book();
    let mut table = plans.table(&book, customers.len());
    for (customer, plan) in customers {
        table.add(customer, plan).expect("there is room");
    }
    let table = table.finish();
    plans.publish(book, table);
}

fn descriptor<'a>(entries: &'a [Entry<'a>], hits: u64) -> Descriptor<'a> {
    Descriptor { entries, limit: None, hits_addend: Some(hits), is_negative_hits: false }
}

/// Checks hits on `key=value`.
fn hit(bench: &Bench, key: &str, value: &str, hits: u64) -> Verdict {
    let entries = [Entry { key, value }];
    bench.check(&with(&[descriptor(&entries, hits)]))
}

/// The limit and the remaining hits of the first status.
fn state(verdict: &Verdict) -> (Option<u64>, u64) {
    let status = &verdict.statuses[0];
    (status.limit.as_ref().map(|limit| limit.requests), status.remaining)
}

#[test]
fn each_customer_has_the_numbers_of_its_plan() {
    let (bench, _) = bench(&[("acme", "pro"), ("bank", "house"), ("old", "gone")]);
    for (key, customer, limit) in [
        ("calls", "acme", 5),
        ("calls", "new", 1),
        ("calls", "old", 1),
        ("basic", "acme", 5),
        ("basic", "new", 2),
        ("basic", "old", 2),
        ("plain", "acme", 9),
    ] {
        let verdict = hit(&bench, key, customer, limit);
        assert_eq!(verdict.code, Code::Ok, "{key} {customer}");
        assert_eq!(state(&verdict), (Some(limit), 0), "{key} {customer}");
        assert_eq!(hit(&bench, key, customer, 1).code, Code::OverLimit, "{key} {customer}");
    }
    let verdict = hit(&bench, "calls", "bank", 1_000);
    assert_eq!((verdict.code, &verdict.statuses[0].limit), (Code::Ok, &None));
    let index = bench.rules.rules()[0].index;
    assert_eq!(verdict.statuses[0].reason, DecisionReason::Unlimited(index));
}

#[test]
fn headers_report_the_plan() {
    let (bench, _) = bench(&[("acme", "pro")]);
    let verdict = hit(&bench, "calls", "acme", 2);
    let limit = header(&verdict, "x-ratelimit-limit");
    assert_eq!(limit, Some("5, 5;w=60;name=\"calls\""));
    assert_eq!(header(&verdict, "ratelimit"), Some("\"calls\";r=3;t=40"));
}

/// A new plan, or a change of one, is active with the next request and keeps the count.
#[test]
fn another_plan_keeps_the_count() {
    let (bench, plans) = bench(&[("acme", "free")]);
    assert_eq!(state(&hit(&bench, "basic", "acme", 2)), (Some(2), 0));
    assert_eq!(hit(&bench, "basic", "acme", 1).code, Code::OverLimit, "denied hits count too");
    publish(&plans, &[("acme", "pro")]);
    assert_eq!(state(&hit(&bench, "basic", "acme", 0)), (Some(5), 2));
    assert_eq!(state(&hit(&bench, "basic", "acme", 2)), (Some(5), 0));
    publish(&plans, &[("acme", "free")]);
    assert_eq!(hit(&bench, "basic", "acme", 1).code, Code::OverLimit);
    publish(&plans, &[("acme", "house")]);
    assert_eq!(hit(&bench, "basic", "acme", 1).code, Code::Ok);
    publish(&plans, &[]);
    assert_eq!(state(&hit(&bench, "basic", "acme", 0)), (Some(2), 0), "counted all the time");
}

/// Slots are released also while the plan is unlimited.
#[test]
fn slots_follow_the_plan_and_are_released() {
    let (bench, plans) = bench(&[("acme", "pro")]);
    let acquire = || {
        let mut verdict = hit(&bench, "slots", "acme", 1);
        verdict.rollback.take().expect("it took a slot").commit();
        let metadata = verdict.metadata.expect("the lease");
        metadata["lease"]["id"].as_str().expect("an id").to_owned()
    };
    let leases = [acquire(), acquire()];
    assert_eq!(hit(&bench, "slots", "acme", 1).code, Code::OverLimit, "two slots are taken");
    let release = |lease: &str| {
        let entries = [Entry { key: "slots", value: "acme" }, Entry { key: "lease", value: lease }];
        let release = Descriptor { is_negative_hits: true, ..descriptor(&entries, 1) };
        assert_eq!(bench.check(&with(&[release])).code, Code::Ok);
    };
    release(&leases[0]);
    assert_eq!(state(&hit(&bench, "slots", "acme", 0)), (Some(2), 1));
    publish(&plans, &[("acme", "house")]);
    release(&leases[1]);
    publish(&plans, &[("acme", "pro")]);
    assert_eq!(state(&hit(&bench, "slots", "acme", 0)), (Some(2), 2));
}

#[test]
fn an_operator_sees_the_plan_of_a_counter() {
    let (bench, _) = bench(&[("acme", "pro")]);
    let entries = [Entry { key: "slots", value: "acme" }, Entry { key: "lease", value: "0" }];
    let counter = bench.limiter.counter(&bench.rules, "d", &entries).expect("a counter");
    assert_eq!(counter.limit.tiers[0].requests, 1, "the limit of the rule");
    let choice = bench.limiter.plan_of(&counter, &entries).expect("it uses plans");
    assert_eq!((choice.plan.as_deref(), choice.selection), (Some("pro"), PlanSelection::Customer));
    let entries = [Entry { key: "plain", value: "acme" }];
    let counter = bench.limiter.counter(&bench.rules, "d", &entries).expect("a counter");
    assert_eq!(bench.limiter.plan_of(&counter, &entries), None);
}

/// A source that is asked about customers.
struct FakeSource {
    plans: Arc<Plans>,
    customers: &'static [(&'static str, &'static str)],
    /// The customers of each question.
    asked: Mutex<Vec<Vec<String>>>,
    /// Whether it answers only after a notification.
    is_slow: AtomicBool,
    answer: Notify,
}

impl CustomerSource for FakeSource {
    fn fetch<'a>(&'a self, customers: &'a [&'a str]) -> BoxFuture<'a, ()> {
        async move {
            let changes = self.plans.changes();
            lock(&self.asked).push(customers.iter().map(|one| (*one).to_owned()).collect());
            if self.is_slow.load(Ordering::Relaxed) {
                self.answer.notified().await;
            }
            for customer in customers {
                let found = self.customers.iter().find(|(name, _)| name == customer);
                self.plans.assign_fetched(customer, found.map(|(_, plan)| *plan), changes);
            }
        }
        .boxed()
    }
}

impl FakeSource {
    /// The customers that were asked about since the last time that this was called.
    fn take_asked(&self) -> Vec<Vec<String>> {
        std::mem::take(&mut *lock(&self.asked))
    }
}

/// A limiter over Redis that asks a source about its customers.
fn asking(is_slow: bool) -> (Limiter<FakeStore>, RuleSet, Arc<FakeSource>) {
    let plans = Plans::new(PlansConfig { max_customers: 100, asks_per_customer: true });
    plans.publish_book(book());
    let source = Arc::new(FakeSource {
        plans: plans.clone(),
        customers: &[("acme", "pro"), ("bank", "house")],
        asked: Mutex::default(),
        is_slow: AtomicBool::new(is_slow),
        answer: Notify::new(),
    });
    let modes = Modes::new(FakeStore::new());
    let seed = KeySeed::fixed([1, 2]);
    let limiter = Limiter::new(Backend::Redis(modes), seed, ResponseSettings::default());
    let limiter = limiter.with_plans(plans, Some(source.clone()));
    let Bench { rules, .. } = Bench::new(RULES, ResponseSettings::default());
    (limiter, rules, source)
}

#[tokio::test(start_paused = true)]
async fn unknown_customers_are_asked_about_once() {
    let (limiter, rules, source) = asking(false);
    let entries = [("calls", "acme"), ("basic", "acme"), ("basic", "new"), ("plain", "x")];
    let entries = entries.map(|(key, value)| [Entry { key, value }]);
    let descriptors: Vec<_> = entries.iter().map(|one| descriptor(one, 1)).collect();
    for round in 0..2 {
        let verdict = limiter.check(&rules, &with(&descriptors), NOW).await;
        let limits: Vec<_> = verdict
            .statuses
            .iter()
            .map(|status| status.limit.as_ref().map_or(0, |limit| limit.requests))
            .collect();
        assert_eq!(limits, [5, 5, 2, 9]);
        let left: Vec<u64> = verdict.statuses.iter().map(|status| status.remaining).collect();
        assert_eq!(left, [4 - round, 4 - round, 1 - round, 8 - round], "each hit counts once");
        let asked = source.take_asked();
        let expected: &[&[&str]] = if round == 0 { &[&["acme", "new"]] } else { &[] };
        assert_eq!(asked, expected, "both at once, and only once");
    }
}

/// A lease is taken after the plan is known, so a question takes no slot.
#[tokio::test(start_paused = true)]
async fn a_question_takes_nothing() {
    let (limiter, rules, source) = asking(true);
    let entries = [Entry { key: "slots", value: "acme" }];
    let descriptors = [descriptor(&entries, 1)];
    let request = with(&descriptors);
    let mut check = Box::pin(limiter.check(&rules, &request, NOW));
    assert!(check.as_mut().now_or_never().is_none(), "the source has not answered");
    drop(check);
    let store = limiter.backend().shared_store().expect("Redis");
    assert_eq!(store.take_calls(), 0, "nothing was taken or given back");
    source.answer.notify_one();
    let verdict = limiter.check(&rules, &request, NOW).await;
    assert_eq!(state(&verdict), (Some(2), 1));
}

/// A settlement needs the numbers of the plan, also where the instance has not seen the customer. A
/// release of slots needs no number.
#[tokio::test(start_paused = true)]
async fn a_settlement_asks_and_a_release_does_not() {
    const TOKENS: &str = "
  - key: tokens
    rate_limit:
      requests: 1
      window: 1h
      reserve: {hold: 10m}
      limit_from: {customer: tokens, limit: calls}
";
    let (limiter, rules, source) = asking(false);
    let tokens = Bench::new(TOKENS, ResponseSettings::default()).rules;
    let id = "0123456789abcdef";
    for (key, rules, asked) in [("tokens", &tokens, 1), ("slots", &rules, 0)] {
        let entries = [Entry { key, value: "bank" }, Entry { key: "lease", value: id }];
        source.plans.forget_customers();
        let verdict = limiter.check(rules, &with(&[descriptor(&entries, 1)]), NOW).await;
        assert_eq!((verdict.code, source.take_asked().len()), (Code::Ok, asked), "{key}");
    }
}

/// The last known plan decides if the request may not wait, else the default.
#[tokio::test(start_paused = true)]
async fn a_request_that_must_decide_does_not_ask() {
    let (limiter, rules, source) = asking(true);
    let entries = [Entry { key: "basic", value: "acme" }];
    let descriptors = [descriptor(&entries, 0)];
    let must_decide = AtomicBool::new(true);
    let request = Request { must_decide: Some(&must_decide), ..with(&descriptors) };
    let limit = |verdict: Verdict| state(&verdict).0;
    // The store answers at once, so it decides also then.
    let decide = || limiter.check(&rules, &request, NOW).now_or_never().expect("no wait");
    assert_eq!(limit(decide()), Some(2), "the default");
    source.plans.assign("acme", Some("pro"));
    source.plans.forget_customers();
    assert_eq!(limit(decide()), Some(5), "the last known plan");
    assert_eq!(source.take_asked().len(), 2);
}

/// A source that does not answer in time leaves what was known.
#[tokio::test(start_paused = true)]
async fn a_failed_source_leaves_the_default() {
    struct Failing;
    impl CustomerSource for Failing {
        fn fetch<'a>(&'a self, _: &'a [&'a str]) -> BoxFuture<'a, ()> {
            tokio::time::sleep(Duration::from_millis(10)).boxed()
        }
    }
    let (_, rules, source) = asking(false);
    let modes = Modes::new(FakeStore::new());
    let limiter = Limiter::new(Backend::Redis(modes), KeySeed::fixed([1, 2]), Default::default());
    let limiter = limiter.with_plans(source.plans.clone(), Some(Arc::new(Failing)));
    let entries = [Entry { key: "basic", value: "acme" }];
    let descriptors = [descriptor(&entries, 1)];
    let request = with(&descriptors);
    let verdict = limiter.check(&rules, &request, NOW).await;
    assert_eq!((verdict.code, state(&verdict)), (Code::Ok, (Some(2), 1)));
}

/// The counters have what the question has left of the caller's timeout.
#[tokio::test(start_paused = true)]
async fn a_question_ends_with_the_caller() {
    let ms = Duration::from_millis;
    let (_, rules, source) = asking(true);
    let store = FakeStore::new().taking(ms(60), None);
    let backend = Backend::Redis(Modes::new(store));
    let limiter = Limiter::new(backend, KeySeed::fixed([1, 2]), ResponseSettings::default());
    let limiter = limiter.with_plans(source.plans.clone(), Some(source.clone()));
    let entries = [Entry { key: "basic", value: "acme" }];
    let descriptors = [descriptor(&entries, 0)];
    let request = Request { timeout: Some(ms(100)), ..with(&descriptors) };
    for answers_after in [Some(ms(10)), Some(ms(50)), None] {
        source.plans.forget_customers();
        let answer = async {
            if let Some(after) = answers_after {
                tokio::time::sleep(after).await;
                source.answer.notify_one();
            }
        };
        let start = tokio::time::Instant::now();
        let (verdict, ()) = tokio::join!(limiter.check(&rules, &request, NOW), answer);
        assert!(start.elapsed() <= ms(105), "{answers_after:?}");
        let reason = verdict.statuses[0].reason;
        let is_counted = matches!(reason, DecisionReason::Counted { .. });
        assert_eq!(is_counted, answers_after == Some(ms(10)), "{answers_after:?}: {reason:?}");
    }
}

/// Counters in memory are queried without waiting, so no source is asked.
#[test]
fn counters_in_memory_use_the_last_known_plan() {
    let (_, rules, source) = asking(true);
    let Bench { limiter, .. } = Bench::new(RULES, ResponseSettings::default());
    let limiter = limiter.with_plans(source.plans.clone(), Some(source.clone()));
    let bench = Bench { rules, limiter };
    assert_eq!(state(&hit(&bench, "basic", "acme", 0)), (Some(2), 2));
    source.plans.assign("acme", Some("pro"));
    assert_eq!(state(&hit(&bench, "basic", "acme", 0)), (Some(5), 5));
    assert_eq!(source.take_asked().len(), 0);
}
