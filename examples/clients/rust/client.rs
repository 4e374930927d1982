//! Asks weir whether four requests of a user may pass: client ADDRESS [DEADLINE_MS]
//!
//! Its dependencies: `envoy-types` 0.7, `tokio` 1 with `macros`, `rt` and `time`, and `tonic` 0.14.

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3 as common;
use envoy_types::pb::envoy::service::ratelimit::v3 as service;
use envoy_types::pb::google::protobuf::UInt64Value;
use service::rate_limit_response::Code;
use service::rate_limit_service_client::RateLimitServiceClient;
use tokio::time::sleep;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

/// The channel of the whole process: its clones share a connection, which reconnects.
fn connect(address: &str) -> Result<Channel, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?
        .connect_timeout(Duration::from_secs(5))
        // A ping detects a connection that hangs.
        .http2_keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(5))
        .keep_alive_while_idle(true);
    Ok(endpoint.connect_lazy())
}

/// Decides requests. Without a decision they pass.
struct Limiter {
    weir: RateLimitServiceClient<Channel>,
    failures: HashMap<tonic::Code, u32>,
}

impl Limiter {
    async fn may_pass(&mut self, user: &str, hits: u64, deadline: Duration) -> bool {
        let entry = common::rate_limit_descriptor::Entry { key: "user".into(), value: user.into() };
        let descriptor = common::RateLimitDescriptor {
            entries: vec![entry],
            hits_addend: Some(UInt64Value { value: hits }),
            ..Default::default()
        };
        let mut request = Request::new(service::RateLimitRequest {
            domain: "demo".into(),
            descriptors: vec![descriptor],
            ..Default::default()
        });
        // weir gets the deadline with the call. The one here includes the time of a new connection.
        request.set_timeout(deadline);
        let answer = tokio::select! {
            biased;
            () = sleep(deadline) => Err(Status::deadline_exceeded("no response")),
            answer = self.weir.should_rate_limit(request) => answer,
        };
        match answer {
            Ok(response) => response.get_ref().overall_code() != Code::OverLimit,
            Err(status) => {
                *self.failures.entry(status.code()).or_default() += 1;
                eprintln!("no decision: {:?}: {}", status.code(), status.message());
                true
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let address = args.next().ok_or("usage: client ADDRESS [DEADLINE_MS]")?;
    let deadline = args.next().map_or(Ok(50), |ms| ms.parse::<u64>())?;
    let weir = RateLimitServiceClient::new(connect(&address)?);
    let mut limiter = Limiter { weir, failures: HashMap::new() };
    // A peek (0 hits) connects before the first request.
    limiter.may_pass("alice", 0, Duration::from_secs(1)).await;
    for _ in 0..4 {
        let passes = limiter.may_pass("alice", 1, Duration::from_millis(deadline)).await;
        println!("{}", if passes { "pass" } else { "stop" });
    }
    if !limiter.failures.is_empty() {
        eprintln!("failures: {:?}", limiter.failures);
    }
    Ok(())
}
