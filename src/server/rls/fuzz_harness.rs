//! A harness for tests and fuzzing: decides encoded requests without a connection.
//!
//! Its users are the fuzz targets `request_proto` and `request_json` and `tests/random_inputs`, all by
//! `fuzz/src/requests.rs`, and `tests/it/library/wire.rs`. They are other crates, so this module is
//! public, with the feature `fuzz` alone.

use std::sync::LazyLock;

use prost::Message;

use super::handler::{Decide, HandleError, RlsResponse, handle};
use super::json::Json;
use crate::descriptor::{RequestBounds, TraceContext};
use crate::proto::RateLimitResponse;

/// The JSON codec. It is built once, because reading the descriptors takes longer than most
/// requests.
static JSON: LazyLock<Json> = LazyLock::new(Json::new);

/// Why a request was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The error message that the caller would get.
    pub reason: String,
    /// Whether the cause is a bug of weir instead of the request.
    pub defect: bool,
}

/// Decides a protobuf message as the gRPC port does once the message has arrived.
pub async fn protobuf(
    decider: &impl Decide,
    bounds: &RequestBounds,
    message: &[u8],
) -> Result<Vec<u8>, Refused> {
    Ok(delivered(handle(decider, bounds, message, None, TraceContext::default(), None).await?)
        .encode_to_vec())
}

/// Decides a request as `/json` does.
pub async fn json(
    decider: &impl Decide,
    bounds: &RequestBounds,
    body: &[u8],
) -> Result<Vec<u8>, Refused> {
    let unread = |error: serde_json::Error| Refused { reason: error.to_string(), defect: false };
    let message = JSON.read(body).map_err(unread)?;
    let response =
        delivered(handle(decider, bounds, &message, None, TraceContext::default(), None).await?);
    JSON.write(&response).map_err(|error| Refused { reason: error.to_string(), defect: true })
}

/// The message of a response. Commits its leases.
fn delivered(answer: RlsResponse) -> RateLimitResponse {
    if let Some(rollback) = answer.rollback {
        rollback.commit();
    }
    answer.message
}

impl From<HandleError> for Refused {
    fn from(error: HandleError) -> Refused {
        Refused { reason: error.to_string(), defect: error == HandleError::Panicked }
    }
}
