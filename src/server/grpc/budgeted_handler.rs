//! Decides one `ShouldRateLimit` message within the memory budget, for the fast path and tonic.

use std::pin::pin;
use std::sync::Arc;

use super::call_head::CallHead;
use super::memory::budget::MemoryBudget;
use super::memory::call::{CallMemory, weight_of};
use super::status::GrpcStatus;
use crate::descriptor::RequestBounds;
use crate::server::rls::handler::{Decide, RlsResponse, handle};

/// Decides the message of a call, on the fast path and on tonic's.
pub(in crate::server) struct BudgetedHandler<D> {
    pub(in crate::server) decider: Arc<D>,
    pub(in crate::server) bounds: RequestBounds,
    pub(in crate::server) budget: Arc<MemoryBudget>,
}

impl<D> Clone for BudgetedHandler<D> {
    fn clone(&self) -> BudgetedHandler<D> {
        BudgetedHandler {
            decider: Arc::clone(&self.decider),
            bounds: self.bounds,
            budget: Arc::clone(&self.budget),
        }
    }
}

impl<D: Decide> BudgetedHandler<D> {
    /// Decides `message` of the call with `head`. While the decision is pending, `memory` holds what
    /// it needs.
    pub(super) async fn handle(
        &self,
        head: &CallHead,
        message: &[u8],
        memory: &CallMemory<'_>,
    ) -> Result<RlsResponse, GrpcStatus> {
        let (timeout, trace) = (head.timeout(), head.trace());
        let must_decide = Some(memory.must_decide());
        let decision =
            pin!(handle(&*self.decider, &self.bounds, message, timeout, trace, must_decide));
        let weight = || weight_of(message) + head.bytes();
        Ok(memory.wait_for_decision(weight, decision).await??)
    }
}
