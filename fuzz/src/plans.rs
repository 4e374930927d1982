//! Reads any bytes as a book of plans and as a file of customers, and decides by them.

use std::sync::OnceLock;

use weir::descriptor::Entry;
use weir::plans::{
    PlanBook, PlanLimit, PlanNumbers, Plans, PlansConfig, count_lines, read_customers,
};
use weir::rules::{Found, Options, RuleLimit, RuleSet, SourceFile, compile};

/// Rules of several kinds, all with the limit `calls`.
const RULES: &str = include_str!("plans.yaml");

/// Reads `bytes` up to the first NUL as plans, and the rest as customers. Returns true if both are
/// valid; then every limit that follows must be valid.
pub fn files(bytes: &[u8]) -> bool {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (book, lines) = bytes.split_at(end);
    let lines = lines.strip_prefix(b"\0").unwrap_or(lines);
    let text = String::from_utf8_lossy(book);
    let json = PlanBook::parse_json_text(&text);
    let (book, customers) = match PlanBook::parse_yaml(&text, "plans.yaml") {
        Ok(read) => read,
        Err(problems) => {
            assert!(!problems.is_empty(), "refused without a reason");
            for problem in problems {
                assert!(problem.to_string().starts_with("plans.yaml"), "{problem}");
            }
            return false;
        }
    };
    for (name, numbers) in book.plans() {
        let again = PlanNumbers::from_json(name, &numbers.to_json());
        assert_eq!(again.as_ref(), Ok(numbers), "{name}");
    }
    let config = PlansConfig { max_customers: 1_000, asks_per_customer: false };
    let plans = Plans::new(config);
    let room = count_lines(lines).expect("memory") + customers.len();
    let mut table = plans.table(&book, room);
    let read = read_customers(lines, |customer, plan| table.add(customer, plan));
    if let Err(error) = &read {
        let text = error.to_string();
        assert!(text.starts_with("line ") && !text.contains(char::is_control), "{text:?}");
    }
    for (customer, plan) in &customers {
        assert_eq!(table.add(customer, plan), Ok(()), "there is room for each line");
    }
    let table = table.finish();
    plans.publish(book, table);
    plans.use_rules(rules());
    let first = customers.first().map_or("acme", |(customer, _)| customer.as_str());
    decide(&plans, first);
    // If the text is JSON too, its plans decide without customers.
    let _ = json.map(|(book, _)| plans.publish_book(book));
    decide(&plans, first);
    read.is_ok()
}

fn rules() -> &'static RuleSet {
    static SET: OnceLock<RuleSet> = OnceLock::new();
    SET.get_or_init(|| {
        let file = SourceFile { name: "rules.yaml".into(), text: RULES.to_owned() };
        compile(&[file], &Options::default()).unwrap_or_else(|problems| panic!("{problems:#?}")).0
    })
}

/// Finds the limits of a customer, of a customer without a plan, and of names of plans.
fn decide(plans: &Plans, customer: &str) {
    for key in ["window", "bucket", "log", "slots", "tiers", "plan"] {
        for value in [customer, "unknown-customer", "free", ""] {
            let entries = [Entry { key, value }];
            let Found::Rule(rule) = rules().find("d", &entries) else { panic!("no rule of {key}") };
            let RuleLimit::Limit(own) = &rule.limit else { panic!("{key} has a limit") };
            match plans.limit(rule, own, &entries) {
                PlanLimit::Plan(limit) => {
                    assert_eq!(limit.check(), Ok(()), "{key}={value}");
                    assert_eq!(limit.tiers.len(), own.tiers.len(), "{key}={value}");
                }
                PlanLimit::Own(_) | PlanLimit::Unlimited => {}
                PlanLimit::Unknown { .. } => panic!("no source is asked"),
            }
            assert!(plans.choice(rule, own, &entries).is_some(), "{key} uses plans");
        }
    }
}
