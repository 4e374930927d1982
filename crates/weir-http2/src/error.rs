//! Why a call or a connection ended.

use std::{fmt, io};

use crate::Reason;

/// Why a call or a connection ended before it was complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Cause);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    /// RST_STREAM of this stream.
    Reset(Reason, Side),
    /// GOAWAY of the connection.
    GoAway(Reason, Side),
    /// The socket failed.
    Io(io::ErrorKind, String),
    /// The connection has ended.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

impl Error {
    pub(crate) fn reset_by_client(reason: Reason) -> Error {
        Error(Cause::Reset(reason, Side::Client))
    }

    pub(crate) fn go_away(reason: Reason) -> Error {
        Error(Cause::GoAway(reason, Side::Server))
    }

    pub(crate) fn go_away_by_client(reason: Reason) -> Error {
        Error(Cause::GoAway(reason, Side::Client))
    }

    pub(crate) fn closed() -> Error {
        Error(Cause::Closed)
    }

    /// The error code; `None` if the socket failed or the connection was closed without one.
    pub fn reason(&self) -> Option<Reason> {
        match self.0 {
            Cause::Reset(reason, _) | Cause::GoAway(reason, _) => Some(reason),
            Cause::Io(..) | Cause::Closed => None,
        }
    }

    /// Whether the client sent the error code.
    pub fn is_remote(&self) -> bool {
        matches!(self.0, Cause::Reset(_, Side::Client) | Cause::GoAway(_, Side::Client))
    }

    /// Whether the socket failed.
    pub fn is_io(&self) -> bool {
        matches!(self.0, Cause::Io(..))
    }
}

/// An error of this server on one stream.
impl From<Reason> for Error {
    fn from(reason: Reason) -> Error {
        Error(Cause::Reset(reason, Side::Server))
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error(Cause::Io(error.kind(), error.to_string()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.is_remote() { "the client" } else { "this server" };
        match &self.0 {
            Cause::Reset(reason, _) => write!(f, "stream reset by {side}: {reason}"),
            Cause::GoAway(reason, _) => write!(f, "connection closed by {side}: {reason}"),
            Cause::Io(_, text) => write!(f, "{text}"),
            Cause::Closed => f.write_str("the connection has ended"),
        }
    }
}

impl std::error::Error for Error {}
