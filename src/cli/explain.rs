//! `weir explain`: shows which rule a descriptor matches, and every step of the lookup.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::admin_client::{AdminArgs, query_value};
use super::rule_source::RuleSource;
use super::{ExplainArgs, exit, say_error};
use crate::app::{BucketSettings, ExplainedBucket};
use crate::escape::{escaped_json, one_line};
use crate::rlqs::WrittenBucketId;

/// Prints an explanation per descriptor and per bucket. Returns 0 also if no rule matches, because
/// the explanation then gives the reason.
pub(super) fn run(args: &ExplainArgs) -> anyhow::Result<u8> {
    let buckets: Vec<_> = args.buckets.iter().map(|text| bucket(text)).collect::<Result<_, _>>()?;
    if let Some(address) = &args.addr {
        let admin = AdminArgs::new(address.clone(), args.token_file.clone());
        return running(&admin, args);
    }
    let source = RuleSource::new(args.config.as_deref(), &args.rules, &args.rule_options)?;
    let Some(source) = source else { return Ok(exit::BAD_CONFIG) };
    let Some(rules) = source.read()? else { return Ok(exit::BAD_CONFIG) };
    let are_defaults = source.settings.is_none();
    let settings = source.settings.unwrap_or_default();
    settings.request.check_domain(&args.domain)?;
    let assumed = (are_defaults && !buckets.is_empty()).then(|| BucketSettings::of(&settings));
    let mut out = io::stdout().lock();
    let mut all = Vec::new();
    for text in &args.descriptors {
        let explanation = rules.explain_text(&args.domain, text).map_err(anyhow::Error::msg)?;
        match args.json {
            true => all.push(json!(explanation)),
            false => writeln!(out, "{explanation}")?,
        }
    }
    for id in &buckets {
        let bucket = ExplainedBucket::of(&rules, &settings, &args.domain, id);
        match args.json {
            true => all.push(bucket.to_json()),
            false => writeln!(out, "{bucket}")?,
        }
    }
    if args.json {
        let mut all = json!({ "explanations": all });
        if let Some(assumed) = &assumed {
            all["assumed_settings"] = assumed.to_json().clone();
        }
        writeln!(out, "{}", escaped_json(&all.to_string()))?;
    } else if let Some(assumed) = &assumed {
        writeln!(out, "note    without --config, the defaults apply: {assumed}")?;
    }
    Ok(0)
}

/// The bucket id that was written as `text`.
fn bucket(text: &str) -> anyhow::Result<WrittenBucketId> {
    let id = text.parse().and_then(|written| WrittenBucketId::read(&written));
    id.map_err(|error| anyhow::anyhow!("--bucket: {error}"))
}

/// Prints what the service with this admin address says, and the states of the counters. Returns 69 if
/// it does not answer.
fn running(admin: &AdminArgs, args: &ExplainArgs) -> anyhow::Result<u8> {
    let unavailable = |error| {
        say_error(&error);
        Ok(exit::UNAVAILABLE)
    };
    let (mut out, mut all) = (io::stdout().lock(), Vec::new());
    let descriptors = args.descriptors.iter().map(|text| ("descriptors", text));
    let buckets = args.buckets.iter().map(|text| ("buckets", text));
    for (kind, text) in descriptors.chain(buckets) {
        let question = json!({ "domain": args.domain, kind: [text] });
        let answer = match admin.send("POST", "/explain", &[], Some(&question)) {
            Ok(answer) => answer,
            Err(error) => return unavailable(error),
        };
        let mut explanation = answer.body["explanations"][0].clone();
        let Some(shown) = explanation["text"].as_str().map(str::to_owned) else {
            anyhow::bail!("{}", answer.reason());
        };
        let descriptor = explanation["bucket_descriptor"].as_str().unwrap_or(text);
        let hash = explanation["counter"].as_str().map(str::to_owned);
        let state = match &hash {
            Some(_) => match state(admin, &args.domain, descriptor) {
                Ok(state) => state,
                Err(error) => return unavailable(error),
            },
            None => Value::Null,
        };
        if args.json {
            explanation["state"] = state;
            all.push(explanation);
            continue;
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
