//! One HTTP/2 connection from its first byte to its last: opening, dispatcher, goodbye.

use std::future::{pending, poll_fn};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpStream as StdStream;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use h2::server::Builder;
use h2::{Ping, PingPong, Reason};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::control_frames::ControlFrameLimiter;
use super::dispatch::{ConnectionStats, Dispatcher};
use super::io::GuardedIo;
use super::read_budget::ReadBudget;
use crate::server::lifecycle::{Lifecycle, Phase};
use crate::server::metrics::ServerMetrics;
use crate::server::rls::handler::Decide;
use crate::server::tls::TlsAcceptor;
use crate::settings::GrpcSettings;

/// What every connection of one core has in common.
pub(super) struct ConnectionContext<D> {
    pub(super) settings: GrpcSettings,
    /// None: plain text.
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) dispatcher: Dispatcher<D>,
    pub(super) metrics: Arc<ServerMetrics>,
    pub(super) life: Lifecycle,
    /// Places for TLS handshakes on this core.
    pub(super) handshakes: Arc<Semaphore>,
}

impl<D: Decide> ConnectionContext<D> {
    /// Serves one connection to its end.
    pub(super) async fn serve(self: Arc<Self>, stream: StdStream, open_by: Instant) {
        let Ok(stream) = TcpStream::from_std(stream) else { return };
        let Some(tls) = &self.tls else { return self.serve_h2(stream, open_by).await };
        let result = {
            let mut handshake = pin!(tls.accept(stream, &self.handshakes));
            tokio::select! {
                result = handshake.as_mut() => result,
                () = sleep_until(open_by) => return self.metrics.hello_timeout.add(),
            }
        };
        match result {
            Ok(stream) => {
                self.metrics.tls_accepted.add();
                self.serve_h2(stream, open_by).await;
            }
            Err(error) => {
                self.metrics.tls_failed.add();
                tracing::debug!(%error, "a TLS handshake failed");
            }
        }
    }

    async fn serve_h2<S: AsyncRead + AsyncWrite + Send + Unpin>(
        &self,
        stream: S,
        open_by: Instant,
    ) {
        let ConnectionContext { settings, dispatcher, metrics, life, .. } = self;
        let control_frames = ControlFrameLimiter::new(settings.max_control_frames);
        let (budget, counted) = (ReadBudget::default(), Arc::clone(metrics));
        let stream = GuardedIo::new(
            stream,
            open_by,
            settings.write_timeout,
            control_frames,
            budget.clone(),
            counted,
        );
        let opened = tokio::select! {
            opened = budget.poll_with_budget(builder(settings).handshake(stream)) => opened,
            () = life.reached(Phase::Stopping) => return,
        };
        let mut connection = match opened {
            Ok(connection) => connection,
            Err(error) => return count_error(metrics, &error),
        };
        let stats = Arc::new(ConnectionStats::default());
        let pings = connection.ping_pong();
        let mut silent = pin!(keepalive(pings, &budget, settings));
        let age = settings.max_connection_age.map(jittered);
        let grace = tokio::select! {
            result = budget.poll_with_budget(dispatcher.answer(&mut connection, &stats)) => {
                return result.unwrap_or_else(|error| count_error(metrics, &error));
            }
            () = silent.as_mut() => return metrics.keepalive_timeout.add(),
            // The core's own timeout ends what goes on for too long after that.
            () = life.reached(Phase::Stopping) => None,
            () = sleep_opt(age) => {
                metrics.aged.add();
                Some(settings.max_connection_age_grace)
            }
            () = idle(settings.max_connection_idle, &stats) => {
                metrics.idle.add();
                Some(settings.max_connection_age_grace)
            }
        };
        connection.graceful_shutdown();
        tokio::select! {
            result = budget.poll_with_budget(dispatcher.answer(&mut connection, &stats)) => {
                result.unwrap_or_else(|error| count_error(metrics, &error));
            }
            () = silent => metrics.keepalive_timeout.add(),
            () = sleep_opt(grace) => metrics.cut.add(),
        }
    }
}

