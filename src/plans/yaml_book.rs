//! Reads a book of plans, and customers, from YAML.

use std::borrow::Cow;
use std::sync::Arc;

use super::book::{
    CustomerPlans, PlanBook, PlanNumbers, check_customer_name, check_plan_name, shown,
};
use super::plan_value::{PlanValue, plan_numbers};
use crate::rules::{Location, RuleProblem};
use crate::spelling::nearest;
use crate::yaml::{self, Name, Node, NodeKind, Position};

/// Most problems of one text. A hostile file could cause millions.
const PROBLEMS_MAX: usize = 1_000;

impl PlanBook {
    /// Reads the plans and the customers of a YAML text. `file` is its name in problems.
    ///
    /// # Errors
    ///
    /// Every problem of the text, with its place.
    pub fn parse_yaml(
        text: &str,
        file: &str,
    ) -> Result<(PlanBook, CustomerPlans), Vec<RuleProblem>> {
        PlanBook::parse_yaml_within(text, file, usize::MAX)
    }

    /// Like [`parse_yaml`](PlanBook::parse_yaml), with at most `customers_max` customers. The tree of the
    /// text has more: only the bound on the nodes of the YAML parser limits its memory.
    ///
    /// # Errors
    ///
    /// Every problem of the text, with its place. More customers are one.
    pub fn parse_yaml_within(
        text: &str,
        file: &str,
        customers_max: usize,
    ) -> Result<(PlanBook, CustomerPlans), Vec<RuleProblem>> {
        let mut reader = PlanReader::new(file, customers_max);
        let parsed = yaml::parse(text);
        for fault in parsed.faults {
            reader.problem(fault.at, fault.what, fault.hint);
        }
        for (index, node) in parsed.documents.into_iter().enumerate() {
            if index > 0 {
                let hint = "write all plans below one `plans:`";
                reader.problem(node.at, "a file of plans has one document".to_owned(), hint);
                break;
            }
            reader.document(node);
        }
        if reader.problems.is_empty() {
            match PlanBook::new(reader.plans) {
                Ok(book) => return Ok((book, reader.customers)),
                Err(what) => reader.problems.push(RuleProblem {
                    location: Location::whole(&reader.file),
                    what,
                    hint: String::new(),
                }),
            }
        }
        Err(reader.problems)
    }
}

/// Collects the plans, the customers and the problems of one text.
struct PlanReader {
    file: Arc<str>,
    plans: Vec<(String, PlanNumbers)>,
    customers: CustomerPlans,
    customers_max: usize,
    problems: Vec<RuleProblem>,
}

impl PlanReader {
    fn new(file: &str, customers_max: usize) -> PlanReader {
        let (plans, customers, problems) = (Vec::new(), Vec::new(), Vec::new());
        PlanReader { file: file.into(), plans, customers, customers_max, problems }
    }

    fn problem(&mut self, at: Position, what: String, hint: &str) {
        if self.problems.len() < PROBLEMS_MAX {
            let (line, column) = (at.line as usize, at.column as usize);
            let location = Location { line, column, ..Location::whole(&self.file) };
            self.problems.push(RuleProblem { location, what, hint: hint.to_owned() });
        }
    }

    /// The entries of a map. Without a value there are none.
    fn map(&mut self, node: Node, whose: &str, hint: &str) -> Vec<(Name, Node)> {
        let (at, noun, is_null) = (node.at, node.noun(), node.is_null());
        if let NodeKind::Map(entries) = node.kind {
            return entries;
        }
        if !is_null {
            self.problem(at, format!("{whose} must be a map, not {noun}"), hint);
        }
        Vec::new()
    }

    fn document(&mut self, node: Node) {
        for (name, node) in self.map(node, "a file of plans", "write `plans:` and plans below it") {
            match &*name.text {
                "plans" => self.plans(node),
                "customers" => self.customers(node),
                other => {
                    let what = format!("unknown field `{}`", shown(other));
                    let hint = match nearest(other, ["plans", "customers"]) {
                        Some(meant) => format!("did you mean `{meant}`?"),
                        None => "the fields are plans and customers".to_owned(),
                    };
                    self.problem(name.at, what, &hint);
                }
            }
        }
    }

    fn plans(&mut self, node: Node) {
        let hint = "write items like `free: { calls: 100 }`";
        for (name, node) in self.map(node, "`plans`", hint) {
            if let Err(what) = check_plan_name(&name.text) {
                self.problem(name.at, what, "");
                continue;
            }
            let limits = self.map(node, &format!("plan `{}`", shown(&name.text)), hint);
            let values = limits.iter().map(|(name, node)| (node.at, &*name.text, value(node)));
            let numbers = plan_numbers(values, |at, what, hint| {
                self.problem(at, format!("plan `{}`: {what}", shown(&name.text)), hint);
            });
            self.plans.push((name.text.to_string(), numbers));
        }
    }

    fn customers(&mut self, node: Node) {
        let hint = "write items like `acme: pro`, or use a file of customers";
        for (name, node) in self.map(node, "`customers`", hint) {
            let plan = match &node.kind {
                NodeKind::Scalar(scalar) if !scalar.is_null() => Arc::clone(&scalar.text),
                _ => {
                    let what = format!("the plan of a customer is {}", node.noun());
                    self.problem(node.at, what, "write the name of a plan");
                    continue;
                }
            };
            let checked = check_customer_name(&name.text).and_then(|()| check_plan_name(&plan));
            match checked {
                Ok(()) if self.customers.len() == self.customers_max => {
                    let what = format!("more than {} customers", self.customers_max);
                    return self.problem(name.at, what, "raise plans.max_customers");
                }
                Ok(()) => self.customers.push((name.text.to_string(), plan.to_string())),
                Err(what) => self.problem(name.at, what, ""),
            }
        }
    }
}

/// A node as the value of a limit. Its depth is that of a file.
fn value(node: &Node) -> PlanValue<'_> {
    match &node.kind {
        NodeKind::Scalar(scalar) if scalar.plain => PlanValue::Plain(Cow::Borrowed(&scalar.text)),
        NodeKind::Scalar(scalar) => PlanValue::Quoted(Cow::Borrowed(&scalar.text)),
        NodeKind::List(items) => PlanValue::List(items.iter().map(value).collect()),
        NodeKind::Map(entries) => {
            let fields =
                entries.iter().map(|(name, node)| (Cow::Borrowed(&*name.text), value(node)));
            PlanValue::Map(fields.collect())
        }
    }
}
