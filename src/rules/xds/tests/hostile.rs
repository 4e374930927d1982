//! Tests of bounds: large, deep and random responses.

use proptest::prelude::*;
use prost::encoding::{WireType, encode_key, encode_varint};

use super::*;
use crate::rules::xds::decode::{BYTES_MAX, DESCRIPTORS_MAX};

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
        values.iter().map(|value| XdsResource { type_url: TYPE_URL, value }).collect();
    let (rules, errors) = before.update("2", &resources, &RuleSet::default(), &Options::default());
    (rules, errors.iter().map(ToString::to_string).collect())
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
    let wide = embedded(3, &empty.repeat(DESCRIPTORS_MAX));
    let replaces = embedded(3, &embedded(3, &embedded(5, &[]).repeat(BYTES_MAX / 3)));
    let resources = vec![Vec::new(); DESCRIPTORS_MAX + 1];
    for values in [vec![wide], vec![replaces], resources] {
        let (rules, errors) = update_bytes(&before, &values);
        assert_eq!(rules.domains, before.domains);
        assert_eq!(
            errors,
            ["xds: more than 1000000 resources and descriptors; the active rules by xDS stay"]
        );
    }
    let (rules, errors) = update_bytes(&before, &[vec![0; BYTES_MAX + 1]]);
    assert_eq!(rules.domains, before.domains);
    assert!(errors[0].contains("more than 64 MiB"), "{errors:#?}");
}

#[test]
fn errors_are_bounded() {
    let descriptors = (0..5_000).map(|n| bad("k", &n.to_string())).collect();
    let configs = [of_domain("a", descriptors)];
    let (_, errors) = updated(&XdsRules::default(), "1", &configs, &Options::default());
    assert_eq!(errors.len(), 1_001);
    assert_eq!(errors[1_000], "xds:a: 4000 more errors are not listed");

    let long = "x".repeat(10_000);
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
        let (rules, _) = update_bytes(&XdsRules::default(), &[bytes]);
        let _ = rule_set(&rules, &Options::default());
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
        let (rules, _) = update_bytes(&XdsRules::default(), &[bytes]);
        let _ = rule_set(&rules, &Options::default());
    }
}
