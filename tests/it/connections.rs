//! Hostile connections: stalled TLS handshakes, idle and slow HTTP clients. Other clients are served
//! meanwhile, and weir ends in time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ClientConnection, RootCertStore};
use socket2::{Domain, Socket, Type};
use tonic::transport::{ClientTlsConfig, Identity};

use crate::support::certificates::{Certificates, trusting};
use crate::support::http::{get, post};
use crate::support::rls::{Client, descriptor, request};
use crate::support::wait::{TIMEOUT, until};
use crate::support::weir::metrics::Metrics;
use crate::support::weir::{Setup, Weir};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000000 }
";

/// Longer than a test waits for any event.
const LONG: &str = "120s";

fn setup() -> Setup {
    Weir::setup().rules("d.yaml", RULES)
}

/// The address of the metrics listener.
fn metrics_listener(weir: &mut Weir) -> SocketAddr {
    weir.process().wait_for("the metrics listener", |line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        line["metrics"].as_str()?.parse().ok()
    })
}

/// Sets a flag when it is dropped, also by a panic, so that the threads that read it end.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whether `make durations` runs the tests: on a release build and one after the other, so that the
/// durations of docs/operate/client-limits.md hold.
fn is_strict() -> bool {
    std::env::var_os("WEIR_STRICT_DURATIONS").is_some()
}

/// The number of timed calls of a test.
fn timed_calls() -> usize {
    if is_strict() { 200 } else { 41 }
}

/// Strict: 95 % are shorter than `stated`, which the page has, and 99 % than twice that. Otherwise
/// the median is shorter than `busy`, which allows for a debug build and other tests.
fn check_durations(mut durations: Vec<Duration>, stated: Duration, busy: Duration) {
    durations.sort();
    let at = |percent: usize| durations[(durations.len() * percent).div_ceil(100) - 1];
    let [median, p95, p99] = [50, 95, 99].map(at);
    println!("{} calls: median {median:?}, p95 {p95:?}, p99 {p99:?}", durations.len());
    if is_strict() {
        assert!(p95 < stated, "a p95 of {p95:?}, and the page has {stated:?}");
        assert!(p99 < 2 * stated, "a p99 of {p99:?}, and the page has twice {stated:?}");
    } else {
        assert!(median < busy, "a median of {median:?}");
    }
}

/// A connection that has sent `bytes`.
fn sent(to: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(to).unwrap_or_else(|e| panic!("connect to {to}: {e}"));
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout that is not zero");
    stream.write_all(bytes).expect("the bytes can be sent");
    stream
}

/// The first bytes of a TLS client.
fn client_hello() -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS 1.2 and 1.3")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("a vector takes all bytes");
    hello
}

/// The TLS settings of a client with a certificate.
fn identified(certificates: &Certificates) -> ClientTlsConfig {
    let [cert, key] = ["client.crt", "client.key"]
        .map(|name| std::fs::read(certificates.path(name)).expect("a PEM file"));
    trusting(certificates).identity(Identity::from_pem(cert, key))
}

