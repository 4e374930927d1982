//! Tests of the documentation: its commands parse, and it has what the code has.

use std::path::Path;

use clap::Parser;
use weir::cli::Cli;
use weir::descriptor::Entry;
use weir::limit::Algorithm;
use weir::plans::{PlanBook, Plans, PlansConfig};
use weir::rules::{Found, RuleSet};

use crate::page_commands::text::{files, pages, root, words};
use crate::page_yaml::{rules, yaml_blocks};

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a file of text")
}

#[test]
fn every_weir_command_parses() {
    let mut seen = 0;
    for page in pages() {
        for command in page.commands() {
            let words = words(&command);
            if !words[0].ends_with("weir") {
                continue;
            }
            seen += 1;
            let parsed = Cli::try_parse_from(&words);
            assert!(parsed.is_ok(), "{}: {command}\n{parsed:?}", page.name);
        }
    }
    assert!(seen >= 5, "only {seen} commands were found");
    assert!(Cli::try_parse_from(["weir", "serve", "--rulez", "x"]).is_err());
}

#[test]
fn every_make_target_exists() {
    let makefile = read(&root().join("Makefile"));
    let mut seen = 0;
    for page in pages() {
        // In blocks and in the text around them.
        let in_blocks = page.commands();
        let in_text = page.text.split('`').skip(1).step_by(2);
        let all = in_blocks.iter().map(String::as_str).chain(in_text);
        for target in all.filter_map(|command| command.strip_prefix("make ")) {
            seen += 1;
            let rule = format!("\n{}:", target.split(' ').next().unwrap_or_default());
            assert!(makefile.contains(&rule), "{}: make {target}", page.name);
        }
    }
    assert!(seen >= 20, "only {seen} targets were found");
}

#[test]
fn every_benchmark_exists() {
    let manifest = read(&root().join("Cargo.toml"));
    let commands: Vec<String> = pages().iter().flat_map(|page| page.commands()).collect();
    let benches = commands.iter().filter_map(|line| line.strip_prefix("cargo bench --bench "));
    let missing: Vec<&str> = benches
        .filter(|name| !manifest.contains(&format!("[[bench]]\nname = \"{name}\"\n")))
        .collect();
    assert_eq!(missing, [""; 0]);
}

/// The workflow runs the same script as everybody else.
#[test]
fn the_workflow_runs_all_checks() {
    let workflow = read(&root().join(".github/workflows/ci.yml"));
    let mut runs = workflow.lines().filter_map(|line| line.trim().strip_prefix("- run: "));
    assert!(runs.any(|command| command == ".ci/run"), "{workflow}");
}

/// Comments and messages name pages by their path from the root.
#[test]
fn every_page_named_in_code_exists() {
    let mut seen = 0;
    for folder in ["src", "crates", "tests", "benches", "fuzz", "lua"] {
        for path in files(&root().join(folder), &["rs", "lua"]) {
            let text = read(&path);
            for (start, _) in text.match_indices("docs/") {
                let is_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
                let rest = &text[start..];
                let end = rest.find(|c: char| !is_path(c)).unwrap_or(rest.len());
                let page = rest[..end].trim_end_matches('.');
                if page.ends_with(".md") {
                    seen += 1;
                    assert!(root().join(page).exists(), "{}: {page} is missing", path.display());
                }
            }
        }
    }
    assert!(seen >= 10, "only {seen} pages were found");
}

#[test]
fn every_algorithm_has_one_row_and_one_section() {
    let page = read(&root().join("docs/reference/algorithms.md"));
    let names = Algorithm::ALL.map(Algorithm::name);
    let rows = page.lines().skip_while(|line| !line.starts_with("| ---")).skip(1);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let named: Vec<_> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    assert_eq!(named, names);
    let sections = page.lines().filter_map(|line| line.strip_prefix("## "));
    let sections: Vec<_> = sections.take(names.len()).collect();
    assert_eq!(sections, names);
}

/// The rule files among the blocks of a page, each compiled alone.
fn rules_of_page(name: &str) -> Vec<RuleSet> {
    yaml_blocks(name, "domain:").iter().map(|text| rules(name, text)).collect()
}

/// The plans of docs/guides/plans.md fit the first rules of the page.
#[test]
fn the_plans_in_the_docs_fit_their_rules() {
    let text = yaml_blocks("docs/guides/plans.md", "plans:").concat();
    let (book, customers) = PlanBook::parse_yaml(&text, "docs/guides/plans.md").expect("valid");
    let plans = Plans::new(PlansConfig { max_customers: 10, asks_per_customer: false });
    let mut table = plans.table(&book, customers.len());
    for (customer, plan) in &customers {
        table.add(customer, plan).expect("there is room");
    }
    let table = table.finish();
    assert_eq!((book.len(), table.len()), (3, 1));
    plans.publish(book, table);
    plans.use_rules(&rules_of_page("docs/guides/plans.md")[0]);
    assert_eq!(plans.status().warnings, Vec::<String>::new());
}

#[test]
fn values_match_the_rules_as_documented() {
    let sets = rules_of_page("docs/reference/rules.md");
    let set = sets.iter().find(|set| set.has_domain("matching")).expect("the page has it");
    for (key, value, rule) in [
        ("path", "/health", "exact"),
        ("path", "/health?x=1", "any"),
        ("path", "/users/7/orders/1?x=1", "template"),
        ("path", "/users/7/orders/1/", "any"),
        ("path", "/users//orders/1", "any"),
        ("path", "/de/users", "regex"),
        ("path", "/x/de/", "any"),
        ("path", "/images/a.png?x=1", "wildcard"),
        ("remote_address", "::ffff:10.1.2.3", "network"),
    ] {
        let Found::Rule(found) = set.find("matching", &[Entry { key, value }]) else {
            panic!("{value} meets no rule");
        };
        assert_eq!(&*found.display_name, rule, "{value}");
    }
    let with_port = [Entry { key: "remote_address", value: "10.1.2.3:80" }];
    assert!(matches!(set.find("matching", &with_port), Found::NoRule));
}

#[test]
fn the_example_settings_are_valid() {
    let flags = weir::settings::Flags {
        config: Some(root().join("examples/weir.yaml")),
        ..Default::default()
    };
    let loaded = weir::settings::load(&flags, &[]).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.warnings, Vec::<String>::new());
    for path in loaded.settings.rules.paths {
        assert!(root().join(&path).exists(), "{} is missing", path.display());
    }
}
