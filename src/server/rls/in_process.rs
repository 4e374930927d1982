//! Bytes in, bytes out: a call's whole way without a connection, for fuzzing and for tests.

use std::sync::LazyLock;

use prost::Message;

use super::handler::{Decide, HandleError, RlsResponse, handle};
use super::json::Json;
use crate::descriptor::{Bounds, Caller};
use crate::proto::RateLimitResponse;

/// Made once: reading the descriptors takes longer than most requests.
static JSON: LazyLock<Json> = LazyLock::new(Json::new);

/// Why bytes were not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The text that the caller would get.
    pub reason: String,
    /// The fault is ours, not the caller's.
    pub defect: bool,
}

/// Answers a request as the gRPC port does, once its bytes have arrived.
pub async fn protobuf(
    decider: &impl Decide,
    bounds: &Bounds,
    message: &[u8],
) -> Result<Vec<u8>, Refused> {
    Ok(delivered(handle(decider, bounds, message, None, Caller::default()).await?).encode_to_vec())
}

/// Answers a request as `/json` does.
pub async fn json(decider: &impl Decide, bounds: &Bounds, body: &[u8]) -> Result<Vec<u8>, Refused> {
    let unread = |error: serde_json::Error| Refused { reason: error.to_string(), defect: false };
    let message = JSON.read(body).map_err(unread)?;
    let response = delivered(handle(decider, bounds, &message, None, Caller::default()).await?);
    JSON.write(&response).map_err(|error| Refused { reason: error.to_string(), defect: true })
}

/// The response; with it, whatever the answer grants becomes the caller's.
fn delivered(answer: RlsResponse) -> RateLimitResponse {
    if let Some(grant) = answer.grant {
        grant.delivered();
    }
    answer.response
}

impl From<HandleError> for Refused {
    fn from(error: HandleError) -> Refused {
        Refused { reason: error.to_string(), defect: error == HandleError::Panicked }
    }
}
