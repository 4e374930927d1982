//! The actions of a `RateLimitQuotaResponse`, and their encoded form.

use super::bucket_id::{put_bytes, put_number};
use crate::quota::Assignment;

/// What an Envoy does with a bucket from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuotaAction {
    /// It uses an assignment until its time to live ends.
    Assign {
        /// The assignment.
        assignment: Assignment,
        /// A number in 1..=999 999 999 that differs from that of the bucket's assignment before,
        /// unless the two are equal. Envoy compares it as the nanoseconds of `fill_interval`, because
        /// it ignores a change of the whole seconds alone.
        generation: u32,
    },
    /// It deletes the bucket.
    Abandon,
}

impl QuotaAction {
    /// Any request passes.
    pub(super) const ALLOW_ALL: QuotaAction =
        QuotaAction::Assign { assignment: Assignment::AllowAll, generation: 1 };

    /// Appends the action for the bucket with the encoded id `id` to an encoded
    /// `RateLimitQuotaResponse`. Assignments expire after `ttl_seconds`.
    pub(super) fn encode(self, out: &mut Vec<u8>, id: &[u8], ttl_seconds: u64) {
        let mut action = Vec::with_capacity(id.len() + 64);
        put_bytes(&mut action, 1, id);
        match self {
            QuotaAction::Assign { assignment, generation } => {
                let mut assign = Vec::with_capacity(48);
                put_duration(&mut assign, 2, ttl_seconds, 0);
                put_bytes(&mut assign, 3, &strategy(assignment, generation));
                put_bytes(&mut action, 2, &assign);
            }
            QuotaAction::Abandon => put_bytes(&mut action, 3, &[]),
        }
        put_bytes(out, 1, &action);
    }
}

/// An encoded `RateLimitStrategy`.
fn strategy(assignment: Assignment, generation: u32) -> Vec<u8> {
    let mut strategy = Vec::with_capacity(40);
    match assignment {
        // A field of a oneof is present also with the default value.
        Assignment::AllowAll => put_number(&mut strategy, 1, 0),
        Assignment::DenyAll => put_number(&mut strategy, 1, 1),
        Assignment::Bucket { max_tokens, tokens_per_fill, fill_seconds } => {
            let mut bucket = Vec::with_capacity(32);
            put_number(&mut bucket, 1, u64::from(max_tokens));
            let mut wrapped = Vec::with_capacity(6);
            put_number(&mut wrapped, 1, u64::from(tokens_per_fill));
            put_bytes(&mut bucket, 2, &wrapped);
            put_duration(&mut bucket, 3, u64::from(fill_seconds), generation);
            put_bytes(&mut strategy, 3, &bucket);
        }
    }
    strategy
}

fn put_duration(out: &mut Vec<u8>, field: u32, seconds: u64, nanos: u32) {
    let mut duration = Vec::with_capacity(16);
    put_number(&mut duration, 1, seconds);
    if nanos > 0 {
        put_number(&mut duration, 2, u64::from(nanos));
    }
    put_bytes(out, field, &duration);
}

#[cfg(test)]
mod tests;
