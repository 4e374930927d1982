//! `weir serve`: reads the settings, starts the log, and runs the application until a signal.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::{exit, say};
use crate::app::{self, StartError};
use crate::settings::{self, Flags, LogFormat};

/// Serves until SIGTERM or SIGINT. Returns 0 after an orderly stop.
pub(super) fn run(flags: &Flags) -> anyhow::Result<u8> {
    let (env, warning) = settings::without_host(settings::process_env());
    serve(flags, &env, warning)
}

/// Serves under the name of envoyproxy/ratelimit's binary. Without a setting for the folder of the
/// rules, it is the default folder of that image.
pub(super) fn as_envoy_ratelimit() -> anyhow::Result<u8> {
    let env = settings::with_default_runtime_root(settings::process_env());
    serve(&Flags::default(), &env, None)
}

/// Serves with the settings of `flags` and `env`. `warning` joins those about the settings.
fn serve(flags: &Flags, env: &[(String, String)], warning: Option<String>) -> anyhow::Result<u8> {
    let loaded = match settings::load(flags, env) {
        Ok(loaded) => loaded,
        Err(problems) => {
            say(format_args!("{problems}"));
            return Ok(exit::BAD_CONFIG);
        }
    };
    // Lists them all. The log does not run yet, so a warning about a certificate is not logged twice.
    let problems = app::check_files(&loaded.settings);
    if !problems.is_empty() {
        return Ok(list(&problems));
    }
    start_log(&loaded.settings.log)?;
    for warning in loaded.warnings.iter().chain(&warning) {
        tracing::warn!("{warning}");
    }
    match app::run(loaded.settings) {
        Ok(()) => Ok(0),
        Err(StartError::Config(problems)) => Ok(list(&problems)),
        Err(StartError::Io(error)) => {
            say(format_args!("weir: {error}"));
            Ok(exit::UNAVAILABLE)
        }
    }
}

/// Lists problems of settings or rules. Returns the exit code.
fn list(problems: &[String]) -> u8 {
    for problem in problems {
        say(format_args!("{problem}"));
    }
    exit::BAD_CONFIG
}

fn start_log(log: &settings::LogSettings) -> anyhow::Result<()> {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter(&log.level)?)
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

/// The lines that `level` (`log.level`) selects. Directives of `level` follow in the list, so one that
/// names a library takes precedence.
///
/// - h2, in the clients of collectors and of xDS, logs a warning for each connection that misbehaves.
/// - notify and mio log every file event. A log in a watched folder causes such an event with every
///   line, and would therefore grow without end.
fn filter(level: &str) -> anyhow::Result<EnvFilter> {
    Ok(EnvFilter::try_new(format!("h2=error,notify=off,mio=off,{level}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::{Level, enabled};
    use tracing_subscriber::layer::SubscriberExt;

    /// Whether each of these is logged: a trace line of weir, notify, mio, and an error of notify.
    fn logged(level: &str) -> [bool; 4] {
        let filter = filter(level).expect("a level");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(filter), || {
            [
                enabled!(target: "weir::app::watch", Level::TRACE),
                enabled!(target: "notify::inotify", Level::TRACE),
                enabled!(target: "mio::poll", Level::TRACE),
                enabled!(target: "notify", Level::ERROR),
            ]
        })
    }

    #[test]
    fn file_events_are_logged_only_if_named() {
        assert_eq!(logged("trace"), [true, false, false, false]);
        assert_eq!(logged("info"), [false; 4]);
        assert_eq!(logged("off,notify=trace"), [false, true, false, true]);
    }
}
