//! The wire format of RLQS: weir's definitions against the independent crate `envoy-types`, field by
//! field, in both directions.

use envoy_types::pb::envoy::service::rate_limit_quota::v3 as theirs;
use envoy_types::pb::envoy::r#type::v3 as their_type;
use envoy_types::pb::google::protobuf as their_google;
use proptest::prelude::*;
use prost::Message;
use weir::proto as ours;

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z/:.]{1,12}", "\\PC{0,8}"]
}

fn any_bucket_id() -> impl Strategy<Value = Option<ours::BucketId>> {
    let bucket = prop::collection::btree_map(any_text(), any_text(), 0..4);
    prop::option::of(bucket.prop_map(|bucket| ours::BucketId { bucket }))
}

fn any_duration() -> impl Strategy<Value = Option<prost_types::Duration>> {
    let parts = (any::<i64>(), any::<i32>());
    prop::option::of(parts.prop_map(|(seconds, nanos)| prost_types::Duration { seconds, nanos }))
}

prop_compose! {
    fn any_usage()(
        bucket_id in any_bucket_id(),
        time_elapsed in any_duration(),
        num_requests_allowed in any::<u64>(),
        num_requests_denied in any::<u64>(),
    ) -> ours::BucketQuotaUsage {
        ours::BucketQuotaUsage {
            bucket_id,
            time_elapsed,
            num_requests_allowed,
            num_requests_denied,
        }
    }
}

prop_compose! {
    fn any_reports()(
        domain in any_text(),
        bucket_quota_usages in prop::collection::vec(any_usage(), 0..4),
    ) -> ours::RateLimitQuotaUsageReports {
        ours::RateLimitQuotaUsageReports { domain, bucket_quota_usages }
    }
}

fn any_strategy() -> impl Strategy<Value = ours::Strategy> {
    let rate = (any::<u64>(), any::<i32>()).prop_map(|(requests_per_time_unit, time_unit)| {
        ours::RequestsPerTimeUnit { requests_per_time_unit, time_unit }
    });
    let bucket = (any::<u32>(), prop::option::of(any::<u32>()), any_duration()).prop_map(
        |(max_tokens, tokens_per_fill, fill_interval)| ours::TokenBucket {
            max_tokens,
            tokens_per_fill,
            fill_interval,
        },
    );
    prop_oneof![
        any::<i32>().prop_map(ours::Strategy::BlanketRule),
        rate.prop_map(ours::Strategy::RequestsPerTimeUnit),
        bucket.prop_map(ours::Strategy::TokenBucket),
    ]
}

prop_compose! {
    fn any_assignment()(
        assignment_time_to_live in any_duration(),
        strategy in prop::option::of(prop::option::of(any_strategy())),
    ) -> ours::bucket_action::QuotaAssignmentAction {
        ours::bucket_action::QuotaAssignmentAction {
            assignment_time_to_live,
            rate_limit_strategy: strategy.map(|strategy| ours::RateLimitStrategy { strategy }),
        }
    }
}

fn any_action() -> impl Strategy<Value = ours::BucketAction> {
    use ours::bucket_action::{AbandonAction, BucketAction};
    let action = prop_oneof![
        3 => any_assignment().prop_map(BucketAction::QuotaAssignmentAction),
        1 => Just(BucketAction::AbandonAction(AbandonAction {})),
    ];
    (any_bucket_id(), prop::option::of(action))
        .prop_map(|(bucket_id, bucket_action)| ours::BucketAction { bucket_id, bucket_action })
}

prop_compose! {
    fn any_response()(
        bucket_action in prop::collection::vec(any_action(), 0..4),
    ) -> ours::RateLimitQuotaResponse {
        ours::RateLimitQuotaResponse { bucket_action }
    }
}

fn their_bucket_id(ours: ours::BucketId) -> theirs::BucketId {
    theirs::BucketId { bucket: ours.bucket.into_iter().collect() }
}

fn their_duration(ours: prost_types::Duration) -> their_google::Duration {
    their_google::Duration { seconds: ours.seconds, nanos: ours.nanos }
}

fn their_reports(ours: ours::RateLimitQuotaUsageReports) -> theirs::RateLimitQuotaUsageReports {
    let usage =
        |usage: ours::BucketQuotaUsage| theirs::rate_limit_quota_usage_reports::BucketQuotaUsage {
            bucket_id: usage.bucket_id.map(their_bucket_id),
            time_elapsed: usage.time_elapsed.map(their_duration),
            num_requests_allowed: usage.num_requests_allowed,
            num_requests_denied: usage.num_requests_denied,
        };
    theirs::RateLimitQuotaUsageReports {
        domain: ours.domain,
        bucket_quota_usages: ours.bucket_quota_usages.into_iter().map(usage).collect(),
    }
}

