//! Sends plain commands: those on keys beside the counters, and the deletion of a counter.

use super::{RETRY_PAUSE, Router, SENDS_MAX, SendMode};
use crate::store::redis::command::PlainCommands;
use crate::store::redis::error::NextAction;
use crate::store::redis::reply::{Reply, ReplyBound};
use crate::store::{NodeId, StoreError};

impl Router {
    /// Sends commands on keys of `slot` to its owner, and returns the result of the last one, or the
    /// first error. They are sent again only after an error that shows that none has run.
    pub(in crate::store::redis) async fn plain(
        &self,
        slot: u16,
        commands: &PlainCommands,
        bound: ReplyBound,
    ) -> Result<Reply, StoreError> {
        let mut route = self.route_to_owner(slot)?;
        for _ in 0..SENDS_MAX {
            let connection = route.node.connection(usize::from(slot));
            connection.ready().await?;
            let sent = match route.mode {
                SendMode::Batched | SendMode::Single => commands.clone(),
                SendMode::Asking => commands.after_asking(),
            };
            let error = match connection.commands(sent, bound).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            // After a refused `MULTI`, a node that has started meanwhile ran the commands one by one.
            let is_later = NextAction::after(&error, true) == NextAction::SendLater;
            if is_later && commands.is_transaction() {
                return Err(StoreError::InvalidReply);
            }
            route = self.next_route(route, slot, &error, &connection, None).await?;
        }
        Err(StoreError::ErrorReply)
    }

    /// Sends a command without a key to `node`, and returns its reply. A node that is starting gets it
    /// again.
    pub(in crate::store::redis) async fn plain_on(
        &self,
        node: NodeId,
        command: &PlainCommands,
        bound: ReplyBound,
    ) -> Result<Reply, StoreError> {
        let found = self.topology().nodes().iter().find(|one| one.id() == node).cloned();
        let node = found.ok_or(StoreError::Unreachable)?;
        for _ in 0..SENDS_MAX {
            let connection = node.connection(0);
            connection.ready().await?;
            let error = match connection.commands(command.clone(), bound).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            match NextAction::after(&error, true) {
                NextAction::SendLater => tokio::time::sleep(RETRY_PAUSE).await,
                NextAction::FailAndRefresh(_) | NextAction::FailAndReconnect(_) => {
                    self.request_refresh();
                    return Err(self.log_and_classify(&node, &error));
                }
                _ => return Err(self.log_and_classify(&node, &error)),
            }
        }
        Err(StoreError::ErrorReply)
    }
}
