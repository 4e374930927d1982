//! Tests of single responses and of their sequences: what is accepted, and what stays.

use super::*;
use crate::rules::RuleDocument;
use RateLimitUnit::{Day, Hour, Minute, Second};

/// Every row of the table of envoyproxy/ratelimit. The text is searched in the reasons; an empty one
/// means that the response is accepted.
#[test]
fn reasons_contain_the_words_of_envoy_ratelimit() {
    let limited = |policy| vec![with_policy(node("k", "v", Vec::new()), policy)];
    let any_unit = |unit| RateLimitPolicy { unit, ..policy(1, Day) };
    let unlimited_day = RateLimitPolicy { unlimited: true, ..policy(0, Day) };
    for (configs, expected) in [
        (vec![of_domain("a", vec![leaf("k", "v", 1, Day)])], ""),
        (vec![], ""),
        (vec![of_domain("a", vec![])], ""),
        (vec![of_domain("a", vec![leaf("k", "v", 1, Day), leaf("k", "v", 2, Day)])], ""),
        (vec![of_domain("a", limited(unlimited()))], ""),
        (vec![of_domain("a", limited(named("one", &["unknown"])))], ""),
        (
            vec![of_domain("b", limited(any_unit(0)))],
            "xds:b: b.k_v: invalid rate limit unit 'UNKNOWN'",
        ),
        (vec![of_domain("a", limited(any_unit(99)))], "xds:a: a.k_v: invalid rate limit unit '99'"),
        (vec![of_domain("a", limited(any_unit(-1)))], "xds:a: a.k_v: invalid rate limit unit '-1'"),
        (
            vec![of_domain("a", limited(unlimited_day))],
            "xds:a: a.k_v: should not specify rate limit unit when unlimited",
        ),
        (
            vec![of_domain("a", limited(named("one", &[""])))],
            "xds:a: a.k_v: should not have an empty replaces entry",
        ),
        (
            vec![of_domain("a", limited(named("one", &["one"])))],
            "xds:a: a.k_v: replaces should not contain name of same descriptor",
        ),
        (
            vec![of_domain("a", vec![node("", "v", vec![])])],
            "xds:a: a._v: descriptor has empty key",
        ),
        (vec![config("x", "", vec![])], "xds:x: config file cannot have empty domain"),
        (
            vec![config("a1", "a", vec![]), config("a2", "a", vec![])],
            "xds:a2: duplicate domain 'a' in config file",
        ),
        (
            vec![of_domain("a", vec![leaf("k*", "v", 1, Day)])],
            "xds:a: a.k*_v: `key` cannot contain a `*`: `k*`",
        ),
    ] {
        let (_, errors) = updated(&XdsRules::default(), "1", &configs, &Options::default());
        assert_eq!(errors.join("\n"), expected);
    }
}

#[test]
fn another_type_and_undecodable_bytes_are_reasons() {
    let update = |type_url, value: &[u8]| {
        let resource = XdsResource { type_url, value };
        let before = XdsRules::default();
        let update = before.update("1", &[resource], &RuleSet::default(), &Options::default());
        update.problems.iter().map(ToString::to_string).collect::<String>()
    };
    let errors = update("type.googleapis.com/envoy.config.cluster.v3.Cluster", b"");
    assert!(errors.starts_with("xds: mismatched message type: got \"type.goog"), "{errors}");
    let errors = update(XDS_TYPE_URL, b"\xff\xff");
    assert!(errors.starts_with("xds: cannot parse invalid wire-format data"), "{errors}");
}

