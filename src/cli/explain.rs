//! `weir explain`: shows which rule a descriptor matches, and every step of the lookup.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::admin_client::{AdminArgs, query_value};
use super::bucket_id::{self, BucketId};
use super::rule_source::RuleSource;
use super::{ExplainArgs, exit, say_error};
use crate::escape::{escaped_json, one_line};
use crate::settings::RlqsSettings;

/// Prints an explanation per descriptor. Returns 0 also if no rule matches, because the
/// explanation then gives the reason.
pub(super) fn run(args: &ExplainArgs) -> anyhow::Result<u8> {
    if let Some(address) = &args.addr {
        let admin = AdminArgs::new(address.clone(), args.token_file.clone());
        return running(&admin, args);
    }
    let source = RuleSource::new(args.config.as_deref(), &args.rules, &args.rule_options)?;
    let Some(source) = source else { return Ok(exit::BAD_CONFIG) };
    let Some(rules) = source.read()? else { return Ok(exit::BAD_CONFIG) };
    let rlqs = source.settings.map_or_else(RlqsSettings::default, |settings| settings.rlqs);
    let buckets = BucketId::read_all(&args.buckets)?;
    let mut out = io::stdout().lock();
    let mut all = Vec::new();
    for text in &args.descriptors {
        let explanation = rules.explain_text(&args.domain, text).map_err(anyhow::Error::msg)?;
        match args.json {
            true => all.push(json!(explanation)),
            false => writeln!(out, "{explanation}")?,
        }
    }
    for bucket in &buckets {
        let descriptor = bucket.descriptor(&rlqs.key_order);
        let explanation = rules.explain(&args.domain, &descriptor.entries());
        let written = bucket_id::written(&descriptor);
        if args.json {
            let mut shown = json!(explanation);
            shown["bucket_descriptor"] = json!(written);
            all.push(shown);
        } else {
            write_bucket(&mut out, &written)?;
            writeln!(out, "{explanation}")?;
        }
    }
    if args.json {
        let all = json!({ "explanations": all }).to_string();
        writeln!(out, "{}", escaped_json(&all))?;
    }
    Ok(0)
}

/// Prints what the service with this admin address says, and the states of the counters. Returns 69 if
/// it does not answer.
fn running(admin: &AdminArgs, args: &ExplainArgs) -> anyhow::Result<u8> {
    let unavailable = |error| {
        say_error(&error);
        Ok(exit::UNAVAILABLE)
    };
    let buckets = BucketId::read_all(&args.buckets)?;
    let key_order = match key_order(admin, &buckets) {
        Ok(key_order) => key_order,
        Err(error) => return unavailable(error),
    };
    let of_buckets = buckets.iter().map(|one| bucket_id::written(&one.descriptor(&key_order)));
    let of_buckets: Vec<String> = of_buckets.collect();
    let (mut out, mut all) = (io::stdout().lock(), Vec::new());
    for (index, text) in args.descriptors.iter().chain(&of_buckets).enumerate() {
        let question = json!({ "domain": args.domain, "descriptor": text });
        let answer = match admin.send("POST", "/explain", &[], Some(&question)) {
            Ok(answer) => answer,
            Err(error) => return unavailable(error),
        };
        let is_bucket = index >= args.descriptors.len();
        let mut explanation = answer.body["explanations"][0].clone();
        let Some(shown) = explanation["text"].as_str().map(str::to_owned) else {
            anyhow::bail!("{}", answer.reason());
        };
        let hash = explanation["counter"].as_str().map(str::to_owned);
        let state = match &hash {
            Some(_) => match state(admin, &args.domain, text) {
                Ok(state) => state,
                Err(error) => return unavailable(error),
            },
            None => Value::Null,
        };
        if args.json {
            if is_bucket {
                explanation["bucket_descriptor"] = json!(text);
            }
            explanation["state"] = state;
            all.push(explanation);
            continue;
        }
        if is_bucket {
            write_bucket(&mut out, text)?;
        }
        write!(out, "{shown}")?;
        if let Some(hash) = hash {
            writeln!(out, "hash    {}, as at /top", one_line(&hash))?;
            write_state(&mut out, &state)?;
        }
        writeln!(out)?;
    }
    if args.json {
        let all = json!({ "explanations": all }).to_string();
        writeln!(out, "{}", escaped_json(&all))?;
    }
    Ok(0)
}

