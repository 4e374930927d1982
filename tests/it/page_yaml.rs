//! The YAML blocks of all pages: weir loads rules and settings, and other blocks have a test.

use serde_json::Value;
use tempfile::TempDir;
use weir::descriptor::Entry;
use weir::rules::{Found, Options, RuleSet, RuleSources, SourceFile, compile};
use weir::settings;

use crate::page_commands::text::pages;
use crate::support::weir::write;
use crate::support::yaml;

/// Blocks that are neither rules nor settings of weir: the page, how they start, and their test.
const ELSEWHERE: [(&str, &str, &str); 10] = [
    ("docs/guides/overlays.md", "overlays:", "overlays_of_the_page_change_rules"),
    ("docs/guides/plans.md", "plans:\n  free:", "page_content.rs: the plans fit the rules"),
    ("docs/guides/plans.md", "settings:", "helm/tests/test_pages.py renders the chart with it"),
    ("docs/guides/replay.md", "access_log:", "replay/envoy_log.rs: Envoys write such a log"),
    ("docs/guides/rlqs.md", "- name: envoy.", "the_quota_filter_is_that_of_the_example"),
    ("docs/operate/helm.md", "", "helm/tests/test_pages.py renders the chart with each block"),
    ("docs/operate/memory.md", "podSecurityContext:", "helm/tests/test_pages.py, as for plans.md"),
    ("docs/operate/tracing.md", "extraEnv:", "helm/tests/test_pages.py, as for plans.md"),
    ("docs/reference/rules.md", "rate_limits:", "the_rate_limits_of_the_page_meet_its_rules"),
    ("docs/start/migration.md", "services:", "page_commands/compose.rs starts the service"),
];

/// Rules that the overlays of docs/guides/overlays.md change.
const ROUTE: &str = "
domain: default/eg/http
descriptors:
  - key: httproute/default/orders/rule/0/match/0
    rate_limit: { unit: minute, requests_per_unit: 5 }
";
const SHARED: &str = "
domain: default/team
descriptors:
  - key: default/team/rule/0
    descriptors:
      - { key: rule-0-match-0, rate_limit: { unit: hour, requests_per_unit: 3 } }
";

/// What a block is.
enum Kind {
    /// Rules, with the text of their file.
    Rules(String),
    Settings,
}

/// What a block is, by the names at its top. `None`: it is for another program, or has overlays or
/// plans. `sections` are those of the settings.
fn kind(text: &str, sections: &Value) -> Option<Kind> {
    let top = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_alphabetic()));
    let names: Vec<&str> = top.filter_map(|line| Some(line.split_once(':')?.0)).collect();
    if names.contains(&"domain") {
        Some(Kind::Rules(text.to_owned()))
    } else if text.starts_with("- key:") {
        Some(Kind::Rules(format!("domain: page\ndescriptors:\n{text}")))
    } else if !names.is_empty() && names.iter().all(|name| sections.get(name).is_some()) {
        Some(Kind::Settings)
    } else {
        None
    }
}

/// The YAML blocks of all pages, with the names of their pages.
fn all_blocks() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for page in pages() {
        let blocks = page.blocks().into_iter().filter(|block| block.language == "yaml");
        found.extend(blocks.map(|block| (page.name.clone(), block.text.to_owned())));
    }
    found
}

/// The YAML blocks of a page that start with `start`.
pub(crate) fn yaml_blocks(name: &str, start: &str) -> Vec<String> {
    let blocks = all_blocks().into_iter().filter(|(page, _)| page == name);
    blocks.map(|(_, text)| text).filter(|text| text.starts_with(start)).collect()
}

/// The only YAML block of a page that starts with `start`.
fn yaml_block(name: &str, start: &str) -> String {
    let mut blocks = yaml_blocks(name, start);
    assert_eq!(blocks.len(), 1, "{name}: {start}");
    blocks.remove(0)
}

/// The rules of a file on a page.
pub(crate) fn rules(page: &str, text: &str) -> RuleSet {
    let file = SourceFile { name: page.into(), text: text.to_owned() };
    let compiled = compile(&[file], &Options::default());
    let (set, warnings) = compiled.unwrap_or_else(|errors| panic!("{errors:#?}\n{text}"));
    assert!(warnings.is_empty(), "{warnings:#?}\n{text}");
    assert!(!set.rules().is_empty(), "{page}: no rules\n{text}");
    set
}