#[test]
fn all_reasons_are_reported_at_once() {
    let configs = [
        of_domain("a", vec![bad("k", "1"), node("k", "2", vec![bad("l", ""), bad("m", "")])]),
        of_domain("b", vec![with_policy(node("k", "", vec![bad("n", "")]), policy(1, Day))]),
        config("c", "", vec![]),
    ];
    let (rules, errors) = updated(&XdsRules::default(), "1", &configs, &Options::default());
    assert_eq!(
        errors,
        [
            "xds:a: a.k_1: invalid rate limit unit 'UNKNOWN'",
            "xds:a: a.k_2.l: invalid rate limit unit 'UNKNOWN'",
            "xds:a: a.k_2.m: invalid rate limit unit 'UNKNOWN'",
            "xds:b: b.k.n: invalid rate limit unit 'UNKNOWN'",
            "xds:c: config file cannot have empty domain",
        ]
    );
    assert_eq!(limits(&rules), ["b.k 1/DAY"], "the valid part is active");
}

#[test]
fn a_wrong_part_keeps_its_previous_version() {
    let before = accepted(&[
        of_domain("a", vec![node("r", "1", vec![leaf("x", "", 1, Day), leaf("y", "", 2, Day)])]),
        of_domain("b", vec![leaf("k", "", 3, Day)]),
    ]);
    let next = [
        of_domain("a", vec![node("r", "1", vec![bad("x", ""), bad("new", "")])]),
        of_domain("b", vec![leaf("k", "", 4, Day)]),
    ];
    let (rules, errors) = updated(&before, "2", &next, &Options::default());
    assert_eq!(errors.len(), 2, "{errors:#?}");
    assert_eq!(limits(&rules), ["a.r_1.x 1/DAY", "b.k 4/DAY"]);
    let (set, _) = rule_set(&rules, &Options::default());
    let places: Vec<String> = set.rules().iter().map(|rule| rule.location.to_string()).collect();
    assert_eq!(places, ["xds:a version 1", "xds:b version 2"]);

    // The error stays, and so does the part, also after more versions.
    let (rules, _) = updated(&rules, "3", &next, &Options::default());
    assert_eq!(limits(&rules), ["a.r_1.x 1/DAY", "b.k 4/DAY"]);
    // A removed part is gone.
    let (rules, errors) = updated(&rules, "4", &next[1..], &Options::default());
    assert_eq!((limits(&rules), errors.len()), (vec!["b.k 4/DAY".to_owned()], 0));
    let (rules, _) = updated(&rules, "5", &[], &Options::default());
    assert_eq!(rules, XdsRules::default());
}

#[test]
fn an_error_above_keeps_everything_below() {
    let before = accepted(&[of_domain("a", vec![node("r", "", vec![leaf("x", "", 1, Day)])])]);
    let below = vec![leaf("x", "", 9, Day)];
    let broken = with_policy(node("r", "", below), RateLimitPolicy::default());
    let (rules, _) = updated(&before, "2", &[of_domain("a", vec![broken])], &Options::default());
    assert_eq!(limits(&rules), ["a.r.x 1/DAY"]);
}

#[test]
fn unreadable_resources_keep_absent_domains() {
    let before = accepted(&[of_domain("a", vec![leaf("k", "", 1, Day)]), of_domain("b", vec![])]);
    let of_b = of_domain("b", vec![leaf("k", "", 2, Day)]).encode_to_vec();
    for (type_url, value) in [(XDS_TYPE_URL, &b"\xff\xff"[..]), ("other", &b""[..])] {
        let resources =
            [XdsResource { type_url, value }, XdsResource { type_url: XDS_TYPE_URL, value: &of_b }];
        let update = before.update("2", &resources, &RuleSet::default(), &Options::default());
        assert_eq!((update.kept, update.dropped), (1, 0));
        let (rules, errors) = rules_and_reasons(update);
        assert_eq!((limits(&rules).len(), errors.len()), (2, 1), "{errors:#?}");
    }
}

