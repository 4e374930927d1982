//! A client of the crate `h2` calls the server: messages of all sizes, resets, pings, and shutdowns.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::Notify;
use tokio::time::timeout;
use weir_http2::{Call, Connection, Error, Limits, Reason, RequestHead};

/// The path and the other fields of a request, as lines.
#[derive(Clone, Debug, Default)]
struct Head {
    path: String,
    fields: Vec<String>,
}

impl RequestHead for Head {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        if name == b":path" {
            self.path = String::from_utf8_lossy(value).into_owned();
        } else if !name.starts_with(b":") {
            self.fields.push(line(name, value));
        }
    }

    fn memory(&self) -> usize {
        self.path.len() + self.fields.iter().map(String::len).sum::<usize>()
    }
}

fn line(name: &[u8], value: &[u8]) -> String {
    format!("{}: {}\n", name.escape_ascii(), value.escape_ascii())
}

/// What a test asks of the server.
#[derive(Debug, Default)]
struct Control {
    shutdown: Notify,
    /// Calls whose stream was reset.
    resets: AtomicUsize,
}

/// Serves a connection until it ends: each call in a task, which sends the request back.
async fn serve(socket: DuplexStream, limits: Limits, control: Arc<Control>) -> Result<(), Error> {
    let mut connection = Connection::new(socket, limits, Head::default());
    poll_fn(|context| connection.poll_open(context)).await?;
    loop {
        let calls = poll_fn(|context| connection.poll_calls(context));
        let has_calls = tokio::select! {
            has_calls = calls => Some(has_calls?),
            () = control.shutdown.notified() => None,
        };
        match has_calls {
            Some(false) => return Ok(()),
            Some(true) => {
                while let Some(call) = connection.next_call() {
                    let control = Arc::clone(&control);
                    tokio::spawn(async move {
                        if echo(call).await.is_err() {
                            control.resets.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            }
            None => connection.graceful_shutdown(),
        }
    }
}

/// Responds with the data of the request, with its fields to `/fields`, or never to `/wait`.
async fn echo(call: Call<Head>) -> Result<(), Error> {
    let Call { head, mut body, mut responder } = call;
    let fields: [(&[u8], &[u8]); 2] =
        [(b"content-type", b"application/grpc"), (b"x-path", head.path.as_bytes())];
    if head.path == "/wait" {
        return Err(poll_fn(|context| responder.poll_reset(context)).await);
    }
    responder.send_head(200, fields, false)?;
    if head.path == "/fields" {
        responder.send_data(head.fields.concat().as_bytes(), false)?;
    }
    while let Some(data) = poll_fn(|context| body.poll_data(context)).await.transpose()? {
        body.release(data.len());
        let mut rest = data;
        while !rest.is_empty() {
            let room = poll_fn(|context| responder.poll_room(context)).await?;
            responder.send_data(&rest.split_to(room.min(rest.len())), false)?;
        }
    }
    let fields: [(&[u8], &[u8]); 1] = [(b"grpc-status", b"0")];
    responder.send_trailers(fields)
}

type Served = tokio::task::JoinHandle<Result<(), Error>>;

/// A client, the task of its connection, and the task of the server.
async fn connect(
    limits: Limits,
    client: &h2::client::Builder,
) -> (SendRequest<Bytes>, Arc<Control>, Served) {
    let (near, far) = duplex(32 * 1024);
    let control = Arc::<Control>::default();
    let served = tokio::spawn(serve(far, limits, Arc::clone(&control)));
    let (send, connection) = client.handshake(near).await.expect("a server");
    tokio::spawn(async move { drop(connection.await) });
    (send, control, served)
}

fn post(path: &str) -> Request<()> {
    let uri = format!("http://a{path}");
    Request::builder().method(Method::POST).uri(uri).body(()).expect("a valid request")
}

/// Sends `data`, and returns what comes back.
async fn call(client: &SendRequest<Bytes>, path: &str, data: Bytes) -> Result<Bytes, h2::Error> {
    call_with(client, post(path), data).await
}

/// Sends `request` with `data`, and returns what comes back.
async fn call_with(
    client: &SendRequest<Bytes>,
    request: Request<()>,
    data: Bytes,
) -> Result<Bytes, h2::Error> {
    let path = request.uri().path().to_owned();
    let mut client = client.clone().ready().await?;
    let (response, mut body) = client.send_request(request, false)?;
    body.send_data(data, true)?;
    let (head, mut body) = response.await?.into_parts();
    assert_eq!(head.headers["content-type"], "application/grpc");
    assert_eq!(head.headers["x-path"], path);
    let mut received = Vec::new();
    while let Some(data) = body.data().await.transpose()? {
        body.flow_control().release_capacity(data.len())?;
        received.extend(data);
    }
    let trailers: HeaderMap = body.trailers().await?.unwrap_or_default();
    assert_eq!(trailers["grpc-status"], "0");
    Ok(received.into())
}

fn text(length: usize) -> Bytes {
    (0..length).map(|index| (index % 251) as u8).collect()
}

/// h2 encodes fields in all forms: stored or not, and in Huffman codes or not. It sends the fields of one
/// name together.
#[tokio::test]
async fn fields_arrive_as_they_were_sent() {
    let (client, _, _) = connect(Limits::default(), &h2::client::Builder::new()).await;
    let mut runner = TestRunner::deterministic();
    let name = prop_oneof![
        Just("grpc-timeout".to_owned()),
        Just("authorization".to_owned()),
        "x-[a-z0-9_-]{1,20}",
    ];
    let value = prop::collection::vec(prop_oneof![b' '..=b'~', 0x80..=0xff_u8, Just(b'\t')], 0..60);
    let fields = prop::collection::vec((name, value, any::<bool>()), 0..20);
    for _ in 0..300 {
        let fields = fields.new_tree(&mut runner).expect("no filter").current();
        let mut request = post("/fields");
        for (name, value, is_sensitive) in fields {
            let name: HeaderName = name.parse().expect("a name");
            let mut value = HeaderValue::from_bytes(&value).expect("a value");
            value.set_sensitive(is_sensitive);
            request.headers_mut().append(name, value);
        }
        let sent = request.headers().iter();
        let sent: String =
            sent.map(|(name, value)| line(name.as_str().as_bytes(), value.as_bytes())).collect();
        let received = in_time(call_with(&client, request, Bytes::new())).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&received), sent);
    }
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), future).await.expect("in time")
}

