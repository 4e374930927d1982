//! Tests of encoded actions.

use prost::Message;

use super::*;
use crate::proto::bucket_action::BucketAction as Action;
use crate::proto::{BlanketRule, RateLimitQuotaResponse, Strategy};
use crate::rlqs::bucket_id;

/// The action that a client reads.
fn decoded(action: QuotaAction) -> Action {
    let id = bucket_id::encoded(&[crate::descriptor::Entry { key: "k", value: "v" }]);
    let mut message = Vec::new();
    for _ in 0..2 {
        action.encode(&mut message, id.as_deref().expect("a short id"), 12);
    }
    let response = RateLimitQuotaResponse::decode(&*message).expect("a valid message");
    let [one, two] = &response.bucket_action[..] else { panic!("{response:?}") };
    assert_eq!(one, two);
    let bucket = one.bucket_id.clone().expect("an id").bucket;
    assert_eq!(bucket.into_iter().collect::<Vec<_>>(), [("k".to_owned(), "v".to_owned())]);
    one.bucket_action.expect("an action")
}

fn strategy_of(assignment: Assignment, generation: u32) -> Strategy {
    let action = QuotaAction::Assign { assignment, generation };
    let Action::QuotaAssignmentAction(assign) = decoded(action) else { panic!("{assignment:?}") };
    let ttl = assign.assignment_time_to_live.expect("a time to live");
    assert_eq!((ttl.seconds, ttl.nanos), (12, 0));
    assign.rate_limit_strategy.expect("a strategy").strategy.expect("one of them")
}

#[test]
fn actions_are_read_by_prost() {
    assert!(matches!(decoded(QuotaAction::Abandon), Action::AbandonAction(_)));
    for (assignment, rule) in
        [(Assignment::AllowAll, BlanketRule::AllowAll), (Assignment::DenyAll, BlanketRule::DenyAll)]
    {
        assert_eq!(strategy_of(assignment, 3), Strategy::BlanketRule(rule.into()));
    }
    for (max_tokens, tokens_per_fill, fill_seconds) in [(1, 1, 1), (u32::MAX, 7, u32::MAX)] {
        let assignment = Assignment::Bucket { max_tokens, tokens_per_fill, fill_seconds };
        let Strategy::TokenBucket(bucket) = strategy_of(assignment, 999_999_999) else {
            panic!("{assignment:?}")
        };
        assert_eq!(bucket.max_tokens, max_tokens);
        assert_eq!(bucket.tokens_per_fill, Some(tokens_per_fill));
        let interval = bucket.fill_interval.expect("an interval");
        assert_eq!((interval.seconds, interval.nanos), (i64::from(fill_seconds), 999_999_999));
    }
}
