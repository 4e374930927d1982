//! One HTTP/2 connection from its first byte to its last: opening, calls, goodbye.

use std::error::Error;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpStream as StdStream;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until};

use super::calls::{Calls, Seen, Tasks};
use super::connection::Connection;
use super::counters::Counters;
use super::frames::Frames;
use super::lifecycle::{Lifecycle, Phase};
use super::settings::Grpc;
use super::turn::Turn;

/// What every connection of one core has in common.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) settings: Grpc,
    pub(super) calls: Calls,
    pub(super) counters: Arc<Counters>,
    pub(super) life: Lifecycle,
    /// Places for TLS handshakes on this core.
    pub(super) handshakes: Arc<Semaphore>,
}

impl Shared {
    /// Serves one connection to its end.
    pub(super) async fn serve(self, stream: StdStream, open_by: Instant) {
        let Ok(stream) = TcpStream::from_std(stream) else { return };
        let Some(tls) = &self.settings.tls else { return self.speak(stream, open_by).await };
        let result = {
            let mut handshake = pin!(tls.accept(stream, &self.handshakes));
            tokio::select! {
                result = handshake.as_mut() => result,
                () = sleep_until(open_by) => return self.counters.hello_timeout.add(),
            }
        };
        match result {
            Ok(stream) => {
                self.counters.tls_accepted.add();
                self.speak(stream, open_by).await;
            }
            Err(error) => {
                self.counters.tls_failed.add();
                tracing::debug!(%error, "a TLS handshake failed");
            }
        }
    }

    async fn speak<S: AsyncRead + AsyncWrite + Send + Unpin>(self, stream: S, open_by: Instant) {
        let Shared { settings, calls, counters, life, .. } = self;
        let seen = Arc::new(Seen::default());
        let frames = Frames::new(settings.max_control_frames);
        let (turn, counted) = (Turn::default(), Arc::clone(&counters));
        let stream =
            Connection::new(stream, open_by, settings.write_timeout, frames, turn.clone(), counted);
        let tasks = Tasks {
            timeout: settings.call_timeout,
            counters: Arc::clone(&counters),
            seen: Arc::clone(&seen),
        };
        let connection = builder(&settings, tasks).serve_connection(TokioIo::new(stream), calls);
        let mut connection = pin!(connection);
        let age = settings.max_connection_age.map(around);
        let grace = tokio::select! {
            result = turn.by_turn(connection.as_mut()) => return account(&counters, result),
            // The core's own patience ends what goes on for too long after that.
            () = life.reached(Phase::Stopping) => None,
            () = after(age) => {
                counters.aged.add();
                Some(settings.max_connection_age_grace)
            }
            () = idle(settings.max_connection_idle, &seen) => {
                counters.idle.add();
                Some(settings.max_connection_age_grace)
            }
        };
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            result = turn.by_turn(connection.as_mut()) => account(&counters, result),
            () = after(grace) => counters.cut.add(),
        }
    }
}

fn builder(settings: &Grpc, tasks: Tasks) -> Builder<Tasks> {
    let mut builder = Builder::new(tasks);
    builder
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(settings.max_concurrent_streams)
        .max_header_list_size(settings.max_header_bytes)
        .max_pending_accept_reset_streams(settings.max_pending_resets)
        .max_send_buf_size(SEND_BYTES)
        .keep_alive_interval(settings.keepalive_interval)
        .keep_alive_timeout(settings.keepalive_timeout);
    builder
}

/// What may wait in memory for the client of one stream to make room. An answer is smaller.
const SEND_BYTES: usize = 64 * 1024;

/// A length of time a tenth longer or shorter, so that connections that were opened together do not
/// all go together.
fn around(age: Duration) -> Duration {
    // A fresh `RandomState` is the standard library's only source of random numbers.
    let random = RandomState::new().build_hasher().finish();
    let share = (random >> 32) as f64 / f64::from(u32::MAX);
    age.mul_f64(0.9 + 0.2 * share)
}

/// The end of `time`; never, if there is none.
async fn after(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Returns when nothing has been asked for `time`, or somewhat later: at most twice that.
async fn idle(time: Option<Duration>, seen: &Seen) {
    loop {
        let before = seen.calls.get();
        after(time).await;
        if seen.calls.get() == before && seen.open.get() == 0 {
            return;
        }
    }
}

/// Counts why a connection has ended, if it was for a reason.
fn account(counters: &Counters, result: Result<(), hyper::Error>) {
    let Err(error) = result else { return };
    tracing::debug!(%error, "a connection has ended");
    if error.is_timeout() {
        return counters.keepalive_timeout.add();
    }
    let mut source: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            match error.reason() {
                Some(h2::Reason::ENHANCE_YOUR_CALM) if !error.is_remote() => counters.flood.add(),
                Some(_) if !error.is_remote() => counters.protocol_error.add(),
                _ => {}
            }
            return;
        }
        source = error.source();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_age_go_within_a_tenth_of_it_and_not_together() {
        let age = Duration::from_secs(1000);
        let ages: Vec<Duration> = (0..100).map(|_| around(age)).collect();
        let (low, high) = (ages.iter().min().unwrap(), ages.iter().max().unwrap());
        assert!(*low >= age.mul_f64(0.9) && *high <= age.mul_f64(1.1), "{low:?} to {high:?}");
        assert!(*high - *low > age.mul_f64(0.1), "{low:?} to {high:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_when_nothing_is_asked_and_nothing_is_open() {
        let seen = Arc::new(Seen::default());
        let time = Some(Duration::from_secs(60));
        seen.open.add();
        tokio::select! {
            () = idle(time, &seen) => panic!("a call is open"),
            () = sleep(Duration::from_secs(3600)) => {}
        }
        seen.open.subtract();
        let began = Instant::now();
        idle(time, &seen).await;
        assert_eq!(began.elapsed(), Duration::from_secs(60));
        tokio::select! {
            () = idle(None, &seen) => panic!("idle connections may stay"),
            () = sleep(Duration::from_secs(3600)) => {}
        }
    }
}
