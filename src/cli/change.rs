//! `weir change`: makes, lists and ends temporary changes of a running service.

use std::io::{self, Write};

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::admin_client::{AdminArgs, AdminResponse, query_value};
use super::{exit, say, say_error};
use crate::descriptor::ParsedDescriptor;
use crate::escape::{escaped_json, one_line};
use crate::limit::TierNumbers;
use crate::rules::descriptor_selector;

/// HTTP status of a service that cannot reach its store.
const UNAVAILABLE: u16 = 503;

#[derive(Debug, Args)]
pub(crate) struct ChangeArgs {
    #[command(subcommand)]
    command: ChangeSubcommand,
}

#[derive(Debug, Subcommand)]
enum ChangeSubcommand {
    /// Change the limit of a rule or a descriptor, block it, or let it pass, for a time.
    Add(AddChangeArgs),
    /// List the active changes.
    List(ListChangesArgs),
    /// End changes before their time.
    End(EndChangesArgs),
}

#[derive(Debug, Args)]
struct AddChangeArgs {
    /// Namespace of the rules.
    #[arg(long)]
    domain: String,
    #[command(flatten)]
    target: ChangeTargetArgs,
    #[command(flatten)]
    action: ChangeActionArgs,
    /// How long the change holds, such as 2h30m; at most 90d.
    #[arg(long = "for", value_name = "DURATION", required_unless_present = "until")]
    length: Option<String>,
    /// Until when it holds, such as 2026-11-23T18:00:00Z.
    #[arg(long, value_name = "INSTANT", conflicts_with = "length")]
    until: Option<String>,
    /// Why the change is made. The list and the log show it.
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    user: UserArgs,
    #[command(flatten)]
    admin: AdminArgs,
}

/// What is changed.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct ChangeTargetArgs {
    /// Rule, by its name or its selector.
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// Descriptor, with exactly these entries.
    #[arg(long, value_name = "KEY=VALUE,...")]
    descriptor: Option<String>,
}

/// How it is changed.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct ChangeActionArgs {
    /// Requests per window, one number for each window of the rule; for a bucket also its burst, such
    /// as 100:200.
    #[arg(long, value_name = "REQUESTS[:BURST],...", value_delimiter = ',', value_parser = tier)]
    limit: Vec<TierNumbers>,
    /// Deny every request.
    #[arg(long)]
    block: bool,
    /// Let every request pass, without counting it.
    #[arg(long)]
    bypass: bool,
}

#[derive(Debug, Args)]
struct UserArgs {
    /// Name for the list and the log [default: the address of this host]
    #[arg(long, value_name = "NAME", value_parser = header_text)]
    user: Option<String>,
}

