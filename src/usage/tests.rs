//! Tests of names from the hit that records them to the page that reads them.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::*;
use crate::key::KeySeed;
use crate::rules::{Found, Options, RuleLimit, RuleSet, SourceFile, compile};
use crate::testing::lock;
use crate::time::ManualClock;

mod fake_names;

use fake_names::FakeNames;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { requests: 10, window: 1h, usage: true }
  - key: org
    rate_limit: { requests: 10, window: 1h, usage: true }
";

const NOW: Micros = Micros::from_secs(1_785_000_000);

/// Half of the time for which a name of [`RULES`] is kept: an hour and an eighth.
const LIFETIME: Micros = Micros::from_secs(3_600 + 450);

const SEED: KeySeed = KeySeed::fixed([1, 2]);

fn rules() -> RuleSet {
    let file = SourceFile { name: "test.yaml".into(), text: RULES.to_owned() };
    let compiled = compile(&[file], &Options::default());
    compiled.unwrap_or_else(|problems| panic!("{problems:#?}")).0
}

/// The rule of an entry with this key.
fn rule<'r>(rules: &'r RuleSet, key: &str) -> &'r Rule {
    match rules.find("d", &[Entry { key, value: "" }]) {
        Found::Rule(rule) => rule,
        _ => panic!("no rule for {key}"),
    }
}

/// Records a hit of `value`, and returns its counter.
fn hit(names: &UsageNames, rule: &Rule, value: &str, now: Micros) -> CounterKey {
    let RuleLimit::Limit(limit) = &rule.limit else { panic!("the rule has a limit") };
    let key = rule.counted_labels()[0].key;
    let entries = [Entry { key, value }];
    let counter = rule.key(&SEED, &entries);
    names.record(rule, limit, &counter, &entries, now);
    counter
}

fn users(number: usize) -> impl Iterator<Item = String> {
    (0..number).map(|number| format!("user-{number}"))
}

/// The values that a reader finds, with the number of commands that it may send per page. Fails if a name
/// is found twice.
async fn read_all(store: &FakeNames, rule: &Rule, reads: usize, wanted: usize) -> BTreeSet<String> {
    let (mut all, mut position) = (BTreeSet::new(), Some(NamePosition::START));
    while let Some(from) = position {
        let before = store.reads.load(Ordering::Relaxed);
        let mut reader = NameReader::new(store, rule.id, from, (wanted, reads), NOW);
        while let Some(names) = reader.next().await.expect("the store answers") {
            for name in names {
                let texts = name.counter_texts().expect("texts");
                assert!(!texts.is_cut && all.insert(texts.texts[0].clone()), "{texts:?}");
            }
        }
        assert!(store.reads.load(Ordering::Relaxed) - before <= reads);
        position = reader.position();
    }
    all
}

#[test]
fn memory_has_the_names_of_each_rule() {
    let (names, rules) = (UsageNames::in_memory(100_000), rules());
    let [user, org] = ["user", "org"].map(|key| rule(&rules, key));
    for value in users(5_000) {
        hit(&names, user, &value, NOW);
    }
    hit(&names, org, "acme", NOW);
    let mut found = BTreeSet::new();
    let parts = (0..).map_while(|number| names.keys_of(user.id, number));
    for key in parts.flatten() {
        found.insert(names.texts(&key).expect("texts").texts[0].clone());
    }
    assert_eq!(found, users(5_000).collect());
    let of_org: Vec<CounterKey> =
        (0..).map_while(|number| names.keys_of(org.id, number)).flatten().collect();
    assert_eq!(of_org, [org.key(&SEED, &[Entry { key: "org", value: "acme" }])]);
    let part = names.keys_of(org.id, names.part_of(&of_org[0]));
    assert_eq!(part, Some(of_org));
    assert_eq!(names.snapshot(), UsageSnapshot { names: 5_001, evicted: 0, writes: None });
}

