//! Health and reflection on the gRPC port, called by their standard clients, and the path of its calls.

use std::collections::HashMap;

use http::uri::PathAndQuery;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic::client::Grpc;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_prost::ProstCodec;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::support::http::get;
use crate::support::rls::{self, Client};
use crate::support::weir::Weir;

fn health(client: &Client, service: &str) -> Result<ServingStatus, Code> {
    let request = HealthCheckRequest { service: service.to_owned() };
    let answer = client.block_on(HealthClient::new(client.channel()).check(request));
    answer.map(|answer| answer.into_inner().status()).map_err(|status| status.code())
}

#[test]
fn health_has_both_names_of_envoy_ratelimit() {
    let weir = Weir::setup().start();
    let client = weir.client();
    assert_eq!(health(&client, ""), Ok(ServingStatus::Serving));
    assert_eq!(health(&client, "ratelimit"), Ok(ServingStatus::Serving));
    let service = "envoy.service.ratelimit.v3.RateLimitService";
    assert_eq!(health(&client, service), Ok(ServingStatus::Serving));
    assert_eq!(health(&client, "other"), Err(Code::NotFound));
}

/// `HealthListResponse` of the protocol, which `tonic_health` does not define.
#[derive(Clone, PartialEq, prost::Message)]
struct ListResponse {
    #[prost(map = "string, message", tag = "1")]
    statuses: HashMap<String, HealthCheckResponse>,
}

#[test]
fn health_lists_all_names() {
    let weir = Weir::setup().start();
    let client = weir.client();
    let mut grpc = Grpc::new(client.channel());
    let listed = client.block_on(async {
        grpc.ready().await.expect("a connection");
        let path = PathAndQuery::from_static("/grpc.health.v1.Health/List");
        let codec = ProstCodec::<(), ListResponse>::default();
        grpc.unary(tonic::Request::new(()), path, codec).await
    });
    let listed: ListResponse = listed.expect("a response").into_inner();
    let serving = |name: &str| (name.to_owned(), ServingStatus::Serving);
    let statuses = listed.statuses.into_iter().map(|(name, response)| (name, response.status()));
    let expected = [
        "",
        "ratelimit",
        "envoy.service.ratelimit.v3.RateLimitService",
        "envoy.service.rate_limit_quota.v3.RateLimitQuotaService",
    ]
    .map(serving);
    assert_eq!(statuses.collect::<HashMap<_, _>>(), HashMap::from(expected));
}

/// The health check must fail before the shutdown, so that load balancers remove the instance.
/// Calls that still arrive must be decided.
#[test]
fn a_draining_instance_still_serves() {
    let setup = Weir::setup().env("WEIR__DRAIN__DELAY", "60s");
    let mut weir = setup.start();
    let client = weir.client();
    let request = HealthCheckRequest { service: "ratelimit".to_owned() };
    let watch = client.block_on(HealthClient::new(client.channel()).watch(request));
    let mut watch = watch.expect("health can be watched").into_inner();
    let mut next = || {
        let news = client.block_on(watch.next()).expect("the watch goes on");
        news.expect("no error").status()
    };
    assert_eq!(next(), ServingStatus::Serving);
    weir.process().terminate();
    assert_eq!(next(), ServingStatus::NotServing);
    assert_eq!(get(weir.http, "/healthcheck").status, 500);
    assert_eq!(get(weir.http, "/livez").status, 200, "a supervisor must not kill it");
    let answer = client.check(rls::request("d", vec![rls::descriptor(&[("a", "b")])]));
    assert_eq!(answer.overall_code(), rls::Code::Ok);
}

#[test]
fn reflection_shows_the_services_and_their_messages() {
    let weir = Weir::setup().start();
    let client = weir.client();
    let check = |message: MessageRequest| {
        let request =
            ServerReflectionRequest { host: String::new(), message_request: Some(message) };
        let mut reflection = ServerReflectionClient::new(client.channel());
        client.block_on(async {
            let requests = tokio_stream::once(request);
            let answers = reflection.server_reflection_info(requests).await;
            let mut answers = answers.expect("reflection is served").into_inner();
            let answer = answers.next().await.expect("an answer").expect("no error");
            answer.message_response.expect("a response has a message")
        })
    };

    let listed = check(MessageRequest::ListServices(String::new()));
    let MessageResponse::ListServicesResponse(list) = listed else { panic!("{listed:?}") };
    let names: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    for name in [
        "envoy.service.ratelimit.v3.RateLimitService",
        "envoy.service.rate_limit_quota.v3.RateLimitQuotaService",
        "grpc.health.v1.Health",
    ] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }

    for symbol in [
        "envoy.service.ratelimit.v3.RateLimitRequest",
        "envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports",
    ] {
        let found = check(MessageRequest::FileContainingSymbol(symbol.to_owned()));
        let MessageResponse::FileDescriptorResponse(files) = found else { panic!("{found:?}") };
        assert!(!files.file_descriptor_proto.is_empty(), "{symbol}");
    }
}

/// `make test` runs tests a second time with tonic serving every call. The variable must reach weir.
#[test]
fn grpc_takes_the_path_of_the_environment() {
    let expected = std::env::var("WEIR__GRPC__FAST_PATH").unwrap_or_else(|_| "true".to_owned());
    let weir = Weir::setup().start();
    let settings = get(weir.admin, "/settings").json();
    assert_eq!(settings["grpc"]["fast_path"].to_string(), expected);
}
