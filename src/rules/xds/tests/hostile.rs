//! Tests of bounds: large, deep and random responses.

use proptest::prelude::*;
use prost::encoding::{WireType, encode_key, encode_varint};

use super::*;
use crate::rules::XDS_DESCRIPTORS_PER_LIMIT;

/// The bytes of a field with an embedded message.
fn embedded(field: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(content.len() + 12);
    encode_key(field, WireType::LengthDelimited, &mut bytes);
    encode_varint(content.len() as u64, &mut bytes);
    bytes.extend_from_slice(content);
    bytes
}

fn update_bytes(before: &XdsRules, values: &[Vec<u8>]) -> (XdsRules, Vec<String>) {
    let resources: Vec<XdsResource<'_>> =
        values.iter().map(|value| XdsResource { type_url: XDS_TYPE_URL, value }).collect();
    let update = before.update("2", &resources, &RuleSet::default(), &Options::default());
    rules_and_reasons(update)
}

#[test]
fn deep_descriptors_end_with_an_error() {
    let at = |depth: usize| {
        let mut descriptor = leaf("k", "", 1, RateLimitUnit::Day);
        for _ in 1..depth {
            descriptor = node("k", "", vec![descriptor]);
        }
        of_domain("a", vec![descriptor])
    };
    let (rules, errors) = updated(&XdsRules::default(), "1", &[at(32)], &Options::default());
    assert_eq!((limits(&rules).len(), errors.len()), (1, 0));
    let (rules, errors) = updated(&rules, "2", &[at(33)], &Options::default());
    assert_eq!(limits(&rules).len(), 0);
    assert!(errors[0].ends_with("rules nested more than 32 levels deep"), "{errors:#?}");

    let mut bytes = Vec::new();
    for _ in 0..5_000 {
        bytes = embedded(4, &bytes);
    }
    let (_, errors) = update_bytes(&rules, &[embedded(3, &bytes)]);
    assert!(errors[0].contains("cannot parse invalid wire-format data"), "{errors:#?}");
    assert!(errors[0].len() < 1_000);
}

#[test]
fn too_many_descriptors_change_nothing() {
    let before = accepted(&[of_domain("a", vec![leaf("k", "", 1, RateLimitUnit::Day)])]);
    let empty = embedded(4, &[]);
    let max = Options::default().xds_limits_max * XDS_DESCRIPTORS_PER_LIMIT;
    let wide = embedded(3, &empty.repeat(max));
    let replaces = embedded(3, &embedded(3, &embedded(5, &[]).repeat(max * 8)));
    let resources = vec![Vec::new(); max + 1];
    for values in [vec![wide], vec![replaces], resources] {
        let (rules, errors) = update_bytes(&before, &values);
        assert_eq!(rules.domains, before.domains);
        assert_eq!(
            errors,
            ["xds: more than 600000 resources and descriptors (`rules.xds.max_limits`); the \
                 active rules by xDS stay"]
        );
    }
}

/// A limit needs much more memory than a descriptor without one.
#[test]
fn too_many_limits_change_nothing() {
    let options = Options { xds_limits_max: 3, ..Options::default() };
    let limits_of = |count: u32| {
        let leaves = (0..count).map(|n| leaf("k", &n.to_string(), 1, RateLimitUnit::Day));
        [of_domain("a", vec![node("r", "", leaves.collect())])]
    };
    let (before, errors) = updated(&XdsRules::default(), "1", &limits_of(3), &options);
    assert_eq!((limits(&before).len(), errors.len()), (3, 0), "{errors:#?}");
    let XdsUpdate { rules, problems, kept, dropped } =
        update(&before, "2", &limits_of(4), &options);
    assert_eq!(rules, before);
    assert!(problems[0].what.starts_with("more than 3 limits"), "{problems:#?}");
    assert_eq!((kept, dropped), (1, 0));
}

