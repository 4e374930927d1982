//! The signals that the process handles.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The meaning of a signal.
#[derive(PartialEq, Eq)]
pub(super) enum SignalAction {
    Stop,
    Reload,
}

/// Handled signals: SIGTERM and SIGINT stop the process, SIGHUP reloads the rules.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Handles the signals from here on.
    pub(super) fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal to stop.
    pub(super) async fn stop(&mut self) {
        while self.next().await != SignalAction::Stop {}
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.terminate.recv() => SignalAction::Stop,
            _ = self.interrupt.recv() => SignalAction::Stop,
            _ = self.hangup.recv() => SignalAction::Reload,
        }
    }
}
