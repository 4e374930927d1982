//! The first call, which adds no hits and checks that a service listens and answers such calls.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use tokio::runtime::Builder;
use tokio::task::LocalSet;

use crate::connection::{Connection, RequestHead};
use crate::plan::Plan;
use crate::request_body;
use crate::response::CallOutcome;

/// Why a run could not start or finish.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The plan is invalid.
    #[error("{0}")]
    Plan(String),
    /// The address is malformed, or its name does not resolve.
    #[error("--addr: `{0}` is not host:port of a service: {1}")]
    Address(String, String),
    /// Nothing answers at the address.
    #[error("no service answers at {0}: {1}; is `weir serve` running there?")]
    NoAnswer(String, String),
    /// Something else listens at the address.
    #[error(
        "--addr: {0} does not speak HTTP/2 without TLS ({1}); use the gRPC port, 8081 by default"
    )]
    NotHttp2(String, String),
    /// The service answers with an error.
    #[error("the service at {0} refuses such calls: {1}")]
    Refused(String, String),
    /// A thread could not start, or ended before the run.
    #[error("a thread of the load generator failed: {0}")]
    Worker(String),
}

/// The first of the addresses behind `address` at which a service answers the calls of `plan`.
pub(crate) fn find_service(plan: &Plan, address: &str) -> Result<SocketAddr, RunError> {
    let name = || address.to_owned();
    let resolved: Vec<SocketAddr> = address
        .to_socket_addrs()
        .map_err(|error| RunError::Address(name(), error.to_string()))?
        .collect();
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| RunError::Worker(error.to_string()))?;
    let probes = async {
        let mut last = RunError::Address(name(), "the name has no address".into());
        for candidate in resolved {
            match probe(plan, candidate).await {
                Ok(()) => return Ok(candidate),
                Err(ProbeError::NoAnswer(error)) => last = RunError::NoAnswer(name(), error),
                Err(ProbeError::NotHttp2(error)) => return Err(RunError::NotHttp2(name(), error)),
                Err(ProbeError::Refused(error)) => return Err(RunError::Refused(name(), error)),
            }
        }
        Err(last)
    };
    let timeout = plan.timeout;
    let probes = async {
        let late = || Err(RunError::NoAnswer(name(), format!("no answer within {timeout:?}")));
        tokio::time::timeout(timeout, probes).await.unwrap_or_else(|_| late())
    };
    LocalSet::new().block_on(&runtime, probes)
}

enum ProbeError {
    NoAnswer(String),
    NotHttp2(String),
    Refused(String),
}

async fn probe(plan: &Plan, address: SocketAddr) -> Result<(), ProbeError> {
    let head = Arc::new(RequestHead::new(address));
    let connection = Connection::open(address, head).await.map_err(ProbeError::NoAnswer)?;
    match connection.call(request_body::peek(plan), || {}).await {
        CallOutcome::Decided(_) => Ok(()),
        CallOutcome::Failed(reason) => Err(ProbeError::Refused(reason)),
        CallOutcome::Disconnected(reason) => Err(ProbeError::NotHttp2(reason)),
    }
}
