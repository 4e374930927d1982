//! TLS on the gRPC port: kinds of keys, client certificates, handshake limits and reloads.

use std::fs;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};

use super::pki::{Authority, EVERY_KEY, Kind, Leaf};
use super::support::{Served, in_time, request, serve_tls, settings_over, wait_until};
use crate::proto::RateLimitServiceClient;
use crate::server::tests::test_handlers::ByDomain;
use crate::server::{ReloadOutcome, ServerConfig, ServerMetrics, TlsAcceptor, TlsConfig};
use crate::tls::SanName;

const NOW: u64 = 1_800_000_000;

/// A server with these certificate files, its TLS acceptor and its metrics.
fn serve_with_tls(
    fast_path: bool,
    files: TlsConfig,
    tune: impl FnOnce(&mut ServerConfig),
) -> (Served, TlsAcceptor, Arc<ServerMetrics>) {
    let mut settings = settings_over(fast_path);
    tune(&mut settings);
    let metrics = Arc::<ServerMetrics>::default();
    let (tls, _) = TlsAcceptor::load(files, NOW, metrics.clone()).unwrap();
    (serve_tls(ByDomain, settings, tls.clone(), metrics.clone()), tls, metrics)
}

fn client_config(authority: &Authority) -> ClientTlsConfig {
    let ca = Certificate::from_pem(authority.pem());
    ClientTlsConfig::new().ca_certificate(ca).domain_name("weir.example")
}

fn with_client_cert(authority: &Authority, leaf: &Leaf) -> ClientTlsConfig {
    client_config(authority).identity(Identity::from_pem(&leaf.cert, &leaf.key))
}

async fn channel(
    server: &Served,
    tls: ClientTlsConfig,
) -> Result<Channel, tonic::transport::Error> {
    let address = format!("https://{}", server.addresses.grpc);
    Channel::from_shared(address).unwrap().tls_config(tls)?.connect().await
}

/// Whether a call gets a response. In TLS 1.3 a rejected certificate fails the first call, not the
/// handshake.
async fn call_succeeds(server: &Served, tls: ClientTlsConfig) -> bool {
    let Ok(channel) = channel(server, tls).await else { return false };
    RateLimitServiceClient::new(channel).should_rate_limit(request("ok")).await.is_ok()
}

async fn every_kind_of_key_serves(fast_path: bool) {
    let authority = Authority::new();
    for kind in EVERY_KEY {
        let files = authority.files(&authority.issue(Leaf::server().kind(kind)));
        let (server, _, metrics) = serve_with_tls(fast_path, files, |_| {});
        assert!(call_succeeds(&server, client_config(&authority)).await, "{kind:?}");
        assert_eq!(metrics.tls_accepted.get(), 1);
        server.stop().await;
    }
}

async fn tls_1_2_and_1_3_agree_on_http2(fast_path: bool) {
    use rustls::version::{TLS12, TLS13};
    let authority = Authority::new();
    let (server, ..) =
        serve_with_tls(fast_path, authority.files(&authority.issue(Leaf::server())), |_| {});
    for (version, alpn, agreed) in
        [(&TLS12, "h2", true), (&TLS13, "h2", true), (&TLS13, "http/1.1", false)]
    {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(authority.roots())
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.into()];
        let stream = TcpStream::connect(server.addresses.grpc).await.unwrap();
        let name = "weir.example".try_into().unwrap();
        let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        let protocol =
            stream.ok().and_then(|stream| Some(stream.get_ref().1.alpn_protocol()?.to_vec()));
        assert_eq!(protocol, agreed.then(|| b"h2".to_vec()), "{version:?} {alpn}");
    }
    server.stop().await;
}

async fn clients_need_a_trusted_certificate_and_name(fast_path: bool) {
    let (authority, other_authority) = (Authority::new(), Authority::new());
    let mut files = authority.files(&authority.issue(Leaf::server()));
    files.client_ca = Some(authority.path("ca.crt"));
    let names = ["envoy.gateway", "spiffe://cluster/envoy"];
    files.client_san = names.map(|name| SanName::parse(name).unwrap()).to_vec();
    let (server, _, metrics) = serve_with_tls(fast_path, files.clone(), |_| {});
    let good = [&["envoy.gateway"], &["*.gateway"], &["spiffe://cluster/envoy"]];
    for names in good {
        let leaf = authority.issue(Leaf::client(names));
        assert!(call_succeeds(&server, with_client_cert(&authority, &leaf)).await, "{names:?}");
    }
    assert_eq!(metrics.tls_failed.get(), 0);
    let bad = [
        authority.issue(Leaf::client(&["other.gateway"])),
        authority.issue(Leaf::client(&["*.example"])),
        authority.issue(Leaf::client(&["spiffe://cluster/envoy2"])),
        authority.issue(Leaf::client(&["envoy.gateway"]).expired()),
        other_authority.issue(Leaf::client(&["envoy.gateway"])),
    ];
    for (index, leaf) in bad.iter().enumerate() {
        let client = with_client_cert(&authority, leaf);
        assert!(!call_succeeds(&server, client).await, "number {index}");
    }
    assert!(!call_succeeds(&server, client_config(&authority)).await, "without a certificate");
    server.stop().await;
    assert!(metrics.tls_failed.get() >= 6);

    files.client_optional = true;
    let (server, ..) = serve_with_tls(fast_path, files, |_| {});
    assert!(call_succeeds(&server, client_config(&authority)).await, "it is optional");
    let client = with_client_cert(&authority, &bad[0]);
    assert!(!call_succeeds(&server, client).await, "its certificate is invalid");
    server.stop().await;
}