#[test]
fn long_texts_are_refused_in_short_messages() {
    let long = "x".repeat(8 << 20);
    let wrong: Vec<_> = (0..1_000).map(|n| bad("k", &n.to_string())).collect();
    let with = |policy| vec![with_policy(node("k", "", vec![]), policy)];
    for configs in [
        config(&long, "a", wrong.clone()),
        config("r", &long, wrong.clone()),
        of_domain("a", vec![leaf(&long, "", 1, RateLimitUnit::Day)]),
        of_domain("a", vec![leaf("k", &long, 1, RateLimitUnit::Day)]),
        of_domain("a", with(named(&long, &[]))),
        of_domain("a", with(named("n", &["m", &long]))),
    ] {
        let (rules, errors) = updated(&XdsRules::default(), "1", &[configs], &Options::default());
        assert_eq!(limits(&rules), Vec::<String>::new());
        let [error] = &errors[..] else { panic!("{} errors", errors.len()) };
        assert!(error.contains("of more than 4096 bytes"), "{error:.300}");
        assert!(error.len() < 1_000, "{}", error.len());
    }
    let valid = [of_domain("a", vec![leaf("k", "", 1, RateLimitUnit::Day)])];
    let (rules, errors) = updated(&XdsRules::default(), &long, &valid, &Options::default());
    assert_eq!(rules, XdsRules::default());
    assert_eq!(errors, ["xds: a version of more than 4096 bytes; the active rules by xDS stay"]);

    // Messages show the start of texts within the bound.
    let (name, version) = (&long[..4_096], &long[..4_096]);
    let siblings = leaf("k", "", 1, RateLimitUnit::Day);
    let configs = [config(name, "a", [wrong, vec![siblings.clone(), siblings]].concat())];
    let (rules, errors) = updated(&XdsRules::default(), version, &configs, &Options::default());
    assert!(errors.iter().all(|error| error.len() < 300), "{}", errors[0].len());
    let (set, warnings) = rule_set(&rules, &Options::default());
    assert!(warnings[0].len() < 500, "{}", warnings[0].len());
    assert!(set.rules()[0].location.to_string().len() < 500);
}

/// Comparing every sibling with all bytes of the others would take hours.
#[test]
fn many_equal_siblings_are_merged() {
    let replaces = vec![RateLimitReplace { name: "m".to_owned() }; 100_000];
    let large = RateLimitPolicy { replaces, ..named("n", &[]) };
    let one = with_policy(node("k", "", vec![]), named("n", &[]));
    let mut siblings = vec![with_policy(one.clone(), large)];
    siblings.resize(30_000, one);
    let rules = accepted(&[of_domain("a", siblings)]);
    assert_eq!(limits(&rules), ["a.k 1/DAY"]);
    // Many resources of one domain.
    let configs: Vec<_> = (0..30_000)
        .map(|n| config(&format!("r{n}"), "a", vec![node("k", &n.to_string(), vec![])]))
        .collect();
    let (rules, errors) = updated(&XdsRules::default(), "1", &configs, &merge_domains());
    assert_eq!(errors.len(), 0);
    let (set, _) = rule_set(&rules, &merge_domains());
    assert_eq!(set.files().len(), 30_000);
}

#[test]
fn errors_are_bounded() {
    let descriptors = (0..5_000).map(|n| bad("k", &n.to_string())).collect();
    let configs = [of_domain("a", descriptors)];
    let (_, errors) = updated(&XdsRules::default(), "1", &configs, &Options::default());
    assert_eq!(errors.len(), 1_001);
    assert_eq!(errors[1_000], "xds:a: 4000 more errors are not listed");

    let long = "x".repeat(4_000);
    let mut descriptor = bad(&long, &long);
    for _ in 1..32 {
        descriptor = node(&long, &long, vec![descriptor]);
    }
    let configs = [config("r", &long, vec![descriptor])];
    let (_, errors) = updated(&XdsRules::default(), "1", &configs, &Options::default());
    assert!(errors[0].len() < 1_500, "{}", errors[0].len());
}

proptest! {
    #[test]
    fn any_bytes_are_rules_or_reasons(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (rules, reasons) = update_bytes(&XdsRules::default(), &[bytes]);
        let (set, _) = rule_set(&rules, &Options::default());
        prop_assert!(!reasons.is_empty() || !set.files().is_empty());
    }

    /// Valid resources with a few changed bytes.
    #[test]
    fn changed_bytes_are_rules_or_reasons(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let below = vec![leaf("l", "v*", 3, RateLimitUnit::Week)];
        let flags = with_policy(node("k", "v", below), named("n", &["m"]));
        let mut bytes = of_domain("a", vec![flags]).encode_to_vec();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        let (rules, reasons) = update_bytes(&XdsRules::default(), &[bytes]);
        let (set, _) = rule_set(&rules, &Options::default());
        prop_assert!(!reasons.is_empty() || !set.files().is_empty());
    }
}
