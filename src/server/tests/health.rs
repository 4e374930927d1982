//! Health over HTTP and gRPC, and gRPC reflection.

use std::time::Duration;

use tokio_stream::StreamExt;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus::{
    self, NotServing, ServiceUnknown, Serving,
};
use tonic_health::pb::health_client::HealthClient;

use super::support::{Served, http, serve, settings_over};
use crate::server::Health;
use crate::server::tests::test_handlers::ByDomain;

const QUOTAS: &str = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService";
const NAMES: [&str; 4] = ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService", QUOTAS];

fn check(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.into() }
}

/// The next status from a watch of each service name.
async fn watch(server: &Served) -> impl AsyncFnMut() -> [ServingStatus; NAMES.len()] {
    let mut client = HealthClient::new(server.channel().await);
    let mut streams = Vec::new();
    for name in NAMES {
        streams.push(client.watch(check(name)).await.unwrap().into_inner());
    }
    async move || {
        let mut statuses = [NotServing; NAMES.len()];
        for (stream, status) in streams.iter_mut().zip(&mut statuses) {
            *status = stream.next().await.unwrap().unwrap().status();
        }
        statuses
    }
}

async fn probes(server: &Served) -> [(u16, String); 3] {
    let port = server.addresses.http;
    let mut answers = Vec::new();
    for path in ["/healthcheck", "/livez", "/readyz"] {
        let answer = http(port, "GET", path, "").await;
        answers.push((answer.status, answer.body));
    }
    answers.try_into().unwrap()
}

async fn health_follows_the_application_and_the_drain(fast_path: bool) {
    let mut config = settings_over(fast_path);
    // Long enough for all checks. The end of the test does not wait for it.
    config.drain.delay = Duration::from_secs(3600);
    let server = serve(ByDomain, config);
    let ok = |status| (status, "OK".to_owned());
    let (dead, unready) = ((500, String::new()), (503, "not ready".to_owned()));

    server.health.send_replace(Health { live: true, ready: false });
    let mut next_statuses = watch(&server).await;
    assert_eq!(next_statuses().await, [NotServing; NAMES.len()], "no rules yet");
    assert_eq!(probes(&server).await, [ok(200), ok(200), unready.clone()]);

    server.health.send_replace(Health { live: true, ready: true });
    assert_eq!(next_statuses().await, [Serving; NAMES.len()]);
    assert_eq!(probes(&server).await, [ok(200), ok(200), ok(200)]);

    server.shutdown.send_replace(true);
    let statuses = next_statuses().await;
    assert_eq!(statuses, [NotServing; NAMES.len()], "reported before the ports close");
    assert_eq!(probes(&server).await, [dead, ok(200), unready], "a draining process is live");
}

async fn a_health_watch_does_not_delay_the_drain(fast_path: bool) {
    let server = serve(ByDomain, settings_over(fast_path));
    let mut client = HealthClient::new(server.channel().await);
    let mut stream = client.watch(check("ratelimit")).await.unwrap().into_inner();
    stream.next().await.unwrap().unwrap();
    server.stop().await;
    while let Some(Ok(_)) = stream.next().await {}
}

async fn known_names_are_serving_and_others_not_found(fast_path: bool) {
    let server = serve(ByDomain, settings_over(fast_path));
    let mut client = HealthClient::new(server.channel().await);
    for name in NAMES {
        let answer = client.check(check(name)).await.unwrap().into_inner();
        assert_eq!(answer.status(), Serving, "{name}");
    }
    let status = client.check(check("other")).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::NotFound);
    server.stop().await;
}

async fn a_watch_of_an_unknown_name_stays_open(fast_path: bool) {
    let mut config = settings_over(fast_path);
    // Long enough for all checks. The end of the test does not wait for it.
    config.drain.delay = Duration::from_secs(3600);
    let server = serve(ByDomain, config);
    let mut client = HealthClient::new(server.channel().await);
    let mut stream = client.watch(check("other")).await.unwrap().into_inner();
    assert_eq!(stream.next().await.unwrap().unwrap().status(), ServiceUnknown);
    server.shutdown.send_replace(true);
    assert_eq!(stream.next().await.unwrap().unwrap().status(), ServiceUnknown);
}

/// Lists the services by one version of reflection. Both versions have the same messages.
macro_rules! services_of {
    ($version:ident, $server:expr) => {{
        use tonic_reflection::pb::$version::ServerReflectionRequest;
        use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        };
        let mut client = ServerReflectionClient::new($server.channel().await);
        let answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap();
        let answer = answers.into_inner().next().await.unwrap().unwrap();
        let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
            panic!("a list of services");
        };
        list.service.into_iter().map(|service| service.name).collect::<Vec<_>>()
    }};
}

async fn reflection_lists_the_services_in_both_versions(fast_path: bool) {
    let server = serve(ByDomain, settings_over(fast_path));
    for services in [services_of!(v1, server), services_of!(v1alpha, server)] {
        let rate_limits = "envoy.service.ratelimit.v3.RateLimitService";
        for name in [rate_limits, QUOTAS, "grpc.health.v1.Health"] {
            assert!(services.iter().any(|service| service == name), "{name} in {services:?}");
        }
    }
    server.stop().await;
}

over_both_paths! {
    health_follows_the_application_and_the_drain,
    a_health_watch_does_not_delay_the_drain,
    known_names_are_serving_and_others_not_found,
    a_watch_of_an_unknown_name_stays_open,
    reflection_lists_the_services_in_both_versions,
}