#[tokio::test]
async fn pages_of_any_size_have_all_names() {
    let (names, store, rules) = (UsageNames::shared(1_000_000), FakeNames::default(), rules());
    let [user, org] = ["user", "org"].map(|key| rule(&rules, key));
    // Some commands read a whole set, and some do not.
    let many = 20_000;
    for (number, value) in users(many).enumerate() {
        hit(&names, user, &value, NOW.saturating_add(Micros(number as u64)));
    }
    hit(&names, org, "acme", NOW);
    while names.write_round(&store, NOW).await {}
    let writes = names.snapshot().writes.expect("they go to the store");
    assert_eq!((writes.queued, writes.written, writes.errors), (0, many as u64 + 1, 0));
    for (reads, wanted) in [(1_000, 1_000), (1, 1_000), (7, 3), (300, 1), (128, 40)] {
        let all = read_all(&store, user, reads, wanted).await;
        assert_eq!(all.len(), many, "{reads} commands, {wanted} names");
    }
    assert_eq!(read_all(&store, org, 300, 100).await, ["acme".to_owned()].into());
}

/// An empty rule needs one command per set, and not one round trip per set.
#[tokio::test]
async fn small_sets_are_read_together() {
    let (store, rules) = (FakeNames::default(), rules());
    let user = rule(&rules, "user");
    let mut reader = NameReader::new(&store, user.id, NamePosition::START, (100, 1_000), NOW);
    let mut batches = 0;
    while reader.next().await.expect("the store answers").is_some() {
        batches += 1;
    }
    assert_eq!(store.reads.load(Ordering::Relaxed), 128);
    assert!(batches <= 12, "{batches}");
    assert_eq!(reader.position(), None);
}

/// Members of another program hide no name, also if there are more of them than a command reads, and the
/// listing ends.
#[tokio::test]
async fn other_members_are_counted() {
    let (names, store, rules) = (UsageNames::shared(1_000_000), FakeNames::default(), rules());
    let user = rule(&rules, "user");
    for (number, value) in users(5_000).enumerate() {
        hit(&names, user, &value, NOW.saturating_add(Micros(number as u64)));
    }
    while names.write_round(&store, NOW).await {}
    let until = NOW.0 + 2 * LIFETIME.0;
    let others = (0..90).map(|number| Micros(until + 50 * number)).chain([Micros(u64::MAX); 250]);
    lock(&store.others).extend(others);
    assert_eq!(read_all(&store, user, 1_000, 100).await.len(), 5_000);
    let mut reader = NameReader::new(&store, user.id, NamePosition::START, (100, 1_000), NOW);
    while reader.next().await.expect("the store answers").is_some() {}
    assert_eq!(reader.position(), None);
    // Of the last ones, a set has more than one command reads.
    let unreadable = reader.unreadable();
    assert!((128 * 91..=128 * (90 + 250)).contains(&unreadable), "{unreadable}");
}

/// A name of another set, and one whose texts are none, are no names.
#[tokio::test]
async fn foreign_names_are_left_out() {
    let (store, rules) = (FakeNames::default(), rules());
    let user = rule(&rules, "user");
    let name = |key: [u64; 2], texts: &[u8]| StoredName {
        key: CounterKey(key),
        until: NOW.saturating_add(Micros::SECOND),
        texts: texts.into(),
    };
    let texts = b"=\0\x01a";
    let names = [name([1, 1], texts), name([2, 2], b"junk"), name([u64::MAX, 3], texts)];
    let set = NameSet { rule: user.id, number: 0 };
    store.write(set, &names, NOW, 1_000).await.expect("written");
    let mut reader = NameReader::new(&store, user.id, NamePosition::START, (100, 200), NOW);
    let mut found = Vec::new();
    while let Some(names) = reader.next().await.expect("the store answers") {
        found.extend(names);
    }
    assert_eq!(found, names[..1]);
    assert_eq!((reader.unreadable(), reader.position()), (2, None));
}

/// Of more names of one instant than a command reads, some are not found. The listing ends.
#[tokio::test]
async fn names_of_one_instant_end() {
    let (store, rules) = (FakeNames::default(), rules());
    let user = rule(&rules, "user");
    let name = |number: u64, until: u64| StoredName {
        key: CounterKey([number, number]),
        until: NOW.saturating_add(Micros(until)),
        texts: Box::from(&b"=\0\x01a"[..]),
    };
    let names: Vec<StoredName> = (0..300).map(|number| name(number, 5)).collect();
    let set = NameSet { rule: user.id, number: 0 };
    store.write(set, &names, NOW, 1_000).await.expect("written");
    store.write(set, &[name(999, 6)], NOW, 1_000).await.expect("written");
    let mut reader = NameReader::new(&store, user.id, NamePosition::START, (1, 200), NOW);
    let mut keys = BTreeSet::new();
    while let Some(names) = reader.next().await.expect("the store answers") {
        keys.extend(names.iter().map(|name| name.key.0[0]));
    }
    assert_eq!(reader.position(), None);
    assert_eq!(keys.len(), 101, "those of one command, and the last one: {keys:?}");
    assert!(keys.contains(&999));
}