#[tokio::test]
async fn messages_of_all_sizes_come_back() {
    let small = Limits { window: 65_535, output_bytes: 5000, ..Limits::default() };
    let mut narrow = h2::client::Builder::new();
    narrow.initial_window_size(1000).initial_connection_window_size(70_000);
    for (limits, client) in [(Limits::default(), h2::client::Builder::new()), (small, narrow)] {
        let (client, _, _) = connect(limits, &client).await;
        for length in [0, 1, 100, 16_384, 16_385, 65_535, 65_536, 3_000_000] {
            let data = text(length);
            assert_eq!(in_time(call(&client, "/echo", data.clone())).await.unwrap(), data);
        }
    }
}

#[tokio::test]
async fn many_calls_run_at_a_time() {
    let (client, control, _) = connect(Limits::default(), &h2::client::Builder::new()).await;
    let calls = (0..3000).map(|index| {
        let client = client.clone();
        tokio::spawn(async move {
            let (path, data) = (format!("/{}", index % 7), text(index));
            assert_eq!(call(&client, &path, data.clone()).await.unwrap(), data);
        })
    });
    for call in calls.collect::<Vec<_>>() {
        in_time(call).await.unwrap();
    }
    assert_eq!(control.resets.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_reset_ends_its_call() {
    let (client, control, _) = connect(Limits::default(), &h2::client::Builder::new()).await;
    let mut ready = client.clone().ready().await.unwrap();
    let (_, mut body) = ready.send_request(post("/wait"), false).unwrap();
    call(&client, "/echo", text(10)).await.unwrap();
    body.send_reset(h2::Reason::CANCEL);
    call(&client, "/echo", text(10)).await.unwrap();
    in_time(async {
        while control.resets.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_shutdown_waits_for_open_calls() {
    let (client, control, served) = connect(Limits::default(), &h2::client::Builder::new()).await;
    let mut ready = client.clone().ready().await.unwrap();
    let (response, mut body) = ready.send_request(post("/late"), false).unwrap();
    let head = in_time(response).await.unwrap();
    control.shutdown.notify_one();
    let refused = in_time(async {
        loop {
            match call(&client, "/echo", text(10)).await {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => return error,
            }
        }
    });
    assert_eq!(refused.await.reason(), Some(h2::Reason::NO_ERROR));
    assert!(!served.is_finished());
    body.send_data(text(5), true).unwrap();
    let mut body = head.into_body();
    assert_eq!(in_time(body.data()).await.unwrap().unwrap(), text(5));
    assert_eq!(in_time(served).await.unwrap(), Ok(()));
}

#[tokio::test]
async fn pings_are_answered() {
    let (near, far) = duplex(32 * 1024);
    let mut server = Connection::new(far, Limits::default(), Head::default());
    let pings = server.ping_pong();
    let client = tokio::spawn(async move {
        let (_client, connection) = h2::client::handshake(near).await.unwrap();
        connection.await.unwrap_err()
    });
    in_time(async {
        poll_fn(|context| server.poll_open(context)).await.unwrap();
        pings.send_ping().unwrap();
        let answered = poll_fn(|context| match server.poll_calls(context) {
            Poll::Ready(end) => panic!("{end:?}"),
            Poll::Pending => pings.poll_pong(context),
        });
        answered.await.unwrap();
        server.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        let end = poll_fn(|context| server.poll_calls(context)).await.unwrap_err();
        assert_eq!(end.reason(), Some(Reason::ENHANCE_YOUR_CALM));
        assert!(pings.send_ping().is_err());
    })
    .await;
    let end = in_time(client).await.unwrap();
    assert_eq!(end.reason(), Some(h2::Reason::ENHANCE_YOUR_CALM));
}

/// Calls begin while the output has room. So a client that sends much and reads little makes the server hold
/// one response over the bound.
#[tokio::test]
async fn calls_wait_while_the_output_is_full() {
    const CALLS: u32 = 200;
    const REQUEST: [u8; 9] = [0x83, 0x86, 0x04, 2, b'/', b'x', 0x01, 1, b'a'];
    let (mut client, server) = duplex(16 * 1024);
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    for call in 0..CALLS {
        sent.extend([0, 0, REQUEST.len() as u8, 1, 5]);
        sent.extend((2 * call + 1).to_be_bytes());
        sent.extend(REQUEST);
    }
    client.write_all(&sent).await.unwrap();
    let limits = Limits { output_bytes: 5000, ..Limits::default() };
    let mut connection = Connection::new(server, limits, Head::default());
    poll_fn(|context| connection.poll_open(context)).await.unwrap();
    let reader = tokio::spawn(async move { client.read_to_end(&mut Vec::new()).await });
    let (value, mut begun) = ([b'y'; 1000], 0);
    while begun < CALLS {
        assert!(poll_fn(|context| connection.poll_calls(context)).await.unwrap());
        let before = begun;
        while let Some(Call { mut responder, .. }) = connection.next_call() {
            responder.send_head(200, [(&b"x"[..], &value[..])], true).unwrap();
            begun += 1;
        }
        assert!((1..=6).contains(&(begun - before)), "{} calls", begun - before);
    }
    drop(connection);
    reader.await.unwrap().unwrap();
}
