//! Tests of rules with calendar windows: what they mean, show and identify.

use super::*;
use crate::limit::{Calendar, Period, Tier, WindowStart, Zone};
use crate::rules::RuleSources;

/// A domain with a rule per `window`.
fn with_windows(windows: &[&str]) -> RuleSet {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for (number, window) in windows.iter().enumerate() {
        text +=
            &format!("  - {{ key: k{number}, rate_limit: {{ requests: 7, window: {window} }} }}\n");
    }
    rules(&text)
}

fn only_tier(rule: &Rule) -> Tier {
    match &rule.limit {
        RuleLimit::Limit(limit) if limit.tiers.len() == 1 => limit.tiers[0],
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_window_is_read_with_its_defaults() {
    let zurich = Zone::named("Europe/Zurich").expect("a zone");
    let first = WindowStart::FIRST;
    let table = [
        ("{ calendar: month }", Period::Month, Zone::UTC, first),
        ("{ calendar: DAY, zone: europe/zurich }", Period::Day, zurich, first),
        ("{ calendar: week, zone: ~, starts: ~ }", Period::Week, Zone::UTC, first),
        ("{ calendar: quarter, starts: {} }", Period::Quarter, Zone::UTC, first),
        (
            "{ calendar: month, zone: Europe/Zurich, starts: { day: 15, hour: 6 } }",
            Period::Month,
            zurich,
            WindowStart { day: 15, hour: 6, ..first },
        ),
        (
            "{ calendar: week, starts: { weekday: Sunday } }",
            Period::Week,
            Zone::UTC,
            WindowStart { weekday: 7, ..first },
        ),
        (
            "{ starts: { month: 4, day: 6 }, calendar: year }",
            Period::Year,
            Zone::UTC,
            WindowStart { month: 4, day: 6, ..first },
        ),
        (
            "{ calendar: quarter, starts: { month: 3, day: 31, hour: 23 } }",
            Period::Quarter,
            Zone::UTC,
            WindowStart { month: 3, day: 31, hour: 23, ..first },
        ),
    ];
    let set = with_windows(&table.map(|(window, ..)| window));
    for (rule, (window, period, zone, starts)) in set.rules().iter().zip(table) {
        let expected = Tier::by_calendar(7, Calendar { period, zone, starts });
        assert_eq!(only_tier(rule), expected, "{window}");
    }
}

#[test]
fn a_calendar_may_be_written_in_blocks_and_tiers() {
    let set = rules(
        "
domain: d
descriptors:
  - key: user
    rate_limit:
      mode: leased
      tiers:
        - requests: 1000
          window:
            calendar: month
            zone: America/New_York
            starts:
              day: 15
        - { requests: 50, window: 1m }
",
    );
    let explained = set.explain("d", &entries("user=ann")).to_string();
    let expected = "\
limit   fixed_window
        1000 per calendar month from day 15 in America/New_York
        50 per 1m
        leased: credits are drawn from the store ahead
";
    assert!(explained.contains(expected), "{explained}");
    assert_eq!(
        set.rlconfig(),
        "d.user: unit=MONTH requests_per_unit=1000, shadow_mode: false, quota_mode: false, \
         algorithm: fixed_window, tiers: [1000 per calendar month from day 15 in \
         America/New_York, 50 per 1m], count_denied: false, mode: leased\n"
    );
}

/// Windows with the same length are other windows, so their counters are others too.
#[test]
fn every_part_of_a_calendar_is_part_of_the_identity() {
    let windows = [
        "30d",
        "{ calendar: month }",
        "{ calendar: month, zone: Europe/Zurich }",
        "{ calendar: month, zone: Europe/Vaduz }",
        "{ calendar: month, starts: { day: 2 } }",
        "{ calendar: month, starts: { hour: 1 } }",
        "{ calendar: week }",
        "{ calendar: week, starts: { weekday: tuesday } }",
        "{ calendar: year, starts: { month: 2 } }",
        "{ calendar: year }",
        "365d",
    ];
    let id = |window: &str, requests: u64| {
        let text = format!(
            "domain: d\ndescriptors: [{{ key: k, rate_limit: {{ requests: {requests}, window: \
             {window} }} }}]\n"
        );
        rules(&text).rules()[0].id
    };
    for (index, window) in windows.iter().enumerate() {
        assert_eq!(id(window, 1), id(window, 2), "{window}");
        for other in &windows[index + 1..] {
            assert_ne!(id(window, 1), id(other, 1), "{window} {other}");
        }
    }
    assert_eq!(
        id("{ calendar: month }", 1),
        id("{ calendar: month, zone: utc, starts: { day: 1, hour: 0 } }", 1),
        "the defaults"
    );
}

const RULES: &str = "\
domain: d
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 10 }
  - key: org
    rate_limit: { requests: 5, window: { calendar: month } }
";

fn overlaid(overlays: &str) -> Result<(RuleSet, Vec<RuleProblem>), Vec<RuleProblem>> {
    let of = |name: &str, text: &str| {
        let mut files = RuleFiles::default();
        files.files.push(file(name, text));
        files
    };
    let (files, overlays) = (of("r.yaml", RULES), of("o.yaml", overlays));
    RuleSources { files, overlays, ..RuleSources::default() }.compile(&Options::default())
}

#[test]
fn overlays_set_and_replace_calendars() {
    let item = |rule: &str, limit: &str| {
        format!("overlays: [{{ domain: d, rule: '{rule}', rate_limit: {limit} }}]\n")
    };
    let by_day = "{ tiers: [{ requests: 3, window: { calendar: day, zone: Asia/Tokyo } }] }";
    let (set, _) = overlaid(&item("user", by_day)).expect("valid");
    let dump = set.rlconfig();
    assert!(dump.contains("tiers: [3 per calendar day in Asia/Tokyo]"), "{dump}");
    let (set, _) = overlaid(&item("org", "{ tiers: [{ requests: 3, window: 1h }] }")).expect("ok");
    assert_eq!(only_tier(&set.rules()[1]).calendar, None);
    let (set, _) = overlaid(&item("org", "{ mode: synced }")).expect("valid");
    assert!(only_tier(&set.rules()[1]).calendar.is_some(), "other fields stay");
    for (text, expected) in [
        (item("org", "{ window: { calendar: day } }"), "an overlay cannot set `window`"),
        (item("org", "{ algorithm: leaky_bucket }"), "leaky_bucket cannot follow the calendar"),
        // One error, and not one per rule.
        (
            item("**", "{ tiers: [{ requests: 3, window: { calendar: day, zone: Tokio } }] }"),
            "o.yaml:1:105: unknown time zone `Tokio`; did you mean `Asia/Tokyo`?",
        ),
    ] {
        let problems = overlaid(&text).expect_err(&text);
        assert_eq!(problems.len(), 1, "{problems:#?}");
        assert!(problems[0].to_string().contains(expected), "{problems:#?}");
    }
}

/// A search for similar names is long, so it ends with the list of errors.
#[test]
fn unknown_zones_are_suggested_for_listed_errors_only() {
    let item =
        "  - { key: k, rate_limit: { requests: 1, window: { calendar: day, zone: Zurich } } }\n";
    let text = format!("domain: d\ndescriptors:\n{}", item.repeat(1_500));
    let problems = compiled(&text, &Options::default()).expect_err("unknown zones");
    let hints = problems.iter().filter(|one| one.hint == "did you mean `Europe/Zurich`?").count();
    assert!(hints > 0 && hints <= 1_000, "{hints}");
    assert!(problems.iter().all(|one| !one.hint.contains("IANA")), "listed with a suggestion");
}
