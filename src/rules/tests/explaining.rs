//! Tests of explanations of hits and misses.

use super::*;

const FILE: &str = r#"
domain: d
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: minute, requests_per_unit: 3 }
  - key: path
    value: /a
    descriptors:
      - key: ip
        value_cidr: 10.0.0.0/8
        rate_limit: { name: office, algorithm: token_bucket, requests: 5, window: 10s, burst: 9 }
  - key: path
    value_regex: "/b.*"
  - key: path
    value: "/*"
    descriptors:
      - key: ip
        rate_limit: { name: other, unit: hour, requests_per_unit: 1 }
  - key: org
    value_template: /o/{org}/{id}
    count_by: [org]
    shadow_mode: true
    rate_limit: { unit: day, requests_per_unit: 2 }
  - key: free
    rate_limit: { unlimited: true }
"#;

#[track_caller]
fn check(domain: &str, descriptor: &str, expected: &str) {
    let text = rules(FILE).explain(domain, &entries(descriptor)).to_string();
    assert_eq!(text.trim_end(), expected.trim(), "{descriptor}");
}

#[test]
fn a_match_shows_its_path_rule_and_counter() {
    check(
        "d",
        "path=/a,ip=10.1.2.3",
        "
domain d
  path=/a
    yes: `path` with value `/a` (test.yaml:6:5)
  ip=10.1.2.3
    yes: `ip` with value_cidr `10.0.0.0/8` (test.yaml:9:9)
rule    office (test.yaml:9:9)
        selector path=/a,ip=cidr:10.0.0.0/8
limit   token_bucket
        5 per 10s with burst 9
counter domain d, path=/a, ip=10.1.2.3 (a counter per address)",
    );
    check(
        "d",
        "org=/o/7/8",
        "
domain d
  org=/o/7/8
    yes: `org` with value_template `/o/{org}/{id}` (test.yaml:19:5)
rule    org=template:/o/{org}/{id} (test.yaml:19:5)
limit   fixed_window
        2 per 1d
        denied hits count too
        shadow mode: a denial is answered OK
counter domain d, org: org=7 (a counter per org)",
    );
    check(
        "d",
        "free=1",
        "
domain d
  free=1
    yes: `free` with any value (test.yaml:24:5)
rule    free (test.yaml:24:5)
limit   unlimited
counter none: nothing is counted",
    );
}

#[test]
fn a_match_shows_every_option() {
    let set = rules(
        "
domain: d
denied_requests: free
descriptors:
  - key: user
    rate_limit: { name: user, unit: minute, requests_per_unit: 3 }
  - key: ip
    rate_limit: { name: ip, unit: minute, requests_per_unit: 3 }
  - key: plan
    shadow_mode: true
    quota_mode: true
    rate_limit:
      algorithm: sliding_window
      requests: 5
      window: 10s
      reserve: { hold: 90s }
      replaces: [{ name: user }, { name: ip }]
  - key: vip
    rate_limit: { unlimited: true, replaces: [{ name: ip }] }
",
    );
    for (descriptor, expected) in [
        (
            "plan=1",
            "
limit   sliding_window
        5 per 10s
        shadow mode: a denial is answered OK
        quota mode: denies only if every quota rule of the request denies
        reserves, settled within 1m30s
        replaces `user`, `ip` in the same request
        denied_requests: free: a request that another rule denies is not counted here
counter domain d, plan=1 (a counter per value)
",
        ),
        (
            "vip=1",
            "
limit   unlimited
        replaces `ip` in the same request
counter none: nothing is counted
",
        ),
    ] {
        let text = set.explain("d", &entries(descriptor)).to_string();
        let limit = text.find("\nlimit").map(|start| &text[start..]);
        assert_eq!(limit, Some(expected), "{descriptor}");
    }
}

