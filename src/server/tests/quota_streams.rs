//! Streams of quotas (RLQS): their order and their end.

use std::net::IpAddr;
use std::time::Duration;

use prost::Message;

use super::quota_client::{QuotaClient, framed, invalid_flag, report};
use super::scripted_quotas::{
    INVALID_ARGUMENT, OK, RESOURCE_EXHAUSTED, UNIMPLEMENTED, next, serving,
};
use super::support::{in_time, request, serve, settings_over};
use crate::client_address::ClientAddress;
use crate::proto::RateLimitQuotaUsageReports;
use crate::server::tests::test_handlers::ByDomain;

async fn reports_arrive_and_assignments_are_sent(fast_path: bool) {
    let (server, mut streams) = serving(fast_path, |_| {});
    let mut client = QuotaClient::connect(&server).await;
    let mut call = client.open(Some("edge-7"));
    call.send(&report("shop", 2), false);
    let mut stream = next("stream", &mut streams).await;
    assert_eq!(stream.client, ClientAddress::from(IpAddr::from([127, 0, 0, 1])));
    assert_eq!(stream.name.as_deref(), Some("edge-7"));
    let first = next("report", &mut stream.reports).await;
    assert_eq!((first.domain.as_str(), first.bucket_quota_usages.len()), ("shop", 2));
    for text in ["one", "", "three"] {
        stream.assign.send(text.into()).unwrap();
        assert_eq!(call.message().await, text);
    }
    call.send(&report("shop", 1), false);
    assert_eq!(next("report", &mut stream.reports).await.bucket_quota_usages.len(), 1);
    drop(client);
    drop(call);
    let gone = in_time("the end of the stream", stream.reports.recv()).await;
    assert!(gone.is_none(), "a stream ends with its connection");
    server.stop().await;
}

async fn reports_may_arrive_in_pieces(fast_path: bool) {
    let (server, mut streams) = serving(fast_path, |_| {});
    let mut client = QuotaClient::connect(&server).await;
    let mut call = client.open(None);
    let bytes = [report("one", 1), report("two", 3), report("three", 0)].concat();
    for byte in &bytes {
        call.send(&[*byte], false);
        tokio::task::yield_now().await;
    }
    let mut stream = next("stream", &mut streams).await;
    for (domain, usages) in [("one", 1), ("two", 3), ("three", 0)] {
        let arrived = next("report", &mut stream.reports).await;
        assert_eq!((&*arrived.domain, arrived.bucket_quota_usages.len()), (domain, usages));
    }
    server.stop().await;
}

async fn large_reports_are_read_in_slices(fast_path: bool) {
    let (server, mut streams) = serving(fast_path, |_| {});
    let mut client = QuotaClient::connect(&server).await;
    let mut call = client.open(None);
    call.send(&report("shop", 1000), false);
    let mut stream = next("stream", &mut streams).await;
    let mut usages = Vec::new();
    while usages.len() < 1000 {
        let slice = next("slice", &mut stream.reports).await;
        let domain = if usages.is_empty() { "shop" } else { "" };
        assert_eq!(slice.domain, domain, "the first slice sets the domain of the stream");
        assert!(slice.bucket_quota_usages.len() <= 64);
        usages.extend(slice.bucket_quota_usages);
    }
    let sent = RateLimitQuotaUsageReports::decode(&report("shop", 1000)[5..]).unwrap();
    assert_eq!(usages, sent.bucket_quota_usages);
    server.stop().await;
}

/// Each way to send no report has its status: in the headers if there was no report before it, else in
/// the trailers.
async fn bad_reports_end_their_stream(fast_path: bool) {
    let max = 2000;
    let (server, _streams) = serving(fast_path, |config| config.rlqs.max_message_bytes = max);
    let table: [(Vec<u8>, bool, u16, &str); 8] = [
        (invalid_flag(1), false, UNIMPLEMENTED, "compressed"),
        (invalid_flag(2), false, INVALID_ARGUMENT, "flag 2"),
        (framed(&[7; 2001]), false, RESOURCE_EXHAUSTED, "rlqs.max_message_bytes"),
        (framed(&[7; 2001])[..5].to_vec(), false, RESOURCE_EXHAUSTED, "2001 bytes"),
        (framed(&[0xff]), false, INVALID_ARGUMENT, ""),
        (report("shop", 1)[..7].to_vec(), true, INVALID_ARGUMENT, "ended within"),
        (report("invalid", 1), false, INVALID_ARGUMENT, "no such domain"),
        (report("too-large", 1), false, RESOURCE_EXHAUSTED, "rlqs.max_buckets"),
    ];
    for (bytes, ends, code, text) in table {
        for is_first in [true, false] {
            let mut client = QuotaClient::connect(&server).await;
            let mut call = client.open(None);
            if !is_first {
                call.send(&report("shop", 1), false);
                call.opened().await;
            }
            call.send(&bytes, ends);
            let status = call.status().await;
            assert_eq!(status.code, code, "{text}: {}", status.message);
            assert!(status.message.contains(text), "{text}: {}", status.message);
            assert_eq!(status.is_trailers_only, is_first, "{text}");
            assert_eq!(status.accepts, "identity", "{text}");
            server.try_call().await.unwrap();
        }
    }
    assert_eq!(server.metrics.message_too_large.get(), 4);
    server.stop().await;
}

