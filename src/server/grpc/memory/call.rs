//! The memory that one call holds while it waits for its client or for its decision.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use super::address::{AddressMemory, CallPart};
use super::budget::MemoryBudget;
use super::connection::ConnectionMemory;
use crate::proto::wire;
use crate::server::grpc::status::{GrpcCode, GrpcStatus};

/// Bytes of every call that waits: its task and its timer.
pub(in crate::server::grpc) const CALL_BYTES: usize = 6144;

/// Bytes of a descriptor while the store decides: the resolved rule, the step, its place in a batch
/// and the reply.
const DESCRIPTOR_BYTES: usize = 2048;

/// The number of the field `descriptors` of a `RateLimitRequest`.
const DESCRIPTORS_FIELD: u32 = 2;

/// The share of one call in the budget. It is empty until the call has to wait. Dropping it returns
/// what it holds.
pub(in crate::server::grpc) struct CallMemory<'m> {
    budget: &'m MemoryBudget,
    address: &'m Arc<AddressMemory>,
    connection: Option<&'m ConnectionMemory>,
    waiting: AtomicU64,
    deciding: AtomicU64,
    must_decide: AtomicBool,
}

impl<'m> CallMemory<'m> {
    /// The share of a call of `connection`.
    pub(in crate::server::grpc) fn of(connection: &'m ConnectionMemory) -> CallMemory<'m> {
        let mut call = CallMemory::of_address(connection.budget(), connection.calls_of_address());
        call.connection = Some(connection);
        call
    }

    /// The share of a call without a connection.
    #[cfg(any(test, feature = "fuzz"))]
    pub(in crate::server::grpc) fn alone(budget: &'m MemoryBudget) -> CallMemory<'m> {
        CallMemory::of_address(budget, budget.no_address())
    }

    /// The share of a part of a call of `address`.
    pub(in crate::server::grpc) fn of_address(
        budget: &'m MemoryBudget,
        address: &'m Arc<AddressMemory>,
    ) -> CallMemory<'m> {
        let [waiting, deciding] = [0, 0].map(AtomicU64::new);
        let must_decide = AtomicBool::new(false);
        CallMemory { budget, address, connection: None, waiting, deciding, must_decide }
    }

    /// What the calls of all connections of the address hold.
    pub(in crate::server::grpc) fn address(&self) -> &Arc<AddressMemory> {
        self.address
    }

    /// Becomes true when there is no room for a pending decision: it must then be made without the
    /// store, or the call is refused.
    pub(in crate::server::grpc) fn must_decide(&self) -> &AtomicBool {
        &self.must_decide
    }

    /// Holds `bytes` and the task of the call while it waits for its client. Fails if the budget has
    /// less left.
    pub(in crate::server::grpc) fn wait_for_client(&self, bytes: usize) -> Result<(), GrpcStatus> {
        if !self.set(CallPart::Waiting, (CALL_BYTES + bytes) as u64) {
            return Err(self.full());
        }
        self.set(CallPart::Deciding, 0);
        Ok(())
    }

    /// The output of `decision`. While it is pending, the call holds the bytes that `weigh` returns.
    /// If the budget has less left, the decision is polled once more with
    /// [`must_decide`](Self::must_decide) set. Fails if it is pending then.
    pub(in crate::server::grpc) async fn wait_for_decision<T>(
        &self,
        weigh: impl Fn() -> usize,
        mut decision: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, GrpcStatus> {
        let mut is_held = false;
        poll_fn(|context| {
            if let Poll::Ready(output) = decision.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            if !is_held {
                if !self.set(CallPart::Deciding, (CALL_BYTES + weigh()) as u64) {
                    self.must_decide.store(true, Ordering::Relaxed);
                    return match decision.as_mut().poll(context) {
                        Poll::Ready(output) => Poll::Ready(Ok(output)),
                        Poll::Pending => Poll::Ready(Err(self.full())),
                    };
                }
                self.set(CallPart::Waiting, 0);
                is_held = true;
            }
            Poll::Pending
        })
        .await
    }

    /// The status of a call that is refused.
    fn full(&self) -> GrpcStatus {
        self.budget.metrics().memory_full.add();
        let message = "the clients of this server hold too much memory (grpc.max_client_memory); \
                       retry";
        GrpcStatus::new(GrpcCode::ResourceExhausted, message)
    }

    /// Makes the share in `part` `bytes` large. Returns false, and changes nothing, if less is left.
    fn set(&self, part: CallPart, bytes: u64) -> bool {
        let share = match part {
            CallPart::Waiting => &self.waiting,
            CallPart::Deciding => &self.deciding,
        };
        let held = share.load(Ordering::Relaxed);
        if bytes > held && !self.take(part, bytes - held) {
            return false;
        }
        if bytes < held {
            self.give_back(part, held - bytes);
        }
        share.store(bytes, Ordering::Relaxed);
        true
    }

    fn take(&self, part: CallPart, bytes: u64) -> bool {
        match self.connection {
            Some(connection) if part == CallPart::Waiting => connection.take_waiting(bytes),
            _ => self.budget.take(part, bytes, self.address),
        }
    }

    fn give_back(&self, part: CallPart, bytes: u64) {
        match self.connection {
            Some(connection) if part == CallPart::Waiting => connection.give_back_waiting(bytes),
            _ => self.budget.give_back(part, bytes, self.address),
        }
    }
}

impl Drop for CallMemory<'_> {
    fn drop(&mut self) {
        self.set(CallPart::Waiting, 0);
        self.set(CallPart::Deciding, 0);
    }
}

/// Bytes that a `RateLimitRequest` takes while it is decided, as far as `message` is valid.
pub(in crate::server::grpc) fn weight_of(message: &[u8]) -> usize {
    let (mut rest, mut descriptors) = (message, 0);
    while let Ok(Some((number, _))) = wire::next(&mut rest) {
        descriptors += usize::from(number == DESCRIPTORS_FIELD);
    }
    message.len() + descriptors * DESCRIPTOR_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::future::{pending, ready};
    use std::pin::pin;
    use std::sync::Arc;

    use futures_util::FutureExt;
    use prost::Message;

    use crate::proto::{RateLimitDescriptor, RateLimitRequest};
    use crate::server::metrics::{ClientMemory, PartMemory, ServerMetrics};

    const MAX: usize = 64 << 10;

    fn budget() -> (MemoryBudget, Arc<ServerMetrics>) {
        let metrics = Arc::<ServerMetrics>::default();
        (MemoryBudget::new(8 * MAX, metrics.clone()), metrics)
    }

    fn held(part: &PartMemory) -> usize {
        usize::try_from(part.held.get()).unwrap()
    }

    #[test]
    fn a_waiting_call_holds_what_it_has_now() {
        let (budget, metrics) = budget();
        let call = CallMemory::alone(&budget);
        let waiting = || held(&metrics.client_memory.waiting);
        assert_eq!(waiting(), 0, "a call that has not waited");
        call.wait_for_client(100).unwrap();
        assert_eq!(waiting(), CALL_BYTES + 100);
        call.wait_for_client(2000).unwrap();
        assert_eq!(waiting(), CALL_BYTES + 2000);
        call.wait_for_client(0).unwrap();
        assert_eq!(waiting(), CALL_BYTES);
        let other = CallMemory::alone(&budget);
        let full = other.wait_for_client(MAX - CALL_BYTES).unwrap_err();
        assert_eq!(full.code, GrpcCode::ResourceExhausted);
        assert_eq!((waiting(), metrics.memory_full.get()), (CALL_BYTES, 1));
        drop((call, other));
        assert_eq!(waiting(), 0);
    }

    #[test]
    fn a_decision_holds_its_weight_while_pending() {
        let (budget, metrics) = budget();
        let parts = || {
            let ClientMemory { waiting, deciding, .. } = &metrics.client_memory;
            (held(waiting), held(deciding))
        };
        let call = CallMemory::alone(&budget);
        let mut made = pin!(ready(7));
        let made = call.wait_for_decision(|| panic!("it is not pending"), made.as_mut());
        assert_eq!(made.now_or_never().unwrap().unwrap(), 7);
        call.wait_for_client(10).unwrap();
        let mut never = pin!(pending::<()>());
        let mut undecided = Box::pin(call.wait_for_decision(|| 20, never.as_mut()));
        for _ in 0..2 {
            assert!(undecided.as_mut().now_or_never().is_none());
            assert_eq!(parts(), (0, CALL_BYTES + 20));
        }
        drop(undecided);
        call.wait_for_client(30).unwrap();
        assert_eq!(parts(), (CALL_BYTES + 30, 0), "the response waits for its client");
        drop(call);
        assert_eq!(parts(), (0, 0));
        let large = CallMemory::alone(&budget);
        let mut never = pin!(pending::<()>());
        let refused = large.wait_for_decision(|| MAX, never.as_mut());
        assert!(refused.now_or_never().unwrap().is_err());
        assert_eq!((parts(), metrics.memory_full.get()), ((0, 0), 1));
    }

    #[test]
    fn a_decision_without_room_is_made_at_once() {
        let (budget, metrics) = budget();
        let call = CallMemory::alone(&budget);
        let mut decision = pin!(poll_fn(|_| match call.must_decide().load(Ordering::Relaxed) {
            true => Poll::Ready(7),
            false => Poll::Pending,
        }));
        let made = call.wait_for_decision(|| MAX, decision.as_mut());
        assert_eq!(made.now_or_never().unwrap().unwrap(), 7);
        assert_eq!(metrics.memory_full.get(), 0, "the call is not refused");
        assert_eq!(held(&metrics.client_memory.deciding), 0);
    }

    #[test]
    fn the_weight_counts_descriptors() {
        for descriptors in [0, 1, 256] {
            let request = RateLimitRequest {
                domain: "d".into(),
                descriptors: vec![RateLimitDescriptor::default(); descriptors],
                hits_addend: 1,
            };
            let message = request.encode_to_vec();
            assert_eq!(weight_of(&message), message.len() + descriptors * DESCRIPTOR_BYTES);
        }
        assert_eq!(weight_of(&[0xff]), 1, "an invalid message");
    }
}
