//! One HTTP/2 connection of the generator, which is opened again when it is lost.

use std::cell::RefCell;
use std::fmt::Display;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::client::{Builder, SendRequest};
use http::Request;
use tokio::net::TcpStream;

use crate::response::{self, CallOutcome};

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Flow-control windows, large enough that responses never wait for one.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Bytes of the largest response that is read whole.
const RESPONSE_BYTES_MAX: usize = 4 << 20;

/// Wait before a lost connection, or a call on one, is tried again.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The header frame of every call.
#[derive(Debug)]
pub(crate) struct RequestHead(Request<()>);

impl RequestHead {
    pub(crate) fn new(address: SocketAddr) -> RequestHead {
        let head = Request::post(format!("http://{address}{PATH}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .expect("an address is a valid authority");
        RequestHead(head)
    }
}

/// A connection, shared by the tasks of one thread.
#[derive(Debug)]
pub(crate) struct Connection {
    address: SocketAddr,
    head: Arc<RequestHead>,
    /// `None` while the connection is lost.
    sender: RefCell<Option<SendRequest<Bytes>>>,
}

impl Connection {
    /// Opens a connection. A task of the current `LocalSet` reconnects it whenever it is lost.
    pub(crate) async fn open(
        address: SocketAddr,
        head: Arc<RequestHead>,
    ) -> Result<Rc<Connection>, String> {
        let (sender, driver) = connect(address).await?;
        let connection = Rc::new(Connection { address, head, sender: RefCell::new(Some(sender)) });
        tokio::task::spawn_local(Rc::clone(&connection).drive(driver));
        Ok(connection)
    }

    async fn drive(self: Rc<Connection>, mut driver: Driver) {
        loop {
            // Calls in flight on the connection get the same error and count it.
            let _ = driver.await;
            self.sender.replace(None);
            driver = loop {
                tokio::time::sleep(RETRY_PAUSE).await;
                if let Ok((sender, driver)) = connect(self.address).await {
                    self.sender.replace(Some(sender));
                    break driver;
                }
            };
        }
    }

    /// Sends one call; `on_sent` runs as soon as the connection accepts it.
    pub(crate) async fn call(&self, body: Bytes, on_sent: impl FnOnce()) -> CallOutcome {
        let sender = self.sender.borrow().clone();
        let Some(sender) = sender else {
            return CallOutcome::Disconnected("not connected".into());
        };
        let result = send(sender, &self.head, body, on_sent).await;
        let lost = |error| CallOutcome::Disconnected(format!("connection: {error}"));
        result.unwrap_or_else(lost)
    }
}

pub(crate) type Driver = h2::client::Connection<TcpStream, Bytes>;

/// Opens a connection. The second value drives it.
pub(crate) async fn connect(address: SocketAddr) -> Result<(SendRequest<Bytes>, Driver), String> {
    let text = |error: &dyn Display| error.to_string();
    let stream = TcpStream::connect(address).await.map_err(|e| text(&e))?;
    stream.set_nodelay(true).map_err(|e| text(&e))?;
    let mut builder = Builder::new();
    builder.initial_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
    builder.enable_push(false).handshake(stream).await.map_err(|e| text(&e))
}

async fn send(
    sender: SendRequest<Bytes>,
    head: &RequestHead,
    body: Bytes,
    on_sent: impl FnOnce(),
) -> Result<CallOutcome, h2::Error> {
    let mut sender = sender.ready().await?;
    on_sent();
    let (response, mut stream) = sender.send_request(head.0.clone(), false)?;
    stream.send_data(body, true)?;
    let (head, mut body) = response.await?.into_parts();
    if head.status != http::StatusCode::OK {
        return Ok(CallOutcome::Failed(format!("http {}", head.status.as_u16())));
    }
    let message = read_body(&mut body).await?;
    let status = "grpc-status";
    let trailers = body.trailers().await?;
    let status = trailers.as_ref().and_then(|all| all.get(status)).or(head.headers.get(status));
    Ok(response::classify(&message, status.map(http::HeaderValue::as_bytes)))
}

/// The whole body; nearly always one frame, which is not copied.
pub(crate) async fn read_body(body: &mut RecvStream) -> Result<Bytes, h2::Error> {
    let mut message = Bytes::new();
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        if message.is_empty() {
            message = part;
        } else if message.len() + part.len() <= RESPONSE_BYTES_MAX {
            let mut longer = BytesMut::from(message);
            longer.extend_from_slice(&part);
            message = longer.freeze();
        }
    }
    Ok(message)
}
