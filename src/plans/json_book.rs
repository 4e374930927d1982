//! Reads and writes plans and customers as JSON.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};
use serde_json::{Value, json};

use super::book::{
    CustomerPlans, LimitNumbers, PlanBook, PlanNumbers, check_customer_name, check_plan_name, shown,
};
use super::json_plans::{JsonPlans, PlansVisitor};
use super::plan_value::{PlanValue, plan_numbers};
use crate::limit::TierNumbers;

/// Most problems in one error.
const PROBLEMS_MAX: usize = 10;

/// The top of a document.
#[derive(Default)]
struct PlanDocument {
    plans: JsonPlans,
    customers: CustomerPlans,
}

/// Reads the top of a document with at most this number of customers.
struct DocumentVisitor {
    customers_max: usize,
}

impl<'de> DeserializeSeed<'de> for DocumentVisitor {
    type Value = PlanDocument;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<PlanDocument, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for DocumentVisitor {
    type Value = PlanDocument;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map with `plans` and `customers`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PlanDocument, A::Error> {
        let mut document = PlanDocument::default();
        let (mut has_plans, mut has_customers) = (false, false);
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "plans" if has_plans => return Err(A::Error::duplicate_field("plans")),
                "plans" => {
                    has_plans = true;
                    document.plans = map.next_value_seed(PlansVisitor)?;
                }
                // Both lists would be in memory.
                "customers" if has_customers => {
                    return Err(A::Error::duplicate_field("customers"));
                }
                "customers" => {
                    has_customers = true;
                    let customers_max = self.customers_max;
                    document.customers = map.next_value_seed(CustomerVisitor { customers_max })?;
                }
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

/// Reads the map of customers, without a tree of values: there may be millions. It stops after
/// `customers_max`.
struct CustomerVisitor {
    customers_max: usize,
}

impl<'de> DeserializeSeed<'de> for CustomerVisitor {
    type Value = CustomerPlans;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<CustomerPlans, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for CustomerVisitor {
    type Value = CustomerPlans;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of customers to names of plans")
    }

    fn visit_none<E: Error>(self) -> Result<CustomerPlans, E> {
        Ok(Vec::new())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<CustomerPlans, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CustomerPlans, A::Error> {
        let max = self.customers_max;
        let mut customers = Vec::new();
        while let Some(entry) = map.next_entry()? {
            if customers.len() == max {
                let what = format!("more than {max} customers (raise plans.max_customers)");
                return Err(A::Error::custom(what));
            }
            customers.push(entry);
        }
        Ok(customers)
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
        let visitor = DocumentVisitor { customers_max: usize::MAX };
        let document = visitor.deserialize(value).map_err(|error| error.to_string())?;
        document.read()
    }

    /// Like [`parse_json`](PlanBook::parse_json), from a text. It takes less memory for many
    /// customers.
    ///
    /// # Errors
    ///
    /// The first problems, in one line.
    pub fn parse_json_text(text: &str) -> Result<(PlanBook, CustomerPlans), String> {
        PlanBook::parse_json_text_within(text, usize::MAX)
    }

    /// Like [`parse_json_text`](PlanBook::parse_json_text), with at most `customers_max` customers. No
    /// more are kept in memory while the text is read.
    ///
    /// # Errors
    ///
    /// The first problems, in one line. More customers are one.
    pub fn parse_json_text_within(
        text: &str,
        customers_max: usize,
    ) -> Result<(PlanBook, CustomerPlans), String> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let document = DocumentVisitor { customers_max }.deserialize(&mut deserializer);
        let document = document.map_err(|error| error.to_string())?;
        deserializer.end().map_err(|error| error.to_string())?;
        document.read()
    }
}

impl PlanDocument {
    fn read(self) -> Result<(PlanBook, CustomerPlans), String> {
        let JsonPlans { plans, mut problems } = self.plans;
        for (customer, plan) in &self.customers {
            let checked = check_customer_name(customer).and_then(|()| check_plan_name(plan));
            problems.extend(checked.err());
            if problems.len() >= PROBLEMS_MAX {
                break;
            }
        }
        joined(problems)?;
        Ok((PlanBook::new(plans)?, self.customers))
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
