//! `weir replay`: decides recorded calls by two sets of rules, and prints what differs.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::rule_source::{RuleSource, count};
use super::{RuleOptionArgs, exit};
use crate::escape::escaped_json;
use crate::replay::{LineForm, ReplayOptions, ReplayReport, replay};
use crate::settings::{ResponseSettings, Settings};

mod plan_files;

use plan_files::PlanFileArgs;

/// The name of standard input.
const STANDARD_INPUT: &str = "-";

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Recording: a file of the decision log (`log.decisions.path`), or `-` for standard input.
    #[arg(value_name = "FILE")]
    recording: PathBuf,
    /// New rules: a rule file or folder; may be repeated.
    #[arg(long, value_name = "PATH", required = true)]
    rules: Vec<PathBuf>,
    /// Old rules, which the new ones are compared with: a rule file or folder; may be repeated
    /// [default: those of the settings]
    #[arg(long, value_name = "PATH")]
    against: Vec<PathBuf>,
    /// Overlay file of the old rules, or folder of them; may be repeated. `--overlay` names those of
    /// the new rules [default: those of the settings, if these are read]
    #[arg(long = "against-overlay", value_name = "PATH")]
    against_overlays: Vec<PathBuf>,
    /// Settings file. Its modes of responses, `store.max_counters`, options of rules and files of plans
    /// apply. It is read together with the environment, as by `weir serve`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Form of the report.
    #[arg(long, value_enum, default_value_t = ReportForm::Text)]
    format: ReportForm,
    /// The most rules, and the most descriptors, in the report.
    #[arg(long, value_name = "NUMBER", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(0..=100_000))]
    top: u32,
    /// Decide the calls of this domain only.
    #[arg(long)]
    domain: Option<String>,
    /// The recording is an access log of Envoy, in the form that docs/guides/replay.md describes.
    #[arg(long)]
    envoy_log: bool,
    /// Exit with 1 if the new rules deny a call that the old ones allow.
    #[arg(long)]
    fail_on_more_denied: bool,
    #[command(flatten)]
    plan_files: PlanFileArgs,
    #[command(flatten)]
    rule_options: RuleOptionArgs,
}

/// The form of a report.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReportForm {
    /// Lines and tables for people.
    Text,
    /// One JSON object.
    Json,
}

/// Prints the report. Returns 64 if rules or settings are invalid, and 1 with
/// `--fail-on-more-denied` if the new rules deny more.
///
/// # Errors
///
/// A recording that cannot be read, or that has no calls.
pub(super) fn run(args: &ReplayArgs) -> anyhow::Result<u8> {
    let flags = &args.rule_options;
    let old_flags = RuleOptionArgs {
        merge_domains: flags.merge_domains,
        allow_unknown_fields: flags.allow_unknown_fields,
        overlays: args.against_overlays.clone(),
        xds: flags.xds.clone(),
    };
    let old = RuleSource::new(args.config.as_deref(), &args.against, &old_flags)?;
    let Some(old) = old else { return Ok(exit::BAD_CONFIG) };
    let new = old.at(&args.rules, &flags.overlays)?;
    // Both are read, so that the problems of both are shown.
    let (old_rules, new_rules) = (old.read()?, new.read()?);
    let (Some(old_rules), Some(new_rules)) = (old_rules, new_rules) else {
        return Ok(exit::BAD_CONFIG);
    };
    let settings = old.settings.unwrap_or_default();
    let with_plans = args.plan_files.with_plans(&settings.plans, &old_rules, &new_rules)?;
    let Some([old, new]) = with_plans else { return Ok(exit::BAD_CONFIG) };
    let options = options(args, &settings);
    let name = args.recording.display();
    let report = replay(open(&args.recording)?, old, new, &options)
        .with_context(|| format!("{name}: reading the recording"))?;
    check_calls(&report).with_context(|| format!("{name}: no call was decided"))?;
    let mut out = io::stdout().lock();
    match args.format {
        ReportForm::Text => writeln!(out, "{report}")?,
        ReportForm::Json => {
            writeln!(out, "{}", escaped_json(&serde_json::to_string_pretty(&report)?))?;
        }
    }
    let fails = args.fail_on_more_denied && report.calls.difference.more > 0;
    Ok(if fails { exit::NEGATIVE } else { 0 })
}

fn options(args: &ReplayArgs, settings: &Settings) -> ReplayOptions {
    ReplayOptions {
        form: if args.envoy_log { LineForm::EnvoyLog } else { LineForm::DecisionLog },
        domain: args.domain.clone(),
        top: args.top as usize,
        response: ResponseSettings {
            shadow_mode: settings.response.shadow_mode,
            quota_mode: settings.response.quota_mode,
            ..ResponseSettings::default()
        },
        on_error: settings.fallback.on_error,
        max_counters: settings.store.max_counters,
    }
}

fn open(path: &Path) -> anyhow::Result<Box<dyn Read>> {
    if path.as_os_str() == STANDARD_INPUT {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path).with_context(|| path.display().to_string())?;
    Ok(Box::new(file))
}

/// A recording without calls is most likely a mistake, and not a replay without differences.
fn check_calls(report: &ReplayReport) -> anyhow::Result<()> {
    if report.calls.replayed > 0 {
        return Ok(());
    }
    let lines = &report.lines;
    let read = count(usize::try_from(lines.read).unwrap_or(usize::MAX), "line");
    let (other, without) = (lines.other_domains, lines.without_descriptors);
    let what = format!(
        "{read}, {} of them bad, {other} of other domains, {without} without a descriptor",
        lines.bad
    );
    match lines.first_bad.first() {
        None => anyhow::bail!("{what}"),
        Some(bad) => anyhow::bail!("{what}; line {}: {}", bad.line, bad.problem),
    }
}
