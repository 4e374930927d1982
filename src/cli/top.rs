//! `weir top`: decisions, rules and limited counters of a running service, refreshed until `q`.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::admin_client::{AdminArgs, AdminResponse};
use super::limited::limited;
use super::{exit, say_error};
use crate::duration::{Style, parse};
use crate::escape::escaped_json;

mod frame;
mod terminal;

use frame::frame;
use terminal::{LiveTerminal, QuitKeys};

/// The bounds of `--interval`.
const INTERVAL_MIN: Duration = Duration::from_millis(500);
const INTERVAL_MAX: Duration = Duration::from_secs(3_600);

/// The most rules that a refresh asks for.
const RULES_MAX: usize = 50;

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Pause between two refreshes, from 500ms to 1h.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    interval: Duration,
    /// Print once and end, as without a terminal.
    #[arg(long)]
    once: bool,
    /// Print a JSON object per refresh, each on one line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

fn interval(text: &str) -> Result<Duration, String> {
    let nanos = parse(text, Style::Whole).map_err(|error| format!("{error}; write 2s"))?;
    let length = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    match (INTERVAL_MIN..=INTERVAL_MAX).contains(&length) {
        true => Ok(length),
        false => Err("write a duration from 500ms to 1h".to_owned()),
    }
}

/// Prints the pages once, or until `q`, Ctrl-C or a signal. Returns 69 if the service does not answer the
/// first time, or any time with `--json`.
pub(super) fn run(args: &TopArgs) -> anyhow::Result<u8> {
    let first = match TopReading::read(&args.admin) {
        Ok(first) => first,
        Err(error) => {
            say_error(&error);
            return Ok(exit::UNAVAILABLE);
        }
    };
    if args.once || !(args.json || io::stdout().is_terminal()) {
        first.print(args.json)?;
        return Ok(0);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(refresh(args, first));
    // A request may be under way. Its end is not awaited.
    runtime.shutdown_background();
    ended
}

/// Shows `first`, then further readings.
async fn refresh(args: &TopArgs, first: TopReading) -> anyhow::Result<u8> {
    let mut signals = EndSignals::new()?;
    let mut resized = signal(SignalKind::window_change())?;
    let terminal = if args.json { None } else { Some(LiveTerminal::open()?) };
    let mut keys = match args.json {
        true => QuitKeys::none(),
        false => QuitKeys::read()?,
    };
    let (mut last, mut problem): (TopReading, Option<String>) = (first, None);
    loop {
        match &terminal {
            Some(terminal) => terminal.draw(&frame(&last, problem.as_deref(), terminal.size()))?,
            None => last.print(true)?,
        }
        let mut pause = std::pin::pin!(tokio::time::sleep(args.interval));
        loop {
            tokio::select! {
                () = &mut pause => break,
                () = signals.next() => return Ok(0),
                () = keys.next() => return Ok(0),
                _ = resized.recv() => if let Some(terminal) = &terminal {
                    terminal.draw(&frame(&last, problem.as_deref(), terminal.size()))?;
                },
            }
        }
        let admin = args.admin.clone();
        let reading = tokio::task::spawn_blocking(move || TopReading::read(&admin));
        let read = tokio::select! {
            read = reading => read?,
            () = signals.next() => return Ok(0),
            () = keys.next() => return Ok(0),
        };
        match read {
            Ok(reading) => (last, problem) = (reading, None),
            // The screen keeps the last numbers, because the service may be restarting.
            Err(error) if terminal.is_some() => problem = Some(format!("{error:#}")),
            Err(error) => {
                say_error(&error);
                return Ok(exit::UNAVAILABLE);
            }
        }
    }
}

/// The signals that end the command.
struct EndSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl EndSignals {
    fn new() -> io::Result<EndSignals> {
        Ok(EndSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for one of the signals.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// The pages of one refresh.
struct TopReading {
    status: Value,
    activity: Value,
    limited: Value,
}

impl TopReading {
    fn read(admin: &AdminArgs) -> anyhow::Result<TopReading> {
        let page = |response: AdminResponse| match response.status {
            200 => Ok(response.body),
            _ => Err(anyhow::Error::msg(response.reason())),
        };
        let activity = format!("/activity?order=denied&limit={RULES_MAX}");
        Ok(TopReading {
            status: page(admin.get("/status")?)?,
            activity: page(admin.get(&activity)?)?,
            limited: page(limited(admin)?)?,
        })
    }

    fn print(&self, as_json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if as_json {
            let TopReading { status, activity, limited } = self;
            let all = json!({ "status": status, "activity": activity, "limited": limited });
            writeln!(out, "{}", escaped_json(&all.to_string()))?;
        } else {
            for line in frame(self, None, None) {
                writeln!(out, "{line}")?;
            }
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_bounds() {
        assert_eq!(interval("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(interval("500ms"), Ok(INTERVAL_MIN));
        for text in ["", "2", "0s", "499ms", "1h1s", "99999d"] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