#[derive(Debug, Args)]
struct ListChangesArgs {
    /// Print the response as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Debug, Args)]
struct EndChangesArgs {
    /// Ids of changes, as `weir change list` shows them.
    #[arg(value_name = "ID", required_unless_present = "domain", conflicts_with = "domain")]
    ids: Vec<String>,
    /// Namespace of the rule or descriptor whose changes all end.
    #[arg(long)]
    domain: Option<String>,
    /// Rule whose changes end.
    #[arg(long, value_name = "NAME", requires = "domain", conflicts_with = "descriptor")]
    rule: Option<String>,
    /// Descriptor whose changes end.
    #[arg(long, value_name = "KEY=VALUE,...", requires = "domain")]
    descriptor: Option<ParsedDescriptor>,
    #[command(flatten)]
    user: UserArgs,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Prints the changes that were made or ended, or all. Returns 69 if the service or its store does not
/// answer.
pub(super) fn run(args: &ChangeArgs) -> anyhow::Result<u8> {
    match &args.command {
        ChangeSubcommand::Add(args) => add(args),
        ChangeSubcommand::List(args) => list(args),
        ChangeSubcommand::End(args) => end(args),
    }
}

fn add(args: &AddChangeArgs) -> anyhow::Result<u8> {
    let headers = args.user.headers();
    let response = args.admin.send("PATCH", "/changes", &headers, Some(&body(args)));
    with_body(response, |body| {
        let mut out = io::stdout().lock();
        writeln!(out, "{}", line(&body["change"]))?;
        if let Some(replaced) = body["replaces"].as_str() {
            writeln!(out, "replaces {}", one_line(replaced))?;
        }
        if body["scope"] == "this_process" {
            writeln!(out, "in this process only, because store.kind is memory")?;
        }
        for warning in items(body, "warnings").filter_map(Value::as_str) {
            say(format_args!("warning: {}", one_line(warning)));
        }
        Ok(())
    })
}

fn list(args: &ListChangesArgs) -> anyhow::Result<u8> {
    with_body(args.admin.send("GET", "/changes", &[], None), |body| {
        let mut out = io::stdout().lock();
        if args.json {
            writeln!(out, "{}", escaped_json(&body.to_string()))?;
            return Ok(());
        }
        for change in items(body, "changes") {
            writeln!(out, "{}", line(change))?;
        }
        for id in items(body, "unreadable") {
            let id = one_line(id.as_str().unwrap_or_default());
            writeln!(out, "{id}  is stored, but this version of weir cannot read it")?;
        }
        if let Some(error) = body["error"].as_str() {
            writeln!(out, "possibly not all: {}", one_line(error))?;
        }
        Ok(())
    })
}

fn end(args: &EndChangesArgs) -> anyhow::Result<u8> {
    let mut ids = args.ids.clone();
    if let Some(domain) = &args.domain {
        if args.rule.is_none() && args.descriptor.is_none() {
            anyhow::bail!("--domain needs --rule or --descriptor, whose changes end");
        }
        let code = with_body(args.admin.send("GET", "/changes", &[], None), |body| {
            let changes = items(body, "changes").filter(|change| {
                change["domain"] == **domain && is_of(change, &args.rule, &args.descriptor)
            });
            ids.extend(changes.filter_map(|change| change["id"].as_str()).map(str::to_owned));
            Ok(())
        })?;
        if code != 0 {
            return Ok(code);
        }
        if ids.is_empty() {
            anyhow::bail!("there is no such change; `weir change list` shows all");
        }
    }
    for id in &ids {
        let path = format!("/changes/{}", query_value(id));
        let response = args.admin.send("DELETE", &path, &args.user.headers(), None);
        let code = with_body(response, |body| {
            let mut out = io::stdout().lock();
            match &body["change"] {
                Value::Null => writeln!(out, "ended {}", one_line(id))?,
                change => writeln!(out, "ended {}", line(change))?,
            }
            Ok(())
        })?;
        if code != 0 {
            return Ok(code);
        }
    }
    Ok(0)
}

/// Calls `show` with the body of a successful response.
fn with_body(
    response: anyhow::Result<AdminResponse>,
    show: impl FnOnce(&Value) -> anyhow::Result<()>,
) -> anyhow::Result<u8> {
    let response: AdminResponse = match response {
        Ok(response) => response,
        Err(error) => {
            say_error(&error);
            return Ok(exit::UNAVAILABLE);
        }
    };
    if response.status == 200 {
        return show(&response.body).map(|()| 0);
    }
    let error = anyhow::Error::msg(one_line(&response.reason()).into_owned());
    if response.status == UNAVAILABLE {
        say_error(&error);
        return Ok(exit::UNAVAILABLE);
    }
    Err(error)
}

impl UserArgs {
    fn headers(&self) -> Vec<(&str, &str)> {
        self.user.iter().map(|user| ("x-weir-user", user.as_str())).collect()
    }
}

/// The body of the request.
fn body(args: &AddChangeArgs) -> Value {
    let mut body = Map::new();
    body.insert("domain".to_owned(), json!(args.domain));
    let texts = [
        ("rule", &args.target.rule),
        ("descriptor", &args.target.descriptor),
        ("for", &args.length),
        ("until", &args.until),
    ];
    for (name, text) in texts {
        body.extend(text.as_ref().map(|text| (name.to_owned(), json!(text))));
    }
    let ChangeActionArgs { limit, block, bypass } = &args.action;
    let (name, value) = match (block, bypass) {
        (true, _) => ("block", json!(true)),
        (_, true) => ("bypass", json!(true)),
        (false, false) => ("limit", limit.iter().map(written).collect()),
    };
    body.insert(name.to_owned(), value);
    body.insert("reason".to_owned(), json!(args.reason));
    Value::Object(body)
}

/// The numbers of one tier, as the request has them.
fn written(tier: &TierNumbers) -> Value {
    match tier.burst {
        None => json!({ "requests": tier.requests }),
        Some(burst) => json!({ "requests": tier.requests, "burst": burst }),
    }
}

/// `100`, or `100:200` with a burst.
fn tier(text: &str) -> Result<TierNumbers, String> {
    let (requests, burst) = match text.split_once(':') {
        Some((requests, burst)) => (requests, Some(burst)),
        None => (text, None),
    };
    let number = |text: &str| {
        text.parse::<u64>().map_err(|_| "write whole numbers, such as 100 or 100:200".to_owned())
    };
    Ok(TierNumbers { requests: number(requests)?, burst: burst.map(number).transpose()? })
}

/// A text that is one line of a header.
fn header_text(text: &str) -> Result<String, String> {
    let is_header = !text.trim().is_empty() && !text.chars().any(char::is_control);
    is_header.then(|| text.to_owned()).ok_or_else(|| "write a name on one line".to_owned())
}

fn items<'v>(body: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    body[name].as_array().into_iter().flatten()
}

/// Whether `change` is one of this rule or descriptor.
fn is_of(change: &Value, rule: &Option<String>, descriptor: &Option<ParsedDescriptor>) -> bool {
    let of_rule = |rule: &String| change["rule"] == **rule || change["selector"] == **rule;
    let of_descriptor = |descriptor: &ParsedDescriptor| {
        change["descriptor"] == *descriptor_selector(&descriptor.entries())
    };
    rule.as_ref().is_some_and(of_rule) || descriptor.as_ref().is_some_and(of_descriptor)
}

/// A change on one line.
fn line(change: &Value) -> String {
    let text = |name: &str| one_line(change[name].as_str().unwrap_or_default()).into_owned();
    let target = match change["rule"].as_str() {
        Some(_) => format!("rule {}", text("rule")),
        None => format!("descriptor {}", text("descriptor")),
    };
    let mut numbers = String::new();
    for tier in items(change, "limit") {
        let comma = if numbers.is_empty() { " " } else { ", " };
        numbers.push_str(&format!("{comma}{}", tier["requests"]));
        if let Some(burst) = tier["burst"].as_u64() {
            numbers.push_str(&format!(":{burst}"));
        }
    }
    let mut line = format!(
        "{}  {} of {target} in domain {}{numbers} until {}, by {}",
        text("id"),
        text("action"),
        text("domain"),
        text("until"),
        text("by")
    );
    for (name, before) in [("reason", ": "), ("problem", "; without effect: ")] {
        let text = text(name);
        if !text.is_empty() {
            line.push_str(before);
            line.push_str(&text);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_on_one_line() {
        let change = json!({
            "id": "1b", "domain": "d", "rule": "user", "action": "limit",
            "limit": [{ "requests": 5 }, { "requests": 50, "burst": 9 }],
            "until": "2026-11-23T18:00:00Z", "by": "ann", "reason": "a\nb", "problem": null,
        });
        let expected = "1b  limit of rule user in domain d 5, 50:9 until 2026-11-23T18:00:00Z, \
                        by ann: a\\nb";
        assert_eq!(line(&change), expected);
        let block = json!({
            "id": "2", "domain": "d", "descriptor": "k=v", "action": "block", "until": "T",
            "by": "10.0.0.1", "reason": "", "problem": "p",
        });
        let expected = "2  block of descriptor k=v in domain d until T, by 10.0.0.1; without \
                        effect: p";
        assert_eq!(line(&block), expected);
    }

    #[test]
    fn numbers_and_names_are_checked() {
        let numbers = |requests, burst| Ok(TierNumbers { requests, burst });
        assert_eq!(tier("100"), numbers(100, None));
        assert_eq!(tier("100:200"), numbers(100, Some(200)));
        for text in ["", "-1", "1.5", "1:", ":1", "1:2:3", "x"] {
            assert!(tier(text).is_err(), "{text}");
        }
        assert_eq!(header_text("ann").as_deref(), Ok("ann"));
        for text in ["", " ", "a\r\nx-y: z", "a\0"] {
            assert!(header_text(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_change_is_found_by_each_name_of_its_target() {
        let rule = json!({ "rule": "login", "selector": "path=/a,ip" });
        let descriptor = json!({ "descriptor": r"user=a\,b" });
        let parsed = |text: &str| Some(text.parse::<ParsedDescriptor>().expect("a descriptor"));
        let named = |name: &str| Some(name.to_owned());
        for (change, name, text, found) in [
            (&rule, named("path=/a,ip"), None, true),
            (&rule, named("login"), None, true),
            (&rule, named("other"), None, false),
            (&descriptor, None, parsed(r"user=a\,b"), true),
            (&descriptor, None, parsed("user=a"), false),
            (&rule, None, parsed("path=/a"), false),
        ] {
            assert_eq!(is_of(change, &name, &text), found, "{change} {name:?} {text:?}");
        }
    }
}
