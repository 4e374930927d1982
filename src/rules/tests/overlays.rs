//! Tests of overlays on rules of files: what they match, what they change, and their problems.

use super::*;
use crate::rules::RuleSources;

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 10 }
    descriptors:
      - key: path
        value: /login
        rate_limit: { name: login, unit: hour, requests_per_unit: 5 }
  - key: path
    value_template: /v1/{id}
    rate_limit: { unit: second, requests_per_unit: 3 }
  - key: plan
    value: free
    rate_limit: { unlimited: true }
---
domain: mail
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 7 }
";

fn files(name: &str, text: &str) -> RuleFiles {
    let mut files = RuleFiles::default();
    files.files.push(file(name, text));
    files
}

/// [`RULES`] with an overlay file.
fn overlaid(overlays: &str) -> Result<(RuleSet, Vec<RuleProblem>), Vec<RuleProblem>> {
    let (files, overlays) = (files("r.yaml", RULES), files("o.yaml", overlays));
    let sources = RuleSources { files, overlays, ..RuleSources::default() };
    sources.compile(&Options::default())
}

/// An overlay file with one item.
fn item(domain: &str, rule: &str, limit: &str) -> String {
    format!("overlays:\n  - domain: '{domain}'\n    rule: '{rule}'\n    rate_limit: {limit}\n")
}

/// The selectors of the rules with an overlay.
fn changed(set: &RuleSet) -> Vec<String> {
    let changed = set.rules().iter().filter(|rule| !rule.overlays().is_empty());
    changed.map(|rule| format!("{}:{}", rule.domain, rule.selector())).collect()
}

