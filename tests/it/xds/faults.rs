//! A server that sends the same errors again and again, ends streams, hangs or sends no HTTP/2.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use envoy_types::pb::google::protobuf::Any;
use tonic::Status;

use super::{HOUR, is_ready, limit, of, one_limit, setup, until_limit};
use crate::support::ads::{Ads, limited, node, rules};
use crate::support::rls::{costing, descriptor, request};
use crate::support::wait::until;

/// Envoy Gateway sends rejected rules again at once. With envoyproxy/ratelimit that causes 1,500
/// rejections per second.
#[test]
fn a_rejection_causes_no_storm() {
    let ads = Ads::resending();
    ads.set("1", vec![rules("a", vec![limited("k", HOUR, 5), limited("bad", 99, 1)])]);
    let mut weir = of(&ads).start();
    let rejections = ads.during(Duration::from_secs(10));
    let rejections = rejections.iter().filter(|seen| seen.request.error_detail.is_some()).count();
    assert!((2..=6).contains(&rejections), "{rejections} rejections in 10 s");
    let client = weir.client();
    assert_eq!(limit(&client, "k"), 5, "the valid part is active");
    assert_eq!(weir.metric("weir_xds_updates_total", &[r#"result="rejected""#]), 1);
    assert!(weir.metric("weir_xds_nacks_total", &[]) >= rejections as u64);
    let lines = weir.process().output();
    assert_eq!(lines.matches("rules by xDS rejected").count(), 1, "{lines}");
    // Corrected rules end it.
    ads.set("2", one_limit(6));
    until_limit(&client, 6);
}

/// Two rules of one route begin with the same network, which Envoy Gateway sends as two equal siblings. With
/// envoyproxy/ratelimit they cause the same rejections, and no rule becomes active.
#[test]
fn equal_siblings_cause_no_rejection() {
    const NETWORK: (&str, &str) = ("masked_remote_address", "10.0.0.0/8");
    let ads = Ads::resending();
    let rule = |key: &str, requests| node(NETWORK.0, NETWORK.1, vec![limited(key, HOUR, requests)]);
    let descriptors =
        vec![rule("remote_address", 3), rule("rule-1-match-0", 4), limited("k", HOUR, 5)];
    ads.set("1", vec![rules("a", descriptors)]);
    let weir = of(&ads).start();
    let client = weir.client();
    until_limit(&client, 5);
    let requests = ads.during(Duration::from_secs(10));
    let rejections = requests.iter().filter(|seen| seen.request.error_detail.is_some()).count();
    assert_eq!((requests.len(), rejections), (2, 0), "the subscription and its answer");
    assert_eq!(weir.metric("weir_xds_nacks_total", &[]), 0);
    for (key, requests) in [("remote_address", 3), ("rule-1-match-0", 4)] {
        let peek = request("a", vec![costing(0, descriptor(&[NETWORK, (key, "x")]))]);
        let limit = client.check(peek).statuses[0].current_limit.clone();
        assert_eq!(limit.map(|limit| limit.requests_per_unit), Some(requests), "{key}");
    }
}

/// A server may push without waiting for answers. Its valid parts become active, and its errors are
/// answered, although each response comes before the hold of the one before has ended.
#[test]
fn frequent_pushes_are_applied_and_answered() {
    let ads = Ads::pushing();
    let weir = of(&ads).start();
    let client = weir.client();
    let (mut pushed, mut limits) = (0, BTreeSet::new());
    until("rules and rejections follow", || {
        pushed += 1;
        let descriptors = vec![limited("k", HOUR, pushed), limited("bad", 99, 1)];
        ads.set(&pushed.to_string(), vec![rules("a", descriptors)]);
        limits.insert(limit(&client, "k"));
        limits.len() > 20 && weir.metric("weir_xds_nacks_total", &[]) > 6
    });
}

/// They would take far more memory than the response. The rules stay.
#[test]
fn too_many_resources_end_the_stream() {
    let ads = Ads::start();
    let weir = of(&ads).env("WEIR__RULES__XDS__MAX_LIMITS", "1").start();
    let client = weir.client();
    ads.set("1", one_limit(5));
    until_limit(&client, 5);
    ads.set("2", vec![Any::default(); 4]);
    until("the stream fails, also after a new connection", || {
        weir.metric("weir_xds_stream_ends_total", &[r#"reason="failed""#]) > 1
    });
    assert_eq!(limit(&client, "k"), 5);
    assert_eq!(weir.metric("weir_xds_nacks_total", &[]), 0);
    ads.set("3", one_limit(6));
    until_limit(&client, 6);
}

#[test]
fn ended_streams_are_counted_by_reason() {
    let ads = Ads::start();
    ads.set("1", one_limit(5));
    let weir = of(&ads).start();
    let client = weir.client();
    until_limit(&client, 5);
    let ends = |reason: &str| {
        weir.metric("weir_xds_stream_ends_total", &[&format!("reason=\"{reason}\"")])
    };
    ads.end_streams(None);
    until("a stream is closed", || ends("closed") == 1);
    until("the next one is open", || weir.metric("weir_xds_connected", &[]) == 1);
    // The server must know the stream before it can end it.
    while ads.next_request().stream < 1 {}
    ads.end_streams(Some(Status::unavailable("a restart")));
    until("a stream fails", || ends("failed") == 1);
    ads.set("2", one_limit(6));
    until_limit(&client, 6);
    assert_eq!(ends("unreachable"), 0);
}

/// Accepts connections and never answers, as a process that hangs. Returns its address.
fn hanging() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens");
    thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    address
}

/// An open connection is no connection to a server.
#[test]
fn a_process_that_hangs_is_not_connected() {
    let weir = setup(&hanging().to_string())
        .env("WEIR__RULES__XDS__KEEPALIVE_INTERVAL", "off")
        .env("WEIR__RULES__XDS__CONNECT_TIMEOUT", "300ms")
        .start();
    until("attempts end", || {
        assert_eq!(weir.metric("weir_xds_connected", &[]), 0);
        weir.metric("weir_xds_stream_ends_total", &[r#"reason="unreachable""#]) > 1
    });
}

/// Pings find a server that hangs.
#[test]
fn a_server_that_hangs_is_left() {
    let weir =
        setup(&hanging().to_string()).env("WEIR__RULES__XDS__KEEPALIVE_INTERVAL", "200ms").start();
    until("pings find it", || {
        weir.metric("weir_xds_stream_ends_total", &[r#"reason="failed""#]) > 1
    });
    assert!(!is_ready(&weir));
}

/// Sends bytes that are no HTTP/2, and closes the connection.
#[test]
fn a_server_of_another_protocol_does_no_harm() {
    for garbage in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0xff; 4096], b""] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it listens");
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 100]);
                let _ = stream.write_all(garbage);
            }
        });
        let mut weir = setup(&address.to_string()).start();
        until("streams end", || weir.metric("weir_xds_stream_ends_total", &[]) > 2);
        assert!(weir.process().is_alive());
        let lines = weir.process().output();
        let failures = lines.matches("no stream from the xDS server").count();
        assert!((1..=3).contains(&failures), "{lines}");
    }
}
