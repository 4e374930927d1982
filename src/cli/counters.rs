//! `weir counters`: lists the limited counters of a running service, shows one, or empties it.

use std::io::{self, Write};

use clap::Args;
use serde_json::{Value, json};

use super::admin_client::{AdminArgs, query_value};
use super::limited::limited;
use super::{exit, say, say_error};
use crate::escape::{escaped_json, one_line};

#[derive(Debug, Args)]
pub(crate) struct CountersArgs {
    /// Namespace of the rules.
    #[arg(long, requires = "descriptor")]
    domain: Option<String>,
    /// Descriptor of the counter, as key=value,key=value [default: list the limited counters]
    #[arg(requires = "domain", value_name = "KEY=VALUE,...")]
    descriptor: Option<String>,
    /// Empty the counter, after a question.
    #[arg(long, requires = "descriptor")]
    delete: bool,
    /// Empty the counter without a question.
    #[arg(long, requires = "delete")]
    yes: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Prints the counters. Returns 1 if the question is not answered with yes, and 69 if the service or its
/// store does not answer.
pub(super) fn run(args: &CountersArgs) -> anyhow::Result<u8> {
    let answer = match (&args.domain, &args.descriptor) {
        (Some(domain), Some(descriptor)) => {
            if args.delete && !args.yes && !confirmed(domain, descriptor)? {
                say(format_args!("weir: the counter is not emptied"));
                return Ok(exit::NEGATIVE);
            }
            let (domain, descriptor) = (query_value(domain), query_value(descriptor));
            let method = if args.delete { "DELETE" } else { "GET" };
            let path = format!("/counters?domain={domain}&descriptor={descriptor}");
            args.admin.send(method, &path, &[], None)
        }
        _ => limited(&args.admin),
    };
    let response = match answer {
        Ok(response) => response,
        Err(error) => {
            say_error(&error);
            return Ok(exit::UNAVAILABLE);
        }
    };
    if response.status != 200 {
        let error = anyhow::Error::msg(response.reason());
        if response.status == 503 {
            say_error(&error);
            return Ok(exit::UNAVAILABLE);
        }
        return Err(error);
    }
    let body = response.body;
    let mut out = io::stdout().lock();
    if args.json {
        let one = || json!({ "counters": [body.clone()] });
        let shown = if args.descriptor.is_some() { one() } else { body };
        writeln!(out, "{}", escaped_json(&shown.to_string()))?;
        return Ok(0);
    }
    out.write_all(text(&body, args.descriptor.is_some()).as_bytes())?;
    Ok(0)
}

/// Asks on standard error. Any answer but `y` or `yes`, and the end of the input, is no.
fn confirmed(domain: &str, descriptor: &str) -> io::Result<bool> {
    let (domain, descriptor) = (one_line(domain), one_line(descriptor));
    let mut error = io::stderr().lock();
    write!(error, "empty the counter of {descriptor} in domain {domain}? [y/N] ")?;
    error.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The response in words: one counter, or a line per limited counter.
fn text(body: &Value, is_one: bool) -> String {
    if is_one {
        return one(body);
    }
    let lists = ["counters", "top"].map(|name| body[name].as_array().into_iter().flatten());
    let mut text = String::new();
    for counter in lists.into_iter().flatten() {
        let word = |name: &str| one_line(counter[name].as_str().unwrap_or_default()).into_owned();
        let name = match counter["descriptor"].as_str() {
            Some(_) => word("descriptor"),
            None => word("counter"),
        };
        let (domain, rule, hits) =
            (word("domain"), word("rule"), counter["denied_hits"].to_string());
        text.push_str(&format!("{hits:>9} denied  {domain}  {rule}  {name}"));
        if let Some(until) = counter["denied_until"].as_str() {
            text.push_str(&format!("  until {}", one_line(until)));
        }
        text.push('\n');
    }
    if text.is_empty() {
        text.push_str("no counter denied a hit in the last minute\n");
    }
    text
}

/// One counter: its rule, and a line per tier; or whether it existed.
fn one(body: &Value) -> String {
    let word = |name: &str| one_line(body[name].as_str().unwrap_or_default()).into_owned();
    let mut text = format!("domain {}, rule {}\n", word("domain"), word("rule"));
    if let Some(existed) = body["existed"].as_bool() {
        text.push_str(if existed {
            "the counter is empty now\n"
        } else {
            "it was empty already\n"
        });
    }
    for tier in body["tiers"].as_array().into_iter().flatten() {
        let [used, requests, left, window, reset] =
            ["used", "requests", "remaining", "window_seconds", "reset_after_seconds"]
                .map(|name| &tier[name]);
        text.push_str(&format!(
            "{used} of {requests} used per {window} s, {left} remaining, resets in {reset} s\n"
        ));
    }
    if body["denied"] == true {
        text.push_str("denied");
        match body["denied_until"].as_str() {
            Some(until) => text.push_str(&format!(" until {}\n", one_line(until))),
            None => text.push('\n'),
        }
    }
    if body["note"].is_string() {
        text.push_str(&format!("{}\n", word("note")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limited_counters_have_a_line_each() {
        let named = json!({ "domain": "d", "rule": "r", "descriptor": "k=\u{1b}", "counter": "9f",
            "denied_hits": 7, "denied_until": "T" });
        let expected = "        7 denied  d  r  k=\\u{1b}  until T\n";
        assert_eq!(text(&json!({ "counters": [named] }), false), expected);
        let hashed = json!({ "domain": "d", "rule": "r", "counter": "9f", "denied_hits": 7 });
        assert_eq!(text(&json!({ "top": [hashed] }), false), "        7 denied  d  r  9f\n");
        let none = "no counter denied a hit in the last minute\n";
        assert_eq!(text(&json!({ "counters": [] }), false), none);
    }

    #[test]
    fn a_counter_has_a_line_per_tier() {
        let tier = json!({ "used": 3, "requests": 3, "remaining": 0, "window_seconds": 60.0,
            "reset_after_seconds": 1.5 });
        let full = json!({ "domain": "d", "rule": "r", "tiers": [tier], "denied": true,
            "denied_until": "T" });
        let expected = "domain d, rule r\n\
                        3 of 3 used per 60.0 s, 0 remaining, resets in 1.5 s\ndenied until T\n";
        assert_eq!(text(&full, true), expected);
        let divided = json!({ "domain": "d", "rule": "r", "note": "RLQS divides it." });
        assert_eq!(text(&divided, true), "domain d, rule r\nRLQS divides it.\n");
        let deleted = json!({ "domain": "d", "rule": "r", "existed": true });
        assert_eq!(text(&deleted, true), "domain d, rule r\nthe counter is empty now\n");
    }
}
