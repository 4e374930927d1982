//! The command line: `weir serve | check | explain | call | change | health | bench | plan | plans |
//! replay | usage | counters | status | top | completions | man`.

use std::ffi::OsString;
use std::fmt;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgGroup, Args, Parser, Subcommand};

mod admin_client;
mod bench;
mod call;
mod change;
mod check;
mod client;
mod completions;
mod counters;
mod explain;
mod health;
mod limited;
mod man;
mod plan;
mod plans;
mod replay;
mod rule_source;
mod serve;
mod status;
mod top;
mod usage;

use crate::descriptor::ParsedDescriptor;
use crate::escape::one_line;
use crate::settings::Flags;
use admin_client::admin_address;
use bench::BenchArgs;
use change::ChangeArgs;
use client::ServiceArgs;
use completions::CompletionsArgs;
use counters::CountersArgs;
use health::HealthArgs;
use man::ManArgs;
use plan::PlanArgs;
use plans::PlansArgs;
use replay::ReplayArgs;
use status::StatusArgs;
use top::TopArgs;
use usage::UsageArgs;

/// Exit codes other than 0, which means success.
pub mod exit {
    /// `check` found problems, `call` got OVER_LIMIT, `health` got a status other than SERVING, some
    /// calls of `bench` were not decided, or new rules deny more (`replay --fail-on-more-denied`).
    pub const NEGATIVE: u8 = 1;
    /// Rules or settings are wrong (EX_USAGE of sysexits.h).
    pub const BAD_CONFIG: u8 = 64;
    /// The service could not be reached or did not answer (EX_UNAVAILABLE).
    pub const UNAVAILABLE: u8 = 69;
}

/// A rate-limit decision service for Envoy. It keeps deciding while Redis fails.
#[derive(Debug, Parser)]
#[command(version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the rate-limit service.
    Serve(Flags),
    /// Run the service as envoyproxy/ratelimit's image does, configured by environment variables
    /// alone. [`ENVOY_RATELIMIT`] selects it.
    #[command(skip)]
    ServeAsEnvoyRatelimit,
    /// Read rule files, or settings and their rule files, and list all problems.
    Check(CheckArgs),
    /// Show which rule a descriptor matches, and why.
    Explain(ExplainArgs),
    /// Send one request to a running service.
    Call(CallArgs),
    /// Change the limit of a rule or a descriptor for a time, block it, or let it pass.
    Change(ChangeArgs),
    /// Ask a running service whether it serves (exit code 0), for health checks of containers.
    Health(HealthArgs),
    /// Put load on a running service and measure it.
    Bench(BenchArgs),
    /// Compute how much Redis and how many instances the rules need under a load.
    Plan(PlanArgs),
    /// Decide recorded calls by two sets of rules, and show which calls only one of them denies.
    Replay(ReplayArgs),
    /// Show the plans of customers of a running service, or change those in Redis.
    Plans(PlansArgs),
    /// List or export the counters of a rule with `usage: true`, of a running service.
    Usage(UsageArgs),
    /// List the limited counters of a running service, show one, or empty it.
    Counters(CountersArgs),
    /// Show the health of a running service, problems first.
    Status(StatusArgs),
    /// Show decisions, rules and limited counters of a running service, refreshed until `q`.
    Top(TopArgs),
    /// Print a script for a shell that completes commands and flags.
    Completions(CompletionsArgs),
    /// Write manual pages into a folder.
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Rule files and folders [default: those of the settings]
    pub(crate) paths: Vec<PathBuf>,
    /// Settings file to check too. It is read together with the environment, as by `weir serve`.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) rule_options: RuleOptionArgs,
}

/// How rule files are read: flags for settings of `rules.*`.
#[derive(Debug, Args)]
pub(crate) struct RuleOptionArgs {
    /// Let several files define rules of one domain.
    #[arg(long)]
    pub(crate) merge_domains: bool,
    /// Warn about unknown fields instead of rejecting the file.
    #[arg(long)]
    pub(crate) allow_unknown_fields: bool,
    /// Overlay file, or folder of them, which changes limits of the rules; may be repeated [default:
    /// those of the settings, if these are read]
    #[arg(long = "overlay", value_name = "PATH")]
    pub(crate) overlays: Vec<PathBuf>,
    /// File of `rules.xds.cache_file`, whose rules are read too.
    #[arg(long, value_name = "FILE")]
    pub(crate) xds: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("explained").required(true).multiple(true)))]
