//! Tests of rules from files, overlays and xDS together, through loads of each.

use std::fs;

use prost::Message;
use tempfile::TempDir;

use super::*;
use crate::proto::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};

const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// Active rules with the files `rules/` and `overlays/` of a folder.
struct Fixture {
    folder: TempDir,
    rules: ActiveRules,
}

impl Fixture {
    /// Loads one rule file and one overlay file.
    fn load(rules: &str, overlays: &str) -> Fixture {
        let folder = TempDir::new().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("rules.yaml"), rules).expect("a file");
        fs::write(path("overlays.yaml"), overlays).expect("a file");
        let mut settings = Settings::for_testing();
        settings.rules.paths = vec![path("rules.yaml")];
        settings.rules.overlay_paths = vec![path("overlays.yaml")];
        let budget = Arc::new(SeriesBudget::new(10));
        let loaded = ActiveRules::load(&settings, budget, SystemClock::new());
        let rules = loaded.unwrap_or_else(|error| panic!("{error:?}"));
        Fixture { folder, rules }
    }

    /// Replaces a file and reloads.
    fn reload(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).expect("a file");
        self.rules.reload(Trigger::FileChange);
    }

    /// Applies a response with these resources.
    fn apply(&self, version: &str, resources: &[RateLimitConfig]) -> Vec<String> {
        let values: Vec<Vec<u8>> = resources.iter().map(Message::encode_to_vec).collect();
        let resource = |value| XdsResource { type_url: TYPE_URL, value };
        let resources: Vec<XdsResource<'_>> =
            values.iter().map(|value| resource(value.as_slice())).collect();
        self.rules.apply_xds(version, &resources)
    }

    /// The active limits, one line each, up to the first comma.
    fn limits(&self) -> Vec<String> {
        let dump = self.rules.snapshot().rules.rlconfig();
        dump.lines().filter_map(|line| line.split(',').next()).map(str::to_owned).collect()
    }
}

/// A rule file with one limit per day.
fn file(domain: &str, requests: u32) -> String {
    format!(
        "domain: {domain}\ndescriptors: [{{ key: k, rate_limit: {{ unit: day, requests_per_unit: \
         {requests} }} }}]\n"
    )
}

/// A resource with one limit per `unit`.
fn per(domain: &str, requests: u32, unit: RateLimitUnit) -> RateLimitConfig {
    let policy = RateLimitPolicy {
        unit: unit.into(),
        requests_per_unit: requests,
        ..RateLimitPolicy::default()
    };
    let descriptor = RateLimitDescriptor {
        key: "k".to_owned(),
        rate_limit: Some(policy),
        ..RateLimitDescriptor::default()
    };
    let (name, domain) = (domain.to_owned(), domain.to_owned());
    RateLimitConfig { name, domain, descriptors: vec![descriptor] }
}

fn per_day(domain: &str, requests: u32) -> RateLimitConfig {
    per(domain, requests, RateLimitUnit::Day)
}

fn assert_ack(reasons: &[String]) {
    assert!(reasons.is_empty(), "{reasons:#?}");
}

#[test]
fn files_and_xds_keep_the_rules_of_each_other() {
    let fixture = Fixture::load(&file("f", 1), "");
    assert_ack(&fixture.apply("1", &[per_day("x", 2)]));
    let line = |domain, requests| format!("{domain}.k: unit=DAY requests_per_unit={requests}");
    assert_eq!(fixture.limits(), [line("f", 1), line("x", 2)]);
    fixture.reload("rules.yaml", &file("f", 3));
    assert_eq!(fixture.limits(), [line("f", 3), line("x", 2)]);
    assert_ack(&fixture.apply("2", &[per_day("x", 4)]));
    assert_eq!(fixture.limits(), [line("f", 3), line("x", 4)]);

    // Wrong files change nothing, and the next response keeps the last good ones.
    fixture.reload("rules.yaml", "domain: [");
    assert!(fixture.rules.last_error().is_some());
    assert_ack(&fixture.apply("3", &[per_day("y", 5)]));
    assert_eq!(fixture.limits(), [line("f", 3), line("y", 5)]);
    assert!(fixture.rules.last_error().is_some(), "the files are still wrong");
    assert_ack(&fixture.apply("4", &[]));
    assert_eq!(fixture.limits(), [line("f", 3)]);
}

