//! Sends the response of one call.

use std::task::{Context, Poll};

use super::shared::SharedEngine;
use crate::Error;
use crate::streams::StreamKey;

/// Sends the response of one call. Dropping it before the response is complete resets the stream with
/// CANCEL. Dropping it before the request is complete resets the stream with NO_ERROR.
#[derive(Debug)]
pub struct Responder {
    engine: SharedEngine,
    key: StreamKey,
    /// The stream needs nothing more.
    is_done: bool,
}

impl Responder {
    pub(super) fn new(engine: SharedEngine, key: StreamKey) -> Responder {
        Responder { engine, key, is_done: false }
    }

    /// Sends a complete response with status 200 and OK, and one gRPC message. `write` appends
    /// exactly `length` bytes: the message with its prefix. Returns false, and sends nothing, if the
    /// client's windows or the output have no room for all of it, or if it needs more than one frame.
    /// Fails if the stream was reset or the connection has ended.
    pub fn send_message(
        &mut self,
        length: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<bool, Error> {
        self.engine.lock().send_message(self.key, length, write)
    }

    /// Sends response headers, and ends the response if `ends`. Fails if the stream was reset or the
    /// connection has ended.
    pub fn send_head<'f>(
        &mut self,
        status: u16,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        ends: bool,
    ) -> Result<(), Error> {
        self.engine.lock().send_head(self.key, status, fields.into_iter(), ends)
    }

    /// Sends data, and ends the response if `ends`. There must be [room](Self::poll_room) for all of
    /// it. Fails if the stream was reset or the connection has ended.
    pub fn send_data(&mut self, data: &[u8], ends: bool) -> Result<(), Error> {
        self.engine.lock().send_data(self.key, data, ends)
    }

    /// Sends trailers, which end the response. Fails if the stream was reset or the connection has
    /// ended.
    pub fn send_trailers<'f>(
        &mut self,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
    ) -> Result<(), Error> {
        self.engine.lock().send_trailers(self.key, fields.into_iter())
    }

    /// Returns how many bytes of data may be sent, when there are any. Fails if the stream was reset or
    /// the connection has ended.
    pub fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Result<usize, Error>> {
        self.engine.lock().poll_room(self.key, context)
    }

    /// Returns the reason once the stream was reset or the connection has ended.
    pub fn poll_reset(&mut self, context: &mut Context<'_>) -> Poll<Error> {
        self.engine.lock().poll_reset(self.key, context)
    }

    /// Resets the stream.
    pub fn send_reset(&mut self, reason: crate::Reason) {
        self.engine.lock().reset(self.key, reason);
        self.is_done = true;
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.is_done {
            self.engine.lock().drop_call(self.key);
        }
    }
}
