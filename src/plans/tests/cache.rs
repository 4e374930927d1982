//! Tests of the cache of customers, for a source that is asked about each of them.

use std::collections::HashMap;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;
use crate::plans::compiled::MEANWHILE;
use crate::plans::plan_names::NAMES_MAX;
use crate::testing::Rng;

fn of_default() -> RuleSet {
    rules("requests: 5, window: 1m", "{ customer: key, default: free }")
}

#[test]
fn a_customer_is_asked_about_once() {
    let (plans, rules) = (with_cache(100), of_default());
    plans.publish_book(book(BOOK));
    assert_eq!(limit_of(&plans, &rules, "acme"), "unknown");
    assert_eq!(last_known(&plans, &rules, "acme"), "100", "the default decides meanwhile");
    let changes = plans.changes();
    plans.assign_fetched("acme", Some("pro"), changes);
    plans.assign_fetched("new", None, changes);
    assert_eq!(limit_of(&plans, &rules, "acme"), "1000");
    assert_eq!(limit_of(&plans, &rules, "new"), "100", "the source has no plan for it");
    assert_eq!(limit_of(&plans, &rules, ""), "100", "no customer is asked about");
    assert_eq!(plans.status().customers, 2);
    let in_memory = ["acme", "new", "other"].map(|customer| plans.has_in_memory(customer));
    assert_eq!(in_memory, [true, true, false]);
    plans.forget_customers();
    assert!(plans.has_in_memory("acme"), "its last known plan decides meanwhile");
}

#[test]
fn changes_apply_also_to_unasked_customers() {
    let (plans, rules) = (with_cache(100), of_default());
    plans.publish_book(book(BOOK));
    for (plan, limit) in [(Some("pro"), "1000"), (Some("house"), "unlimited"), (None, "100")] {
        plans.assign("acme", plan);
        assert_eq!(limit_of(&plans, &rules, "acme"), limit);
    }
}

#[test]
fn the_last_known_plan_stays_until_asked_again() {
    let (plans, rules) = (with_cache(100), of_default());
    plans.publish_book(book(BOOK));
    plans.assign("acme", Some("pro"));
    plans.forget_customers();
    assert_eq!(limit_of(&plans, &rules, "acme"), "unknown");
    assert_eq!(last_known(&plans, &rules, "acme"), "1000");
    plans.assign_fetched("acme", Some("free"), plans.changes());
    assert_eq!(limit_of(&plans, &rules, "acme"), "100");
}

/// A reply of the source may be older than a change that came after the question.
#[test]
fn a_reply_from_before_a_change_is_asked_again() {
    let (plans, rules) = (with_cache(100), of_default());
    plans.publish_book(book(BOOK));
    let asked = plans.changes();
    plans.assign("other", Some("pro"));
    plans.assign_fetched("acme", Some("pro"), asked);
    assert_eq!(limit_of(&plans, &rules, "acme"), "unknown");
    assert_eq!(last_known(&plans, &rules, "acme"), "1000");
    let asked = plans.changes();
    plans.forget_customers();
    plans.assign_fetched("acme", Some("pro"), asked);
    assert_eq!(limit_of(&plans, &rules, "acme"), "unknown");
}

/// Has another thread assign a plan during the next compilation of this thread, which fails if the change
/// waits for the end of the compilation.
fn assign_during_compilation(plans: &Arc<Plans>) {
    let plans = Arc::clone(plans);
    MEANWHILE.set(Some(Box::new(move || {
        let (done, changed) = mpsc::channel();
        thread::spawn(move || {
            plans.assign("acme", Some("pro"));
            // After a failure, nothing waits for it.
            let _ = done.send(());
        });
        let changed = changed.recv_timeout(Duration::from_secs(30));
        changed.expect("a change does not wait for a compilation");
    })));
}

/// The compilation of plans for many rules takes long.
#[test]
fn no_change_waits_for_a_compilation() {
    let rules = of_default();
    let ways: [fn(&Plans, &RuleSet); 3] = [
        |plans, _| plans.publish_book(book(BOOK)),
        |plans, rules| plans.use_rules(rules),
        |plans, _| {
            let book = book(BOOK);
            let table = plans.table(&book, 1).finish();
            plans.publish(book, table);
        },
    ];
    for (way, publish) in ways.into_iter().enumerate() {
        let plans = with_cache(100);
        plans.publish_book(book(BOOK));
        let changes = plans.changes();
        assign_during_compilation(&plans);
        publish(&plans, &rules);
        assert_eq!(plans.changes(), changes + 1, "a compilation, and a change meanwhile: {way}");
    }
}