#[test]
fn a_domain_of_both_is_an_error_of_the_newcomer() {
    let fixture = Fixture::load(&file("f", 1), "");
    let reasons = fixture.apply("1", &[per_day("f", 2), per_day("x", 2)]);
    let [reason] = &reasons[..] else { panic!("one reason: {reasons:#?}") };
    assert!(reason.starts_with("xds:f: duplicate domain 'f' in config file: the file "));
    assert_eq!(fixture.limits().len(), 2, "x is active");
    assert_eq!(fixture.rules.xds_error().as_deref(), Some(reason));

    fixture.reload("rules.yaml", &file("x", 1));
    let error = fixture.rules.last_error().expect("x is a domain by xDS");
    assert!(error.contains("rules.yaml:1:9: domain `x` is already defined at xds:x"), "{error}");
    assert_eq!(fixture.limits().len(), 2);

    assert_ack(&fixture.apply("2", &[]));
    assert_eq!(fixture.rules.xds_error(), None);
    // The file was not read again, so it is still the error.
    assert!(fixture.rules.last_error().is_some());
    fixture.rules.reload(Trigger::Signal);
    assert_eq!(fixture.rules.last_error(), None);
    assert_eq!(fixture.limits(), ["x.k: unit=DAY requests_per_unit=1"]);
}

#[test]
fn a_wrong_part_is_a_reason_and_the_rest_is_active() {
    let fixture = Fixture::load("domain: f\n", "");
    assert_ack(&fixture.apply("1", &[per_day("a", 1), per_day("b", 2)]));
    let wrong = per("a", 1, RateLimitUnit::Unknown);
    for _ in 0..2 {
        let reasons = fixture.apply("2", &[wrong.clone(), per_day("b", 3)]);
        assert_eq!(reasons, ["xds:a: a.k: invalid rate limit unit 'UNKNOWN'"]);
    }
    let snapshot = fixture.rules.snapshot_owned();
    let places: Vec<String> =
        snapshot.rules.rules().iter().map(|rule| rule.location.to_string()).collect();
    assert_eq!(places, ["xds:a version 1", "xds:b version 2"]);
    assert_eq!(fixture.rules.load_counts(), (2, 2));
}

#[test]
fn overlays_change_rules_by_xds() {
    let overlay = |algorithm: &str| {
        format!(
            "overlays:\n  - {{ domain: x, rule: k, rate_limit: {{ algorithm: {algorithm} }} }}\n"
        )
    };
    let fixture = Fixture::load("domain: f\n", &overlay("token_bucket"));
    let warnings = || fixture.rules.snapshot().warnings.clone();
    let algorithm = || fixture.rules.snapshot().rules.rlconfig();
    assert!(warnings()[0].contains("the overlay matches no limit"), "{:?}", warnings());
    assert_ack(&fixture.apply("1", &[per_day("x", 2)]));
    assert_eq!(warnings(), Vec::<String>::new());
    assert!(algorithm().contains("token_bucket"), "{}", algorithm());
    fixture.reload("overlays.yaml", &overlay("sliding_window"));
    assert!(algorithm().contains("sliding_window"), "{}", algorithm());
    fixture.reload("overlays.yaml", &overlay("sliding"));
    let error = fixture.rules.last_error().expect("an unknown algorithm");
    assert!(error.contains("overlays.yaml:2:52: unknown algorithm `sliding`"), "{error}");
    assert!(algorithm().contains("sliding_window"), "{}", algorithm());
}

/// The control plane does not know the overlays, so it gets no reason.
#[test]
fn an_overlay_that_does_not_fit_is_no_reason() {
    let overlay =
        "overlays: [{ domain: x, rule: k, rate_limit: { algorithm: sliding_window_log } }]\n";
    let fixture = Fixture::load("domain: f\n", overlay);
    assert_ack(&fixture.apply("1", &[per_day("x", 200_000)]));
    assert_eq!(fixture.limits(), ["x.k: unit=DAY requests_per_unit=200000"]);
    let warnings = fixture.rules.snapshot().warnings.clone();
    assert!(warnings[0].contains("the overlay does not fit the limit of `k` at xds:x version 1"));
    assert!(warnings[0].ends_with("; these rules stay without overlays"), "{warnings:?}");
    // A reload of files does not fail because of it.
    fixture.reload("rules.yaml", &file("f", 1));
    assert_eq!(fixture.rules.last_error(), None);
}

#[test]
fn reasons_are_bounded() {
    let lines = |count: usize, length: usize| vec!["x".repeat(length); count];
    assert_eq!(bounded(&lines(3, 10)), lines(3, 10));
    assert_eq!(bounded(&[]), Vec::<String>::new());
    let all = bounded(&lines(5_000, 99));
    assert_eq!(all.len(), 41);
    assert_eq!(all[40], "and 4960 more");
    let long = bounded(&lines(1, 100_000));
    assert_eq!((long.len(), long[0].len()), (1, 1_003));
}
