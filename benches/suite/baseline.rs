//! The baseline: a plain tonic server with a constant response, on the thread layout of weir.
//!
//! One thread accepts and distributes connections, and one single-threaded runtime per core serves
//! them. The service is generated from `envoy-types` in the usual way and contains no code of weir.
//! The constant has the fields of weir's response to the same call, so the sizes are equal.

use std::net::{TcpListener, TcpStream};
use std::thread;

use anyhow::Context;
use envoy_types::pb::envoy::service::ratelimit::v3 as service;
use envoy_types::pb::google::protobuf::Duration;
use service::rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit::Unit};
use service::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};
use service::{RateLimitRequest, RateLimitResponse};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

struct Constant;

#[tonic::async_trait]
impl RateLimitService for Constant {
    async fn should_rate_limit(
        &self,
        _: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        Ok(Response::new(response()))
    }
}

/// The constant.
pub(crate) fn response() -> RateLimitResponse {
    let limit =
        RateLimit { requests_per_unit: 1_000_000, unit: Unit::Hour.into(), ..RateLimit::default() };
    let status = DescriptorStatus {
        code: Code::Ok.into(),
        current_limit: Some(limit),
        limit_remaining: 999_990,
        duration_until_reset: Some(Duration { seconds: 1800, nanos: 0 }),
        ..DescriptorStatus::default()
    };
    RateLimitResponse {
        overall_code: Code::Ok.into(),
        statuses: vec![status],
        ..RateLimitResponse::default()
    }
}

/// Serves on a free port of loopback, which it prints, until the process ends.
pub(crate) fn serve(cores: usize) -> anyhow::Result<()> {
    distribute(cores, core)
}

/// Accepts connections on a free port of loopback, which it prints, and distributes them to a thread per
/// core, which serves them by `core`.
pub(crate) fn distribute(
    cores: usize,
    core: fn(mpsc::UnboundedReceiver<TcpStream>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("listening on {}", listener.local_addr()?);
    let mut queues = Vec::new();
    for _ in 0..cores.max(1) {
        let (queue, connections) = mpsc::unbounded_channel();
        thread::spawn(move || core(connections));
        queues.push(queue);
    }
    for queue in queues.iter().cycle() {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        queue.send(stream).context("the thread of a core has ended")?;
    }
    Ok(())
}

fn core(connections: mpsc::UnboundedReceiver<TcpStream>) -> anyhow::Result<()> {
    let incoming = UnboundedReceiverStream::new(connections).map(tokio::net::TcpStream::from_std);
    let serving = Server::builder()
        .add_service(RateLimitServiceServer::new(Constant))
        .serve_with_incoming(incoming);
    Builder::new_current_thread().enable_all().build()?.block_on(serving)?;
    Ok(())
}
