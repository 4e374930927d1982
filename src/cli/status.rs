//! `weir status`: the health of a running service, problems first.

use std::io::{self, Write};

use clap::Args;
use serde_json::Value;

use super::admin_client::AdminArgs;
use super::{exit, say_error};
use crate::escape::one_line;

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
    let text = if args.json { format!("{page}\n") } else { words(&page) };
    io::stdout().lock().write_all(text.as_bytes())?;
    let has_problems = page["problems"].as_array().is_some_and(|all| !all.is_empty());
    Ok(if has_problems { exit::NEGATIVE } else { 0 })
}

/// The page in words.
fn words(page: &Value) -> String {
    let word = |value: &Value| one_line(value.as_str().unwrap_or("-")).into_owned();
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
        let Some(fields) = page[part].as_object() else { continue };
        let plain = fields.iter().filter(|(_, value)| !value.is_array() && !value.is_null());
        let shown: Vec<String> = plain
            .map(|(name, value)| {
                let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                format!("{} {}", one_line(name), one_line(&shown))
            })
            .collect();
        text.push_str(&format!("{part:<11} {}\n", shown.join(", ")));
    }
    text
}