/// Loads the settings of a file on a page. The files that they name are not opened.
fn load_settings(page: &str, text: &str) {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("weir.yaml");
    write(&path, text);
    let flags = settings::Flags { config: Some(path), ..Default::default() };
    let loaded = settings::load(&flags, &[]);
    let loaded = loaded.unwrap_or_else(|problems| panic!("{page}: {problems}\n{text}"));
    assert_eq!(loaded.warnings, Vec::<String>::new(), "{page}\n{text}");
}

#[test]
fn every_yaml_block_loads_or_has_a_test() {
    fn is_of((page, start, _): (&str, &str, &str), (name, text): &(String, String)) -> bool {
        name == page && text.starts_with(start)
    }
    let schema = include_str!("../../docs/reference/settings.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("JSON");
    let (blocks, sections) = (all_blocks(), &schema["properties"]);
    let (mut rule_files, mut settings_files) = (0, 0);
    for block in &blocks {
        if ELSEWHERE.iter().any(|entry| is_of(*entry, block)) {
            continue;
        }
        let (page, text) = block;
        match kind(text, sections) {
            Some(Kind::Rules(file)) => {
                rules(page, &file);
                rule_files += 1;
            }
            Some(Kind::Settings) => {
                load_settings(page, text);
                settings_files += 1;
            }
            None => panic!("{page}: no test reads this block; add it to ELSEWHERE\n{text}"),
        }
    }
    assert!(rule_files >= 15, "only {rule_files} rule files were found");
    assert!(settings_files >= 7, "only {settings_files} settings files were found");
    for entry in ELSEWHERE {
        let mut of_entry = blocks.iter().filter(|block| is_of(entry, block));
        let is_needed = of_entry.any(|(_, text)| kind(text, sections).is_none());
        assert!(is_needed, "no block needs {entry:?} any more");
    }
}

#[test]
fn overlays_of_the_page_change_rules() {
    let folder = TempDir::new().expect("a temporary folder");
    let files = [("routes.yaml", ROUTE), ("team.yaml", SHARED)].map(|(name, text)| {
        let path = folder.path().join(name);
        write(&path, text);
        path
    });
    let overlays = folder.path().join("overlays.yaml");
    write(&overlays, &yaml_block("docs/guides/overlays.md", "overlays:"));
    let compiled = RuleSources::read(&files, &[overlays]).compile(&Options::default());
    let (_, warnings) = compiled.unwrap_or_else(|errors| panic!("{errors:#?}"));
    // An overlay without a rule is a warning.
    assert!(warnings.is_empty(), "{warnings:#?}");
}

/// envoy.rs runs Envoys with the example. The page has no bucket for other requests and no status of
/// gRPC, and denies until there is a share.
#[test]
fn the_quota_filter_is_that_of_the_example() {
    let example = yaml::json(include_str!("../../examples/envoy/rlqs.yaml"));
    let manager = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
    let mut expected = example.pointer(manager).expect("a manager")["http_filters"][0].clone();
    let matchers = &mut expected["typed_config"]["bucket_matchers"];
    matchers.as_object_mut().expect("a map").remove("on_no_match");
    let action = &mut matchers["matcher_list"]["matchers"][0]["on_match"]["action"];
    let bucket = &mut action["typed_config"];
    bucket["no_assignment_behavior"]["fallback_rate_limit"]["blanket_rule"] = "DENY_ALL".into();
    bucket["deny_response_settings"].as_object_mut().expect("a map").remove("grpc_status");
    let shown = yaml_block("docs/guides/rlqs.md", "- name: envoy.filters.http.rate_limit_quota");
    assert_eq!(yaml::json(&shown)[0], expected);
}

#[test]
fn the_rate_limits_of_the_page_meet_its_rules() {
    let page = "docs/reference/rules.md";
    let set = rules(page, &yaml_block(page, "domain: shop\ndenied_requests:"));
    let limits = yaml::json(&yaml_block(page, "rate_limits:"));
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let entry = |action: &Value| match &action["generic_key"] {
        Value::Null => (text(&action["request_headers"]["descriptor_key"]), "acme".to_owned()),
        fixed => (text(&fixed["descriptor_key"]), text(&fixed["descriptor_value"])),
    };
    let mut met = Vec::new();
    for limit in limits["rate_limits"].as_array().expect("a list") {
        let actions = limit["actions"].as_array().expect("a list");
        let owned: Vec<(String, String)> = actions.iter().map(entry).collect();
        let entries: Vec<Entry<'_>> =
            owned.iter().map(|(key, value)| Entry { key, value }).collect();
        let Found::Rule(rule) = set.find("shop", &entries) else {
            panic!("{limit} meets no rule");
        };
        met.push(rule.display_name.to_string());
    }
    assert_eq!(met, ["burst", "month"]);
}
