//! Tests of equivalent YAML forms.

use super::*;

#[test]
fn equal_yaml_in_other_forms_is_the_same_rules() {
    let plain = "domain: d\ndescriptors:\n- key: a\n  value: b\n  rate_limit:\n    unit: day\n    \
                 requests_per_unit: 1\n";
    let expected = rules(plain).rlconfig();
    for text in [
        plain.replace('\n', "\r\n"),
        format!("\u{feff}{plain}"),
        format!("%YAML 1.1\n---\n{plain}...\n"),
        format!("---\n---\n{plain}---\n# nothing\n"),
        "{domain: d, descriptors: [{key: a, value: b, rate_limit: {unit: DAY, \
         requests_per_unit: 0x1}}]}"
            .to_owned(),
        "{\"domain\":\"d\",\"descriptors\":[{\"key\":\"a\",\"value\":\"b\",\"rate_limit\":\
         {\"unit\":\"day\",\"requests_per_unit\":1}}]}"
            .to_owned(),
        "domain: !!str d\ndescriptors:\n- key: >-\n    a\n  value: 'b'\n  rate_limit: &r {<<: \
         [{unit: day}, {unit: hour, requests_per_unit: 1}]}\n"
            .to_owned(),
    ] {
        assert_eq!(rules(&text).rlconfig(), expected, "{text}");
    }
}

#[test]
fn a_value_is_its_source_text() {
    let limit = "rate_limit: { unit: day, requests_per_unit: 1 }";
    for (written, value) in [
        ("1.5", "1.5"),
        ("1.50", "1.50"),
        ("007", "007"),
        ("0x10", "0x10"),
        ("true", "true"),
        ("Yes", "Yes"),
        ("2026-01-01", "2026-01-01"),
        ("'~'", "~"),
        ("!!str null", "null"),
        ("\"a b\"", "a b"),
        ("é", "é"),
    ] {
        let text = format!("domain: d\ndescriptors: [{{ key: k, value: {written}, {limit} }}]");
        let set = rules(&text);
        assert!(found(&set, &format!("k={value}")).is_some(), "{written}");
        assert!(found(&set, "k=other").is_none(), "{written}");
    }
    for any in ["~", "null", "\"\"", ""] {
        let text = format!("domain: d\ndescriptors:\n- key: k\n  value: {any}\n  {limit}");
        assert!(found(&rules(&text), "k=other").is_some(), "{any}");
    }
}

#[test]
fn positions_count_chars_and_point_to_anchors() {
    let text = r"
domain: d
descriptors:
- {key: é, valu: 1}
- key: a
  rate_limit: &bad {unit: x, requests_per_unit: 1}
- key: b
  rate_limit: *bad
";
    let errors = compiled(text, &Options::default()).expect_err("three things are wrong");
    let locations: Vec<_> =
        errors.iter().map(|error| (error.location.line, error.location.column)).collect();
    assert_eq!(locations, [(4, 12), (6, 27), (6, 27)], "{errors:#?}");
}
