//! One HTTP/2 connection of the generator: opened, asked, and opened again when it is lost.

use std::cell::RefCell;
use std::fmt::Display;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::client::{Builder, Connection, SendRequest};
use http::Request;
use tokio::net::TcpStream;

use super::answer::{self, Outcome};

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Windows so large that answers never wait for one.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Before a lost connection, or a call on one, is tried again.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// The head of every call.
#[derive(Debug)]
pub(super) struct Target(Request<()>);

impl Target {
    pub(super) fn new(address: SocketAddr) -> Target {
        let head = Request::post(format!("http://{address}{PATH}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .expect("an address is a valid authority");
        Target(head)
    }
}

/// A connection; tasks of one thread share it.
#[derive(Debug)]
pub(super) struct Link {
    address: SocketAddr,
    target: Arc<Target>,
    /// None while it is lost.
    sender: RefCell<Option<SendRequest<Bytes>>>,
}

impl Link {
    /// Opens a connection and keeps it open as long as the thread's tasks run.
    pub(super) async fn open(address: SocketAddr, target: Arc<Target>) -> Result<Rc<Link>, String> {
        let (sender, connection) = connect(address).await?;
        let link = Rc::new(Link { address, target, sender: RefCell::new(Some(sender)) });
        tokio::task::spawn_local(Rc::clone(&link).keep(connection));
        Ok(link)
    }

    async fn keep(self: Rc<Link>, mut connection: Connection<TcpStream, Bytes>) {
        loop {
            // Whoever has a call on it hears of its end too, and counts it.
            let _ = connection.await;
            self.sender.replace(None);
            connection = loop {
                tokio::time::sleep(PAUSE).await;
                if let Ok((sender, connection)) = connect(self.address).await {
                    self.sender.replace(Some(sender));
                    break connection;
                }
            };
        }
    }

    /// Asks once; `sent` is called as soon as the connection takes the call.
    pub(super) async fn call(&self, body: Bytes, sent: impl FnOnce()) -> Outcome {
        let sender = self.sender.borrow().clone();
        let Some(sender) = sender else { return Outcome::Broken("not connected".into()) };
        ask(sender, &self.target, body, sent).await.unwrap_or_else(|lost| lost)
    }
}

async fn connect(
    address: SocketAddr,
) -> Result<(SendRequest<Bytes>, Connection<TcpStream, Bytes>), String> {
    let text = |error: &dyn Display| error.to_string();
    let stream = TcpStream::connect(address).await.map_err(|e| text(&e))?;
    stream.set_nodelay(true).map_err(|e| text(&e))?;
    let mut builder = Builder::new();
    builder.initial_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
    builder.enable_push(false).handshake(stream).await.map_err(|e| text(&e))
}

async fn ask(
    sender: SendRequest<Bytes>,
    target: &Target,
    body: Bytes,
    sent: impl FnOnce(),
) -> Result<Outcome, Outcome> {
    let broken = |error: h2::Error| Outcome::Broken(format!("connection: {error}"));
    let mut sender = sender.ready().await.map_err(broken)?;
    sent();
    let (answer, mut stream) = sender.send_request(target.0.clone(), false).map_err(broken)?;
    stream.send_data(body, true).map_err(broken)?;
    let (head, mut body) = answer.await.map_err(broken)?.into_parts();
    if head.status != http::StatusCode::OK {
        return Ok(Outcome::Failed(format!("http {}", head.status.as_u16())));
    }
    let message = whole(&mut body).await.map_err(broken)?;
    let status = "grpc-status";
    let trailers = body.trailers().await.map_err(broken)?;
    let status = trailers.as_ref().and_then(|end| end.get(status)).or(head.headers.get(status));
    Ok(answer::read(&message, status.map(http::HeaderValue::as_bytes)))
}

/// The body, nearly always one frame.
async fn whole(body: &mut RecvStream) -> Result<Bytes, h2::Error> {
    let mut message = Bytes::new();
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        if message.is_empty() {
            message = part;
        } else if message.len() + part.len() <= ANSWER_BYTES_MAX {
            let mut longer = BytesMut::from(message);
            longer.extend_from_slice(&part);
            message = longer.freeze();
        }
    }
    Ok(message)
}
