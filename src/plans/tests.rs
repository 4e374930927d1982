//! Tests of plans: books, customers, and the limits that follow.

use std::sync::Arc;

use super::*;
use crate::rules::{Found, Options, RuleLimit, RuleSet, SourceFile, compile};

mod books;
mod cache;
mod csv;
mod deciding;
mod load;
mod table;

/// A book with two sizes of plans, an unlimited one, and one without the limit `calls`.
const BOOK: &str = "
plans:
  free: { calls: 100 }
  pro: { calls: { requests: 1000 } }
  bucket: { calls: { requests: 1000, burst: 3000 } }
  house: { calls: unlimited }
  tokens: { tokens: [1, 2] }
";

fn book(text: &str) -> PlanBook {
    PlanBook::parse_yaml(text, "plans.yaml").unwrap_or_else(|problems| panic!("{problems:#?}")).0
}

/// A rule of domain `d` for `key=VALUE` with this limit, whose name in plans is `calls`.
fn rules(limit: &str, limit_from: &str) -> RuleSet {
    let text = format!(
        "domain: d\ndescriptors:\n  - key: key\n    rate_limit: {{ name: calls, {limit}, \
         limit_from: {limit_from} }}\n"
    );
    let file = SourceFile { name: "rules.yaml".into(), text };
    compile(&[file], &Options::default()).unwrap_or_else(|problems| panic!("{problems:#?}")).0
}

/// The rule of [`rules`] and its limit.
fn rule(rules: &RuleSet) -> (&Rule, &Limit) {
    let Found::Rule(rule) = rules.find("d", &[Entry { key: "key", value: "x" }]) else {
        panic!("no rule")
    };
    let RuleLimit::Limit(limit) = &rule.limit else { panic!("it has a limit") };
    (rule, limit)
}

/// The limit for `key=VALUE` in a word: `unlimited`, `unknown`, or the requests of each tier, with `own`
/// before those of the rule.
fn limit_of(plans: &Plans, rules: &RuleSet, value: &str) -> String {
    let (rule, limit) = rule(rules);
    word(&plans.limit(rule, limit, &[Entry { key: "key", value }]))
}

/// Like [`limit_of`], without asking a source.
fn last_known(plans: &Plans, rules: &RuleSet, value: &str) -> String {
    let (rule, limit) = rule(rules);
    word(&plans.last_known(rule, limit, &[Entry { key: "key", value }]))
}

fn word(limit: &PlanLimit<'_>) -> String {
    let requests = |limit: &Limit| {
        let tiers: Vec<String> = limit.tiers.iter().map(|tier| tier.requests.to_string()).collect();
        tiers.join(" ")
    };
    match limit {
        PlanLimit::Own(limit) => format!("own {}", requests(limit)),
        PlanLimit::Plan(limit) => requests(limit),
        PlanLimit::Unlimited => "unlimited".to_owned(),
        PlanLimit::Unknown { .. } => "unknown".to_owned(),
    }
}

/// Plans of a source that sends all customers.
fn with_table(book: PlanBook, customers: &[(&str, &str)]) -> Arc<Plans> {
    let plans = Plans::new(PlansConfig { max_customers: 100, asks_per_customer: false });
    let mut table = plans.table(&book, customers.len());
    for (customer, plan) in customers {
        table.add(customer, plan).expect("there is room");
    }
    let table = table.finish();
    plans.publish(book, table);
    plans
}

/// Plans of a source that is asked about each customer.
fn with_cache(max_customers: usize) -> Arc<Plans> {
    Plans::new(PlansConfig { max_customers, asks_per_customer: true })
}
