//! An RLQS server that gives every stream the full quota: what the acceptance must find.

use std::net::SocketAddr;
use std::thread;

use envoy_types::pb::envoy::service::rate_limit_quota::v3 as rlqs;
use envoy_types::pb::envoy::r#type::v3::rate_limit_strategy::Strategy;
use envoy_types::pb::envoy::r#type::v3::{RateLimitStrategy, TokenBucket};
use envoy_types::pb::google::protobuf::{Duration, UInt32Value};
use rlqs::rate_limit_quota_response::BucketAction;
use rlqs::rate_limit_quota_response::bucket_action::{BucketAction as Kind, QuotaAssignmentAction};
use rlqs::rate_limit_quota_service_server::{RateLimitQuotaService, RateLimitQuotaServiceServer};
use rlqs::rate_limit_quota_usage_reports::BucketQuotaUsage;
use rlqs::{RateLimitQuotaResponse, RateLimitQuotaUsageReports};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::Server;
use tonic::{Request, Response, Streaming};

/// Starts a server that answers every report with `rate` requests per second and a fifth of them as a
/// burst. Its thread ends with the test process.
pub(crate) fn start(rate: u32) -> SocketAddr {
    serve(FullQuota { rate, answers_once: false })
}

/// The same, which answers the first report of each stream only.
pub(crate) fn start_answering_once(rate: u32) -> SocketAddr {
    serve(FullQuota { rate, answers_once: true })
}

fn serve(full: FullQuota) -> SocketAddr {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
    let address = listener.local_addr().expect("a bound address");
    thread::spawn(move || {
        let service = RateLimitQuotaServiceServer::new(full);
        let connections = TcpListenerStream::new(listener);
        let serving = Server::builder().add_service(service).serve_with_incoming(connections);
        runtime.block_on(serving)
    });
    address
}

#[derive(Clone, Copy)]
struct FullQuota {
    rate: u32,
    answers_once: bool,
}

#[tonic::async_trait]
impl RateLimitQuotaService for FullQuota {
    type StreamRateLimitQuotasStream = ReceiverStream<tonic::Result<RateLimitQuotaResponse>>;

    async fn stream_rate_limit_quotas(
        &self,
        call: Request<Streaming<RateLimitQuotaUsageReports>>,
    ) -> tonic::Result<Response<Self::StreamRateLimitQuotasStream>> {
        let (mut reports, full) = (call.into_inner(), *self);
        let (responses, outgoing) = mpsc::channel(4);
        tokio::spawn(async move {
            let mut is_answered = false;
            while let Ok(Some(report)) = reports.message().await {
                if std::mem::replace(&mut is_answered, true) && full.answers_once {
                    continue;
                }
                let usages = report.bucket_quota_usages.into_iter();
                let bucket_action = usages.map(|usage| full.assign(usage)).collect();
                let response = RateLimitQuotaResponse { bucket_action };
                if responses.send(Ok(response)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }
}

impl FullQuota {
    fn assign(self, usage: BucketQuotaUsage) -> BucketAction {
        let seconds = |seconds| Some(Duration { seconds, nanos: 0 });
        let bucket = TokenBucket {
            max_tokens: self.rate / 5,
            tokens_per_fill: Some(UInt32Value { value: self.rate }),
            fill_interval: seconds(1),
        };
        let strategy = RateLimitStrategy { strategy: Some(Strategy::TokenBucket(bucket)) };
        let assignment = QuotaAssignmentAction {
            assignment_time_to_live: seconds(12),
            rate_limit_strategy: Some(strategy),
        };
        let kind = Kind::QuotaAssignmentAction(assignment);
        BucketAction { bucket_id: usage.bucket_id, bucket_action: Some(kind) }
    }
}
