//! The settlements that wait for the shared ledger.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use super::engine::QuotaEngine;
use super::settling::LedgerCall;
use crate::key::CounterKey;
use crate::quota::LedgerSnapshot;
use crate::store_error::StoreError;
use crate::time::Micros;

/// No further settlement is sent while this many wait, of quotas with few holders. Redis takes about 41 us for one,
/// so it is busy with all of them for less than a millisecond. Calls for requests wait behind them, of all
/// instances, and so do later settlements: `store.timeout` is 10 ms by default, and timeouts open the breaker.
/// The quotas that are taken together may exceed it a little.
const WEIGHT_MAX: usize = 16;

/// Holders whose settlement takes as long as that of a quota without any. With 100 holders, Redis takes 215 us.
const HOLDERS_OF_WEIGHT: usize = 25;

/// Settlements that were sent, and have no reply yet.
pub(super) struct LedgerCalls {
    engine: Arc<QuotaEngine>,
    replies: FuturesUnordered<BoxFuture<'static, LedgerReply>>,
    weight: usize,
}

/// The result of one settlement.
pub(super) struct LedgerReply {
    key: CounterKey,
    /// The group's instant at which it was sent.
    sent_at: Micros,
    weight: usize,
    result: Result<LedgerSnapshot, StoreError>,
}

impl LedgerCalls {
    pub(super) fn new(engine: Arc<QuotaEngine>) -> LedgerCalls {
        LedgerCalls { engine, replies: FuturesUnordered::new(), weight: 0 }
    }

    /// Whether further settlements may be sent.
    pub(super) fn has_room(&self) -> bool {
        self.weight < WEIGHT_MAX
    }

    /// Sends one settlement.
    pub(super) fn send(&mut self, call: LedgerCall) {
        let LedgerCall { key, call, holders } = call;
        let weight = 1 + holders / HOLDERS_OF_WEIGHT;
        self.weight += weight;
        let engine = self.engine.clone();
        self.replies.push(Box::pin(async move {
            let result = match &engine.ledger {
                Some(ledger) => ledger.settle(&key, &call.settlement).await,
                None => Err(StoreError::Unreachable),
            };
            LedgerReply { key, sent_at: call.sent_at, weight, result }
        }));
    }

    /// Waits for a reply. None: no settlement waits. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<LedgerReply> {
        self.replies.next().await
    }

    /// Gives the reply to its quota.
    pub(super) fn finish(&mut self, reply: LedgerReply) {
        let LedgerReply { key, sent_at, weight, result } = reply;
        self.weight -= weight;
        self.engine.finish_call(&key, sent_at, result, self.engine.clock.now());
    }
}
