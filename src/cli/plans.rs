//! `weir plans`: shows the plans of a running service, and changes those in Redis.

use std::io::Write;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::admin_client::{AdminArgs, AdminResponse, query_value};
use super::{exit, say_error};
use crate::escape::{escaped_json, one_line};

/// The most plans that `list` shows.
const LIST_MAX: usize = 10_000;

#[derive(Debug, Args)]
pub(crate) struct PlansArgs {
    #[command(subcommand)]
    command: PlansCommand,
}

#[derive(Debug, Subcommand)]
enum PlansCommand {
    /// Show all plans, and when they were last read.
    List {
        /// Print the whole page as JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Set the numbers of a plan in Redis. The counters continue.
    Set {
        /// Name of the plan.
        plan: String,
        /// Limits, each as NAME=NUMBER, NAME=unlimited, or NAME=JSON for several tiers or a burst.
        #[arg(required = true, value_name = "LIMIT=NUMBER")]
        limits: Vec<String>,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Delete a plan in Redis. The defaults of the rules then decide for its customers.
    Delete {
        /// Name of the plan.
        plan: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Show the plan of a customer in Redis.
    Show {
        /// Name of the customer: the value in descriptors.
        customer: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Assign a customer to a plan in Redis. The counters continue.
    Assign {
        /// Name of the customer: the value in descriptors.
        customer: String,
        /// Name of the plan.
        plan: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Remove a customer from its plan in Redis. The defaults of the rules then decide.
    Unassign {
        /// Name of the customer: the value in descriptors.
        customer: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
}

/// Prints what the service shows or did. Returns 69 if it does not answer.
pub(super) fn run(args: &PlansArgs) -> anyhow::Result<u8> {
    let list = format!("/plans?limit={LIST_MAX}");
    let plan_path = |plan: &str| format!("/plans/{}", query_value(plan));
    let customer_path = |customer: &str| format!("/plans/customers/{}", query_value(customer));
    let (admin, method, path, body) = match &args.command {
        PlansCommand::List { admin, .. } => (admin, "GET", list, None),
        PlansCommand::Set { plan, limits, admin } => {
            (admin, "PUT", plan_path(plan), Some(written_limits(limits)?))
        }
        PlansCommand::Delete { plan, admin } => (admin, "DELETE", plan_path(plan), None),
        PlansCommand::Show { customer, admin } => (admin, "GET", customer_path(customer), None),
        PlansCommand::Assign { customer, plan, admin } => {
            (admin, "PUT", customer_path(customer), Some(json!({ "plan": plan })))
        }
        PlansCommand::Unassign { customer, admin } => {
            (admin, "DELETE", customer_path(customer), None)
        }
    };
    let response = match admin.send(method, &path, &[], body.as_ref()) {
        Ok(response) => response,
        Err(error) => {
            say_error(&error);
            return Ok(exit::UNAVAILABLE);
        }
    };
    if response.status != 200 {
        anyhow::bail!("{}", response.reason());
    }
    let AdminResponse { body, .. } = response;
    let text = match &args.command {
        PlansCommand::List { json: true, .. } => {
            format!("{}\n", escaped_json(&body.to_string()))
        }
        PlansCommand::List { .. } => listed(&body),
        PlansCommand::Set { plan, .. } => changed(
            &body,
            "created",
            [format!("plan {plan} is new"), format!("plan {plan} changed")],
        ),
        PlansCommand::Delete { plan, .. } => changed(
            &body,
            "existed",
            [format!("plan {plan} deleted"), format!("there was no plan {plan}")],
        ),
        PlansCommand::Show { customer, .. } => match body["plan"].as_str() {
            Some(plan) => one_text(&format!("customer {customer} has the plan {plan}")),
            None => one_text(&format!("customer {customer} has no plan")),
        },
        PlansCommand::Assign { customer, plan, .. } => {
            one_text(&format!("customer {customer} has the plan {plan}"))
        }
        PlansCommand::Unassign { customer, .. } => changed(
            &body,
            "existed",
            [
                format!("customer {customer} has no plan any more"),
                format!("customer {customer} had no plan"),
            ],
        ),
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(0)
}

/// The limits of a plan from arguments `NAME=VALUE`. A value that is no JSON is a text.
fn written_limits(arguments: &[String]) -> anyhow::Result<Value> {
    let mut limits = Map::new();
    for argument in arguments {
        let (name, value) = argument
            .split_once('=')
            .with_context(|| format!("`{argument}` is no limit; write one such as calls=100"))?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        let before = limits.insert(name.to_owned(), value);
        anyhow::ensure!(before.is_none(), "the limit `{name}` is written twice; write it once");
    }
    Ok(limits.into())
}

/// The first text if `field` of `body` is true, else the second.
fn changed(body: &Value, field: &str, [yes, no]: [String; 2]) -> String {
    one_text(if body[field] == true { &yes } else { &no })
}

/// The page in words: a line about the source, its problems, and a line per plan.
fn listed(page: &Value) -> String {
    let number = |name: &str| page[name].as_u64().unwrap_or_default();
    let (plans, customers) = (number("plan_count"), number("customers"));
    let source = page["source"].as_str().unwrap_or_default();
    let read = page["read_at"].as_str().map_or("never read".to_owned(), |at| format!("read {at}"));
    let mut text =
        format!("source {source}: {plans} plans, {customers} customers in memory, {read}\n");
    let problems = page["last_error"].as_str().into_iter();
    let warnings = page["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for problem in problems.chain(warnings) {
        text.push_str(&one_text(&format!("problem: {problem}")));
    }
    let shown = page["plans"].as_array().into_iter().flatten();
    for plan in shown {
        let name = plan["name"].as_str().unwrap_or_default();
        text.push_str(&one_text(&format!("{name}  {}", plan["limits"])));
    }
    text
}

/// `text` as one line.
fn one_text(text: &str) -> String {
    format!("{}\n", one_line(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_numbers_words_or_json() {
        let arguments = |texts: &[&str]| -> Vec<String> {
            texts.iter().map(|text| (*text).to_owned()).collect()
        };
        let limits = written_limits(&arguments(&[
            "calls=100",
            "tokens=[1000, {\"requests\": 50000}]",
            "uploads=unlimited",
            "a=b=c",
        ]));
        let expected = json!({
            "a": "b=c", "calls": 100, "tokens": [1000, { "requests": 50000 }],
            "uploads": "unlimited",
        });
        assert_eq!(limits.expect("valid"), expected);
        for (texts, problem) in [(&["calls"][..], "calls=100"), (&["a=1", "a=2"], "twice")] {
            let error = written_limits(&arguments(texts)).expect_err("invalid").to_string();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn a_list_has_a_line_per_plan() {
        let page = json!({
            "source": "redis", "plan_count": 2, "customers": 7, "read_at": "2026-11-23T06:00:00Z",
            "last_error": "gone\nfor ever", "warnings": ["plan `x` does not fit"],
            "plans": [{ "name": "free", "limits": { "calls": 100 } }],
        });
        let expected = "source redis: 2 plans, 7 customers in memory, read 2026-11-23T06:00:00Z\n\
                        problem: gone\\nfor ever\nproblem: plan `x` does not fit\n\
                        free  {\"calls\":100}\n";
        assert_eq!(listed(&page), expected);
        let none = json!({ "source": "none", "plan_count": 0, "read_at": null, "plans": [] });
        assert_eq!(listed(&none), "source none: 0 plans, 0 customers in memory, never read\n");
    }
}