#[test]
fn a_domain_belongs_to_the_first_resource() {
    let one = |name: &str, requests| config(name, "a", vec![leaf("k", "", requests, Day)]);
    for configs in [[one("r1", 1), one("r2", 2)], [one("r2", 2), one("r1", 1)]] {
        let (rules, errors) = updated(&XdsRules::default(), "1", &configs, &Options::default());
        assert_eq!(limits(&rules), ["a.k 1/DAY"], "the first in byte order");
        assert_eq!(errors, ["xds:r2: duplicate domain 'a' in config file"]);
        // Whatever was active before.
        let before = accepted(&[one("r2", 3)]);
        let (rules, errors) = updated(&before, "2", &configs, &Options::default());
        assert_eq!(limits(&rules), ["a.k 1/DAY"]);
        assert_eq!(errors, ["xds:r2: duplicate domain 'a' in config file"]);
    }
    // A name that loses its new domain keeps its old one.
    let before = accepted(&[one("r1", 3), config("r2", "b", vec![leaf("k", "", 5, Day)])]);
    let next = [one("r1", 1), one("r2", 2)];
    let (rules, _) = updated(&before, "2", &next, &Options::default());
    assert_eq!(limits(&rules), ["a.k 1/DAY", "b.k 5/DAY"]);
}

#[test]
fn a_domain_of_a_file_is_a_reason() {
    let file = SourceFile { name: "f.yaml".into(), text: "domain: a\n".to_owned() };
    let (active, _) = compile(&[file], &Options::default()).expect("valid");
    let before = accepted(&[config("r", "b", vec![leaf("k", "", 1, Day)])]);
    let value = config("r", "a", vec![leaf("k", "", 2, Day)]).encode_to_vec();
    let other = of_domain("c", vec![leaf("k", "", 3, Day)]).encode_to_vec();
    let resources = [&value, &other].map(|value| XdsResource { type_url: XDS_TYPE_URL, value });
    for merge_domains in [false, true] {
        let options = Options { merge_domains, ..Options::default() };
        let (rules, errors) = rules_and_reasons(before.update("2", &resources, &active, &options));
        assert_eq!(errors.len(), 1);
        assert_eq!(
            errors[0],
            "xds:r: duplicate domain 'a' in config file: the file f.yaml defines it"
        );
        // `a` is active as soon as the file is gone.
        assert_eq!(limits(&rules), ["a.k 2/DAY", "b.k 1/DAY", "c.k 3/DAY"]);
    }
}

#[test]
fn resources_of_one_domain_can_be_merged() {
    let configs = [
        config("r2", "a", vec![leaf("k", "", 1, Minute), leaf("l", "", 1, Day)]),
        config("r1", "a", vec![leaf("k", "", 1, Hour), leaf("m", "", 1, Second)]),
    ];
    let options = Options { merge_domains: true, ..Options::default() };
    let (rules, errors) = updated(&XdsRules::default(), "1", &configs, &options);
    assert!(errors.is_empty(), "{errors:#?}");
    assert_eq!(limits(&rules), ["a.k 1/HOUR", "a.m 1/SECOND", "a.l 1/DAY"]);
    let (set, warnings) = rule_set(&rules, &options);
    let sources: Vec<_> = set.files().iter().map(|one| (&*one.path, one.rules)).collect();
    assert_eq!(sources, [("xds:r1", 2), ("xds:r2", 1)]);
    assert_eq!(
        warnings,
        ["xds:r1: a.k: duplicate descriptor composite key 'a.k'; the 2 descriptors are merged, \
          with the strictest limit"]
    );
}

#[test]
fn sources_and_rules_show_their_version() {
    let (set, _) = rule_set(
        &accepted(&[of_domain("default/eg/http", vec![leaf("k", "", 1, Day)])]),
        &Options::default(),
    );
    let info = RuleDocument {
        path: "xds:default/eg/http".into(),
        domain: "default/eg/http".into(),
        rules: 1,
        version: Some("1".into()),
    };
    assert_eq!(set.files(), [info]);
    let entry = crate::descriptor::Entry { key: "k", value: "x" };
    let text = set.explain("default/eg/http", &[entry]).to_string();
    assert!(text.contains("rule    k (xds:default/eg/http version 1)"), "{text}");
}
