//! One HTTP/2 connection: TLS handshake, calls, keepalive, age and drain.

use std::future::{pending, poll_fn};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpStream as StdStream;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use weir_http2::{Connection, Error, Limits, PingPong, Reason};

use super::connection_calls::{ConnectionCalls, ConnectionCounts};
use super::dispatch::Dispatcher;
use super::header_timeout::HeaderTimeout;
use super::io::GuardedIo;
use super::memory::budget::MemoryBudget;
use super::memory::connection::ConnectionMemory;
use super::read_throttle::ReadThrottle;
use super::request_fields::RequestFields;
use crate::server::lifecycle::{Lifecycle, Phase};
use crate::server::listener::slots::Slot;
use crate::server::listener::tls::TlsAcceptor;
use crate::server::metrics::ServerMetrics;
use crate::server::rls::handler::Decide;
use crate::settings::GrpcSettings;

/// State that all connections of one worker share.
pub(super) struct ConnectionContext<D> {
    pub(super) settings: GrpcSettings,
    /// TLS of the port; `None` for plain text.
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) dispatcher: Dispatcher<D>,
    pub(super) budget: Arc<MemoryBudget>,
    pub(super) metrics: Arc<ServerMetrics>,
    pub(super) lifecycle: Lifecycle,
    /// Permits for the TLS handshakes that continue in one round of this worker.
    pub(super) handshake_permits: Arc<Semaphore>,
}

impl<D: Decide> ConnectionContext<D> {
    /// Serves one connection until it ends. TLS and the preface must finish before `open_by`. Until
    /// then the connection waits for its client, and may lose its slot.
    pub(super) async fn serve(self: Arc<Self>, stream: StdStream, slot: &Slot, open_by: Instant) {
        let memory = ConnectionMemory::new(&self.budget, self.tls.is_some(), slot.address());
        let Ok(stream) = TcpStream::from_std(stream) else { return };
        let Some(tls) = &self.tls else {
            return self.serve_h2(stream, slot, memory, open_by).await;
        };
        let result = {
            let mut handshake = pin!(tls.accept(stream, &self.handshake_permits));
            tokio::select! {
                result = handshake.as_mut() => result,
                () = slot.evicted() => return,
                () = self.lifecycle.reached(Phase::Stopping) => return,
                () = sleep_until(open_by) => return self.metrics.handshake_timeout.add(),
            }
        };
        match result {
            Ok(stream) => {
                self.metrics.tls_accepted.add();
                self.serve_h2(stream, slot, memory, open_by).await;
            }
            Err(error) => {
                self.metrics.tls_failed.add();
                tracing::debug!(%error, "TLS handshake failed");
            }
        }
    }

    async fn serve_h2<S: AsyncRead + AsyncWrite + Send + Unpin>(
        &self,
        stream: S,
        slot: &Slot,
        memory: ConnectionMemory,
        open_by: Instant,
    ) {
        let ConnectionContext { settings, dispatcher, metrics, lifecycle, .. } = self;
        let (reads, counted) = (ReadThrottle::default(), Arc::clone(metrics));
        let limit = settings.write_timeout;
        let stream = GuardedIo::new(stream, open_by, limit, reads.clone(), counted);
        let service = &dispatcher.should_rate_limit;
        let empty = RequestFields::new(service.handler.decider.traces());
        let mut connection = Connection::new(stream, limits(settings), empty);
        let opening = poll_fn(|context| connection.poll_open(context));
        let opened = tokio::select! {
            opened = reads.poll_with_budget(opening) => opened,
            () = slot.evicted() => return,
            () = lifecycle.reached(Phase::Stopping) => return,
        };
        if !slot.end_wait() {
            return;
        }
        if let Err(error) = opened {
            return count_error(metrics, &error);
        }
        let calls = ConnectionCalls::new(service, memory, slot.calls(), reads.clone());
        let pings = connection.ping_pong();
        let mut silent = pin!(keepalive(pings, &reads, settings));
        let age = settings.max_connection_age.map(jittered);
        let mut headers = HeaderTimeout::new(settings.call_timeout);
        let serving = dispatcher.serve_calls(&mut connection, &calls, &mut headers);
        let grace = tokio::select! {
            result = reads.poll_with_budget(serving) => {
                return result.unwrap_or_else(|error| count_error(metrics, &error));
            }
            () = silent.as_mut() => return metrics.keepalive_timeout.add(),
            () = calls.memory.evicted() => return evict(connection, metrics).await,
            () = slot.evicted() => return close(connection, Reason::NO_ERROR).await,
            // No grace period here: the worker's drain timeout ends calls that take longer.
            () = lifecycle.reached(Phase::Stopping) => None,
            () = sleep_opt(age) => {
                metrics.aged.add();
                Some(settings.max_connection_age_grace)
            }
            () = idle(settings.max_connection_idle, &calls.counts) => {
                metrics.idle.add();
                Some(settings.max_connection_age_grace)
            }
        };
        connection.graceful_shutdown();
        calls.drain.begin();
        let serving = dispatcher.serve_calls(&mut connection, &calls, &mut headers);
        tokio::select! {
            result = reads.poll_with_budget(serving) => {
                result.unwrap_or_else(|error| count_error(metrics, &error));
            }
            () = silent => metrics.keepalive_timeout.add(),
            () = calls.memory.evicted() => evict(connection, metrics).await,
            () = slot.evicted() => close(connection, Reason::NO_ERROR).await,
            () = sleep_opt(grace) => metrics.grace_expired.add(),
        }
    }
}

