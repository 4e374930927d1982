//! `weir serve`: reads the settings, starts the log, and runs the application until a signal.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::{exit, say};
use crate::app::{self, StartError};
use crate::settings::{self, Flags, LogFormat};

/// Serves until SIGTERM or SIGINT. Returns 0 after an orderly stop.
pub(super) fn run(flags: &Flags) -> anyhow::Result<u8> {
    serve(flags, &settings::process_env())
}

/// Serves under the name of envoyproxy/ratelimit's binary. Without a setting for the folder of the
/// rules, it is the default folder of that image.
pub(super) fn as_envoy_ratelimit() -> anyhow::Result<u8> {
    serve(&Flags::default(), &settings::with_default_runtime_root(settings::process_env()))
}

fn serve(flags: &Flags, env: &[(String, String)]) -> anyhow::Result<u8> {
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
    // The HTTP/2 library (h2) logs a warning per misbehaving connection, so clients would control
    // the size of the log. The Redis client (fred) logs once per connection and attempt what weir
    // logs once. Directives of `log.level` follow in the list and take precedence.
    let filter = EnvFilter::try_new(format!("h2=error,fred=off,{}", log.level))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // A closed log stream must not end the service.
        .log_internal_errors(false);
    match log.format {
        LogFormat::Pretty => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).init(),
    }
    Ok(())
}
