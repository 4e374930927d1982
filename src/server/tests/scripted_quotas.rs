//! Quotas of which a test has the other end, and a server with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use prost::Message;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::support::{Served, in_time, serve_quotas, settings_over};
use crate::client_address::ClientAddress;
use crate::proto::RateLimitQuotaUsageReports;
use crate::server::{QuotaStream, QuotaStreamError, QuotaStreams, ServerConfig, TooManyStreams};

pub(super) const OK: u16 = 0;
pub(super) const INVALID_ARGUMENT: u16 = 3;
pub(super) const RESOURCE_EXHAUSTED: u16 = 8;
pub(super) const UNIMPLEMENTED: u16 = 12;

/// Quotas that hand each stream to the test.
struct ScriptedQuotas(UnboundedSender<OpenStream>);

/// The test's end of an open stream.
pub(super) struct OpenStream {
    pub(super) client: ClientAddress,
    pub(super) name: Option<String>,
    /// Closed when the server drops the stream.
    pub(super) reports: UnboundedReceiver<RateLimitQuotaUsageReports>,
    pub(super) assign: UnboundedSender<Bytes>,
    /// What the server believes that the stream keeps.
    pub(super) bytes: Arc<AtomicUsize>,
    /// Assignments that the server has taken.
    pub(super) taken: Arc<AtomicUsize>,
}

/// The server's end.
struct ScriptedStream {
    reports: UnboundedSender<RateLimitQuotaUsageReports>,
    assigned: UnboundedReceiver<Bytes>,
    bytes: Arc<AtomicUsize>,
    taken: Arc<AtomicUsize>,
}

impl QuotaStreams for ScriptedQuotas {
    type Stream = ScriptedStream;

    fn open(
        &self,
        client: ClientAddress,
        name: Option<&str>,
    ) -> Result<ScriptedStream, TooManyStreams> {
        if name == Some("too-many") {
            return Err(TooManyStreams);
        }
        let ((reports, to_test), (assign, assigned)) = (unbounded_channel(), unbounded_channel());
        let [bytes, taken] = [0, 0].map(|_| Arc::<AtomicUsize>::default());
        let _ = self.0.send(OpenStream {
            client,
            name: name.map(str::to_owned),
            reports: to_test,
            assign,
            bytes: bytes.clone(),
            taken: taken.clone(),
        });
        Ok(ScriptedStream { reports, assigned, bytes, taken })
    }
}

impl QuotaStream for ScriptedStream {
    fn report(&mut self, message: &[u8]) -> Result<(), QuotaStreamError> {
        let invalid = |error: prost::DecodeError| QuotaStreamError::Invalid(error.to_string());
        let report = RateLimitQuotaUsageReports::decode(message).map_err(invalid)?;
        match report.domain.as_str() {
            "invalid" => return Err(QuotaStreamError::Invalid("no such domain".into())),
            "too-large" => return Err(QuotaStreamError::Exhausted("rlqs.max_buckets".into())),
            "panic" => panic!("a test asked for it"),
            _ => {}
        }
        let _ = self.reports.send(report);
        Ok(())
    }

    async fn next(&mut self) -> Bytes {
        let Some(message) = self.assigned.recv().await else {
            return std::future::pending().await;
        };
        self.taken.fetch_add(1, Ordering::Relaxed);
        message
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A server, and the streams that are opened.
pub(super) fn serving(
    fast_path: bool,
    tune: impl FnOnce(&mut ServerConfig),
) -> (Served, UnboundedReceiver<OpenStream>) {
    let mut config = settings_over(fast_path);
    tune(&mut config);
    let (opened, streams) = unbounded_channel();
    (serve_quotas(ScriptedQuotas(opened), config), streams)
}

/// What `channel` receives next.
pub(super) async fn next<T>(what: &str, channel: &mut UnboundedReceiver<T>) -> T {
    in_time(what, channel.recv()).await.unwrap_or_else(|| panic!("no {what}"))
}
