//! What divides quotas among the streams of Envoys: the traits that the application implements, and
//! their forms without a type parameter.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use crate::client_address::ClientAddress;

/// The quotas of this process, in which Envoys open streams.
pub trait QuotaStreams: Send + Sync + 'static {
    /// A stream of one Envoy.
    type Stream: QuotaStream;

    /// Opens a stream of an Envoy at the address `client`. `name` is its `x-weir-instance`, if it has a
    /// valid one.
    fn open(
        &self,
        client: ClientAddress,
        name: Option<&str>,
    ) -> Result<Self::Stream, TooManyStreams>;
}

/// The stream of one Envoy. Dropping it means that the Envoy has gone.
pub trait QuotaStream: Send + 'static {
    /// Reads an encoded `RateLimitQuotaUsageReports`, which is untrusted input. A report of more than 64
    /// buckets or 16 KiB comes in several calls, each with its domain. An error ends the stream.
    fn report(&mut self, message: &[u8]) -> Result<(), QuotaStreamError>;

    /// Waits until there is something to send, and returns an encoded `RateLimitQuotaResponse`. It may be
    /// dropped while it waits, and loses nothing then.
    fn next(&mut self) -> impl Future<Output = Bytes> + Send;

    /// Bytes that the stream keeps, for `grpc.max_client_memory`.
    fn bytes(&self) -> usize;
}

/// Why no stream was opened: as many as `rlqs.max_streams` are open, or the client address has as many
/// as are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many quota streams of this client or of all clients (rlqs.max_streams); retry")]
pub struct TooManyStreams;

/// Why a report ends its stream. The client gets the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaStreamError {
    /// The report is invalid: INVALID_ARGUMENT.
    #[error("{0}")]
    Invalid(String),
    /// The report needs more than a bound allows: RESOURCE_EXHAUSTED.
    #[error("{0}")]
    Exhausted(String),
}

/// The type of the quotas of a server that has none.
impl QuotaStreams for Infallible {
    type Stream = Infallible;

    fn open(&self, _: ClientAddress, _: Option<&str>) -> Result<Infallible, TooManyStreams> {
        match *self {}
    }
}

impl QuotaStream for Infallible {
    fn report(&mut self, _: &[u8]) -> Result<(), QuotaStreamError> {
        match *self {}
    }

    async fn next(&mut self) -> Bytes {
        match *self {}
    }

    fn bytes(&self) -> usize {
        match *self {}
    }
}

/// [`QuotaStreams`] of any type.
pub(in crate::server) trait AnyQuotaStreams: Send + Sync {
    fn open_any(
        &self,
        client: ClientAddress,
        name: Option<&str>,
    ) -> Result<Box<dyn AnyQuotaStream>, TooManyStreams>;
}

/// [`QuotaStream`] of any type.
pub(in crate::server) trait AnyQuotaStream: Send {
    fn report_any(&mut self, message: &[u8]) -> Result<(), QuotaStreamError>;
    fn next_any(&mut self) -> Pin<Box<dyn Future<Output = Bytes> + Send + '_>>;
    fn bytes_of_any(&self) -> usize;
}

impl<Q: QuotaStreams> AnyQuotaStreams for Q {
    fn open_any(
        &self,
        client: ClientAddress,
        name: Option<&str>,
    ) -> Result<Box<dyn AnyQuotaStream>, TooManyStreams> {
        Ok(Box::new(self.open(client, name)?))
    }
}

impl<S: QuotaStream> AnyQuotaStream for S {
    fn report_any(&mut self, message: &[u8]) -> Result<(), QuotaStreamError> {
        self.report(message)
    }

    fn next_any(&mut self) -> Pin<Box<dyn Future<Output = Bytes> + Send + '_>> {
        Box::pin(self.next())
    }

    fn bytes_of_any(&self) -> usize {
        self.bytes()
    }
}
