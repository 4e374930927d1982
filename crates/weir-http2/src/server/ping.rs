//! Keepalive pings.

use std::task::{Context, Poll};

use super::shared::SharedEngine;
use crate::Error;

/// Sends pings, and notices their answers. One ping may be open at a time.
#[derive(Debug)]
pub struct PingPong(pub(super) SharedEngine);

impl PingPong {
    /// Sends a ping. Fails if the connection has ended.
    pub fn send_ping(&self) -> Result<(), Error> {
        self.0.lock().send_ping()
    }

    /// Returns when the last ping was answered. Fails if the connection has ended.
    pub fn poll_pong(&self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.0.lock().poll_pong(context)
    }
}
