//! Tests of rules from files, overlays and xDS together, through loads of each.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use prost::Message;
use tempfile::TempDir;

use super::*;
use crate::proto::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};
use crate::rules::XDS_TYPE_URL;

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
        settings.xds.server = Some("127.0.0.1:1".to_owned());
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
        let resource = |value| XdsResource { type_url: XDS_TYPE_URL, value };
        let resources: Vec<XdsResource<'_>> =
            values.iter().map(|value| resource(value.as_slice())).collect();
        self.rules.apply_xds(version, &resources).reasons
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
fn a_domain_of_a_file_is_not_taken_by_xds() {
    let fixture = Fixture::load(&file("f", 1), "");
    let line = |domain, requests| format!("{domain}.k: unit=DAY requests_per_unit={requests}");
    let reasons = fixture.apply("1", &[per_day("f", 2), per_day("x", 2)]);
    let [reason] = &reasons[..] else { panic!("one reason: {reasons:#?}") };
    assert!(reason.starts_with("xds:f: duplicate domain 'f' in config file: the file "));
    assert_eq!(fixture.limits(), [line("f", 1), line("x", 2)], "x is active");
    assert_eq!(fixture.rules.xds_error().as_deref(), Some(reason));

    // The file leaves `f`.
    fixture.reload("rules.yaml", "domain: g\n");
    assert_eq!(fixture.limits(), [line("f", 2), line("x", 2)]);
    assert_ack(&fixture.apply("2", &[]));
    assert_eq!(fixture.rules.xds_error(), None);
    assert_eq!(fixture.limits(), Vec::<String>::new());
}

/// The response in which xDS gives up the last of the domains activates the files too: no request in between
/// passes without a rule.
#[test]
fn a_domain_of_xds_is_not_taken_by_a_file() {
    let fixture = Fixture::load(&file("f", 1), "");
    let line = |domain, requests| format!("{domain}.k: unit=DAY requests_per_unit={requests}");
    assert_ack(&fixture.apply("1", &[per_day("x", 2), per_day("y", 2)]));
    let both = file("f", 3) + "---\n" + &file("x", 3);
    for trigger in [Trigger::FileChange, Trigger::Signal] {
        fs::write(fixture.folder.path().join("rules.yaml"), &both).expect("a file");
        fixture.rules.reload(trigger);
        let error = fixture.rules.last_error().expect("an error");
        let what = "rules.yaml: the resource xds:x defines domain 'x' too; remove the domain from \
                    the file, or from the control plane";
        assert!(error.ends_with(what), "{error}");
        assert_eq!(fixture.limits(), [line("f", 1), line("x", 2), line("y", 2)]);
    }
    assert_ack(&fixture.apply("2", &[per_day("x", 4)]));
    fixture.rules.reload(Trigger::FileChange);
    assert_eq!(fixture.limits(), [line("f", 1), line("x", 4)], "still a domain of xDS");

    let before = fixture.rules.load_counts();
    assert_ack(&fixture.apply("3", &[per_day("y", 2)]));
    assert_eq!(fixture.limits(), [line("f", 3), line("x", 3), line("y", 2)]);
    assert_eq!(fixture.rules.last_error(), None);
    let (ok, failed) = fixture.rules.load_counts();
    assert_eq!((ok, failed), (before.0 + 2, before.1), "the response and the files");
    // They are the active files now, and keep the domain.
    assert_eq!(fixture.apply("4", &[per_day("x", 5)]).len(), 1);
    assert_eq!(fixture.limits(), [line("f", 3), line("x", 3)]);
    fixture.reload("rules.yaml", &file("f", 6));
    assert_eq!(fixture.limits(), [line("f", 6), line("x", 5)]);
}

/// The error names the domains that are in the way now.
#[test]
fn refused_files_wait_for_all_their_domains() {
    let fixture = Fixture::load("domain: f\n", "");
    assert_ack(&fixture.apply("1", &[per_day("x", 1), per_day("y", 1)]));
    fixture.reload("rules.yaml", &(file("x", 2) + "---\n" + &file("y", 2)));
    let domains = || -> Vec<bool> {
        let error = fixture.rules.last_error().expect("an error");
        ["'x'", "'y'"].map(|domain| error.contains(domain)).to_vec()
    };
    assert_eq!(domains(), [true, true]);
    assert_ack(&fixture.apply("2", &[per_day("y", 1)]));
    assert_eq!(domains(), [false, true]);
    assert_eq!(fixture.limits(), ["y.k: unit=DAY requests_per_unit=1"]);
    assert_ack(&fixture.apply("3", &[per_day("x", 1)]));
    assert_eq!(domains(), [true, false]);
    assert_ack(&fixture.apply("4", &[]));
    assert_eq!(fixture.limits().len(), 2);
}

/// Only the last attempt counts: the operator has undone it, or broken it.
#[test]
fn files_after_refused_ones_replace_them() {
    for (next, is_valid) in [(file("f", 1), true), ("domain: [".to_owned(), false)] {
        let fixture = Fixture::load(&file("f", 1), "");
        assert_ack(&fixture.apply("1", &[per_day("x", 1)]));
        fixture.reload("rules.yaml", &file("x", 2));
        fixture.reload("rules.yaml", &next);
        assert_ack(&fixture.apply("2", &[]));
        assert_eq!(fixture.limits(), ["f.k: unit=DAY requests_per_unit=1"], "{next}");
        assert_eq!(fixture.rules.last_error().is_none(), is_valid, "{next}");
    }
}