/// The response of `/counters`: the state, or `error` with the reason why it is not shown.
fn state(admin: &AdminArgs, domain: &str, descriptor: &str) -> anyhow::Result<Value> {
    let (domain, descriptor) = (query_value(domain), query_value(descriptor));
    let answer = admin.get(&format!("/counters?domain={domain}&descriptor={descriptor}"))?;
    Ok(match answer.status {
        200 => answer.body,
        _ => json!({ "error": answer.reason() }),
    })
}

/// The `rlqs.key_order` of the service with this admin address. Asked for only if there are buckets.
fn key_order(admin: &AdminArgs, buckets: &[BucketId]) -> anyhow::Result<Vec<String>> {
    if buckets.is_empty() {
        return Ok(Vec::new());
    }
    let settings = admin.get("/settings")?.body;
    let key_order = settings["rlqs"]["key_order"].as_str().unwrap_or_default();
    Ok(key_order.split(',').filter(|key| !key.is_empty()).map(str::to_owned).collect())
}

/// Prints the descriptor that a bucket id becomes.
fn write_bucket(out: &mut impl Write, descriptor: &str) -> io::Result<()> {
    writeln!(out, "bucket  as the descriptor {}", one_line(descriptor))
}

/// Prints the state of a counter, or the reason why the service does not show it.
fn write_state(out: &mut impl Write, counter: &Value) -> io::Result<()> {
    if let Some(error) = counter["error"].as_str() {
        return writeln!(out, "state   not shown: {}", one_line(error));
    }
    write_tiers(out, counter)?;
    if let Some(note) = counter["note"].as_str() {
        writeln!(out, "note    {}", one_line(note))?;
    }
    match counter.get("what_if") {
        Some(what_if) => {
            writeln!(out, "shadow  its counter, which never denies:")?;
            write_tiers(out, what_if)
        }
        None => Ok(()),
    }
}

/// Prints the tiers of a counter, and until when it denies.
fn write_tiers(out: &mut impl Write, counter: &Value) -> io::Result<()> {
    for tier in counter["tiers"].as_array().into_iter().flatten() {
        let [used, requests, left, reset] =
            ["used", "requests", "remaining", "reset_after_seconds"].map(|name| &tier[name]);
        writeln!(out, "state   {used} used, {left} of {requests} remaining, resets in {reset} s")?;
    }
    match counter["denied_until"].as_str() {
        Some(until) => writeln!(out, "        denied until {until}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_a_line_per_tier() {
        let shown = |counter: Value| {
            let mut out = Vec::new();
            write_state(&mut out, &counter).expect("memory");
            String::from_utf8(out).expect("text")
        };
        let tier = json!({ "used": 3, "requests": 3, "remaining": 0, "reset_after_seconds": 1.5 });
        let full = json!({ "tiers": [tier], "denied_until": "2026-11-22T10:00:00Z" });
        assert_eq!(
            shown(full),
            "state   3 used, 0 of 3 remaining, resets in 1.5 s\n        \
             denied until 2026-11-22T10:00:00Z\n"
        );
        let tier = json!({ "used": 1, "requests": 9, "remaining": 8, "reset_after_seconds": 2 });
        let what_if = json!({ "tiers": [tier], "denied_until": null });
        let both = json!({ "tiers": [tier], "denied_until": null, "what_if": what_if });
        let state = "state   1 used, 8 of 9 remaining, resets in 2 s\n";
        let title = "shadow  its counter, which never denies:\n";
        assert_eq!(shown(both), format!("{state}{title}{state}"));
        let divided = json!({ "tiers": [tier], "denied_until": null, "note": "RLQS divides it." });
        assert_eq!(shown(divided), format!("{state}note    RLQS divides it.\n"));
        let refused = json!({ "error": "no authorization" });
        assert_eq!(shown(refused), "state   not shown: no authorization\n");
    }
}