fn their_response(ours: ours::RateLimitQuotaResponse) -> theirs::RateLimitQuotaResponse {
    let bucket_action = ours.bucket_action.into_iter().map(their_action).collect();
    theirs::RateLimitQuotaResponse { bucket_action }
}

fn their_action(action: ours::BucketAction) -> theirs::rate_limit_quota_response::BucketAction {
    use ours::bucket_action::BucketAction as Ours;
    use theirs::rate_limit_quota_response::bucket_action::{
        AbandonAction, BucketAction, QuotaAssignmentAction,
    };
    let bucket_action = action.bucket_action.map(|action| match action {
        Ours::AbandonAction(_) => BucketAction::AbandonAction(AbandonAction {}),
        Ours::QuotaAssignmentAction(assignment) => {
            BucketAction::QuotaAssignmentAction(QuotaAssignmentAction {
                assignment_time_to_live: assignment.assignment_time_to_live.map(their_duration),
                rate_limit_strategy: assignment.rate_limit_strategy.map(their_strategy),
            })
        }
    });
    theirs::rate_limit_quota_response::BucketAction {
        bucket_id: action.bucket_id.map(their_bucket_id),
        bucket_action,
    }
}

fn their_strategy(ours: ours::RateLimitStrategy) -> their_type::RateLimitStrategy {
    use their_type::rate_limit_strategy::{RequestsPerTimeUnit, Strategy};
    let strategy = ours.strategy.map(|strategy| match strategy {
        ours::Strategy::BlanketRule(rule) => Strategy::BlanketRule(rule),
        ours::Strategy::RequestsPerTimeUnit(rate) => {
            Strategy::RequestsPerTimeUnit(RequestsPerTimeUnit {
                requests_per_time_unit: rate.requests_per_time_unit,
                time_unit: rate.time_unit,
            })
        }
        ours::Strategy::TokenBucket(bucket) => Strategy::TokenBucket(their_type::TokenBucket {
            max_tokens: bucket.max_tokens,
            tokens_per_fill: bucket
                .tokens_per_fill
                .map(|value| their_google::UInt32Value { value }),
            fill_interval: bucket.fill_interval.map(their_duration),
        }),
    });
    their_type::RateLimitStrategy { strategy }
}

proptest! {
    #[test]
    fn reports_equal_those_of_envoy_types(sent in any_reports()) {
        let translated = their_reports(sent.clone());
        let read = theirs::RateLimitQuotaUsageReports::decode(&*sent.encode_to_vec()).unwrap();
        prop_assert_eq!(&read, &translated);
        let back = ours::RateLimitQuotaUsageReports::decode(&*translated.encode_to_vec()).unwrap();
        prop_assert_eq!(back, sent);
    }

    #[test]
    fn quota_responses_equal_those_of_envoy_types(sent in any_response()) {
        let translated = their_response(sent.clone());
        let read = theirs::RateLimitQuotaResponse::decode(&*sent.encode_to_vec()).unwrap();
        prop_assert_eq!(&read, &translated);
        let back = ours::RateLimitQuotaResponse::decode(&*translated.encode_to_vec()).unwrap();
        prop_assert_eq!(back, sent);
    }
}

#[test]
fn blanket_rules_have_the_same_numbers() {
    use their_type::rate_limit_strategy::BlanketRule as Theirs;
    for number in 0..=2 {
        assert_eq!(
            ours::BlanketRule::try_from(number).ok().map(|rule| rule.as_str_name()),
            Theirs::try_from(number).ok().map(|rule| rule.as_str_name()),
        );
    }
}

/// The path of a method is made of the names of the service and of the method.
#[test]
fn the_quota_service_has_the_same_path() {
    let pool = prost_reflect::DescriptorPool::decode(ours::DESCRIPTORS).unwrap();
    type Theirs = theirs::rate_limit_quota_service_server::RateLimitQuotaServiceServer<()>;
    let service = pool.get_service_by_name(<Theirs as tonic::server::NamedService>::NAME).unwrap();
    let methods: Vec<_> = service.methods().collect();
    assert_eq!(methods.len(), 1);
    assert_eq!(methods[0].name(), "StreamRateLimitQuotas");
    assert!(methods[0].is_client_streaming() && methods[0].is_server_streaming());
}
