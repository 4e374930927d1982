//! `weir plan`: how much Redis and how many instances the rules need under a given load.

use std::io::{self, Write as _};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::rule_source::RuleSource;
use super::{RuleOptionArgs, exit};
use crate::capacity::{Inputs, RuleLoad, calculate};
use crate::duration::{self, Style};
use crate::escape::escaped_json;
use crate::rules::{Rule, RuleSet};

#[cfg(test)]
mod page;
mod text;

/// The calls per second of a plan: at least one in twelve days.
const RATES: RangeInclusive<f64> = 1e-6..=1e12;

/// The descriptors of a call that match a rule with a limit.
const DESCRIPTORS: RangeInclusive<f64> = 1e-6..=1e6;

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Rule files and folders [default: those of the settings]
    #[arg(long, value_name = "PATH", num_args = 1..)]
    rules: Vec<PathBuf>,
    /// Settings file. It is read together with the environment, as by `weir serve`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Calls per second to all instances.
    #[arg(long, value_name = "PER_SECOND", value_parser = rate, allow_hyphen_values = true)]
    rps: f64,
    /// Distinct values of each rule that counts values separately.
    #[arg(long, value_name = "NUMBER", value_parser = keys, allow_hyphen_values = true)]
    keys: u64,
    /// Distribute calls over the keys by Zipf's law with this exponent, for example 1
    /// [default: uniform].
    #[arg(long, value_name = "EXPONENT", value_parser = positive, allow_hyphen_values = true)]
    zipf: Option<f64>,
    /// Share of the calls that are denied, from 0 to 1.
    #[arg(
        long, default_value = "0", value_name = "SHARE", value_parser = share,
        allow_hyphen_values = true
    )]
    denied: f64,
    /// Descriptors of a call that match a rule with a limit.
    #[arg(
        long, default_value = "1", value_name = "NUMBER", value_parser = descriptors,
        allow_hyphen_values = true
    )]
    descriptors: f64,
    /// A rule that calls match, by its name or its selector, and its weight; may be repeated [default:
    /// all rules with a limit, equally]
    #[arg(long = "rule", value_name = "NAME[=WEIGHT]")]
    chosen: Vec<String>,
    /// Instances [default: the fewest that suffice]
    #[arg(
        long, value_parser = clap::value_parser!(u32).range(1..=100_000),
        allow_hyphen_values = true
    )]
    instances: Option<u32>,
    /// Primaries of Redis, 1 for a single server [default: the fewest that suffice]
    #[arg(
        long, value_parser = clap::value_parser!(u32).range(1..=1024),
        allow_hyphen_values = true
    )]
    primaries: Option<u32>,
    /// Workers of an instance, one per core [default: `grpc.workers`, or 2 if that is `auto`]
    #[arg(
        long, value_parser = clap::value_parser!(u32).range(1..=1024),
        allow_hyphen_values = true
    )]
    workers: Option<u32>,
    /// Round trip to Redis, such as 1ms [default: the measured one of docs/design/capacity.md]
    #[arg(long, value_name = "TIME", value_parser = round_trip, allow_hyphen_values = true)]
    round_trip: Option<Duration>,
    /// Print the plan as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    rule_options: RuleOptionArgs,
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("`{text}` is not a number above 0"))
}

fn keys(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("`{text}` is not a whole number above 0"))
}

fn rate(text: &str) -> Result<f64, String> {
    positive_in(text, &RATES)
}

fn descriptors(text: &str) -> Result<f64, String> {
    positive_in(text, &DESCRIPTORS)
}

fn positive_in(text: &str, range: &RangeInclusive<f64>) -> Result<f64, String> {
    let number = positive(text)?;
    let (least, most) = (range.start(), range.end());
    let is_possible = range.contains(&number);
    is_possible.then_some(number).ok_or_else(|| format!("`{text}` is not from {least} to {most:e}"))
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| format!("`{text}` is not a number from 0 to 1"))
}

fn round_trip(text: &str) -> Result<Duration, String> {
    let nanos = duration::parse(text, Style::Go).ok().and_then(|nanos| u64::try_from(nanos).ok());
    let length = nanos.filter(|nanos| *nanos > 0).map(Duration::from_nanos);
    length.ok_or_else(|| format!("`{text}` is not a duration such as 1ms"))
}

