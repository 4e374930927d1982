//! `/live`: its events, and the bounds on its viewers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use super::{RULES, call};
use crate::support::http::get;
use crate::support::wait::{TIMEOUT, until};
use crate::support::weir::Weir;

/// An open stream of events.
struct LiveClient {
    reader: BufReader<TcpStream>,
    /// The lines before the body.
    head: Vec<String>,
}

impl LiveClient {
    fn open(admin: SocketAddr) -> LiveClient {
        LiveClient::over(TcpStream::connect(admin).expect("a connection"), admin)
    }

    /// Over a connection from 127.0.0.`host`.
    fn open_from(host: u8, admin: SocketAddr) -> LiveClient {
        let socket = socket();
        let own = SocketAddr::from(([127, 0, 0, host], 0));
        socket.bind(&own.into()).expect("an address of loopback");
        socket.connect(&admin.into()).expect("a connection");
        LiveClient::over(socket.into(), admin)
    }

    fn over(mut stream: TcpStream, admin: SocketAddr) -> LiveClient {
        ask(&mut stream, admin);
        let mut client = LiveClient { reader: BufReader::new(stream), head: Vec::new() };
        while let Some(line) = client.line().filter(|line| !line.is_empty()) {
            client.head.push(line);
        }
        client
    }

    fn status(&self) -> &str {
        self.head[0].split(' ').nth(1).unwrap_or_default()
    }

    /// The next line; `None` at the end of the connection.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let bytes = self.reader.read_line(&mut line).expect("a line in time");
        (bytes > 0).then(|| line.trim_end().to_owned())
    }

    /// The next event; `None` at the end of the stream.
    fn event(&mut self) -> Option<Value> {
        loop {
            if let Some(json) = self.line()?.strip_prefix("data: ") {
                return Some(serde_json::from_str(json).expect("JSON on one line"));
            }
        }
    }
}

fn socket() -> Socket {
    Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket")
}

/// Sends the request for a stream.
fn ask(stream: &mut TcpStream, admin: SocketAddr) {
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout that is not zero");
    let request = format!("GET /live HTTP/1.1\r\nhost: {admin}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the request can be sent");
}

#[test]
fn events_have_the_rates_since_the_one_before() {
    let hostile = "<script>alert(1)</script>\u{202e}";
    let rules = RULES.replace("per-user", &format!("\"{hostile}\""));
    let weir = Weir::start(&rules);
    let mut viewer = LiveClient::open(weir.admin);
    assert_eq!(viewer.status(), "200");
    assert!(viewer.head.iter().any(|line| line == "content-type: text/event-stream"));
    let first = viewer.event().expect("an event");
    assert_eq!((&first["rules"], &first["status"]["viewers"]), (&json!([]), &json!(1)));
    assert_eq!(first["top"]["top"], json!([]));
    // A rule is in the events from the second one after its first decision.
    let event = loop {
        call(&weir, "ann");
        let event = viewer.event().expect("an event");
        if event["rules"] != json!([]) {
            break event;
        }
    };
    assert_eq!(event["rules"][0]["rule"], hostile);
    assert!(event["rules"][0]["rates"]["hits"].as_f64() > Some(0.0), "{event}");
    assert_eq!(event["status"]["health"], "serving");
    drop(viewer);
    until("the end of the stream", || weir.metric("weir_live_viewers", &[]) == 0);
}

#[test]
fn viewers_over_the_maximum_are_refused() {
    let weir = Weir::start(RULES);
    let refused = |status: u16, reason: &str| {
        let answer = get(weir.admin, "/live");
        assert_eq!((answer.status, answer.header("retry-after")), (status, Some("3".to_owned())));
        let error = answer.json()["error"].as_str().expect("a reason").to_owned();
        assert!(error.contains(reason) && error.contains("close"), "{error}");
    };
    let mut viewers: Vec<LiveClient> = (0..12).map(|_| LiveClient::open(weir.admin)).collect();
    refused(429, "12 streams of /live are open from this address");
    viewers.extend((0..4).map(|_| LiveClient::open_from(2, weir.admin)));
    assert!(viewers.iter().all(|viewer| viewer.status() == "200"));
    refused(503, "16 streams of /live are open");
    assert_eq!(weir.metric("weir_live_viewers", &[]), 16);
    assert_eq!(get(weir.admin, "/rules").status, 200, "pages are not blocked");
    drop(viewers);
    until("the end of the streams", || weir.metric("weir_live_viewers", &[]) == 0);
    assert_eq!(LiveClient::open(weir.admin).status(), "200");
}