fn builder(settings: &GrpcSettings) -> Builder {
    let mut builder = Builder::new();
    builder
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_concurrent_streams(settings.max_concurrent_streams)
        .max_header_list_size(settings.max_header_bytes)
        .max_pending_accept_reset_streams(settings.max_pending_resets)
        .max_local_error_reset_streams(Some(LOCAL_RESETS_MAX))
        .max_send_buffer_size(SEND_BYTES);
    builder
}

/// What a client may send ahead, on one stream and on all of them.
const WINDOW: u32 = 1 << 20;

/// Streams reset for errors of the client before the connection is.
const LOCAL_RESETS_MAX: usize = 1024;

/// What may wait in memory for the client of one stream to make room. An answer is smaller.
const SEND_BYTES: usize = 64 * 1024;

/// Returns when a client that said nothing for a while has not answered a ping either. At most twice
/// the interval passes before it is asked.
async fn keepalive(pings: Option<PingPong>, budget: &ReadBudget, settings: &GrpcSettings) {
    let (Some(mut pings), Some(interval)) = (pings, settings.keepalive_interval) else {
        return pending().await;
    };
    loop {
        sleep(interval).await;
        if budget.read_since_last_check() {
            continue;
        }
        if pings.send_ping(Ping::opaque()).is_err() {
            // The connection is at its end, and says so itself.
            return pending().await;
        }
        let answer = poll_fn(|context| pings.poll_pong(context));
        match timeout(settings.keepalive_timeout, answer).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return pending().await,
            Err(_) => return,
        }
    }
}

/// A length of time a tenth longer or shorter, so that connections that were opened together do not
/// all go together.
fn jittered(age: Duration) -> Duration {
    // A fresh `RandomState` is the standard library's only source of random numbers.
    let random = RandomState::new().build_hasher().finish();
    let share = (random >> 32) as f64 / f64::from(u32::MAX);
    age.mul_f64(0.9 + 0.2 * share)
}

/// The end of `time`; never, if there is none.
async fn sleep_opt(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => pending().await,
    }
}

/// Returns when nothing has been asked for `time`, or somewhat later: at most twice that.
async fn idle(time: Option<Duration>, stats: &ConnectionStats) {
    loop {
        let before = stats.calls.get();
        sleep_opt(time).await;
        if stats.calls.get() == before && stats.open.get() == 0 {
            return;
        }
    }
}

/// Counts why a connection has ended, if it was for a reason.
fn count_error(metrics: &ServerMetrics, error: &h2::Error) {
    tracing::debug!(%error, "a connection has ended");
    match error.reason() {
        Some(Reason::ENHANCE_YOUR_CALM) if !error.is_remote() => metrics.flood.add(),
        Some(_) if !error.is_remote() => metrics.protocol_error.add(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_age_go_within_a_tenth_of_it_and_not_together() {
        let age = Duration::from_secs(1000);
        let ages: Vec<Duration> = (0..100).map(|_| jittered(age)).collect();
        let (low, high) = (ages.iter().min().unwrap(), ages.iter().max().unwrap());
        assert!(*low >= age.mul_f64(0.9) && *high <= age.mul_f64(1.1), "{low:?} to {high:?}");
        assert!(*high - *low > age.mul_f64(0.1), "{low:?} to {high:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_when_nothing_is_asked_and_nothing_is_open() {
        let stats = Arc::new(ConnectionStats::default());
        let time = Some(Duration::from_secs(60));
        stats.open.add();
        tokio::select! {
            () = idle(time, &stats) => panic!("a call is open"),
            () = sleep(Duration::from_secs(3600)) => {}
        }
        stats.open.subtract();
        let began = Instant::now();
        idle(time, &stats).await;
        assert_eq!(began.elapsed(), Duration::from_secs(60));
        tokio::select! {
            () = idle(None, &stats) => panic!("idle connections may stay"),
            () = sleep(Duration::from_secs(3600)) => {}
        }
    }
}
