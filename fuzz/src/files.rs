//! Compiles any bytes as a rule file, and looks up descriptors in the result.

use weir::descriptor::Entry;
use weir::key::KeySeed;
use weir::rules::{Found, Options, RuleSet, SourceFile, compile};
use weir::yaml::readers_agree;

/// Compiles `bytes` as a rule file. Returns true if it is valid; then lookups must work. Returns
/// false if it is rejected; then every problem must name a position in the file.
pub fn yaml(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).into_owned();
    assert!(readers_agree(&text), "the reader of the simple form differs from the parser");
    let file = SourceFile { name: "rules.yaml".into(), text };
    match compile(&[file], &Options::default()) {
        Ok((rules, warnings)) => {
            for warning in warnings {
                assert!(!warning.to_string().is_empty());
            }
            look_up(&rules);
            true
        }
        Err(problems) => {
            assert!(!problems.is_empty(), "refused without a reason");
            for problem in problems {
                assert!(problem.to_string().starts_with("rules.yaml"), "{problem}");
            }
            false
        }
    }
}

/// Looks some descriptors up in every domain.
pub(crate) fn look_up(rules: &RuleSet) {
    let seed = KeySeed::fixed([1, 2]);
    let deep = [Entry { key: "user", value: "ann" }; 32];
    let paths: [&[Entry<'_>]; 5] = [
        &[],
        &[Entry { key: "user", value: "" }],
        &[Entry { key: "path", value: "/v1/organizations/a/product/b?c=d" }],
        &[Entry { key: "method", value: "GET" }, Entry { key: "path", value: "/a*b" }],
        &deep,
    ];
    for domain in rules.domains() {
        for entries in paths {
            if let Found::Rule(rule) = rules.find(domain, entries) {
                let _ = (rule.key(&seed, entries), rule.stat_key(entries));
                assert_eq!(rule.weigh(0, entries), 0);
                assert!((0..1 << 53).contains(&rule.weigh((1 << 53) - 1, entries)));
                assert!((-(1 << 32)..=0).contains(&rule.weigh(-1, entries)));
            }
        }
    }
}