/// A thousand clients stop after their ClientHello, and 200 more do so each second. A client with a
/// certificate connects in 100 ms.
#[test]
fn stalled_handshakes_delay_no_client() {
    let certificates = Certificates::new();
    let path = |name: &str| certificates.path(name).display().to_string();
    let weir = setup()
        .env("WEIR__GRPC__TLS_CERT", &path("server.crt"))
        .env("WEIR__GRPC__TLS_KEY", &path("server.key"))
        .env("WEIR__GRPC__TLS_CLIENT_CA", &path("ca.crt"))
        .env("WEIR__GRPC__HANDSHAKE_TIMEOUT", LONG)
        .start();
    let hello = client_hello();
    let stalled = |wait: bool| {
        let mut stream = sent(weir.grpc, &hello);
        if wait {
            stream.read_exact(&mut [0; 5]).expect("weir's first flight");
        }
        stream
    };
    let before: Vec<TcpStream> = (0..1_000).map(|_| stalled(true)).collect();
    let over = AtomicBool::new(false);
    let durations: Vec<Duration> = thread::scope(|scope| {
        let _over = SetOnDrop(&over);
        scope.spawn(|| {
            let mut more = Vec::new();
            while !over.load(Ordering::Relaxed) {
                more.push(stalled(false));
                thread::sleep(Duration::from_millis(5));
            }
        });
        let tls = identified(&certificates);
        let call = |_| {
            let began = Instant::now();
            let client = Client::over_tls(weir.grpc, tls.clone()).expect("a connection");
            client.check(request("d", vec![descriptor(&[("user", "ann")])]));
            began.elapsed()
        };
        (0..timed_calls()).map(call).collect()
    });
    let waiting = weir.metric("weir_connections_waiting", &[r#"listener="grpc""#]);
    assert!(waiting >= 1_000, "{waiting} handshakes wait");
    let slowest = durations.iter().max().copied().expect("calls");
    check_durations(durations, Duration::from_millis(100), Duration::from_millis(500));
    assert!(slowest < Duration::from_secs(2), "{slowest:?}: the lockout took nine seconds");
    drop(before);
}

/// At `grpc.max_connections`, the handshake that has waited longest ends, not the new one.
#[test]
fn stalled_handshakes_do_not_fill_the_maximum() {
    let certificates = Certificates::new();
    let path = |name: &str| certificates.path(name).display().to_string();
    let weir = setup()
        .env("WEIR__GRPC__TLS_CERT", &path("server.crt"))
        .env("WEIR__GRPC__TLS_KEY", &path("server.key"))
        .env("WEIR__GRPC__HANDSHAKE_TIMEOUT", LONG)
        .env("WEIR__GRPC__MAX_CONNECTIONS", "20")
        .start();
    let client = Client::over_tls(weir.grpc, trusting(&certificates)).expect("a connection");
    let check = |client: &Client| client.check(request("d", vec![descriptor(&[("user", "ann")])]));
    // Now weir has read its preface too: it does not wait.
    check(&client);
    let hello = client_hello();
    let stalled: Vec<TcpStream> = (0..100).map(|_| sent(weir.grpc, &hello)).collect();
    let grpc = [r#"listener="grpc""#];
    until("the evictions", || weir.metric("weir_connections_evicted_total", &grpc) == 81);
    check(&client);
    check(&Client::over_tls(weir.grpc, trusting(&certificates)).expect("another connection"));
    assert_eq!(weir.metric("weir_connections_refused_total", &grpc), 0);
    drop(stalled);
}

/// Half a head and half a body on each HTTP/1 listener, while weir drains.
#[test]
fn slow_http_clients_do_not_delay_the_exit() {
    let mut weir = setup()
        .env("WEIR__METRICS__LISTEN", "127.0.0.1:0")
        .env("WEIR__HTTP__HEAD_TIMEOUT", LONG)
        .env("WEIR__HTTP__REQUEST_TIMEOUT", LONG)
        .env("WEIR__DRAIN__DELAY", "0s")
        .env("WEIR__DRAIN__TIMEOUT", "1s")
        .start();
    let metrics = metrics_listener(&mut weir);
    let half_head = b"GET /livez HTTP/1.1\r\nhost: loc";
    let half_body = |path: &str| {
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{{")
    };
    let heads = [weir.http, weir.admin, metrics].map(|to| sent(to, half_head));
    let bodies = [(weir.http, "/json"), (weir.admin, "/explain")]
        .map(|(to, path)| sent(to, half_body(path).as_bytes()));
    // The request for the metrics is itself a connection to the admin listener, and in use.
    until("the clients to arrive", || {
        let of = |name: &str, listener: &str| {
            weir.metric(name, &[format!("listener=\"{listener}\"").as_str()])
        };
        let open = [("http", 2, 2), ("admin", 3, 2), ("metrics", 1, 1)];
        open.iter().all(|(listener, open, waiting)| {
            of("weir_connections_open", listener) == *open
                && of("weir_connections_waiting", listener) == *waiting
        })
    });
    weir.process().terminate();
    // Without the bound, the exit would take longer than this waits.
    assert_eq!(weir.process().wait_for_exit().code(), Some(0));
    drop((heads, bodies));
}

/// A connection from another address of loopback.
fn connect_from(address: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((address, 0)).into()).expect("an address of loopback");
    socket.connect(&to.into()).expect("a connection");
    socket.into()
}

/// The response to `request`, which asks to close the connection.
fn response(mut stream: TcpStream, request: &str) -> String {
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout that is not zero");
    stream.write_all(request.as_bytes()).expect("the request can be sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("a response");
    String::from_utf8_lossy(&answer).into_owned()
}

/// One address opens 300 connections and sends nothing. Another one scrapes, and so does the same
/// one.
#[test]
fn idle_clients_do_not_stop_scrapes() {
    let mut weir = setup().env("WEIR__METRICS__LISTEN", "127.0.0.1:0").start();
    let metrics = metrics_listener(&mut weir);
    for to in [metrics, weir.admin] {
        let idle: Vec<TcpStream> = (0..300).map(|_| sent(to, b"")).collect();
        for address in [[127, 0, 0, 2], [127, 0, 0, 1]] {
            let scrape = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
            let page = response(connect_from(address, to), scrape);
            assert!(page.starts_with("HTTP/1.1 200 "), "{address:?}: {page:.100}");
        }
        drop(idle);
    }
    for listener in [r#"listener="metrics""#, r#"listener="admin""#] {
        // An address has 16 connections.
        assert!(weir.metric("weir_connections_evicted_total", &[listener]) >= 284);
        assert_eq!(weir.metric("weir_connections_refused_total", &[listener]), 0);
    }
}

/// 50 clients send bodies that are slow to decode. Probes and scrapes take 50 ms.
#[test]
fn a_flood_of_json_does_not_delay_probes() {
    let weir = setup().start();
    let empty = vec!["{}"; 80_000].join(",");
    let body = format!(r#"{{"domain":"d","descriptors":[{empty}]}}"#);
    assert_eq!(post(weir.http, "/json", &body).status, 400, "it is decoded, then rejected");
    let over = AtomicBool::new(false);
    let durations: Vec<Duration> = thread::scope(|scope| {
        let _over = SetOnDrop(&over);
        for _ in 0..50 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    post(weir.http, "/json", &body);
                }
            });
        }
        until("the flood", || {
            let page = Metrics::scrape(weir.admin);
            let of = |name| page.sum(name, &[r#"listener="http""#]);
            // One address has half of the 32 permits for large bodies.
            of("weir_connections_open") > of("weir_connections_waiting") + 8
        });
        let probe = |number| {
            let began = Instant::now();
            let (to, path) =
                if number % 2 == 0 { (weir.http, "/livez") } else { (weir.admin, "/metrics") };
            assert_eq!(get(to, path).status, 200);
            began.elapsed()
        };
        (0..timed_calls()).map(probe).collect()
    });
    check_durations(durations, Duration::from_millis(50), Duration::from_millis(250));
}

/// 20 clients read a page of 20 000 rules. Probes take 50 ms.
#[test]
fn a_flood_of_admin_pages_does_not_delay_probes() {
    let rule = |number| {
        format!("  - {{ key: k{number}, rate_limit: {{ unit: hour, requests_per_unit: 1 }} }}\n")
    };
    let rules: String = (0..20_000).map(rule).collect();
    // An address has a quarter of the connections.
    let weir = Weir::setup()
        .rules("d.yaml", &format!("domain: d\ndescriptors:\n{rules}"))
        .env("WEIR__ADMIN__MAX_CONNECTIONS", "400")
        .start();
    let (over, pages) = (AtomicBool::new(false), AtomicUsize::new(0));
    let durations: Vec<Duration> = thread::scope(|scope| {
        let _over = SetOnDrop(&over);
        for _ in 0..20 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(get(weir.admin, "/rlconfig").status, 200);
                    pages.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        until("the flood", || pages.load(Ordering::Relaxed) > 0);
        let probe = |_| {
            let began = Instant::now();
            assert_eq!(get(weir.http, "/livez").status, 200);
            began.elapsed()
        };
        (0..timed_calls()).map(probe).collect()
    });
    check_durations(durations, Duration::from_millis(50), Duration::from_millis(250));
}

/// RFC 9112, section 3.2: HTTP/1.1 needs exactly one valid Host.
#[test]
fn a_request_needs_exactly_one_host() {
    let weir = setup().start();
    let table: [(&str, &[&str], &str); 9] = [
        ("1.1", &["localhost"], "200"),
        ("1.1", &["[::1]:6070"], "200"),
        ("1.1", &[], "400"),
        ("1.0", &[], "200"),
        ("1.1", &["localhost", "localhost"], "400"),
        ("1.1", &["localhost", "attacker.example"], "400"),
        ("1.0", &["localhost", "attacker.example"], "400"),
        ("1.1", &["[::1].attacker.example"], "400"),
        ("1.1", &["local host"], "400"),
    ];
    for (version, hosts, status) in table {
        for (to, path) in [(weir.http, "/livez"), (weir.admin, "/rlconfig")] {
            let hosts: String = hosts.iter().map(|host| format!("host: {host}\r\n")).collect();
            let request = format!("GET {path} HTTP/{version}\r\nconnection: close\r\n{hosts}\r\n");
            let answer = response(sent(to, b""), &request);
            let answered = answer.split(' ').nth(1);
            assert_eq!(answered, Some(status), "{path}, {version}, {hosts:?}: {answer}");
        }
    }
}
