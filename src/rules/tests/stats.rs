//! Tests of envoyproxy/ratelimit's stat keys.

use super::*;

#[test]
fn stat_keys_equal_those_of_envoy_ratelimit() {
    let limit = "rate_limit: { unit: second, requests_per_unit: 1 }";
    let set = rules(&format!(
        r#"
domain: d
descriptors:
  - {{ key: any, {limit} }}
  - {{ key: anyv, value_to_metric: true, {limit} }}
  - {{ key: exact, value: v, {limit} }}
  - {{ key: wild, value: "w*", {limit} }}
  - {{ key: wildv, value: "w*", value_to_metric: true, {limit} }}
  - {{ key: share, value: "w*", share_threshold: true, value_to_metric: true, {limit} }}
  - {{ key: sharedet, value: "w*", share_threshold: true, detailed_metric: true, {limit} }}
  - {{ key: det, detailed_metric: true, {limit} }}
  - {{ key: tpl, value_template: "/a/{{b}}", {limit} }}
  - key: top
    value_to_metric: true
    detailed_metric: false
    descriptors:
      - {{ key: in, value: "i*", {limit} }}
      - {{ key: indet, value: "i*", detailed_metric: true, {limit} }}
  - key: pat
    value: "p*"
    share_threshold: true
    descriptors:
      - {{ key: leaf, detailed_metric: true, {limit} }}
"#
    ));
    for (descriptor, expected, written) in [
        ("any=1", "any", "any"),
        ("anyv=1", "anyv_1", "anyv"),
        ("anyv=", "anyv", "anyv"),
        ("exact=v", "exact_v", "exact_v"),
        ("wild=w1", "wild_w*", "wild_w*"),
        ("wildv=w1", "wildv_w1", "wildv_w*"),
        ("share=w1", "share_w*", "share_w*"),
        ("sharedet=w1", "sharedet_w*", "sharedet_w*"),
        ("det=1", "det_1", "det"),
        ("det=", "det_", "det"),
        ("tpl=/a/7", "tpl_/a/{b}", "tpl_/a/{b}"),
        ("top=1,in=i1", "top_1.in_i*", "top.in_i*"),
        ("top=,in=i1", "top.in_i*", "top.in_i*"),
        ("top=1,indet=i1", "top_1.indet_i1", "top.indet_i*"),
        ("pat=p1,leaf=2", "pat_p*.leaf_2", "pat_p*.leaf"),
    ] {
        let rule = found(&set, descriptor).expect(descriptor);
        assert_eq!(rule.stat_key(&entries(descriptor)), expected, "{descriptor}");
        assert_eq!(rule.written_stat_key(), written, "{descriptor}");
    }
    assert_eq!(override_stat_key(&entries("a=1,b=,c=3")), "a_1.b_.c_3");
}

#[test]
fn metadata_stays_with_the_rule_whatever_its_stat_key() {
    let set = rules(
        "domain: d\ndescriptors:\n- key: a\n  value_to_metric: true\n  detailed_metric: true\n  \
         metadata: { team: x, nested: { n: 1.5, on: yes, list: [1, 'two'] } }\n  \
         rate_limit: { unit: day, requests_per_unit: 1 }",
    );
    let metadata = found(&set, "a=1").and_then(|rule| rule.metadata.clone()).expect("it is kept");
    let expected = serde_json::json!(
        {"team": "x", "nested": {"n": 1.5, "on": true, "list": [1, "two"]}}
    );
    assert_eq!(serde_json::Value::Object((*metadata).clone()), expected);
}
