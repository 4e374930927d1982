//! Tests of resources that cannot be used: what stays of them, and of their domains.

use super::*;
use RateLimitUnit::Hour;

/// A resource that breaks off after its name and its domain.
fn damaged(name: &str, domain: &str) -> Vec<u8> {
    let mut bytes = config(name, domain, vec![]).encode_to_vec();
    bytes.extend_from_slice(b"\x1a\x7f");
    bytes
}

fn of(name: &str, domain: &str, key: &str, requests: u32) -> RateLimitConfig {
    config(name, domain, vec![leaf(key, "", requests, Hour)])
}

fn after(before: &XdsRules, resources: &[(&str, Vec<u8>)], options: &Options) -> XdsUpdate {
    let resources: Vec<XdsResource<'_>> =
        resources.iter().map(|(type_url, value)| XdsResource { type_url, value }).collect();
    before.update("2", &resources, &RuleSet::default(), options)
}

#[test]
fn a_merged_domain_keeps_its_lost_resources() {
    let options = merge_domains();
    let all = [of("r1", "a", "k", 10), of("r2", "a", "l", 5)];
    let (before, _) = updated(&XdsRules::default(), "1", &all, &options);
    for (type_url, r1) in [
        (XDS_TYPE_URL, damaged("r1", "a")),
        (XDS_TYPE_URL, b"\xff\xff".to_vec()),
        (XDS_TYPE_URL, of("r1", "", "k", 1).encode_to_vec()),
        ("other", Vec::new()),
    ] {
        let mut rules = before.clone();
        for requests in [6, 7] {
            let r2 = of("r2", "a", "l", requests).encode_to_vec();
            let update = after(&rules, &[(type_url, r1.clone()), (XDS_TYPE_URL, r2)], &options);
            assert_eq!((update.kept, update.dropped), (1, 0), "{type_url} {r1:?}");
            rules = update.rules;
            let expected = ["a.k 10/HOUR".to_owned(), format!("a.l {requests}/HOUR")];
            assert_eq!(limits(&rules), expected, "{type_url} {r1:?}");
            let (set, _) = rule_set(&rules, &options);
            let names: Vec<&str> = set.files().iter().map(|one| &*one.path).collect();
            assert_eq!(names, ["xds:r1", "xds:r2"]);
        }
        // A removed resource is gone.
        let (rules, _) = updated(&rules, "3", &all[1..], &options);
        assert_eq!(limits(&rules), ["a.l 5/HOUR"]);
    }
}

/// Of a limit that both resources have, the stricter one stays while its resource is lost.
#[test]
fn a_lost_limit_stays_if_it_is_stricter() {
    let options = merge_domains();
    for (lost, valid, expected) in [(4, 5, "a.k 4/HOUR"), (6, 5, "a.k 5/HOUR")] {
        let all = [of("r1", "a", "k", lost), of("r2", "a", "k", 9)];
        let (before, _) = updated(&XdsRules::default(), "1", &all, &options);
        let r2 = of("r2", "a", "k", valid).encode_to_vec();
        let update =
            after(&before, &[(XDS_TYPE_URL, damaged("r1", "a")), (XDS_TYPE_URL, r2)], &options);
        assert_eq!(limits(&update.rules), [expected]);
    }
}

/// A resource whose name can be read keeps only its own domain. Others can be removed meanwhile.
#[test]
fn a_damaged_resource_keeps_its_domain_only() {
    let before = accepted(&[of("r1", "a", "k", 1), of("r2", "b", "k", 2), of("r3", "c", "k", 3)]);
    // r1 by its name, and r2's domain under another name.
    let resources = [(XDS_TYPE_URL, damaged("r1", "x")), (XDS_TYPE_URL, damaged("r9", "b"))];
    let update = after(&before, &resources, &Options::default());
    assert_eq!(limits(&update.rules), ["a.k 1/HOUR", "b.k 2/HOUR"]);
    assert_eq!((update.kept, update.dropped), (2, 1));
    let (_, errors) = rules_and_reasons(update);
    assert_eq!(errors.len(), 2, "{errors:#?}");
    assert!(errors[0].starts_with("xds:r1: cannot parse invalid wire-format"), "{errors:#?}");
}

#[test]
fn equal_rules_of_another_version_are_equal() {
    let configs = [of("r1", "a", "k", 1)];
    let (one, _) = updated(&XdsRules::default(), "1", &configs, &Options::default());
    let (same, _) = updated(&one, "2", &configs, &Options::default());
    assert_eq!(one, same);
    let (other, _) = updated(&one, "2", &[of("r2", "a", "k", 1)], &Options::default());
    assert_ne!(one, other);
}
