//! The sums of a report, for recordings of a few calls whose decisions are known.

use super::{options, rules};
use crate::replay::*;

/// 2026-03-01T12:00:00Z, the start of an hour.
const START: u64 = 1_772_366_400_000_000;

/// Two hits a minute for each user.
const OLD: &str = "
domain: d
descriptors:
  - { key: user, rate_limit: { name: per-user, unit: minute, requests_per_unit: 2 } }
  - { key: job, rate_limit: { algorithm: concurrency, max: 1, hold: 10s } }
";

/// One hit a minute for ann, four for the others, and two jobs.
const NEW: &str = "
domain: d
descriptors:
  - { key: user, rate_limit: { name: per-user, unit: minute, requests_per_unit: 4 } }
  - { key: user, value: ann, rate_limit: { name: ann, unit: minute, requests_per_unit: 1 } }
  - { key: job, rate_limit: { algorithm: concurrency, max: 2, hold: 10s } }
";

/// A line of a call after `seconds`, with further fields of the descriptor.
fn line(seconds: u64, key: &str, value: &str, more: &str) -> String {
    let at = START + seconds * 1_000_000;
    let descriptor = format!(r#"{{"entries":[["{key}","{value}"]]{more}}}"#);
    format!(r#"{{"at":{at},"domain":"d","hits":0,"descriptors":[{descriptor}]}}"#)
}

/// The call of a user.
fn user(seconds: u64, name: &str, hits: u64) -> String {
    line(seconds, "user", name, &format!(",\"hits\":{hits}"))
}

fn report(lines: &[String], options: &ReplayOptions) -> ReplayReport {
    let text = lines.join("\n");
    replay(text.as_bytes(), &rules(&[OLD]), &rules(&[NEW]), options).expect("memory has no errors")
}

#[test]
fn denials_are_summed_by_rule_and_by_descriptor() {
    let lines = [
        user(0, "ann", 1), // passes, passes
        user(1, "ann", 1), // passes, denied
        user(2, "ann", 5), // denied, denied
        user(3, "bob", 2), // passes, passes
        user(4, "bob", 2), // denied, passes
        user(5, "bob", 2), // denied, denied
        user(6, "eve", 3), // denied, passes
        user(7, "zoe", 0), // a peek
    ];
    let report = report(&lines, &options());
    let difference =
        |more, fewer, more_hits, fewer_hits| Difference { more, fewer, more_hits, fewer_hits };
    assert_eq!(
        report.calls,
        CallTotals {
            replayed: 8,
            hits: 16,
            denied_by_old: 4,
            denied_by_new: 3,
            denied_by_both: 2,
            denied_hits_by_old: 12,
            denied_hits_by_new: 8,
            difference: difference(1, 2, 1, 5),
        },
        "{report}"
    );
    assert_eq!((report.first_at, report.last_at), (Some(START), Some(START + 7_000_000)));
    let totals = |descriptors, hits, denied, denied_hits| RuleTotals {
        descriptors,
        hits,
        denied,
        denied_hits,
    };
    let per_user = RuleReport {
        domain: "d".to_owned(),
        rule: "per-user".to_owned(),
        difference: difference(0, 2, 0, 5),
        old: totals(8, 16, 4, 12),
        new: totals(5, 9, 1, 2),
    };
    let ann = RuleReport {
        rule: "ann".to_owned(),
        difference: difference(1, 0, 1, 0),
        old: totals(0, 0, 0, 0),
        new: totals(3, 7, 2, 6),
        ..per_user.clone()
    };
    assert_eq!(report.rules, [per_user, ann], "{report}");
    let descriptors: Vec<(&str, Difference)> =
        report.descriptors.iter().map(|one| (&*one.descriptor, one.difference)).collect();
    assert_eq!(
        descriptors,
        [
            ("user=ann", difference(1, 0, 1, 0)),
            ("user=bob", difference(0, 1, 0, 2)),
            ("user=eve", difference(0, 1, 0, 3)),
        ]
    );
}

/// A call is denied if one of its descriptors is. A descriptor counts for its own rule only.
#[test]
fn a_call_counts_once() {
    let entries = |value: &str| format!(r#"{{"entries":[["user","{value}"]]}}"#);
    let descriptors = format!("{},{},{}", entries("ann"), entries("bob"), entries("ann"));
    let line = format!(r#"{{"at":{START},"domain":"d","descriptors":[{descriptors}]}}"#);
    let report = report(&[line], &options());
    assert_eq!((report.calls.replayed, report.calls.hits), (1, 3));
    assert_eq!((report.calls.denied_by_old, report.calls.denied_by_new), (0, 1));
    assert_eq!(report.calls.denied_hits_by_new, 3);
    let ann = report.rules.iter().find(|rule| rule.rule == "ann").expect("it decided");
    assert_eq!((ann.new.descriptors, ann.new.denied), (2, 1));
}

/// The recorded id of a lease stands for the lease that the replay opened.
#[test]
fn recorded_leases_are_closed() {
    let id = "00000000000000aa";
    let opened = format!(r#","lease":"{id}","code":"OK""#);
    let job = |seconds, more: &str| line(seconds, "job", "x", more);
    let close = |seconds| {
        line(seconds, "job", "x", "").replace("]]}", &format!(r#"],["lease","{id}"]]}}"#))
    };
    let lines = [
        job(0, &opened),
        job(1, r#","code":"OVER_LIMIT""#), // the new rules open a lease that the recording lacks
        close(2),
        job(3, r#","lease":"00000000000000bb""#),
        job(4, ""), // the new rules still count the second call
    ];
    let report = report(&lines, &options());
    assert_eq!((report.lines.bad, report.calls.replayed), (0, 5), "{report}");
    assert_eq!((report.calls.denied_by_old, report.calls.denied_by_new), (2, 1), "{report}");
    assert_eq!(report.recorded.descriptors_different, 0, "{report}");
    let without_end = |counters: CounterTotals| counters.leases_without_end;
    assert_eq!([report.old_counters, report.new_counters].map(without_end), [0, 1], "{report}");
}

/// The old rules are compared with what was recorded.
#[test]
fn other_recorded_codes_are_counted() {
    let coded = |seconds, name: &str, code: &str| {
        let line = line(seconds, "user", name, &format!(r#","code":"{code}""#));
        format!(r#"{},"code":"{code}"}}"#, &line[..line.len() - 1])
    };
    let lines = [
        coded(0, "bob", "OK"),
        coded(1, "bob", "OVER_LIMIT"), // the old rules pass it
        coded(2, "bob", "OK"),         // the old rules deny it
        coded(3, "bob", "OVER_LIMIT"),
        user(4, "bob", 1), // without a code
    ];
    let report = report(&lines, &options());
    let expected = RecordedTotals {
        calls: 4,
        denied_by_old_only: 1,
        denied_in_recording_only: 1,
        descriptors: 4,
        descriptors_different: 2,
    };
    assert_eq!(report.recorded, expected, "{report}");
}

#[test]
fn options_bound_the_report() {
    let mut lines: Vec<String> =
        (0..30).map(|index| user(index, &format!("u{index}"), 3)).collect();
    lines.push(line(40, "user", "x", "").replace("\"d\"", "\"other\""));
    lines.push(line(50, "other", "x", ""));
    let all = report(&lines, &options());
    assert_eq!((all.descriptors_tracked, all.descriptors.len()), (30, 20));
    assert_eq!(all.rules.len(), 2, "per-user, and no rule: {all}");
    let of_domain = ReplayOptions { domain: Some("d".to_owned()), top: 1, ..options() };
    let few = report(&lines, &of_domain);
    assert_eq!((few.calls.replayed, few.lines.other_domains), (31, 1));
    assert_eq!((few.rules.len(), few.rules_used, few.descriptors.len()), (1, 2, 1));
    let none = report(&lines, &ReplayOptions { top: 0, ..options() });
    assert!(none.rules.is_empty() && none.descriptors.is_empty());
    assert_eq!(none.calls, all.calls);
}

/// More counters than have room are evicted, and the report says so.
#[test]
fn evicted_counters_are_reported() {
    let lines: Vec<String> = (0..200).map(|index| user(1, &format!("u{index}"), 1)).collect();
    let report = report(&lines, &ReplayOptions { max_counters: 50, ..options() });
    assert!(report.old_counters.evicted >= 150, "{report}");
    assert!(report.to_string().contains("raise store.max_counters"), "{report}");
}

/// The limit of a request is decided by both rule sets alike, if both have its domain.
#[test]
fn sent_limits_have_a_row() {
    let sent = r#","limit":{"requests_per_unit":1,"unit":"hour"}"#;
    let lines = [line(0, "any", "x", sent), line(1, "any", "x", sent)];
    let report = report(&lines, &options());
    let [row] = &report.rules[..] else { panic!("{report}") };
    assert_eq!((&*row.domain, &*row.rule), ("", "limit of the request"));
    assert_eq!((row.old.denied, row.new.denied), (1, 1));
    assert_eq!(report.calls.denied_by_both, 1);
}