#[tokio::test]
async fn a_name_is_written_once_in_a_lifetime() {
    let (names, store, rules) = (UsageNames::shared(1_000), FakeNames::default(), rules());
    let user = rule(&rules, "user");
    let written = || names.snapshot().writes.expect("they go to the store").written;
    let later = |length: Micros| NOW.saturating_add(length);
    for (now, expected) in [
        (NOW, 1),
        (later(Micros(1)), 1),
        (later(LIFETIME), 1),
        (later(LIFETIME.saturating_add(Micros::SECOND)), 2),
        (later(Micros(2 * LIFETIME.0)), 2),
    ] {
        hit(&names, user, "ann", now);
        names.write_round(&store, now).await;
        assert_eq!(written(), expected, "{now:?}");
    }
    let end = NOW.0 + 3 * LIFETIME.0 + 1_000_000;
    assert_eq!(store.names().len(), 1, "it was renewed");
    assert_eq!(store.names()[0].until, Micros(end));
}

#[tokio::test]
async fn names_that_cannot_be_written_wait() {
    let (names, store, rules) = (UsageNames::shared(1_000_000), FakeNames::default(), rules());
    let user = rule(&rules, "user");
    store.fails.store(true, Ordering::Relaxed);
    for value in users(500) {
        hit(&names, user, &value, NOW);
    }
    assert!(!names.write_round(&store, NOW).await, "no further round before a pause");
    let writes = names.snapshot().writes.expect("they go to the store");
    assert_eq!((writes.queued, writes.written, writes.dropped), (500, 0, 0));
    assert!(writes.errors > 0);
    store.fails.store(false, Ordering::Relaxed);
    names.write_round(&store, NOW).await;
    assert_eq!(read_all(&store, user, 300, 100).await.len(), 500);
}

/// A name without room in the queue is recorded again by the next hit.
#[tokio::test]
async fn a_dropped_name_comes_again() {
    let (names, store, rules) = (UsageNames::shared(1_000_000), FakeNames::default(), rules());
    let user = rule(&rules, "user");
    let room = 65_536;
    for value in users(room + 10) {
        hit(&names, user, &value, NOW);
    }
    let dropped = || names.snapshot().writes.expect("they go to the store").dropped;
    assert_eq!(dropped(), 10);
    while names.write_round(&store, NOW).await {}
    for value in users(room + 10) {
        hit(&names, user, &value, NOW);
    }
    while names.write_round(&store, NOW).await {}
    assert_eq!((dropped(), store.names().len()), (10, room + 10));
}

/// A rule has at most `usage.max_names` names in the store: those with the longest time.
#[tokio::test]
async fn a_rule_has_a_bounded_number_of_names() {
    let (names, store, rules) = (UsageNames::shared(1_280), FakeNames::default(), rules());
    let user = rule(&rules, "user");
    for (number, value) in users(20_000).enumerate() {
        hit(&names, user, &value, NOW.saturating_add(Micros(number as u64)));
    }
    while names.write_round(&store, NOW).await {}
    let kept = store.names();
    assert!((1_000..=1_280).contains(&kept.len()), "{}", kept.len());
    let newest = kept.iter().map(|name| name.until).max();
    assert_eq!(newest, Some(Micros(NOW.0 + 2 * LIFETIME.0 + 19_999)));
}

#[tokio::test(start_paused = true)]
async fn the_writer_writes_the_rest_at_its_end() {
    let (names, store, rules) = (UsageNames::shared(1_000_000), FakeNames::default(), rules());
    let user = rule(&rules, "user");
    let clock = ManualClock::at(NOW);
    hit(&names, user, "first", NOW);
    let stop = async {
        // After the second round.
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        assert_eq!(store.names().len(), 1);
        for value in users(12_000) {
            hit(&names, user, &value, NOW);
        }
    };
    names.run_writer(&store, &clock, stop).await;
    assert_eq!(store.names().len(), 12_001);
}