fn texts(problems: &[RuleProblem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn patterns_select_rules_by_domain_and_path() {
    let login = "shop:user,path=/login";
    for (domain, rule, expected) in [
        ("shop", "user", vec!["shop:user"]),
        ("*", "user", vec!["shop:user", "mail:user"]),
        ("sh*", "user", vec!["shop:user"]),
        ("shop", "user,path", vec![login]),
        ("shop", "user,path=/login", vec![login]),
        ("shop", "user,path=/log*", vec![login]),
        ("shop", "us*,*=*", vec![login]),
        ("shop", "user,**", vec!["shop:user", login]),
        ("shop", "**,path=/login", vec![login]),
        ("shop", "**,path", vec![login, "shop:path=template:/v1/{id}"]),
        ("shop", "path=template:/v1/*", vec!["shop:path=template:/v1/{id}"]),
        ("shop", "**,**,path=/login,**", vec![login]),
        ("shop", "**", vec!["shop:user", login, "shop:path=template:/v1/{id}"]),
    ] {
        let (set, warnings) = overlaid(&item(domain, rule, "{ on_error: deny }"))
            .unwrap_or_else(|problems| panic!("{domain} {rule}: {problems:#?}"));
        assert_eq!(changed(&set), expected, "{domain} {rule}");
        assert!(warnings.is_empty(), "{warnings:#?}");
    }
}

#[test]
fn overlays_without_a_limit_are_warnings() {
    for (domain, rule) in [
        ("shop", "path=/login"),
        ("shop", "user,path=/logout"),
        ("shop", "user,path,x"),
        ("Shop", "user"),
        ("mail", "user,**,path"),
        ("shop", "plan=free"),
    ] {
        let (set, warnings) = overlaid(&item(domain, rule, "{ on_error: deny }")).expect("valid");
        assert_eq!(changed(&set), Vec::<String>::new(), "{domain} {rule}");
        assert_eq!(
            texts(&warnings),
            ["o.yaml:2:5: the overlay matches no limit; write `rule` as metrics and `weir \
                 explain` show it; `*` is any text, `**` any levels"],
            "{domain} {rule}"
        );
    }
}

#[test]
fn overlays_change_the_fields_of_limits() {
    let plain = "unit=HOUR requests_per_unit=5";
    for (limit, expected) in [
        ("{ on_error: deny }", "on_error: deny"),
        ("{ over_limit_cache: false }", "over_limit_cache: false"),
        ("{ usage: true }", "usage: true"),
        ("{ log: denied }", "log: denied"),
        ("{ log: off }", "log: off"),
        ("{ mode: synced, sync_interval: 2s }", "mode: synced, sync_interval: 2s"),
        ("{ mode: leased }", "mode: leased"),
        ("{ count_denied: false }", "count_denied: false"),
        ("{ reserve: { hold: 10m } }", "reserve: 10m"),
        (
            "{ algorithm: token_bucket, burst: 20 }",
            "algorithm: token_bucket, tiers: [5 per 1h with burst 20]",
        ),
        (
            "{ algorithm: sliding_window, tiers: [{ requests: 5, window: 1h }, { requests: 2, \
             window: 1s }] }",
            "algorithm: sliding_window, tiers: [5 per 1h, 2 per 1s]",
        ),
        (
            "{ algorithm: concurrency, max: 4, hold: 30s }",
            "algorithm: concurrency, tiers: [4 at once, held 30s at most]",
        ),
    ] {
        let (set, _) = overlaid(&item("shop", "user,path=/login", limit))
            .unwrap_or_else(|problems| panic!("{limit}: {problems:#?}"));
        let dump = set.rlconfig();
        let line = dump.lines().find(|line| line.contains("/login")).expect("the rule");
        assert!(line.ends_with(expected), "{limit}: {line}");
        assert!(limit.contains("tiers") || limit.contains("max") || line.contains(plain), "{line}");
        let rest = |set: &RuleSet| -> Vec<String> {
            let dump = set.rlconfig();
            dump.lines().filter(|line| !line.contains("/login")).map(str::to_owned).collect()
        };
        let (without, _) = compile(&[file("r.yaml", RULES)], &Options::default()).expect("valid");
        assert_eq!(rest(&set), rest(&without), "other rules stay");
    }
}

#[test]
fn a_later_overlay_overrides_fields_of_an_earlier_one() {
    let text = "\
overlays:
  - { domain: shop, rule: '**', rate_limit: { on_error: deny, over_limit_cache: false } }
  - { domain: shop, rule: user, rate_limit: { on_error: local } }
";
    let (set, _) = overlaid(text).expect("valid");
    let line = set.rlconfig().lines().next().expect("a rule").to_owned();
    assert!(line.ends_with("over_limit_cache: false, on_error: local"), "{line}");
    let explained = set.explain("shop", &entries("user=x")).to_string();
    for origin in ["o.yaml:2:5", "o.yaml:3:5"] {
        let expected = format!("        changed by the overlay at {origin}\n");
        assert!(explained.contains(&expected), "{explained}");
    }
}

#[test]
fn problems_of_overlays_name_their_place() {
    for (text, expected) in [
        ("overlay: []\n", vec!["o.yaml:1:1: unknown field `overlay`; did you mean `overlays`?"]),
        (
            "- 1\n",
            vec![
                "o.yaml:1:1: an overlay file must be a map, not a list; write `overlays:` and \
                  items below it",
            ],
        ),
        (
            "overlays: [{ mode: leased }]\n",
            vec![
                "o.yaml:1:12: `domain` is missing; write the domain of the rules; `*` is any text",
                "o.yaml:1:12: `rate_limit` is missing; write the fields to change below it",
                "o.yaml:1:12: `rule` is missing; write the rule as `key=value,key=value`; `*` is \
                 any text, `**` any levels",
                "o.yaml:1:14: `mode` has no effect here; it belongs inside `rate_limit`",
            ],
        ),
        (
            item("shop", "user,,path", "{ on_error: deny }").as_str(),
            vec![
                "o.yaml:3:11: `rule` has a level without a key; write `key=value,key=value`, one \
                  item per level; `*` is any text",
            ],
        ),
        (
            item("shop", "", "{ on_error: deny }").as_str(),
            vec![
                "o.yaml:3:11: `rule` is empty; write the rule as `key=value,key=value`; `*` is \
                  any text, `**` any levels",
            ],
        ),
        (
            item("shop", "user", "{ unit: day, name: x, mode: lease }").as_str(),
            vec![
                "o.yaml:4:25: an overlay cannot set `unit`; write `tiers: [{ requests: 100, \
                 window: 1m }]`",
                "o.yaml:4:36: an overlay cannot set `name`; change the rule itself",
                "o.yaml:4:45: unknown mode `lease`; did you mean `leased`?",
            ],
        ),
        (
            item("shop", "**", "{ burst: 3 }").as_str(),
            vec![
                "o.yaml:2:5: the overlay does not fit the limit of `user` at r.yaml:3:5: `burst` \
                  applies only to buckets, and 2 more rules; select fewer rules, or correct the \
                  overlay",
            ],
        ),
    ] {
        let problems = overlaid(text).expect_err(text);
        assert_eq!(texts(&problems), expected, "{text}");
    }
}

#[test]
fn an_empty_overlay_file_changes_nothing() {
    for text in ["", "# nothing\n", "overlays:\n", "overlays: []\n"] {
        let (set, warnings) = overlaid(text).expect("valid");
        assert_eq!((changed(&set).len(), warnings.len()), (0, 0), "{text}");
    }
}

#[test]
fn too_many_overlays_are_an_error() {
    let one = "  - { domain: shop, rule: '**', rate_limit: { on_error: deny } }\n";
    let text = format!("overlays:\n{}", one.repeat(10_001));
    let problems = overlaid(&text).expect_err("too many");
    assert!(problems[0].what.contains("at most 10000 are used"), "{problems:#?}");
}
