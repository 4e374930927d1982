//! The least that a server on weir's HTTP/2 server costs: it decodes nothing and responds to every call with
//! the same bytes.
//!
//! The thread layout, the response and its headers are those of `h2_constant`. All calls of one read are
//! answered before anything is written.

use std::future::poll_fn;
use std::net::TcpStream;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::mpsc;
use weir_http2::{Connection, Error, Limits, RequestBody, RequestHead, Responder};

use crate::baseline;
use crate::h2_constant::serve_each;

/// The fields of a request, which are not needed.
#[derive(Clone)]
struct NoFields;

impl RequestHead for NoFields {
    fn field(&mut self, _name: &[u8], _value: &[u8]) {}

    fn memory(&self) -> usize {
        0
    }
}

/// A call whose request has not arrived completely.
type Waiting = (RequestBody, Responder);

/// Serves on a free port of loopback, which it prints, until the process ends.
pub(crate) fn serve(cores: usize) -> anyhow::Result<()> {
    baseline::distribute(cores, core)
}

fn core(connections: mpsc::UnboundedReceiver<TcpStream>) -> anyhow::Result<()> {
    serve_each(connections, connection)
}

async fn connection(stream: tokio::net::TcpStream, framed: Bytes) -> Result<(), Error> {
    let mut connection = Connection::new(stream, Limits::default(), NoFields);
    poll_fn(|context| connection.poll_open(context)).await?;
    let mut waiting: Vec<Waiting> = Vec::new();
    poll_fn(|context| {
        loop {
            // The connection wakes this task for their data.
            waiting.retain_mut(|call| respond(call, &framed, context).is_pending());
            // Writes the responses, and then reads.
            if !ready!(connection.poll_calls(context))? {
                return Poll::Ready(Ok(()));
            }
            while let Some(call) = connection.next_call() {
                let mut call = (call.body, call.responder);
                if respond(&mut call, &framed, context).is_pending() {
                    waiting.push(call);
                }
            }
        }
    })
    .await
}

/// Reads a request to its end, and responds.
fn respond((body, responder): &mut Waiting, framed: &Bytes, context: &mut Context<'_>) -> Poll<()> {
    while let Some(data) = ready!(body.poll_data(context)) {
        // A reset has ended the call.
        let Ok(data) = data else { return Poll::Ready(()) };
        body.release(data.len());
    }
    // Without room in the client's windows nothing is sent. Then the call is reset, and the load fails.
    let _ = responder.send_message(framed.len(), |out| out.extend_from_slice(framed));
    Poll::Ready(())
}
