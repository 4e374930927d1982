//! Clients that make weir hold memory: open calls, and responses that they do not read. weir stays
//! within `grpc.max_client_memory`, answers other clients, and has all of it back afterwards.

use bytes::Bytes;
use futures_util::FutureExt;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Ping, PingPong, Reason, SendStream};
use http::{HeaderName, HeaderValue, Request};
use prost::Message;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

use crate::support::rls::{descriptor, request};
use crate::support::wait::until;
use crate::support::weir::Weir;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000000 }
";

/// `grpc.max_client_memory` in the tests: room for about 700 calls that wait for their
/// client, of which one address may have half.
const BUDGET_MIB: u64 = 32;

/// Maximum growth in KiB: the budget, and as much for what is not counted: the attacks would take
/// several times this.
const GROWTH_KIB: u64 = 2 * BUDGET_MIB * 1024;

const CONNECTIONS: usize = 30;
const CALLS: usize = 100;

const SHOULD_RATE_LIMIT: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const WATCH: &str = "grpc.health.v1.Health/Watch";

/// A connection of a hostile client.
struct Connection {
    client: SendRequest<Bytes>,
    pings: PingPong,
    calls: Vec<(ResponseFuture, SendStream<Bytes>)>,
}

impl Connection {
    async fn open(weir: &Weir, window: u32) -> Connection {
        let stream = TcpStream::connect(weir.grpc).await.expect("weir listens");
        let client = h2::client::Builder::new().initial_window_size(window).handshake(stream);
        let (client, mut connection) = client.await.expect("weir speaks HTTP/2");
        let pings = connection.ping_pong().expect("it is taken once");
        tokio::spawn(connection);
        Connection { client, pings, calls: Vec::new() }
    }

    /// Begins a call of `path` with 400 headers of two letters, or with a whole `body`.
    async fn call(&mut self, path: &str, body: Option<Bytes>) {
        let mut head = Request::post(format!("http://weir/{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .expect("a valid request");
        if body.is_none() {
            // No name is `te`, which has one valid value.
            let names = (b'a'..=b's').flat_map(|a| (b'a'..=b'z').map(move |b| [a, b]));
            for name in names.take(400) {
                let name = HeaderName::from_bytes(&name).expect("two letters");
                head.headers_mut().insert(name, HeaderValue::from_static(""));
            }
        }
        let mut client = self.client.clone().ready().await.expect("the connection is open");
        let (answer, mut sending) = client.send_request(head, false).expect("it is sent");
        if let Some(body) = body {
            sending.send_data(body, true).expect("it is sent");
        }
        self.calls.push((answer, sending));
    }

    /// Waits until weir has read all frames so far.
    async fn is_read(&mut self) {
        self.pings.ping(Ping::opaque()).await.expect("weir answers pings");
    }

    /// The `grpc-status` of the calls that were answered without a message, and the reason of those
    /// that were reset.
    fn refusals(&mut self) -> (Vec<String>, Vec<Option<Reason>>) {
        let (mut statuses, mut resets) = (Vec::new(), Vec::new());
        for (answer, _) in &mut self.calls {
            match answer.now_or_never() {
                Some(Ok(answer)) => {
                    let status = answer.headers().get("grpc-status");
                    statuses.extend(status.map(|code| code.to_str().expect("digits").to_owned()));
                }
                Some(Err(error)) => resets.push(error.reason()),
                None => {}
            }
        }
        (statuses, resets)
    }
}

/// weir with a small budget, under the load of many connections, and the statuses and resets of the
/// calls that it refused.
struct Attack {
    weir: Weir,
    runtime: Runtime,
    connections: Vec<Connection>,
    statuses: Vec<String>,
    resets: Vec<Option<Reason>>,
}

/// Opens the connections and their calls, and checks that weir keeps to its memory and answers
/// another client meanwhile.
fn attack(window: u32, path: &str, body: Option<Bytes>) -> Attack {
    let budget = (BUDGET_MIB << 20).to_string();
    let setup = Weir::setup().rules("d.yaml", RULES);
    let mut weir = setup.env("WEIR__GRPC__MAX_CLIENT_MEMORY", &budget).start();
    let honest = weir.client();
    let ask = || honest.check(request("d", vec![descriptor(&[("user", "ann")])])).overall_code;
    assert_eq!(ask(), 1);
    let before = weir.process().resident_kib();
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (mut connections, mut statuses, mut resets) = (Vec::new(), Vec::new(), Vec::new());
    runtime.block_on(async {
        for _ in 0..CONNECTIONS {
            let mut connection = Connection::open(&weir, window).await;
            for _ in 0..CALLS {
                connection.call(path, body.clone()).await;
                if body.is_some() {
                    // Otherwise the client would send the headers of many calls first, and then the bodies.
                    connection.is_read().await;
                }
            }
            connection.is_read().await;
            connections.push(connection);
        }
        // Answers may follow the reply to the first ping.
        for connection in &mut connections {
            connection.is_read().await;
            let (some, others) = connection.refusals();
            statuses.extend(some);
            resets.extend(others);
        }
    });
    let grown = weir.process().resident_kib().saturating_sub(before);
    assert!(grown < GROWTH_KIB, "grown by {grown} KiB with a budget of {BUDGET_MIB} MiB");
    assert_eq!(ask(), 1, "an open connection is served");
    let other = weir.client().check(request("d", vec![descriptor(&[("user", "bob")])]));
    assert_eq!(other.overall_code, 1, "a new connection is served");
    drop(honest);
    Attack { weir, runtime, connections, statuses, resets }
}

impl Attack {
    /// Ends all connections, and waits until they hold nothing.
    fn end(self) {
        drop((self.connections, self.runtime));
        let held = || self.weir.metric("weir_grpc_client_memory_bytes", &[]);
        until("all memory to come back", || held() == 0);
    }
}

/// A call with its headers alone took 80 kB, and nothing bounded all calls together.
#[test]
fn open_calls_with_many_headers_are_bounded() {
    let attack = attack(65_535, SHOULD_RATE_LIMIT, None);
    assert!(attack.statuses.len() > CALLS, "{} were refused", attack.statuses.len());
    assert!(attack.statuses.iter().all(|code| code == "8"), "RESOURCE_EXHAUSTED");
    let aborted = attack.weir.metric("weir_grpc_calls_aborted_total", &["reason=\"memory\""]);
    assert!(aborted >= attack.statuses.len() as u64, "{aborted}");
    attack.end();
}

/// A watch without its message stayed for ever, and was counted nowhere.
#[test]
fn watches_without_a_message_are_bounded() {
    let attack = attack(65_535, WATCH, None);
    let most = CONNECTIONS * (CALLS - 16);
    assert!(attack.statuses.len() >= most, "{} were refused", attack.statuses.len());
    assert!(attack.statuses.iter().all(|code| code == "8"), "RESOURCE_EXHAUSTED");
    attack.end();
}

/// Responses of 256 descriptors to a client without a window took 45 kB each.
#[test]
fn responses_that_are_not_read_are_bounded() {
    let many = request("d", vec![descriptor(&[("user", "ann")]); 256]).encode_to_vec();
    let length = u32::try_from(many.len()).expect("a short message").to_be_bytes();
    let attack = attack(0, SHOULD_RATE_LIMIT, Some([&[0][..], &length, &many].concat().into()));
    assert!(attack.resets.len() > CALLS, "{} were reset", attack.resets.len());
    let calm = Some(Reason::ENHANCE_YOUR_CALM);
    assert!(attack.resets.iter().all(|reason| *reason == calm), "{:?}", attack.resets);
    attack.end();
}
