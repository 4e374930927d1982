//! The first call, which takes nothing: is there a service, and does it answer such calls?

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use tokio::runtime::Builder;
use tokio::task::LocalSet;

use super::answer::Outcome;
use super::body;
use super::link::{Link, Target};
use super::plan::Plan;

/// Why a run cannot be begun, or cannot be finished.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// The plan itself.
    #[error("{0}")]
    Plan(String),
    /// Not an address, or a name without one.
    #[error("--addr {0} is not host:port of anything: {1}")]
    Address(String, String),
    /// Nobody there.
    #[error("no service answers at {0}: {1}; is `weir serve` running there?")]
    Silent(String, String),
    /// Somebody else.
    #[error(
        "what listens at {0} does not speak HTTP/2 without TLS ({1}); the gRPC port does, by \
         default 8081"
    )]
    NotHttp2(String, String),
    /// It speaks, but does not decide.
    #[error("the service at {0} does not answer such calls: {1}")]
    Refused(String, String),
    /// The system said no to a thread or a connection.
    #[error("a thread of the generator could not go on: {0}")]
    Worker(String),
}

/// The address at which a service answers calls as those of `plan`.
pub(super) fn service(plan: &Plan, address: &str) -> Result<SocketAddr, Unfit> {
    let here = || address.to_owned();
    let found: Vec<SocketAddr> = address
        .to_socket_addrs()
        .map_err(|error| Unfit::Address(here(), error.to_string()))?
        .collect();
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Unfit::Worker(error.to_string()))?;
    let asking = async {
        let mut last = Unfit::Address(here(), "the name has no address".into());
        for one in found {
            match ask(plan, one).await {
                Ok(()) => return Ok(one),
                Err(Wrong::Silent(error)) => last = Unfit::Silent(here(), error),
                Err(Wrong::NotHttp2(error)) => return Err(Unfit::NotHttp2(here(), error)),
                Err(Wrong::Refused(error)) => return Err(Unfit::Refused(here(), error)),
            }
        }
        Err(last)
    };
    let timeout = plan.timeout;
    let asking = async {
        let late = || Err(Unfit::Silent(here(), format!("no answer within {timeout:?}")));
        tokio::time::timeout(timeout, asking).await.unwrap_or_else(|_| late())
    };
    LocalSet::new().block_on(&runtime, asking)
}

enum Wrong {
    Silent(String),
    NotHttp2(String),
    Refused(String),
}

async fn ask(plan: &Plan, address: SocketAddr) -> Result<(), Wrong> {
    let target = Arc::new(Target::new(address));
    let link = Link::open(address, target).await.map_err(Wrong::Silent)?;
    match link.call(body::peek(plan), || {}).await {
        Outcome::Decided(_) => Ok(()),
        Outcome::Failed(words) => Err(Wrong::Refused(words)),
        Outcome::Broken(words) => Err(Wrong::NotHttp2(words)),
    }
}
