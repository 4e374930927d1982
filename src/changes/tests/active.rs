//! Which change applies to a descriptor.

use super::*;
use crate::descriptor::Entry;

/// The effect on the descriptor `text` of domain `d` at `now`.
fn effect(active: &ActiveChanges, rules: &RuleSet, text: &str, now: Micros) -> String {
    let pairs = pairs(text);
    match active.of(found(rules, text), "d", &change::entries(&pairs), now) {
        None => "none".to_owned(),
        Some(AppliedChange::Block { until }) => {
            format!("block {}", until.saturating_sub(now).ceil_secs())
        }
        Some(AppliedChange::Bypass) => "bypass".to_owned(),
        Some(AppliedChange::Limit(numbers)) => format!("limit {}", numbers[0].requests),
    }
}

#[test]
fn the_nearest_change_applies() {
    let (block, bypass) = (ChangeAction::Block, ChangeAction::Bypass);
    let rules = rules();
    // (changes, descriptor, effect)
    type Row<'a> = (&'a [(&'a str, ChangeAction)], &'a str, &'a str);
    let table: &[Row<'_>] = &[
        (&[], "user=ann", "none"),
        (&[("user", limit(&[3]))], "user=ann", "limit 3"),
        (&[("per-user", limit(&[3]))], "user=ann", "limit 3"),
        (&[("user", limit(&[3]))], "path=x", "none"),
        (&[("user", limit(&[3])), ("user=ann", limit(&[4]))], "user=ann", "limit 4"),
        (&[("user", limit(&[3])), ("user=ann", limit(&[4]))], "user=bob", "limit 3"),
        (&[("user", block.clone()), ("user=ann", limit(&[4]))], "user=ann", "block 60"),
        (&[("user", block.clone()), ("user=ann", bypass.clone())], "user=ann", "bypass"),
        (&[("user", bypass.clone()), ("user=ann", block.clone())], "user=ann", "block 60"),
        (&[("user", bypass.clone()), ("user", block.clone())], "user=ann", "block 60"),
        (&[("user", bypass.clone()), ("user", limit(&[3]))], "user=ann", "bypass"),
        (&[("user=ann", block.clone())], "user=anna", "none"),
        (&[("user=ann", block.clone())], "user=ann,x=1", "none"),
        (&[("x=1,y=2", block.clone())], "x=1,y=2", "block 60"),
        (&[("x=1,y=2", block.clone())], "y=2,x=1", "none"),
        (&[("user=root", block.clone())], "user=root", "block 60"),
        (&[("twice", block.clone())], "b=1", "block 60"),
    ];
    for (changes, descriptor, expected) in table {
        let changes = changes.iter().map(|(target, action)| change(target, action.clone()));
        let changes: Vec<TemporaryChange> = changes.collect();
        for changes in [changes.clone(), changes.into_iter().rev().collect()] {
            let active = ActiveChanges::compile(changes.clone(), &rules);
            assert_eq!(effect(&active, &rules, descriptor, NOW), *expected, "{changes:?}");
        }
    }
}

#[test]
fn a_change_ends_at_its_instant() {
    let rules = rules();
    for action in [ChangeAction::Block, ChangeAction::Bypass, limit(&[3])] {
        let one = change("user", action);
        let until = one.until;
        let active = ActiveChanges::compile(vec![one.clone()], &rules);
        let before = Micros(until.0 - 1);
        assert_ne!(effect(&active, &rules, "user=ann", before), "none");
        assert_eq!(effect(&active, &rules, "user=ann", until), "none");
        let counts = |now| ChangeAction::NAMES.map(|name| active.count(name, now));
        assert_eq!((counts(before).iter().sum::<usize>(), counts(until)), (1, [0; 3]));
        let entries = [Entry { key: "user", value: "ann" }];
        let rule = found(&rules, "user=ann");
        assert_eq!(active.concerning(rule, "d", &entries, before).count(), 1);
        assert_eq!(active.concerning(rule, "d", &entries, until).count(), 0);
    }
}

/// Of two changes with one place, as two instances may make at the same time, the later one applies.
#[test]
fn the_later_of_two_changes_applies() {
    let rules = rules();
    let early = change("user", limit(&[1]));
    let late = TemporaryChange { made_at: Micros(NOW.0 + 1), ..change("user", limit(&[2])) };
    for changes in [vec![early.clone(), late.clone()], vec![late, early]] {
        let active = ActiveChanges::compile(changes, &rules);
        assert_eq!(effect(&active, &rules, "user=ann", NOW), "limit 2");
    }
}

/// A rule keeps its change over a reload that leaves its windows, also before the changes are compiled
/// again.
#[test]
fn a_change_stays_with_its_rule() {
    let active = ActiveChanges::compile(vec![change("per-user", limit(&[3]))], &rules());
    let more =
        format!("{RULES}  - {{ key: z, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}");
    let moved = more.replace("requests_per_unit: 10 }", "requests_per_unit: 11 }");
    let later = compiled(&moved);
    assert_eq!(effect(&active, &later, "user=ann", NOW), "limit 3");
    assert_eq!(effect(&active, &later, "z=1", NOW), "none");
    let other = compiled(&RULES.replace("name: per-user, unit: minute", "name: n, unit: hour"));
    assert_eq!(effect(&active, &other, "user=ann", NOW), "none", "the window is another one");
}

#[test]
fn a_change_without_effect_has_a_problem() {
    let rules = rules();
    let elsewhere = TemporaryChange { domain: "e".to_owned(), ..change("user", limit(&[1])) };
    let table = [
        (change("user", limit(&[1])), None),
        (change("user=ann", limit(&[1])), None),
        (change("nothing=x", ChangeAction::Block), None),
        (change("user=root", ChangeAction::Block), None),
        (change("missing", limit(&[1])), Some("no rule of its domain")),
        (elsewhere, Some("neither a file nor xDS")),
        (change("nothing=x", limit(&[1])), Some("no rule limits this descriptor")),
        (change("user=root", limit(&[1])), Some("the rule is unlimited")),
        (change("path", limit(&[1])), Some("the rule has 2")),
        (change("user", limit(&[u64::MAX])), Some("too many")),
    ];
    for (one, problem) in table {
        let active = ActiveChanges::compile(vec![one.clone()], &rules);
        let [listed] = active.list() else { panic!("one change") };
        match (&listed.problem, problem) {
            (None, None) => {}
            (Some(text), Some(words)) => assert!(text.contains(words), "{text}"),
            other => panic!("{other:?}: {one:?}"),
        }
    }
    let active = ActiveChanges::compile(vec![change("user", limit(&[1]))], &rules);
    assert_eq!(active.list()[0].rule.as_ref().map(|rule| &*rule.name), Some("per-user"));
}

/// The numbers that do not fit leave those of the rule.
#[test]
fn a_bucket_keeps_its_burst() {
    let rules = rules();
    let rule = found(&rules, "tokens=x").expect("a rule");
    let crate::rules::RuleLimit::Limit(own) = &rule.limit else { panic!("a limit") };
    let numbers = |requests, burst| [TierNumbers { requests, burst }];
    let changed = own.with_numbers(&numbers(20, None)).expect("they fit");
    assert_eq!((changed.tiers[0].requests, changed.tiers[0].burst), (20, 40));
    let changed = own.with_numbers(&numbers(20, Some(5))).expect("they fit");
    assert_eq!(changed.tiers[0].burst, 5);
    assert_eq!(changed.tiers[0].window, own.tiers[0].window);
}