async fn plain_text_and_silence_block_no_other_client(fast_path: bool) {
    let authority = Authority::new();
    let files = authority.files(&authority.issue(Leaf::server()));
    let (server, _, metrics) = serve_with_tls(fast_path, files, |settings| {
        settings.grpc.handshake_timeout = Duration::from_millis(300);
        settings.grpc.max_handshakes_per_round = 1;
        settings.grpc.workers = NonZeroUsize::new(1);
    });
    let connect = || TcpStream::connect(server.addresses.grpc);
    // Silent connections take no handshake permit.
    let silent = [connect().await.unwrap(), connect().await.unwrap()];
    assert!(call_succeeds(&server, client_config(&authority)).await);

    let mut plain = connect().await.unwrap();
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let mut reply = Vec::new();
    let _ = plain.read_to_end(&mut reply).await;
    assert_eq!(reply.first(), Some(&21), "an alert of TLS");

    for mut silent in silent {
        let _ = silent.read_to_end(&mut Vec::new()).await;
    }
    // A client gets the error before the server counts it. After the stop, all errors are counted.
    server.stop().await;
    assert_eq!((metrics.tls_failed.get(), metrics.handshake_timeout.get()), (1, 2));
}

/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(600);

/// Connections whose clients are silent after their ClientHello. Each has got the first flight.
async fn stalled(server: &Served, authority: &Authority, number: usize) -> Vec<TcpStream> {
    let hello = authority.client_hello();
    let mut stalled = Vec::new();
    for _ in 0..number {
        let mut stream = TcpStream::connect(server.addresses.grpc).await.unwrap();
        stream.write_all(&hello).await.unwrap();
        in_time("the first flight", stream.read_exact(&mut [0; 5])).await.unwrap();
        stalled.push(stream);
    }
    stalled
}

async fn a_stalled_handshake_times_out(fast_path: bool) {
    let authority = Authority::new();
    let files = authority.files(&authority.issue(Leaf::server()));
    let (server, _, metrics) = serve_with_tls(fast_path, files, |settings| {
        settings.grpc.handshake_timeout = Duration::from_millis(300);
    });
    for mut stream in stalled(&server, &authority, 2).await {
        let _ = in_time("the close", stream.read_to_end(&mut Vec::new())).await;
    }
    server.stop().await;
    assert_eq!(metrics.handshake_timeout.get(), 2);
}

/// A worker with one permit serves a client beside 50 handshakes that wait for theirs.
async fn stalled_handshakes_delay_no_other_client(fast_path: bool) {
    let authority = Authority::new();
    let files = authority.files(&authority.issue(Leaf::server()));
    let (server, _, metrics) = serve_with_tls(fast_path, files, |settings| {
        settings.grpc.handshake_timeout = LONG;
        settings.grpc.max_handshakes_per_round = 1;
        settings.grpc.workers = NonZeroUsize::new(1);
    });
    let stalled = stalled(&server, &authority, 50).await;
    assert!(in_time("a call", call_succeeds(&server, client_config(&authority))).await);
    assert_eq!(metrics.grpc.waiting.get(), 50, "the handshakes wait as before");
    in_time("the stop", server.stop()).await;
    drop(stalled);
}

async fn at_the_maximum_the_oldest_handshake_ends(fast_path: bool) {
    let authority = Authority::new();
    let files = authority.files(&authority.issue(Leaf::server()));
    let (server, _, metrics) = serve_with_tls(fast_path, files, |settings| {
        settings.grpc.handshake_timeout = LONG;
        settings.grpc.max_connections = 3;
    });
    let mut stalled = stalled(&server, &authority, 3).await;
    assert!(in_time("a call", call_succeeds(&server, client_config(&authority))).await);
    let _ = in_time("the close", stalled[0].read_to_end(&mut Vec::new())).await;
    assert_eq!((metrics.grpc.evicted.get(), metrics.grpc.refused_total.get()), (1, 0));
    in_time("the stop", server.stop()).await;
}