/// `http.request_timeout` and `http.max_connection_age` end other connections, and no stream.
#[test]
fn a_stream_lives_until_the_drain() {
    let setup = Weir::setup().rules("r.yaml", RULES).env("WEIR__HTTP__REQUEST_TIMEOUT", "1s");
    let mut weir = setup.env("WEIR__HTTP__MAX_CONNECTION_AGE", "1s").start();
    let mut viewer = LiveClient::open(weir.admin);
    // Three periods of 2 s.
    (0..4).for_each(|_| drop(viewer.event().expect("an event")));
    weir.process().terminate();
    while viewer.event().is_some() {}
    assert!(weir.process().wait_for_exit().success());
}

/// A viewer that never reads holds back no other one, gets no second event, and is closed after 30 s.
#[test]
fn a_viewer_that_never_reads_is_cut() {
    // Each event has this name for each of 20 limited counters, so that one event fills the socket.
    let rules = RULES.replace("per-user", &"n".repeat(50_000));
    let weir = Weir::start(&rules);
    for client in 0..20 {
        (0..2).for_each(|_| call(&weir, &client.to_string()));
    }
    let slow = socket();
    slow.set_recv_buffer_size(4 << 10).expect("a small buffer");
    slow.connect(&weir.admin.into()).expect("a connection");
    let mut slow: TcpStream = slow.into();
    ask(&mut slow, weir.admin);
    until("the slow viewer", || weir.metric("weir_live_viewers", &[]) == 1);
    let mut other = LiveClient::open(weir.admin);
    let (mut events, mut event_bytes) = (0, usize::MAX);
    // The first event may have been sent before `other` was open.
    while events < 5 || weir.metric("weir_live_viewers", &[]) == 2 {
        let event = other.event().expect("an event");
        event_bytes = event_bytes.min(event.to_string().len());
        events += 1;
        assert!(events < 60, "the slow viewer is not closed");
    }
    assert_eq!(weir.metric("weir_live_viewers", &[]), 1, "the other one stays");
    let aborted = weir.metric("weir_http_requests_aborted_total", &["reason=\"timeout\""]);
    assert_eq!(aborted, 1);
    assert!(event_bytes > 15 * 50_000, "{event_bytes}");
    let mut sent = Vec::new();
    // The connection may end with a reset.
    let _ = slow.read_to_end(&mut sent);
    assert!(sent.starts_with(b"HTTP/1.1 200"), "{}", sent.len());
    assert!(sent.len() < 2 * event_bytes, "{} of {events} events of {event_bytes}", sent.len());
    other.event().expect("a further event");
}

/// Ticks of 10 s show that time passes.
#[test]
fn nothing_is_rendered_without_viewers() {
    let weir = Weir::start(RULES);
    let rendered = || weir.metric("weir_live_events_total", &[]);
    let tick = || get(weir.admin, "/activity").json()["until"].clone();
    let next_tick = || {
        let last = tick();
        until("a tick", || tick() != last);
    };
    next_tick();
    assert_eq!(rendered(), 0, "since the start");
    let mut viewer = LiveClient::open(weir.admin);
    viewer.event().expect("an event");
    assert!(rendered() > 0);
    drop(viewer);
    until("the end of the stream", || weir.metric("weir_live_viewers", &[]) == 0);
    // An event may be under way.
    next_tick();
    let before = rendered();
    next_tick();
    assert_eq!(rendered(), before, "after the last viewer");
}