/// Prints the plan. Returns 64 if the rules or the settings are invalid.
pub(super) fn run(args: &PlanArgs) -> anyhow::Result<u8> {
    let source = RuleSource::new(args.config.as_deref(), &args.rules, &args.rule_options)?;
    let Some(source) = source else { return Ok(exit::BAD_CONFIG) };
    let Some(rules) = source.read()? else { return Ok(exit::BAD_CONFIG) };
    let loads = rule_loads(&rules, &args.chosen, args.keys)?;
    let settings = source.settings.unwrap_or_default();
    let mut inputs = Inputs::new(args.rps, loads, &settings);
    inputs.descriptors = args.descriptors;
    inputs.denied = args.denied;
    inputs.skew = args.zipf.unwrap_or(0.0);
    (inputs.instances, inputs.primaries) = (args.instances, args.primaries);
    if let Some(workers) = args.workers {
        inputs.set_workers(workers, &settings);
    }
    if let Some(round_trip) = args.round_trip {
        inputs.round_trip = round_trip;
    }
    let plan = calculate(&inputs);
    let mut out = io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", escaped_json(&serde_json::to_string_pretty(&plan)?))?,
        false => text::write(&mut out, &plan, inputs.workers)?,
    }
    Ok(0)
}

/// The rules with a limit, or those of them that `chosen` names.
fn rule_loads(rules: &RuleSet, chosen: &[String], keys: u64) -> anyhow::Result<Vec<RuleLoad>> {
    let all = rules.rules().iter().filter_map(|rule| Some((rule, RuleLoad::of(rule, keys)?)));
    let all: Vec<(&Rule, RuleLoad)> = all.collect();
    anyhow::ensure!(!all.is_empty(), "no rule has a limit; name rule files with --rules");
    if chosen.is_empty() {
        return Ok(all.into_iter().map(|(_, load)| load).collect());
    }
    let mut loads = Vec::new();
    for text in chosen {
        let named = |name: &str| -> Vec<RuleLoad> {
            let named = all.iter().filter(|(rule, _)| is_named(rule, name));
            named.map(|(_, load)| load.clone()).collect()
        };
        // A selector may end like a weight: `user=7`.
        let (mut found, mut name) = (named(text), text.as_str());
        if let (true, Some((before, weight))) = (found.is_empty(), text.rsplit_once('=')) {
            (found, name) = (named(before), before);
            if !found.is_empty() {
                let weight = positive(weight);
                let weight = weight.map_err(|error| anyhow::anyhow!("--rule {text}: {error}"))?;
                found.iter_mut().for_each(|load| load.weight = weight);
            }
        }
        if found.is_empty() {
            let names: Vec<&str> = all.iter().take(20).map(|(_, load)| &*load.rule).collect();
            let names = names.join(", ");
            anyhow::bail!(
                "--rule {name}: no rule with a limit has this name; name one of: {names}"
            );
        }
        loads.append(&mut found);
    }
    Ok(loads)
}

/// Whether `text` is the name or the selector of `rule`, or its `name` that other rules have too.
fn is_named(rule: &Rule, text: &str) -> bool {
    rule.is_called(text) || rule.name.as_deref() == Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_bounds() {
        for text in ["0", "-1", "nan", "inf", "x"] {
            assert!(positive(text).is_err(), "{text}");
        }
        assert_eq!(positive("0.5"), Ok(0.5));
        assert_eq!(keys("1"), Ok(1));
        assert!(keys("0").is_err() && keys("-1").is_err() && keys("0.5").is_err());
        assert!(rate("1e12").is_ok() && rate("1.1e12").is_err() && rate("0").is_err());
        assert!(rate("0.000001").is_ok() && descriptors("1e6").is_ok());
        let error = "`1e-300` is not from 0.000001 to 1e12".to_owned();
        assert_eq!(rate("1e-300"), Err(error));
        let error = "`1e300` is not from 0.000001 to 1e6".to_owned();
        assert_eq!(descriptors("1e300"), Err(error));
        assert!(share("1.1").is_err() && share("nan").is_err());
        assert_eq!(share("1"), Ok(1.0));
        assert_eq!(round_trip("500us"), Ok(Duration::from_micros(500)));
        assert!(round_trip("0").is_err() && round_trip("1").is_err());
    }
}
