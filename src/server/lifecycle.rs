//! The phases of the server (serving, draining, stopping), the drain that moves through them, and
//! the health in each phase.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// The health that the application reports. The default is neither live nor ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Whether the process is live, for `/healthcheck` and `/livez`.
    pub live: bool,
    /// Whether the process is ready, for `/readyz` and gRPC health. `readyz.require_rules` and
    /// `readyz.require_store` set the conditions; without them it is always ready.
    pub ready: bool,
}

impl Health {
    /// A draining server is neither live nor ready, whatever the application reports.
    fn in_phase(self, phase: Phase) -> Health {
        match phase {
            Phase::Serving => self,
            Phase::Draining | Phase::Stopping => Health::default(),
        }
    }
}

/// The phase of the server. It only moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// All ports are open.
    Serving,
    /// All ports are open, and health reports "not serving".
    Draining,
    /// The ports are closed, and calls in flight finish.
    Stopping,
}

/// The phase and the health, shared by all parts of the server.
#[derive(Clone, Debug)]
pub(super) struct Lifecycle {
    phase: Arc<watch::Sender<Phase>>,
    health: watch::Receiver<Health>,
    drain_timeout: Duration,
}

impl Lifecycle {
    /// The lifecycle of a server that ends at the latest `drain_timeout` after its ports closed.
    pub(super) fn new(health: watch::Receiver<Health>, drain_timeout: Duration) -> Lifecycle {
        let phase = Arc::new(watch::Sender::new(Phase::Serving));
        Lifecycle { phase, health, drain_timeout }
    }

    /// Whether the process is live, also while it drains: a supervisor must not kill it then.
    pub(super) fn is_live(&self) -> bool {
        self.health.borrow().live
    }

    /// The health to report now.
    pub(super) fn health(&self) -> Health {
        let phase = *self.phase.borrow();
        self.health.borrow().in_phase(phase)
    }

    /// Moves to `phase`, unless the server is already in that phase or a later one.
    pub(super) fn advance(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let moves = *now < phase;
            *now = phase.max(*now);
            moves
        });
    }

    /// Returns once the server is in `phase` or a later one.
    pub(super) async fn reached(&self, phase: Phase) {
        let mut phases = self.phase.subscribe();
        // `self` holds the sender, so the wait cannot fail.
        let _ = phases.wait_for(|now| *now >= phase).await;
    }

    /// Returns at the end of the drain: `drain_timeout` after the ports closed. If they closed before
    /// the call, the time starts with the call.
    pub(super) async fn drain_expired(&self) {
        self.reached(Phase::Stopping).await;
        tokio::time::sleep(self.drain_timeout).await;
    }

    /// Waits for the shutdown request, then moves through the phases of the drain. The server drains
    /// for `delay`.
    pub(super) async fn drain(&self, mut shutdown: watch::Receiver<bool>, delay: Duration) {
        let in_order = async {
            // A dropped sender counts as a shutdown request.
            let _ = shutdown.wait_for(|stop| *stop).await;
            self.advance(Phase::Draining);
            tokio::time::sleep(delay).await;
            self.advance(Phase::Stopping);
        };
        tokio::select! {
            () = in_order => {}
            () = self.reached(Phase::Stopping) => {}
        }
    }

    /// A receiver of every change.
    pub(super) fn changes(&self) -> Changes {
        Changes { phase: self.phase.subscribe(), health: self.health.clone() }
    }
}

/// A guard held by a thread: stops the whole server when the thread ends, for any reason.
pub(super) struct StopOnExit(pub(super) Lifecycle);

impl Drop for StopOnExit {
    fn drop(&mut self) {
        self.0.advance(Phase::Stopping);
    }
}

/// The changes of phase and health.
pub(super) struct Changes {
    phase: watch::Receiver<Phase>,
    health: watch::Receiver<Health>,
}

impl Changes {
    /// The current phase and health. Later changes complete [`next`](Self::next).
    pub(super) fn now(&mut self) -> (Phase, Health) {
        let phase = *self.phase.borrow_and_update();
        let health = *self.health.borrow_and_update();
        (phase, health.in_phase(phase))
    }

    /// Returns after a change since [`now`](Self::now); never, if nothing can change any more.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            Ok(()) = self.health.changed() => {}
            Ok(()) = self.phase.changed() => {}
            else => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_the_applications_until_the_drain() {
        let good = Health { live: true, ready: true };
        let (sender, health) = watch::channel(Health::default());
        let lifecycle = Lifecycle::new(health, Duration::ZERO);
        assert_eq!(lifecycle.health(), Health::default());
        assert!(!lifecycle.is_live());
        sender.send_replace(good);
        assert_eq!(lifecycle.health(), good);
        lifecycle.advance(Phase::Draining);
        assert_eq!(lifecycle.health(), Health::default());
        assert!(lifecycle.is_live(), "the process drains");
        lifecycle.advance(Phase::Stopping);
        lifecycle.advance(Phase::Draining);
        assert_eq!(*lifecycle.phase.borrow(), Phase::Stopping, "a phase never moves back");
    }

    #[tokio::test(start_paused = true)]
    async fn the_drain_expires_after_its_timeout() {
        let timeout = Duration::from_secs(30);
        let lifecycle = Lifecycle::new(watch::channel(Health::default()).1, timeout);
        let delay = Duration::from_secs(5);
        let (shutdown, seen) = watch::channel(false);
        let began = tokio::time::Instant::now();
        shutdown.send_replace(true);
        tokio::join!(lifecycle.drain(seen, delay), lifecycle.drain_expired());
        assert_eq!(began.elapsed(), delay + timeout);
    }
}