async fn valid_files_reload_and_invalid_ones_do_not(fast_path: bool) {
    let authority = Authority::new();
    let first = authority.issue(Leaf::server());
    let files = authority.files(&first);
    let (server, tls, metrics) = serve_with_tls(fast_path, files.clone(), |_| {});
    let old = channel(&server, client_config(&authority)).await.unwrap();
    assert_eq!(tls.reload(NOW), ReloadOutcome::Unchanged);

    let other = Authority::new();
    let second = other.issue(Leaf::server());
    let bad: [(&str, &str, &str); 5] = [
        (&second.cert, &first.key, "does not work with"),
        (&second.cert[..second.cert.len() / 2], &second.key, "tls_cert"),
        (&second.cert, &second.key[..second.key.len() / 2], "tls_key"),
        ("", &second.key, "holds no certificate"),
        (&second.cert, "", "holds no private key"),
    ];
    for (number, (cert, key, why)) in bad.into_iter().enumerate() {
        fs::write(&files.cert, cert).unwrap();
        fs::write(&files.key, key).unwrap();
        let ReloadOutcome::Failed(error) = tls.reload(NOW) else {
            panic!("number {number} was loaded")
        };
        assert!(error.to_string().contains(why), "{why}: {error}");
        assert!(!error.to_string().contains("BEGIN"), "it shows the key: {error}");
        assert_eq!(tls.reload(NOW), ReloadOutcome::Unchanged, "reported once");
        assert!(call_succeeds(&server, client_config(&authority)).await, "number {number}");
    }
    fs::remove_file(&files.key).unwrap();
    assert!(matches!(tls.reload(NOW), ReloadOutcome::Failed(_)));
    assert_eq!(tls.reload(NOW), ReloadOutcome::Unchanged, "reported once");

    fs::write(&files.key, &second.key).unwrap();
    assert_eq!(tls.reload(NOW), ReloadOutcome::Reloaded(None));
    assert!(call_succeeds(&server, client_config(&other)).await);
    assert!(!call_succeeds(&server, client_config(&authority)).await, "it is replaced");
    let mut old = RateLimitServiceClient::new(old);
    old.should_rate_limit(request("ok")).await.expect("an open connection stays open");
    assert_eq!((metrics.tls_reloaded.get(), metrics.tls_reload_failed.get()), (1, 6));
    server.stop().await;
}

#[test]
fn an_expiring_certificate_is_used_with_a_warning() {
    let authority = Authority::new();
    let leaf = authority.issue(Leaf::server());
    let files = authority.files(&leaf);
    let load = |now| TlsAcceptor::load(files.clone(), now, Arc::default()).unwrap().1;
    let day = 24 * 3600;
    let (begins, ends) = (Leaf::BEGINS, Leaf::ENDS);
    assert_eq!(load(begins), None);
    for (now, what) in [
        (begins - 1, "is not valid yet"),
        (ends - 3 * day, "expires in 3 days"),
        (ends, "has expired"),
    ] {
        let warning = load(now).unwrap_or_default();
        assert!(warning.contains(what), "{warning}");
    }
}

async fn reloads_under_load_fail_no_call(fast_path: bool) {
    let authority = Authority::new();
    let files = authority.files(&authority.issue(Leaf::server()));
    let (server, tls, metrics) = serve_with_tls(fast_path, files.clone(), |_| {});
    let server = Arc::new(server);
    let over = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (server, over, tls) =
                (Arc::clone(&server), Arc::clone(&over), client_config(&authority));
            tokio::spawn(async move {
                let mut calls = 0;
                while !over.load(Ordering::Relaxed) {
                    assert!(call_succeeds(&server, tls.clone()).await, "call {calls}");
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    for number in 0..10 {
        let kind = if number % 2 == 0 { Kind::Ed25519 } else { Kind::P256 };
        let leaf = authority.issue(Leaf::server().kind(kind));
        let before = metrics.tls_accepted.get();
        // Between the two writes the pair does not match, and the old one stays in use.
        fs::write(&files.cert, &leaf.cert).unwrap();
        assert!(matches!(tls.reload(NOW), ReloadOutcome::Failed(_)));
        fs::write(&files.key, &leaf.key).unwrap();
        assert_eq!(tls.reload(NOW), ReloadOutcome::Reloaded(None));
        wait_until("8 handshakes", || metrics.tls_accepted.get() >= before + 8).await;
    }
    over.store(true, Ordering::Relaxed);
    for caller in callers {
        assert!(caller.await.unwrap() > 0);
    }
    assert_eq!(metrics.tls_failed.get(), 0);
    Arc::into_inner(server).unwrap().stop().await;
}

over_both_paths! {
    every_kind_of_key_serves,
    tls_1_2_and_1_3_agree_on_http2,
    clients_need_a_trusted_certificate_and_name,
    plain_text_and_silence_block_no_other_client,
    a_stalled_handshake_times_out,
    stalled_handshakes_delay_no_other_client,
    at_the_maximum_the_oldest_handshake_ends,
    valid_files_reload_and_invalid_ones_do_not,
    reloads_under_load_fail_no_call,
}