/// A change during a compilation is not lost.
#[test]
fn changes_during_a_compilation_are_kept() {
    let (plans, rules) = (with_cache(100), of_default());
    plans.publish_book(book(BOOK));
    plans.assign("acme", Some("free"));
    let asked = plans.changes();
    let compiler = plans.compiler();
    let next = "plans: { late: { calls: 7 }, free: { calls: 8 }, pro: { calls: 9 } }";
    let compiled = compiler.compile(Arc::new(book(next)));
    plans.assign("acme", Some("pro"));
    plans.assign("bank", Some("late"));
    plans.assign_fetched("shop", Some("free"), asked);
    assert_eq!(limit_of(&plans, &rules, "acme"), "1000", "the plans before");
    assert_eq!(limit_of(&plans, &rules, "bank"), "100", "not defined yet");
    plans.activate(compiled, None);
    drop(compiler);
    assert_eq!(limit_of(&plans, &rules, "acme"), "9");
    assert_eq!(limit_of(&plans, &rules, "bank"), "7");
    assert_eq!(limit_of(&plans, &rules, "shop"), "unknown", "asked before the changes");
    assert_eq!(last_known(&plans, &rules, "shop"), "8");
}

#[test]
fn plans_may_be_defined_after_their_customers() {
    let (plans, rules) = (with_cache(100), of_default());
    plans.assign("acme", Some("pro"));
    plans.assign("bank", Some("gone"));
    assert_eq!(limit_of(&plans, &rules, "acme"), "own 5", "no plan is defined");
    plans.publish_book(book(BOOK));
    assert_eq!(limit_of(&plans, &rules, "acme"), "1000");
    assert_eq!(limit_of(&plans, &rules, "bank"), "100", "the default");
    // Other numbers of plans.
    plans.publish_book(book("plans: { gone: { calls: 9 }, pro: { calls: 8 } }"));
    assert_eq!(limit_of(&plans, &rules, "acme"), "8");
    assert_eq!(limit_of(&plans, &rules, "bank"), "9");
    plans.publish_book(PlanBook::default());
    assert_eq!(limit_of(&plans, &rules, "acme"), "own 5");
    assert_eq!(plans.status().decided_by_unknown_plan, 3);
}

#[test]
fn names_of_plans_are_bounded() {
    let (plans, rules) = (with_cache(100), of_default());
    plans.publish_book(book(BOOK));
    plans.assign("acme", Some("pro"));
    for name in 0..NAMES_MAX {
        plans.assign("bank", Some(&format!("plan {name}")));
    }
    assert_eq!(limit_of(&plans, &rules, "bank"), "100", "it is not defined");
    assert_eq!(limit_of(&plans, &rules, "acme"), "unknown", "its number was given again");
    plans.assign("acme", Some("pro"));
    assert_eq!(limit_of(&plans, &rules, "acme"), "1000");
}

/// No customer has the plan of another one, and the size is bounded, under any sequence of changes.
#[test]
fn a_full_cache_evicts() {
    let mut rng = Rng::new(7);
    let cache = CustomerCache::new(64);
    let seed = KeySeed::fixed([1, 2]);
    let mut model: HashMap<u64, (Option<u16>, bool)> = HashMap::new();
    let mut hits = 0;
    for round in 0..20_000 {
        let customer = rng.below(200);
        let hash = CustomerHash::of(&seed, &customer.to_string());
        let (plan, is_stale) = (rng.chance(80).then(|| rng.below(9) as u16), rng.chance(10));
        if rng.chance(50) {
            cache.insert(hash, plan, is_stale);
            model.insert(customer, (plan, is_stale));
            let found = cache.find(hash).expect("it was just added");
            assert_eq!((found.plan, found.is_stale), (plan, is_stale));
        } else if rng.chance(1) {
            cache.mark_stale();
            model.values_mut().for_each(|known| known.1 = true);
        } else if let Some(found) = cache.find(hash) {
            hits += 1;
            assert_eq!((found.plan, found.is_stale), model[&customer], "round {round}");
        }
        assert!(cache.len() <= 64, "{}", cache.len());
    }
    assert!(hits > 1000, "{hits} lookups found a customer");
    assert_eq!((cache.len(), cache.is_empty(), cache.bytes()), (64, false, 512));
}

/// A customer that requests name stays, however many others come once.
#[test]
fn a_customer_in_use_is_not_evicted() {
    let cache = CustomerCache::new(8);
    let seed = KeySeed::fixed([1, 2]);
    let hash = |customer: &str| CustomerHash::of(&seed, customer);
    cache.insert(hash("acme"), Some(1), false);
    for other in 0..1000 {
        assert!(cache.find(hash("acme")).is_some(), "{other} others have come");
        cache.insert(hash(&other.to_string()), None, false);
    }
}
