//! How a counter is forgotten: its key is unlinked on the node that owns it.

use bytes::Bytes;
use fred::types::Value;

use super::error::RedisError;
use super::name::CounterName;
use super::{Router, SENDS_MAX, slot};
use crate::key::Key;
use crate::store::StoreError;

impl Router {
    /// Unlinks the key. While its slot is on its way to another node Redis may say that it is not
    /// there; that is refused, and can be asked again when the slot has arrived.
    pub(super) async fn forget(&self, key: &Key) -> Result<bool, StoreError> {
        let name = CounterName::of(key);
        let mut node = self.owner(key)?;
        for _ in 0..SENDS_MAX {
            let connection = node.connection(key).ok_or(StoreError::Unreachable)?;
            connection.ready().await?;
            let argument = Value::Bytes(Bytes::copy_from_slice(name.as_ref()));
            let error = match connection.command("UNLINK", vec![argument]).await {
                Ok(answer) => return answer.as_i64().map(|n| n > 0).ok_or(StoreError::Reply),
                Err(error) => error,
            };
            match RedisError::of(&error) {
                RedisError::Moved(redirect) => match self.find(redirect, &node) {
                    Some(owner) => {
                        self.learn(slot(key), &owner);
                        node = owner;
                    }
                    None => node = self.ask_again(key).await?.node,
                },
                RedisError::Final(_) => return Err(self.log_refusal(&node, &error)),
                _ => return Err(StoreError::Refused),
            }
        }
        Err(StoreError::Refused)
    }
}
