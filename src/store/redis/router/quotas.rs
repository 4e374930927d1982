//! Settles quotas, and announces the rules whose quotas are divided.

use futures_util::future::try_join_all;

use super::{Router, SENDS_MAX, SendMode};
use crate::key::{CounterKey, RuleId};
use crate::quota::{LedgerSnapshot, Settlement};
use crate::store::redis::command::PlainCommands;
use crate::store::redis::error::NextAction;
use crate::store::redis::function_use::CallForm;
use crate::store::redis::name::{CounterName, hash_slot, name_beside};
use crate::store::redis::quota;
use crate::store::redis::quota_rules;
use crate::store::redis::reply::{Reply, ReplyBound};
use crate::store::redis::script::Script;
use crate::store::{QUOTA_RULES_KEY, StoreError};
use crate::time::Micros;

/// The name of the rules whose quotas are divided, without its hash tag. It has another length than the
/// rest of a counter's name.
const RULES: &str = "quota-rules";

impl Router {
    /// Settles the quota `key`.
    pub(in crate::store::redis) async fn settle(
        &self,
        key: &CounterKey,
        settlement: &Settlement,
    ) -> Result<LedgerSnapshot, StoreError> {
        let (name, argument) = (CounterName::of(key), quota::encode(settlement));
        let mut route = self.route_to_owner(hash_slot(key))?;
        let mut has_loaded = false;
        for _ in 0..SENDS_MAX {
            let batcher = route.node.batcher(key);
            let connection = batcher.connection();
            connection.ready().await?;
            let form = match route.mode {
                SendMode::Batched => connection.call_form(),
                SendMode::Single | SendMode::Asking => CallForm::Script,
            };
            let result = match route.mode {
                SendMode::Batched | SendMode::Single => {
                    connection.settle(&name, &argument, form).await
                }
                SendMode::Asking => connection.settle_asking(&name, &argument).await,
            };
            let error = match result {
                Ok(reply) => return quota::decode(&reply).map_err(|_| StoreError::InvalidReply),
                Err(error) => error,
            };
            match NextAction::after(&error, form == CallForm::Script) {
                NextAction::LoadFunctions if !has_loaded => {
                    has_loaded = true;
                    connection.load_functions().await;
                }
                NextAction::SendAlone => route.mode = SendMode::Single,
                _ => {
                    let script = Some(Script::Quota);
                    let slot = hash_slot(key);
                    route = self.next_route(route, slot, &error, connection, script).await?;
                }
            }
        }
        Err(StoreError::ErrorReply)
    }

    /// Announces until `length` after the local instant `local` that the quotas of `rules` are divided.
    pub(in crate::store::redis) async fn announce_quota_rules(
        &self,
        rules: &[RuleId],
        local: Micros,
        length: Micros,
    ) -> Result<(), StoreError> {
        if rules.is_empty() {
            return Ok(());
        }
        let (name, now) = (name_beside(&QUOTA_RULES_KEY, RULES), self.rules_now(local)?);
        let until = now.saturating_add(length);
        // All are sent at once, in their order.
        let commands = quota_rules::announcement(&name, rules, now, until);
        try_join_all(commands.into_iter().map(|words| self.command_of_rules(words))).await?;
        Ok(())
    }

    /// The rules whose quotas are divided at the local instant `local`.
    pub(in crate::store::redis) async fn quota_rules(
        &self,
        local: Micros,
    ) -> Result<Vec<RuleId>, StoreError> {
        let (name, now) = (name_beside(&QUOTA_RULES_KEY, RULES), self.rules_now(local)?);
        let reply = self.command_of_rules(quota_rules::query(&name, now)).await?;
        quota_rules::decode(&reply).map_err(|_| StoreError::InvalidReply)
    }

    async fn command_of_rules(&self, words: Vec<Vec<u8>>) -> Result<Reply, StoreError> {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let (slot, command) = (hash_slot(&QUOTA_RULES_KEY), PlainCommands::one(&words));
        self.plain(slot, &command, ReplyBound::USUAL).await
    }

    /// The instant on the clock of the node that has the announced rules.
    fn rules_now(&self, local: Micros) -> Result<Micros, StoreError> {
        let owner = self.topology().owner(hash_slot(&QUOTA_RULES_KEY)).cloned();
        owner.and_then(|node| node.now(local)).ok_or(StoreError::Unreachable)
    }
}
