//! Tests of the format of selectors, and that no two rules share one.

use super::*;

#[test]
fn a_selector_is_written_like_a_descriptor() {
    let limit = "rate_limit: { unit: second, requests_per_unit: 1 }";
    let set = rules(&format!(
        r#"
domain: d
descriptors:
  - {{ key: any, {limit} }}
  - {{ key: exact, value: "v,1=2", {limit} }}
  - {{ key: wild, value: "w*", {limit} }}
  - {{ key: path, value_template: "/a/{{b}}", {limit} }}
  - {{ key: path, value: "template:/a/{{b}}", {limit} }}
  - {{ key: net, value_cidr: 10.0.0.0/8, {limit} }}
  - {{ key: re, value_regex: "a,b", {limit} }}
  - {{ key: a, value: b_c, {limit} }}
  - {{ key: a_b, value: c, {limit} }}
  - {{ key: a, value: "b=c", {limit} }}
  - {{ key: "a=b", value: c, {limit} }}
  - key: top
    value_to_metric: true
    descriptors:
      - {{ key: in, value: "i*", {limit} }}
      - {{ key: det, detailed_metric: true, {limit} }}
"#
    ));
    let mut selectors: Vec<String> = set.rules().iter().map(Rule::selector).collect();
    let expected = [
        "any",
        r"exact=v\,1=2",
        "wild=w*",
        "path=template:/a/{b}",
        r"path=\template:/a/{b}",
        "net=cidr:10.0.0.0/8",
        r"re=regex:a\,b",
        "a=b_c",
        "a_b=c",
        "a=b=c",
        r"a\=b=c",
        "top,in=i*",
        "top,det",
    ];
    assert_eq!(selectors, expected);
    selectors.sort();
    selectors.dedup();
    assert_eq!(selectors.len(), set.rules().len(), "two rules share a selector");
    for (descriptor, detailed) in [
        ("any=1", None),
        ("top=1,in=i7", Some("top=1,in=i*")),
        ("top=1,det=2", Some("top=1,det=2")),
        ("top=,det=template:2", Some(r"top=,det=\template:2")),
    ] {
        let rule = found(&set, descriptor).expect(descriptor);
        assert_eq!(rule.detailed_selector(&entries(descriptor)).as_deref(), detailed);
    }
}
