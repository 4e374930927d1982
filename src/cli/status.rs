//! `weir status`: the health of a running service, problems first.

use std::io::{self, Write};

use clap::Args;
use serde_json::{Map, Value};

use super::admin_client::AdminArgs;
use super::{exit, say_error};
use crate::escape::{escaped_json, one_line};

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Print the page as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Prints the status. Returns 1 with problems, and 69 if the service does not answer.
pub(super) fn run(args: &StatusArgs) -> anyhow::Result<u8> {
    let response = match args.admin.get("/status") {
        Ok(response) => response,
        Err(error) => {
            say_error(&error);
            return Ok(exit::UNAVAILABLE);
        }
    };
    if response.status != 200 {
        say_error(&anyhow::Error::msg(response.reason()));
        return Ok(exit::UNAVAILABLE);
    }
    let page = response.body;
    let text = match args.json {
        true => format!("{}\n", escaped_json(&page.to_string())),
        false => words(&page),
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    let has_problems = page["problems"].as_array().is_some_and(|all| !all.is_empty());
    Ok(if has_problems { exit::NEGATIVE } else { 0 })
}

/// A text of the page on one line; `-` if there is none.
fn word(value: &Value) -> String {
    one_line(value.as_str().unwrap_or("-")).into_owned()
}

/// The fields of a part with their names. Lists and absent values are left out.
fn fields(part: &Map<String, Value>) -> String {
    let plain = part.iter().filter(|(_, value)| !value.is_array() && !value.is_null());
    let shown: Vec<String> = plain
        .map(|(name, value)| {
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            format!("{} {}", one_line(name), one_line(&shown))
        })
        .collect();
    shown.join(", ")
}

/// The rest of the validity of a certificate.
fn validity(certificate: &Value) -> String {
    let at = word(&certificate["expires_at"]);
    match certificate["days_left"].as_f64() {
        Some(days) if days < 0.0 => format!("expired at {at}"),
        Some(days) if days < 2.0 => format!("{:.0} hours left, until {at}", (days * 24.0).floor()),
        Some(days) => format!("{:.0} days left, until {at}", days.floor()),
        None => format!("valid until {at}"),
    }
}

/// The page in words.
fn words(page: &Value) -> String {
    let mut text = format!(
        "{}, weir {} on {}, started {}\n",
        word(&page["health"]),
        word(&page["version"]),
        word(&page["host"]),
        word(&page["started_at"])
    );
    for problem in page["problems"].as_array().into_iter().flatten() {
        let (part, what) = (word(&problem["part"]), word(&problem["text"]));
        text.push_str(&format!("problem   {part}: {what}\n"));
    }
    let parts = ["decisions", "store", "rules", "xds", "plans", "changes", "rlqs", "connections"];
    for part in parts {
        let Some(all) = page[part].as_object() else { continue };
        text.push_str(&format!("{part:<11} {}\n", fields(all)));
        let nodes = all.get("nodes").and_then(Value::as_array);
        for node in nodes.into_iter().flatten().filter_map(Value::as_object) {
            let name = word(node.get("node").unwrap_or(&Value::Null));
            let mut rest = node.clone();
            rest.remove("node");
            text.push_str(&format!("{:<11} {name}: {}\n", "node", fields(&rest)));
        }
    }
    for certificate in page["certificates"].as_array().into_iter().flatten() {
        let (of, validity) = (word(&certificate["for"]), validity(certificate));
        text.push_str(&format!("certificate {of}: {validity}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_and_certificates_have_a_line_each() {
        let node = |name: &str, breaker: &str| {
            let (calls, errors, reachable) = (7, 0, true);
            json!({
                "node": name,
                "breaker": breaker,
                "reachable": reachable,
                "calls": calls,
                "errors": errors,
            })
        };
        let page = json!({
            "health": "serving",
            "problems": [{ "part": "redis", "text": "a\nb" }],
            "store": {
                "kind": "redis",
                "nodes": [node("a:1", "closed"), node("b\u{202e}", "open")],
            },
            "xds": null,
            "certificates": [
                { "for": "grpc", "expires_at": "2026-12-01T00:00:00Z", "days_left": 30.9 },
                { "for": "xds", "expires_at": "2026-12-02T00:00:00Z", "days_left": -0.1 },
            ],
        });
        let text = words(&page);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                r"problem   redis: a\nb",
                "store       kind redis",
                "node        a:1: breaker closed, calls 7, errors 0, reachable true",
                r"node        b\u{202e}: breaker open, calls 7, errors 0, reachable true",
                "certificate grpc: 30 days left, until 2026-12-01T00:00:00Z",
                "certificate xds: expired at 2026-12-02T00:00:00Z",
            ]
        );
    }

    #[test]
    fn short_validities_are_in_hours() {
        for (days, text) in [
            (json!(400.0), "400 days left, until T"),
            (json!(2.0), "2 days left, until T"),
            (json!(1.9), "45 hours left, until T"),
            (json!(0.1), "2 hours left, until T"),
            (json!(0.0), "0 hours left, until T"),
            (json!(-3.2), "expired at T"),
            (Value::Null, "valid until T"),
        ] {
            assert_eq!(validity(&json!({ "expires_at": "T", "days_left": days })), text);
        }
    }
}