pub(crate) struct ExplainArgs {
    /// Rule files and folders [default: those of the settings]
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub(crate) rules: Vec<PathBuf>,
    /// Settings file with the paths of the rules. It is read together with the environment, as by
    /// `weir serve`.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address of the admin listener of a running service, such as http://127.0.0.1:6070. Its active
    /// rules are explained, and the states of its counters are shown.
    #[arg(long, value_name = "URL", value_parser = admin_address,
        conflicts_with_all =
            ["rules", "config", "merge_domains", "allow_unknown_fields", "overlays", "xds"])]
    pub(crate) addr: Option<String>,
    /// File whose first line is the token of the admin listener, which shows the states of counters
    /// [default: no token]
    #[arg(long, value_name = "FILE", requires = "addr")]
    pub(crate) token_file: Option<PathBuf>,
    /// Print one JSON object with all explanations.
    #[arg(long)]
    pub(crate) json: bool,
    /// Namespace of the rules.
    #[arg(long)]
    pub(crate) domain: String,
    /// Descriptors, each as key=value,key=value, or rules. A comma in a value needs a backslash
    /// before it. A rule is given by its name or its selector.
    #[arg(group = "explained", value_name = "KEY=VALUE,...")]
    pub(crate) descriptors: Vec<String>,
    /// Id of a bucket of Envoy's quota filter (RLQS), as key=value,key=value in any order; may be
    /// repeated. The descriptor that it becomes is shown and explained, and what Envoys get for it.
    #[arg(long = "bucket", group = "explained", value_name = "KEY=VALUE,...")]
    pub(crate) buckets: Vec<String>,
    #[command(flatten)]
    pub(crate) rule_options: RuleOptionArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// Namespace of the rules.
    #[arg(long)]
    pub(crate) domain: String,
    /// Descriptors, each as key=value,key=value. A comma in a value needs a backslash before it.
    #[arg(required = true, value_name = "KEY=VALUE,...")]
    pub(crate) descriptors: Vec<ParsedDescriptor>,
    /// Hits to take from each counter; 0 reads the counters without taking any.
    #[arg(long)]
    pub(crate) hits: Option<u64>,
    /// Give the hits back instead of taking them.
    #[arg(long)]
    pub(crate) negative: bool,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

/// The name of envoyproxy/ratelimit's binary, which its image runs without arguments.
const ENVOY_RATELIMIT: &str = "ratelimit";

/// The first arguments that mean envoyproxy/ratelimit's binary. `command: /bin/ratelimit` of a
/// compose file replaces the arguments of the image and keeps its entrypoint, so the process runs
/// as `/bin/weir /bin/ratelimit`.
const ENVOY_RATELIMIT_COMMANDS: [&str; 2] = [ENVOY_RATELIMIT, "/bin/ratelimit"];

impl Cli {
    /// Parses the arguments of this process. Invalid arguments end the process with an explanation.
    pub fn from_process() -> Cli {
        Cli::from_words(std::env::args_os().collect())
    }

    /// Parses the name of the binary and its arguments. A first argument of
    /// [`ENVOY_RATELIMIT_COMMANDS`] replaces the name of the binary.
    fn from_words(mut words: Vec<OsString>) -> Cli {
        let is_command = |word: &OsString| ENVOY_RATELIMIT_COMMANDS.iter().any(|it| word == it);
        if words.get(1).is_some_and(is_command) {
            words.remove(0);
        }
        let name = words.first().and_then(|name| Path::new(name).file_name());
        if words.len() == 1 && name.is_some_and(|name| name == ENVOY_RATELIMIT) {
            return Cli { command: Command::ServeAsEnvoyRatelimit };
        }
        Cli::parse_from(words)
    }

    /// Runs the command and returns its exit code.
    pub fn run(self) -> ExitCode {
        let code = match self.command {
            Command::Serve(flags) => serve::run(&flags),
            Command::ServeAsEnvoyRatelimit => serve::as_envoy_ratelimit(),
            Command::Check(args) => check::run(&args),
            Command::Explain(args) => explain::run(&args),
            Command::Call(args) => call::run(&args),
            Command::Change(args) => change::run(&args),
            Command::Health(args) => health::run(&args),
            Command::Bench(args) => bench::run(&args),
            Command::Plan(args) => plan::run(&args),
            Command::Replay(args) => replay::run(&args),
            Command::Plans(args) => plans::run(&args),
            Command::Usage(args) => usage::run(&args),
            Command::Counters(args) => counters::run(&args),
            Command::Status(args) => status::run(&args),
            Command::Top(args) => top::run(&args),
            Command::Completions(args) => completions::run(&args),
            Command::Man(args) => man::run(&args),
        };
        match code {
            Ok(code) => ExitCode::from(code),
            // The reader of the output has closed it, such as `head`. That is not a failure.
            Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
            Err(error) => {
                say_error(&error);
                ExitCode::from(exit::BAD_CONFIG)
            }
        }
    }
}

/// Writes a line to standard error. A closed stream is ignored.
fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Writes an error and its causes to standard error, on one line.
fn say_error(error: &anyhow::Error) {
    say(format_args!("weir: {}", one_line(&format!("{error:#}"))));
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratelimit_name_serves_only_without_arguments() {
        let parse = |words: &[&str]| Cli::from_words(words.iter().map(OsString::from).collect());
        for words in [
            &["ratelimit"][..],
            &["/bin/ratelimit"],
            // ENTRYPOINT and `command` of a compose file.
            &["/bin/weir", "/bin/ratelimit"],
            &["/bin/weir", "ratelimit"],
            &["/bin/ratelimit", "/bin/ratelimit"],
        ] {
            assert!(matches!(parse(words).command, Command::ServeAsEnvoyRatelimit), "{words:?}");
            let check = parse(&[words, &["check", "x"]].concat());
            assert!(matches!(check.command, Command::Check(_)), "{words:?}");
        }
        assert!(matches!(parse(&["weir", "serve"]).command, Command::Serve(_)));
        assert!(Cli::try_parse_from(["weir"]).is_err(), "weir says what it can do");
        assert!(Cli::try_parse_from(["weir", "serve-as-envoy-ratelimit"]).is_err());
    }
}