async fn a_panic_ends_its_stream_alone(fast_path: bool) {
    let (server, mut streams) = serving(fast_path, |_| {});
    let mut client = QuotaClient::connect(&server).await;
    let (mut other, mut call) = (client.open(None), client.open(None));
    other.send(&report("shop", 1), false);
    let mut stream = next("stream", &mut streams).await;
    call.send(&report("panic", 1), false);
    assert!(in_time("the reset", call.answer()).await.is_err());
    next("report", &mut stream.reports).await;
    stream.assign.send("still here".into()).unwrap();
    assert_eq!(other.message().await, "still here");
    server.stop().await;
}

/// A client that has no more to report gets its first assignment, if that comes soon.
async fn a_half_closed_stream_ends_in_order(fast_path: bool) {
    let (server, mut streams) = serving(fast_path, |_| {});
    let mut client = QuotaClient::connect(&server).await;
    for assignment in [Some("first"), None] {
        let mut call = client.open(None);
        let mut stream = next("stream", &mut streams).await;
        if let Some(text) = assignment {
            stream.assign.send(text.into()).unwrap();
        }
        call.send(&report("shop", 1), true);
        if let Some(text) = assignment {
            assert_eq!(call.message().await, text);
        }
        assert_eq!(call.status().await.code, OK);
        next("report", &mut stream.reports).await;
        assert!(in_time("the end of the stream", stream.reports.recv()).await.is_none());
    }
    let mut silent = client.open(None);
    silent.send(&[], true);
    let status = silent.status().await;
    assert_eq!((status.code, status.is_trailers_only), (OK, true));
    server.stop().await;
}

/// Envoy opens another stream after OK.
async fn streams_end_with_ok_when_the_server_drains(fast_path: bool) {
    let (server, mut streams) = serving(fast_path, |_| {});
    let mut client = QuotaClient::connect(&server).await;
    let (mut silent, mut call) = (client.open(None), client.open(None));
    silent.send(&[0], false);
    call.send(&report("shop", 1), false);
    call.opened().await;
    let _open = [next("stream", &mut streams).await, next("stream", &mut streams).await];
    in_time("the drain", server.stop()).await;
    let status = call.status().await;
    assert_eq!((status.code, status.is_trailers_only), (OK, false));
    let status = silent.status().await;
    assert_eq!((status.code, status.is_trailers_only), (OK, true));
}

async fn streams_end_with_ok_at_the_age_of_a_connection(fast_path: bool) {
    let (server, _streams) = serving(fast_path, |config| {
        config.grpc.max_connection_age = Some(Duration::from_secs(1));
    });
    let mut client = QuotaClient::connect(&server).await;
    let mut call = client.open(None);
    call.send(&report("shop", 1), false);
    assert_eq!(call.status().await.code, OK);
    assert_eq!(server.metrics.aged.get(), 1);
    server.stop().await;
}

async fn a_server_without_quotas_says_so(fast_path: bool) {
    let server = serve(ByDomain, settings_over(fast_path));
    let mut client = QuotaClient::connect(&server).await;
    let mut call = client.open(Some("edge-7"));
    call.send(&report("shop", 1), false);
    let status = call.status().await;
    assert_eq!(status.code, UNIMPLEMENTED);
    assert!(status.message.contains("rlqs.enabled"), "{}", status.message);
    server.client().await.should_rate_limit(request("ok")).await.unwrap();
    server.stop().await;
}

over_both_paths! {
    reports_arrive_and_assignments_are_sent,
    reports_may_arrive_in_pieces,
    large_reports_are_read_in_slices,
    bad_reports_end_their_stream,
    a_panic_ends_its_stream_alone,
    a_half_closed_stream_ends_in_order,
    streams_end_with_ok_when_the_server_drains,
    streams_end_with_ok_at_the_age_of_a_connection,
    a_server_without_quotas_says_so,
}