/// A file and a resource change places at the same time.
#[test]
fn a_file_and_xds_can_exchange_their_domains() {
    let fixture = Fixture::load(&file("f", 1), "");
    assert_ack(&fixture.apply("1", &[per_day("x", 2)]));
    fixture.reload("rules.yaml", &file("x", 3));
    assert_eq!(fixture.apply("2", &[per_day("f", 4)]).len(), 1, "the file still has f");
    let line = |domain, requests| format!("{domain}.k: unit=DAY requests_per_unit={requests}");
    assert_eq!(fixture.limits(), [line("x", 3), line("f", 4)]);
    assert_ack(&fixture.apply("2", &[per_day("f", 4)]));
    assert_eq!(fixture.rules.last_error(), None);
}

/// Rules by xDS must not become active without the overlays that change them.
#[test]
fn wrong_files_prevent_a_start_with_xds() {
    let folder = TempDir::new().expect("a temporary folder");
    let overlays = folder.path().join("overlays.yaml");
    fs::write(&overlays, "overlays: [").expect("a file");
    let mut settings = Settings::for_testing();
    settings.rules.paths = Vec::new();
    settings.rules.overlay_paths = vec![overlays];
    settings.rules.start_without_rules = true;
    let load = |settings: &Settings| {
        ActiveRules::load(settings, Arc::new(SeriesBudget::new(10)), SystemClock::new())
    };
    assert!(load(&settings).is_ok());
    settings.xds.server = Some("127.0.0.1:1".to_owned());
    assert!(matches!(load(&settings), Err(StartError::Config(_))));
}

/// A subscriber of log lines that panics.
struct Defect;

impl tracing::Subscriber for Defect {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        panic!("a defect");
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_response_is_applied_again_after_a_panic() {
    let fixture = Fixture::load("domain: f\n", "");
    assert_ack(&fixture.apply("1", &[per_day("x", 1)]));
    // Its warning is a log line.
    let mut siblings = per_day("x", 2);
    siblings.descriptors.extend(siblings.descriptors.clone());
    let apply = || fixture.apply("2", &[siblings.clone()]);
    let panicking = || tracing::subscriber::with_default(Defect, apply);
    assert!(catch_unwind(AssertUnwindSafe(panicking)).is_err());
    assert_eq!(fixture.limits(), ["x.k: unit=DAY requests_per_unit=1"]);
    assert_ack(&apply());
    assert_eq!(fixture.limits(), ["x.k: unit=DAY requests_per_unit=2"]);
}

#[test]
fn files_that_hang_do_not_delay_rules_by_xds() {
    let fixture = Fixture::load("domain: f\n", "");
    let _hanging = fixture.rules.reading.lock();
    assert_ack(&fixture.apply("1", &[per_day("x", 1)]));
    assert_eq!(fixture.limits().len(), 1);
}

#[test]
fn a_request_does_not_free_rules() {
    let fixture = Fixture::load("domain: f\n", "");
    assert_ack(&fixture.apply("1", &[per_day("x", 1)]));
    let request = fixture.rules.snapshot();
    let old = Arc::downgrade(&request);
    assert_ack(&fixture.apply("2", &[per_day("x", 2)]));
    fixture.rules.free_retired();
    assert_eq!(request.rules.rules().len(), 1);
    drop(request);
    assert!(old.upgrade().is_some(), "the end of a request frees nothing");
    fixture.rules.free_retired();
    assert!(old.upgrade().is_none());
}

#[test]
fn equal_rules_of_another_version_change_nothing() {
    let fixture = Fixture::load("domain: f\n", "");
    assert_ack(&fixture.apply("1", &[per_day("x", 1)]));
    let before = fixture.rules.snapshot_owned();
    assert_ack(&fixture.apply("2", &[per_day("x", 1)]));
    assert!(Arc::ptr_eq(&before, &fixture.rules.snapshot_owned()));
}

#[test]
fn active_rules_are_kept_as_resources() {
    let fixture = Fixture::load("domain: f\n", "");
    assert_ack(&fixture.apply("1", &[per_day("a", 1), per_day("b", 2)]));
    let wrong = per("a", 9, RateLimitUnit::Unknown);
    assert_eq!(fixture.apply("2", &[wrong, per_day("b", 3)]).len(), 1);
    let values = fixture.rules.xds_resources();
    let decode = |value: &Vec<u8>| RateLimitConfig::decode(&**value).expect("a resource");
    let resources: Vec<RateLimitConfig> = values.iter().map(decode).collect();
    assert_eq!(resources, [per_day("a", 1), per_day("b", 3)]);
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
    assert!(warnings[0].contains("the overlay does not fit the limit of `k` at xds:x: "));
    assert!(warnings[0].ends_with("; these rules stay without overlays"), "{warnings:?}");
    // It stays the same with the next version, so that it is logged once.
    assert_ack(&fixture.apply("2", &[per_day("x", 200_000), per_day("y", 1)]));
    assert_eq!(fixture.rules.snapshot().warnings, warnings);
    // A reload of files does not fail because of it.
    fixture.reload("rules.yaml", &file("f", 1));
    assert_eq!(fixture.rules.last_error(), None);
}

/// The name of a resource is in each reason.
#[test]
fn reasons_against_a_long_name_are_short() {
    let fixture = Fixture::load("domain: f\n", "");
    let wrong = per("x", 1, RateLimitUnit::Unknown).descriptors;
    let descriptors =
        (0..1_000).map(|n| RateLimitDescriptor { value: n.to_string(), ..wrong[0].clone() });
    let (name, domain) = ("x".repeat(4_000), "x".to_owned());
    let resource = RateLimitConfig { name, domain, descriptors: descriptors.collect() };
    let reasons = fixture.apply("1", &[resource]);
    assert!(reasons.iter().map(String::len).sum::<usize>() < 5_000);
    assert!(fixture.rules.xds_error().is_some_and(|error| error.len() < 5_000));
}
