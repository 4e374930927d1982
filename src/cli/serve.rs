//! `weir serve`: reads the settings, starts the log, and runs the application until a shutdown signal.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::{exit, say};
use crate::app::{self, StartError};
use crate::settings::{self, LogFormat, Overrides};

/// Serves until SIGTERM or SIGINT; 0 after an orderly stop.
pub(super) fn run(flags: &Overrides) -> anyhow::Result<u8> {
    serve(flags, &settings::process_env())
}

/// The same, where envoyproxy/ratelimit's image would read its rules if nothing said where they are.
pub(super) fn as_envoy_ratelimit() -> anyhow::Result<u8> {
    serve(&Overrides::default(), &settings::with_default_runtime_root(settings::process_env()))
}

fn serve(flags: &Overrides, env: &[(String, String)]) -> anyhow::Result<u8> {
    let loaded = match settings::load(flags, env) {
        Ok(loaded) => loaded,
        Err(problems) => {
            say(format_args!("{problems}"));
            return Ok(exit::BAD_CONFIG);
        }
    };
    start_log(&loaded.settings.log)?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    match app::run(loaded.settings) {
        Ok(()) => Ok(0),
        Err(StartError::Config(problems)) => {
            for problem in problems {
                say(format_args!("{problem}"));
            }
            Ok(exit::BAD_CONFIG)
        }
        Err(StartError::Io(error)) => {
            say(format_args!("weir: {error}"));
            Ok(exit::UNAVAILABLE)
        }
    }
}

fn start_log(log: &settings::LogSettings) -> anyhow::Result<()> {
    // The HTTP/2 library warns of every connection that misbehaves, which clients choose; and fred
    // of what weir says itself, once per connection and attempt. A level that names one of them
    // comes later in the list and wins.
    let filter = EnvFilter::try_new(format!("h2=error,fred=off,{}", log.level))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // A reader of the log that has gone must not take the service along.
        .log_internal_errors(false);
    match log.format {
        LogFormat::Pretty => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).init(),
    }
    Ok(())
}
