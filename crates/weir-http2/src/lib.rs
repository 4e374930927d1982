//! An HTTP/2 server connection for gRPC calls (RFC 9113), whose memory is bounded and known.
//!
//! [`Connection`] serves one client on a socket. Its core is pure: bytes go in, and calls and bytes
//! come out.
//!
//! | module | content |
//! | --- | --- |
//! | `receiver` | the preface, frames and header blocks, parsed where they were read |
//! | `hpack` | the decoder of requests and the encoder of responses (RFC 7541) |
//! | `request` | what makes a valid request, and [`RequestHead`], to which its fields are given |
//! | `engine` | streams, windows, settings, pings, GOAWAY, and the output |
//! | `streams` | the table of open streams |
//! | `control_frames`, `premature_resets` | limits of floods |
//! | `server` | the socket, and the handles of a call: [`RequestBody`] and [`Responder`] |
//!
//! These rules make it fast and its memory small:
//!
//! - **Output is encoded at once.** The frames of a response go into the one output buffer of the
//!   connection, without a queue per stream. DATA is encoded as far as the client's windows have room. The
//!   sender keeps the rest and waits.
//! - **Nothing is read while output waits.** So the output is bounded by [`Limits::output_bytes`], and by
//!   the headers and trailers of the open calls.
//! - **Input is copied, and no read buffer is kept.** An idle connection keeps at most 8 KiB for its output, and
//!   the streams and calls of a small load.
//! - **A closed stream is freed.** A call holds a key, which matches no stream afterwards.
//! - **The size of the header table is that of the protocol**, whatever the client announces.
//! - **The fields of a request are visited**, not stored. The same header block again, with the same header
//!   table, is not decoded again.
//!
//! [`Connection::memory`] returns the bytes that a connection holds.

mod control_frames;
mod engine;
mod error;
mod frame;
mod hpack;
mod limits;
mod premature_resets;
mod reason;
mod receiver;
mod request;
mod server;
mod settings;
mod streams;

pub use error::Error;
pub use limits::Limits;
pub use reason::Reason;
pub use request::RequestHead;
pub use server::{Call, Connection, PingPong, RequestBody, Responder};