#[test]
fn a_miss_shows_its_last_level_and_near_misses() {
    check(
        "d",
        "path=/a,ip=11.0.0.1",
        "
domain d
  path=/a
    yes: `path` with value `/a` (test.yaml:6:5)
  ip=11.0.0.1
    no:  `ip` with value_cidr `10.0.0.0/8` (test.yaml:9:9)
    nothing accepts it
no rule: no descriptor of level 2 accepts `ip=11.0.0.1`
near    other (test.yaml:17:9)
        it would match, but test.yaml:6:5 is more specific, and the lookup never goes back
near    office (test.yaml:9:9)
        value `11.0.0.1` does not match value_cidr `10.0.0.0/8`",
    );
    check(
        "d",
        "path=/c",
        "
domain d
  path=/c
    no:  `path` with value_regex `/b.*` (test.yaml:12:5)
    yes: `path` with wildcard `/*` (test.yaml:14:5)
no rule: the descriptor ends at test.yaml:14:5, which has no `rate_limit`
near    other (test.yaml:17:9)
        it is deeper: it needs one more entry, `ip` with any value
near    office (test.yaml:9:9)
        value `/c` is not `/a`
        it is deeper: it needs one more entry, `ip` with value_cidr `10.0.0.0/8`",
    );
    check(
        "d",
        "ip=10.0.0.1,path=/a",
        "
domain d
  ip=10.0.0.1
    nothing accepts it
no rule: no descriptor of level 1 accepts `ip=10.0.0.1`
near    office (test.yaml:9:9)
        its entries have the order path, ip
near    other (test.yaml:17:9)
        its entries have the order path, ip",
    );
    check(
        "d",
        "usr=1,x=2",
        "
domain d
  usr=1
    nothing accepts it
no rule: no descriptor of level 1 accepts `usr=1`
near    per-user (test.yaml:4:5)
        entry 1 is `usr`, not `user`
        it ends before entry `x=2`",
    );
    check(
        "d",
        "user=1,x=2",
        "
domain d
  user=1
    yes: `user` with any value (test.yaml:4:5)
no rule: test.yaml:4:5 has no child descriptors, but the descriptor continues with `x=2`
near    per-user (test.yaml:4:5)
        it ends before entry `x=2`",
    );
    check("e", "a=b", "domain e\nno rule: no file defines this domain; did you mean `d`?");
}

#[test]
fn text_from_a_request_cannot_add_lines() {
    let entries = [Entry { key: "user", value: "x\ncounter none" }];
    let text = rules(FILE).explain("d", &entries).to_string();
    assert!(text.contains(r"user=x\ncounter none"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("counter")).count(), 1);
}

/// A rule is explained by its name and by its selector.
#[test]
fn a_rule_is_explained_by_each_of_its_names() {
    let set = rules(FILE);
    let explain = |text: &str| set.explain_text("d", text).map(|one| one.to_string());
    let expected = "domain d
rule    office (test.yaml:9:9)
        selector path=/a,ip=cidr:10.0.0.0/8
limit   token_bucket
        5 per 10s with burst 9
counter domain d, path=/a, `ip` with value_cidr `10.0.0.0/8` (a counter per address)
";
    for name in ["office", "path=/a,ip=cidr:10.0.0.0/8"] {
        assert_eq!(explain(name).as_deref(), Ok(expected), "{name}");
    }
    let template = explain("org=template:/o/{org}/{id}").expect("a selector");
    assert!(template.contains("(a counter per org)"), "{template}");
    // A descriptor that matches is not taken for a name.
    assert!(explain("user=office").expect("a descriptor").contains("user=office (a counter"));
    assert!(explain("user=1,x=2").expect("a descriptor").contains("no rule: "));
    let error = explain("offic").expect_err("no name");
    assert!(error.ends_with("for an empty one, or the name of a rule"), "{error}");
    let twice = rules(
        "
domain: d
descriptors:
  - { key: user, rate_limit: { unit: minute, requests_per_unit: 3 } }
  - { key: user, value: root, rate_limit: { unlimited: true } }
",
    );
    let first = twice.explain_rule("d", "user").expect("a rule").to_string();
    assert!(first.contains("rule    user (test.yaml:4:5)\n"), "{first}");
    assert!(!first.contains("also"), "the selector is unique: {first}");
    assert!(twice.explain_rule("e", "user").is_none());
}

#[test]
fn other_rules_of_one_name_are_listed() {
    let compiled = compiled(
        "
domain: d
descriptors:
  - { key: user, value: root, rate_limit: { name: staff, unlimited: true } }
  - { key: user, value: ann, rate_limit: { name: staff, unlimited: true } }
",
        &Options::default(),
    );
    let (set, _) = compiled.expect("warnings only");
    let text = set.explain_rule("d", "staff").expect("a name").to_string();
    assert!(text.contains("rule    user=root (test.yaml:4:5)\n"), "{text}");
    assert!(text.contains("the name is also that of test.yaml:5:5\n"), "{text}");
}

#[test]
fn kept_names_are_explained() {
    let set = rules(
        "domain: d\ndescriptors:\n  - key: user\n    rate_limit: { unit: hour, \
         requests_per_unit: 1, usage: true }\n",
    );
    let text = set.explain("d", &entries("user=x")).to_string();
    let expected = "        usage: the names of its counters are kept for `/usage`\n";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn requests_in_the_log_are_explained() {
    for lines in ["off", "denied", "all"] {
        let set = rules(&format!(
            "domain: d\ndescriptors:\n  - key: user\n    rate_limit: {{ unlimited: true, log: \
             {lines} }}\n"
        ));
        assert_eq!(set.logs_requests(), lines != "off");
        let text = set.explain("d", &entries("user=x")).to_string();
        assert!(text.contains(&format!("        requests in the log: {lines}\n")), "{text}");
    }
}