fn limits(settings: &GrpcSettings) -> Limits {
    Limits {
        window: WINDOW,
        max_concurrent_streams: settings.max_concurrent_streams,
        max_header_bytes: settings.max_header_bytes,
        max_control_frames: settings.max_control_frames,
        max_pending_resets: settings.max_pending_resets,
        max_error_resets: ERROR_RESETS_MAX,
        output_bytes: OUTPUT_BYTES,
    }
}

/// Window of received data in bytes, per stream and per connection.
const WINDOW: u32 = 1 << 20;

/// Streams of one connection that may be reset for errors of the client. One more closes the
/// connection.
const ERROR_RESETS_MAX: u32 = 1024;

/// Bytes of output that may wait for the client. Responses wait in their calls when it has more.
const OUTPUT_BYTES: usize = 64 * 1024;

/// Closes a connection of the address that buffers most while `grpc.max_client_memory` is used.
async fn evict<S>(connection: Connection<S, RequestFields>, metrics: &ServerMetrics)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    metrics.memory_evicted.add();
    close(connection, Reason::ENHANCE_YOUR_CALM).await;
}

/// Closes a connection, and its calls with it. GOAWAY names the last call that has begun, so the
/// client may repeat later ones elsewhere.
async fn close<S>(mut connection: Connection<S, RequestFields>, reason: Reason)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    connection.abrupt_shutdown(reason);
    // One poll writes GOAWAY, if the client reads.
    poll_fn(|context| {
        let _ = connection.poll_closed(context);
        Poll::Ready(())
    })
    .await;
}

/// Pings a client that has sent nothing for the keepalive interval. Returns when a ping is not
/// answered in time. Up to two intervals pass before the first ping.
async fn keepalive(pings: PingPong, reads: &ReadThrottle, settings: &GrpcSettings) {
    let Some(interval) = settings.keepalive_interval else { return pending().await };
    loop {
        sleep(interval).await;
        if reads.read_since_last_check() {
            continue;
        }
        if pings.send_ping().is_err() {
            // The connection has ended, and `serve_calls` returns the reason.
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

/// `age` plus or minus up to a tenth, so that connections opened together do not close together.
fn jittered(age: Duration) -> Duration {
    // A new `RandomState` is the standard library's only source of random numbers.
    let random = RandomState::new().build_hasher().finish();
    let share = (random >> 32) as f64 / f64::from(u32::MAX);
    age.mul_f64(0.9 + 0.2 * share)
}

/// Sleeps for `time`; never returns if that is `None`.
async fn sleep_opt(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => pending().await,
    }
}

/// Returns after a period of `time` without new or open calls. Detection may take twice as long.
async fn idle(time: Option<Duration>, counts: &ConnectionCounts) {
    loop {
        let before = counts.calls.get();
        sleep_opt(time).await;
        if counts.calls.get() == before && counts.open.get() == 0 {
            return;
        }
    }
}

/// Counts the error that ended a connection, unless the client sent it.
fn count_error(metrics: &ServerMetrics, error: &Error) {
    tracing::debug!(%error, "connection ended with an error");
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
    fn connection_ages_are_spread_by_a_tenth() {
        let age = Duration::from_secs(1000);
        let ages: Vec<Duration> = (0..100).map(|_| jittered(age)).collect();
        let (low, high) = (ages.iter().min().unwrap(), ages.iter().max().unwrap());
        assert!(*low >= age.mul_f64(0.9) && *high <= age.mul_f64(1.1), "{low:?} to {high:?}");
        assert!(*high - *low > age.mul_f64(0.1), "{low:?} to {high:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_calls_is_idle() {
        let counts = ConnectionCounts::default();
        let time = Some(Duration::from_secs(60));
        counts.open.add();
        tokio::select! {
            () = idle(time, &counts) => panic!("a call is open"),
            () = sleep(Duration::from_secs(3600)) => {}
        }
        counts.open.subtract();
        let began = Instant::now();
        idle(time, &counts).await;
        assert_eq!(began.elapsed(), Duration::from_secs(60));
        tokio::select! {
            () = idle(None, &counts) => panic!("idle connections are kept without a limit"),
            () = sleep(Duration::from_secs(3600)) => {}
        }
    }
}
