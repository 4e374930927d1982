//! Calls of real clients: decisions, rejections, deadlines, panics, and the drain.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tonic::Code::{Internal, InvalidArgument};

use super::support::{http, in_time, request, serve, settings_over};
use crate::proto::{Code, Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest};
use crate::server::tests::test_handlers::{Blocking, ByDomain, observing};

async fn a_decision_arrives_with_its_code(fast_path: bool) {
    let server = serve(ByDomain, settings_over(fast_path));
    let mut client = server.client().await;
    for (domain, code, statuses) in
        [("ok", Code::Ok, 1), ("over", Code::OverLimit, 1), ("full", Code::OverLimit, 2)]
    {
        let answer = client.should_rate_limit(request(domain)).await.unwrap().into_inner();
        assert_eq!((answer.overall_code(), answer.statuses.len()), (code, statuses));
    }
    server.stop().await;
}

async fn the_grpc_timeout_less_a_margin_is_the_deadline(fast_path: bool) {
    let timeouts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&timeouts);
    let decider = observing(move |request| seen.lock().unwrap().push(request.timeout));
    let server = serve(decider, settings_over(fast_path));
    let mut client = server.client().await;
    client.should_rate_limit(request("d")).await.unwrap();
    let mut with_timeout = tonic::Request::new(request("d"));
    with_timeout.set_timeout(Duration::from_secs(50));
    client.should_rate_limit(with_timeout).await.unwrap();
    let body = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "k"}]}]}"#;
    assert_eq!(http(server.addresses.http, "POST", "/json", body).await.status, 200);
    let expected = [None, Some(Duration::from_millis(49_995)), None];
    assert_eq!(*timeouts.lock().unwrap(), expected);
    server.stop().await;
}

async fn an_invalid_request_is_refused_with_its_reason(fast_path: bool) {
    let server = serve(ByDomain, settings_over(fast_path));
    let mut client = server.client().await;
    let good = || request("ok");
    let with = |descriptor: RateLimitDescriptor| RateLimitRequest {
        descriptors: vec![descriptor],
        ..good()
    };
    let one = || good().descriptors.remove(0);
    let entry = |key: &str, value: String| RateLimitDescriptor {
        entries: vec![Entry { key: key.into(), value }],
        ..Default::default()
    };
    let unit = |unit| RateLimitOverride { requests_per_unit: 1, unit };
    let bad = [
        (RateLimitRequest { domain: String::new(), ..good() }, "domain must not be empty"),
        (RateLimitRequest { descriptors: vec![], ..good() }, "descriptors must not be empty"),
        (with(RateLimitDescriptor { limit: Some(unit(0)), ..one() }), "limit.unit 0 is not"),
        (with(RateLimitDescriptor { limit: Some(unit(-8)), ..one() }), "limit.unit -8 is not"),
        (with(RateLimitDescriptor { hits_addend: Some(1 << 63), ..one() }), "below 2^53"),
        (RateLimitRequest { descriptors: vec![one(); 10_000], ..good() }, "max_descriptors"),
        (with(entry("k", "v".repeat(1 << 20))), "1048576 bytes long"),
        (with(entry("", "v".into())), "empty key"),
        (
            RateLimitRequest {
                descriptors: vec![RateLimitDescriptor::default(); 70_000],
                ..good()
            },
            "more than 65536",
        ),
        (with(RateLimitDescriptor { entries: vec![Entry::default(); 9999], ..one() }), "9999 ent"),
    ];
    for (bad, reason) in bad {
        let status = client.should_rate_limit(bad).await.unwrap_err();
        assert_eq!(status.code(), InvalidArgument, "{reason}");
        assert!(status.message().contains(reason), "{reason}: {}", status.message());
        client.should_rate_limit(good()).await.unwrap();
    }
    server.stop().await;
}

async fn a_panic_while_deciding_is_an_internal_error(fast_path: bool) {
    let server = serve(ByDomain, settings_over(fast_path));
    let mut client = server.client().await;
    let status = client.should_rate_limit(request("panic")).await.unwrap_err();
    assert_eq!(status.code(), Internal);
    client.should_rate_limit(request("ok")).await.unwrap();
    server.stop().await;
}

async fn a_call_in_flight_is_answered_after_the_stop_began(fast_path: bool) {
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let go = Arc::new(Semaphore::new(0));
    let server = serve(Blocking { arrived, go: Arc::clone(&go) }, settings_over(fast_path));
    let mut client = server.client().await;
    let call = tokio::spawn(async move { client.should_rate_limit(request("d")).await });
    arrivals.recv().await.unwrap();

    server.shutdown.send_replace(true);
    // The port closes soon after the stop begins. Connect until that fails, instead of sleeping.
    let connects = async {
        while tokio::net::TcpStream::connect(server.addresses.grpc).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    in_time("the port to close", connects).await;
    assert!(!call.is_finished());
    go.add_permits(1);
    call.await.unwrap().unwrap();
    server.stop().await;
}

async fn connections_are_spread_evenly_over_workers(fast_path: bool) {
    let threads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&threads);
    let decider = observing(move |_| {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        seen.lock().unwrap().push(name);
    });
    let server = serve(decider, settings_over(fast_path));
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(server.client().await);
    }
    let mut counts = [0, 0];
    for client in &mut clients {
        for _ in 0..3 {
            client.should_rate_limit(request("d")).await.unwrap();
        }
        let mut names = std::mem::take(&mut *threads.lock().unwrap());
        names.dedup();
        let [name] = &names[..] else { panic!("one thread: {names:?}") };
        let core: usize = name.strip_prefix("weir-worker-").unwrap().parse().unwrap();
        counts[core] += 1;
    }
    assert_eq!(counts, [2, 2]);
    server.stop().await;
}

over_both_paths! {
    a_decision_arrives_with_its_code,
    the_grpc_timeout_less_a_margin_is_the_deadline,
    an_invalid_request_is_refused_with_its_reason,
    a_panic_while_deciding_is_an_internal_error,
    a_call_in_flight_is_answered_after_the_stop_began,
    connections_are_spread_evenly_over_workers,
}
