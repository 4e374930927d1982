//! The least that a server on h2 costs: it decodes nothing and responds to every call with the same bytes.
//!
//! All calls of one read are answered together, so that their responses leave in one write. The thread
//! layout, the response and its headers are those of the baseline.

use std::future::poll_fn;
use std::net::TcpStream;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Response};
use prost::Message;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

use crate::baseline;

/// The header with the status of a call.
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// A call whose request has not arrived completely.
type Waiting = (RecvStream, SendResponse<Bytes>);

/// Serves on a free port of loopback, which it prints, until the process ends.
pub(crate) fn serve(cores: usize) -> anyhow::Result<()> {
    baseline::distribute(cores, core)
}

fn core(connections: mpsc::UnboundedReceiver<TcpStream>) -> anyhow::Result<()> {
    serve_each(connections, connection)
}

/// Serves connections on this thread, each in a task by `connection`, which gets the response with its prefix.
pub(crate) fn serve_each<C: Future + 'static>(
    mut connections: mpsc::UnboundedReceiver<TcpStream>,
    connection: fn(tokio::net::TcpStream, Bytes) -> C,
) -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let framed = framed();
    LocalSet::new().block_on(&runtime, async {
        while let Some(stream) = connections.recv().await {
            let stream = tokio::net::TcpStream::from_std(stream)?;
            let served = connection(stream, framed.clone());
            // A client that goes away ends its connection with an error.
            spawn_local(async move { drop(served.await) });
        }
        Ok(())
    })
}

/// The response with its prefix: no compression, and the length.
fn framed() -> Bytes {
    let message = baseline::response().encode_to_vec();
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).expect("a small message"));
    framed.put_slice(&message);
    framed.freeze()
}

async fn connection(stream: tokio::net::TcpStream, framed: Bytes) -> Result<(), h2::Error> {
    let mut connection: Connection<_, Bytes> = h2::server::handshake(stream).await?;
    let mut waiting = Vec::new();
    poll_fn(|context| {
        loop {
            match connection.poll_accept(context) {
                Poll::Ready(Some(call)) => {
                    let (request, respond) = call?;
                    waiting.push((request.into_body(), respond));
                }
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => break,
            }
        }
        // h2 wakes this task for the responses, and for the data of the other calls.
        let mut incomplete = Vec::new();
        for mut call in waiting.drain(..) {
            match received(&mut call.0, context) {
                Poll::Pending => incomplete.push(call),
                Poll::Ready(result) => {
                    result?;
                    respond(call, &framed)?;
                }
            }
        }
        waiting = incomplete;
        Poll::Pending
    })
    .await
}

/// Reads a request to its end.
fn received(body: &mut RecvStream, context: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
    loop {
        match body.poll_data(context) {
            Poll::Ready(Some(data)) => {
                let length = data?.len();
                body.flow_control().release_capacity(length)?;
            }
            Poll::Ready(None) => return Poll::Ready(Ok(())),
            Poll::Pending => return Poll::Pending,
        }
    }
}

fn respond((_, mut respond): Waiting, framed: &Bytes) -> Result<(), h2::Error> {
    let mut head = Response::new(());
    head.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let mut sending = respond.send_response(head, false)?;
    sending.send_data(framed.clone(), false)?;
    let mut trailers = HeaderMap::new();
    trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
    sending.send_trailers(trailers).inspect_err(|_| sending.send_reset(Reason::INTERNAL_ERROR))
}
