//! GOAWAY, and the pings of the server (RFC 9113, sections 6.7 and 6.8).

use std::task::{Context, Poll};

use super::{Engine, wake};
use crate::frame::{self, FrameHeader, flag, kind};
use crate::{Error, Reason};

/// The payload of the ping between the two GOAWAY frames of a graceful shutdown.
const SHUTDOWN_PING: [u8; 8] = *b"shutdown";

/// The payload of a keepalive ping.
const KEEPALIVE_PING: [u8; 8] = *b"keepaliv";

/// How far a graceful shutdown has come (RFC 9113, section 6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shutdown {
    None,
    /// GOAWAY without a last stream was sent, and a ping.
    Announced,
    /// The ping was answered, and GOAWAY with this last stream was sent.
    Final(u32),
}

/// The keepalive ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeepalivePing {
    None,
    Sent,
    Answered,
}

impl Engine {
    /// Ends the connection for all calls.
    pub(crate) fn end(&mut self, error: Error) {
        if self.ended.is_none() {
            self.ended = Some(error);
        }
        for key in self.streams.keys() {
            self.free(key);
        }
        wake(&mut self.pinger);
    }

    /// Whether the connection has ended for its calls.
    pub(crate) fn ended(&self) -> Option<&Error> {
        self.ended.as_ref()
    }

    /// Begins a graceful shutdown: new streams are accepted for one more round trip.
    pub(crate) fn begin_shutdown(&mut self) {
        if self.shutdown != Shutdown::None || self.ended.is_some() {
            return;
        }
        self.shutdown = Shutdown::Announced;
        self.write_go_away(0x7fff_ffff, Reason::NO_ERROR);
        frame::write(&mut self.output, kind::PING, 0, 0, &SHUTDOWN_PING);
        self.wake_task();
    }

    /// Sends GOAWAY with `reason`, and ends all calls.
    pub(crate) fn abort(&mut self, reason: Reason) {
        if self.ended.is_none() {
            let last = match self.shutdown {
                Shutdown::Final(last) => last,
                _ => self.last_stream,
            };
            self.write_go_away(last, reason);
            self.end(Error::go_away(reason));
            self.wake_task();
        }
    }

    fn write_go_away(&mut self, last: u32, reason: Reason) {
        let payload = u64::from(last) << 32 | u64::from(reason.0);
        frame::write(&mut self.output, kind::GOAWAY, 0, 0, &payload.to_be_bytes());
    }

    /// Sends a keepalive ping. Fails if the connection has ended.
    pub(crate) fn send_ping(&mut self) -> Result<(), Error> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        self.ping = KeepalivePing::Sent;
        frame::write(&mut self.output, kind::PING, 0, 0, &KEEPALIVE_PING);
        self.wake_task();
        Ok(())
    }

    /// Returns when the keepalive ping was answered.
    pub(crate) fn poll_pong(&mut self, context: &Context<'_>) -> Poll<Result<(), Error>> {
        if self.ping == KeepalivePing::Answered {
            self.ping = KeepalivePing::None;
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = &self.ended {
            return Poll::Ready(Err(error.clone()));
        }
        self.pinger = Some(context.waker().clone());
        Poll::Pending
    }

    /// Applies PING (RFC 9113, section 6.7).
    pub(crate) fn receive_ping(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<(), Reason> {
        if header.stream != 0 {
            return Err(Reason::PROTOCOL_ERROR);
        }
        if payload.len() != SHUTDOWN_PING.len() {
            return Err(Reason::FRAME_SIZE_ERROR);
        }
        if !header.has(flag::ACK) {
            frame::write(&mut self.output, kind::PING, flag::ACK, 0, payload);
        } else if payload == SHUTDOWN_PING && self.shutdown == Shutdown::Announced {
            self.shutdown = Shutdown::Final(self.last_stream);
            self.write_go_away(self.last_stream, Reason::NO_ERROR);
        } else if payload == KEEPALIVE_PING && self.ping == KeepalivePing::Sent {
            self.ping = KeepalivePing::Answered;
            wake(&mut self.pinger);
        }
        Ok(())
    }

    /// Applies GOAWAY of the client (RFC 9113, section 6.8). Its streams are served to their end. With
    /// an error code it ends the connection.
    pub(crate) fn receive_go_away(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<(), Error> {
        if header.stream != 0 {
            return Err(Error::go_away(Reason::PROTOCOL_ERROR));
        }
        let Some((_, [a, b, c, d, ..])) = payload.split_first_chunk::<4>() else {
            return Err(Error::go_away(Reason::FRAME_SIZE_ERROR));
        };
        match Reason(u32::from_be_bytes([*a, *b, *c, *d])) {
            Reason::NO_ERROR => Ok(()),
            reason => Err(Error::go_away_by_client(reason)),
        }
    }
}
