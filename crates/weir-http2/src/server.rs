//! The connection on a socket: reads, writes, and the handles of its calls.

mod body;
mod connection;
mod ping;
mod responder;
mod shared;

pub use body::RequestBody;
pub use connection::{Call, Connection};
pub use ping::PingPong;
pub use responder::Responder;
