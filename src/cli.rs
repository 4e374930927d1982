//! The command line: `weir serve | check | explain | call | bench`.

use std::ffi::OsString;
use std::fmt;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

mod bench;
mod call;
mod check;
mod explain;
mod serve;

use crate::descriptor::Typed;
use crate::settings::Overrides;
use bench::BenchArgs;

/// Exit codes, where more than "it worked" is worth telling apart.
pub mod exit {
    /// `check` found problems, `call` got OVER_LIMIT, or some calls of `bench` were not decided.
    pub const NO: u8 = 1;
    /// Rules or settings are wrong (EX_USAGE of sysexits.h).
    pub const BAD_CONFIG: u8 = 64;
    /// The service could not be reached or did not answer (EX_UNAVAILABLE).
    pub const UNAVAILABLE: u8 = 69;
}

/// A rate-limit decision service that speaks Envoy's protocol and always answers.
#[derive(Debug, Parser)]
#[command(version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer proxies.
    Serve(Overrides),
    /// Serve as envoyproxy/ratelimit's image does, by its variables alone.
    #[command(skip)]
    ServeAsEnvoyRatelimit,
    /// Read rule files, or settings and the rules they name, and list everything that is wrong.
    Check(CheckArgs),
    /// Say which rule a descriptor meets, and why.
    Explain(ExplainArgs),
    /// Ask a running service once.
    Call(CallArgs),
    /// Put load on a running service and measure it.
    Bench(BenchArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Rule files and folders; those of the settings if there are none here.
    #[arg(required_unless_present = "config")]
    pub(crate) paths: Vec<PathBuf>,
    /// Settings file to check too, with the environment, as `weir serve` would read them.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
}

/// How rule files are read; the same choices as `rules.*` in the settings.
#[derive(Debug, Args)]
pub(crate) struct ReadingArgs {
    /// Let several files add to one domain.
    #[arg(long)]
    pub(crate) merge_domains: bool,
    /// Warn of fields that nothing reads instead of refusing them.
    #[arg(long)]
    pub(crate) allow_unknown_fields: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Rule files and folders.
    #[arg(long, value_name = "PATH", required = true, num_args = 1..)]
    pub(crate) rules: Vec<PathBuf>,
    /// Namespace of the rules.
    #[arg(long)]
    pub(crate) domain: String,
    /// One descriptor each, as key=value,key=value (a backslash before a comma keeps it).
    #[arg(required = true, value_name = "KEY=VALUE,...")]
    pub(crate) descriptors: Vec<Typed>,
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// Address of the service's gRPC listener.
    #[arg(long, default_value = "127.0.0.1:8081")]
    pub(crate) addr: String,
    /// Namespace of the rules.
    #[arg(long)]
    pub(crate) domain: String,
    /// One descriptor each, as key=value,key=value (a backslash before a comma keeps it).
    #[arg(required = true, value_name = "KEY=VALUE,...")]
    pub(crate) descriptors: Vec<Typed>,
    /// What the request costs on each counter; 0 looks without taking.
    #[arg(long)]
    pub(crate) hits: Option<u64>,
    /// Give the hits back instead of taking them.
    #[arg(long)]
    pub(crate) negative: bool,
    /// How long to wait for the answer, in milliseconds.
    #[arg(long, default_value_t = 1_000, value_name = "MS")]
    pub(crate) timeout: u64,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

/// How a service that speaks TLS is called.
#[derive(Debug, Args)]
pub(crate) struct TlsArgs {
    /// Speak TLS; any of the flags below implies it.
    #[arg(long)]
    pub(crate) tls: bool,
    /// Certificates of the authorities to trust; the system's unless given.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Our certificate chain, for a service that wants one.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Its key.
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// The name that the service's certificate must have; the host of --addr unless given.
    #[arg(long, value_name = "NAME")]
    pub(crate) server_name: Option<String>,
}

/// The name of envoyproxy/ratelimit's binary. Its image runs it without arguments.
const ENVOY_RATELIMIT: &str = "ratelimit";

impl Cli {
    /// What this process was started to do. Wrong arguments end it with an explanation.
    pub fn from_process() -> Cli {
        Cli::from_words(std::env::args_os().collect())
    }

    /// The same, from a name and arguments.
    fn from_words(words: Vec<OsString>) -> Cli {
        let name = words.first().and_then(|name| Path::new(name).file_name());
        if words.len() == 1 && name.is_some_and(|name| name == ENVOY_RATELIMIT) {
            return Cli { command: Command::ServeAsEnvoyRatelimit };
        }
        Cli::parse_from(words)
    }

    /// Does what the command line asks and says how it went.
    pub fn run(self) -> ExitCode {
        let code = match self.command {
            Command::Serve(flags) => serve::run(&flags),
            Command::ServeAsEnvoyRatelimit => serve::as_envoy_ratelimit(),
            Command::Check(args) => check::run(&args),
            Command::Explain(args) => explain::run(&args),
            Command::Call(args) => call::run(&args),
            Command::Bench(args) => bench::run(&args),
        };
        match code {
            Ok(code) => ExitCode::from(code),
            // Who read the output has seen enough.
            Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
            Err(error) => {
                say(format_args!("weir: {error:#}"));
                ExitCode::from(exit::BAD_CONFIG)
            }
        }
    }
}

/// Writes a line to standard error. A closed stream is ignored.
fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
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
        for name in ["ratelimit", "/bin/ratelimit"] {
            assert!(matches!(parse(&[name]).command, Command::ServeAsEnvoyRatelimit), "{name}");
            assert!(matches!(parse(&[name, "check", "x"]).command, Command::Check(_)), "{name}");
        }
        assert!(matches!(parse(&["weir", "serve"]).command, Command::Serve(_)));
        assert!(Cli::try_parse_from(["weir"]).is_err(), "weir says what it can do");
        assert!(Cli::try_parse_from(["weir", "serve-as-envoy-ratelimit"]).is_err());
    }
}
