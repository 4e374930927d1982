//! Reads and writes plans and customers as JSON.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::book::{
    CustomerPlans, LimitNumbers, PlanBook, PlanNumbers, check_customer_name, check_plan_name, shown,
};
use super::plan_value::{PlanValue, plan_numbers};
use crate::limit::TierNumbers;

/// Most problems in one error.
const PROBLEMS_MAX: usize = 10;

/// The top of a document.
#[derive(Default)]
struct PlanDocument {
    plans: Option<Map<String, Value>>,
    customers: Option<CustomerEntries>,
}

impl<'de> Deserialize<'de> for PlanDocument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PlanDocument, D::Error> {
        deserializer.deserialize_map(DocumentVisitor)
    }
}

struct DocumentVisitor;

impl<'de> Visitor<'de> for DocumentVisitor {
    type Value = PlanDocument;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map with `plans` and `customers`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PlanDocument, A::Error> {
        let mut document = PlanDocument::default();
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "plans" => document.plans = map.next_value()?,
                "customers" => document.customers = map.next_value()?,
                other => {
                    let what = format!("unknown field `{}`", shown(other));
                    return Err(A::Error::custom(format!(
                        "{what}; the fields are plans and customers"
                    )));
                }
            }
        }
        Ok(document)
    }
}

/// The map of customers, without a tree of values: there may be millions.
struct CustomerEntries(CustomerPlans);

impl<'de> Deserialize<'de> for CustomerEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CustomerEntries, D::Error> {
        deserializer.deserialize_map(CustomerVisitor)
    }
}

struct CustomerVisitor;

impl<'de> Visitor<'de> for CustomerVisitor {
    type Value = CustomerEntries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of customers to names of plans")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CustomerEntries, A::Error> {
        let mut customers = Vec::new();
        while let Some(entry) = map.next_entry()? {
            customers.push(entry);
        }
        Ok(CustomerEntries(customers))
    }
}

impl PlanBook {
    /// Reads the plans and the customers of a JSON value: `{"plans": {..}, "customers": {..}}`. Both
    /// may be absent.
    ///
    /// # Errors
    ///
    /// The first problems, in one line.
    pub fn parse_json(value: &Value) -> Result<(PlanBook, CustomerPlans), String> {
        let document = PlanDocument::deserialize(value).map_err(|error| error.to_string())?;
        document.read()
    }

    /// Like [`parse_json`](PlanBook::parse_json), from a text. It takes less memory for many
    /// customers.
    ///
    /// # Errors
    ///
    /// The first problems, in one line.
    pub fn parse_json_text(text: &str) -> Result<(PlanBook, CustomerPlans), String> {
        let document: PlanDocument =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        document.read()
    }
}

impl PlanDocument {
    fn read(self) -> Result<(PlanBook, CustomerPlans), String> {
        let mut problems = Vec::new();
        let mut plans = Vec::new();
        for (name, value) in self.plans.unwrap_or_default() {
            match PlanNumbers::from_json(&name, &value) {
                Ok(numbers) => plans.push((name, numbers)),
                Err(problem) => problems.push(problem),
            }
        }
        let CustomerEntries(customers) = self.customers.unwrap_or(CustomerEntries(Vec::new()));
        for (customer, plan) in &customers {
            let checked = check_customer_name(customer).and_then(|()| check_plan_name(plan));
            problems.extend(checked.err());
            if problems.len() >= PROBLEMS_MAX {
                break;
            }
        }
        joined(problems)?;
        Ok((PlanBook::new(plans)?, customers))
    }
}

impl PlanNumbers {
    /// Reads the limits of the plan called `plan`: `{"calls": 100}`.
    ///
    /// # Errors
    ///
    /// The first problems, in one line.
    pub fn from_json(plan: &str, value: &Value) -> Result<PlanNumbers, String> {
        check_plan_name(plan)?;
        let plan = shown(plan);
        let Value::Object(limits) = value else {
            return Err(format!("plan `{plan}` must be a map; write {{\"calls\": 100}}"));
        };
        let mut problems = Vec::new();
        let values = limits.iter().map(|(name, value)| ((), &**name, plan_value(value)));
        let numbers = plan_numbers(values, |(), what, hint| {
            let stop = if hint.is_empty() { "" } else { "; " };
            problems.push(format!("plan `{plan}`: {what}{stop}{hint}"));
        });
        joined(problems)?;
        Ok(numbers)
    }

    /// The limits in the form that [`from_json`](PlanNumbers::from_json) reads.
    pub fn to_json(&self) -> Value {
        let limits = self.limits().map(|(name, numbers)| (name.to_owned(), limit_json(numbers)));
        Value::Object(limits.collect())
    }
}

/// The first problems as an error; `Ok` if there is none.
fn joined(problems: Vec<String>) -> Result<(), String> {
    if problems.is_empty() {
        return Ok(());
    }
    let more = problems.len().saturating_sub(PROBLEMS_MAX);
    let first = problems[..problems.len() - more].join("; ");
    Err(if more > 0 { format!("{first}; and {more} more") } else { first })
}

/// A JSON value as the value of a limit. Its depth is bounded by the parser.
fn plan_value(value: &Value) -> PlanValue<'_> {
    match value {
        Value::String(text) => PlanValue::Quoted(Cow::Borrowed(text)),
        Value::Array(items) => PlanValue::List(items.iter().map(plan_value).collect()),
        Value::Object(entries) => {
            let fields = entries
                .iter()
                .map(|(name, value)| (Cow::Borrowed(name.as_str()), plan_value(value)));
            PlanValue::Map(fields.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            PlanValue::Plain(Cow::Owned(value.to_string()))
        }
    }
}

fn limit_json(numbers: &LimitNumbers) -> Value {
    match numbers {
        LimitNumbers::Unlimited => json!("unlimited"),
        LimitNumbers::Tiers(tiers) => match &**tiers {
            [one] => tier_json(one),
            several => several.iter().map(tier_json).collect(),
        },
    }
}

fn tier_json(tier: &TierNumbers) -> Value {
    match tier.burst {
        None => json!(tier.requests),
        Some(burst) => json!({ "requests": tier.requests, "burst": burst }),
    }
}
