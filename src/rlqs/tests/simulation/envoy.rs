//! An Envoy with a stream: it reports every five seconds, and applies what it is sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tokio::time::{MissedTickBehavior, interval_at, sleep};

use super::world::World;
use super::{Fault, SimInstant, address};
use crate::proto::bucket_action::BucketAction as WireAction;
use crate::proto::{
    BlanketRule, BucketId, BucketQuotaUsage, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
    Strategy,
};
use crate::quota::{Assignment, DueAssignment, HolderId};
use crate::rlqs::EnvoyStream;
use crate::testing::lock;
use crate::time::Micros;

/// Envoy's report interval.
const REPORT_PERIOD: Duration = Duration::from_secs(5);

/// The longest way of a message, in milliseconds.
const SLOWEST: u64 = 50;

/// Runs an Envoy from its first request on: its streams, one after another.
pub(super) async fn run(world: Arc<World>, envoy: usize, first: SimInstant) {
    let mut ticks = interval_at(first, REPORT_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let found = world.instance_of(envoy);
        let process = found.and_then(|instance| world.instances[instance].process());
        let (Some(instance), Some(process)) = (found, process) else {
            // What a report without a stream says is lost.
            world.usages(envoy);
            continue;
        };
        let mut ended = world.instances[instance].ended();
        ended.mark_unchanged();
        let host = u8::try_from(envoy + 1).unwrap_or(u8::MAX);
        let stream = process.engine.open(address(host), None);
        drop(process);
        let Ok(mut stream) = stream else { continue };
        let mut sender = Sender::default();
        report(&world, envoy, &mut stream).await;
        loop {
            tokio::select! {
                biased;
                _ = ended.changed() => break,
                () = world.stream_ends(envoy) => break,
                _ = ticks.tick() => report(&world, envoy, &mut stream).await,
                message = stream.next() => sender.send(&world, envoy, instance, &message),
            }
        }
        drop(stream);
        world.lost_stream(envoy);
    }
}

/// Sends a report of all buckets.
async fn report(world: &Arc<World>, envoy: usize, stream: &mut EnvoyStream) {
    let usages = world.usages(envoy);
    sleep(world.way(SLOWEST)).await;
    let usage = |(value, allowed, denied, elapsed): (String, u64, u64, u64)| BucketQuotaUsage {
        bucket_id: Some(BucketId { bucket: BTreeMap::from([("tenant".to_owned(), value)]) }),
        time_elapsed: Some(prost_types::Duration { seconds: elapsed as i64, nanos: 0 }),
        num_requests_allowed: allowed,
        num_requests_denied: denied,
    };
    let bucket_quota_usages = usages.into_iter().map(usage).collect();
    let reports = RateLimitQuotaUsageReports { domain: "d".to_owned(), bucket_quota_usages };
    stream.report(&reports.encode_to_vec()).expect("a valid report");
}

/// Messages of one stream keep their order.
#[derive(Default)]
struct Sender {
    arrives: Option<SimInstant>,
}

impl Sender {
    fn send(&mut self, world: &Arc<World>, envoy: usize, instance: usize, message: &[u8]) {
        let response = RateLimitQuotaResponse::decode(message).expect("a valid message");
        let arrives = SimInstant::now() + world.way(SLOWEST);
        let arrives = self.arrives.map_or(arrives, |last| last.max(arrives));
        self.arrives = Some(arrives);
        let world = world.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(arrives).await;
            for action in response.bucket_action {
                let id = action.bucket_id.expect("an id").bucket;
                let value = id["tenant"].clone();
                match action.bucket_action.expect("an action") {
                    WireAction::QuotaAssignmentAction(_)
                        if world.fault == Some(Fault::NoShares) => {}
                    WireAction::QuotaAssignmentAction(_) if world.has_fault_full() => {
                        world.assign_everything(envoy, instance, &value);
                    }
                    WireAction::QuotaAssignmentAction(assign) => {
                        let ttl = assign.assignment_time_to_live.expect("a time").seconds;
                        let strategy = assign.rate_limit_strategy.expect("one");
                        let (assignment, generation) = read(strategy.strategy.expect("a kind"));
                        let ttl = Micros::from_secs(ttl.unsigned_abs());
                        let holder = HolderId([0, 0]);
                        // A response does not name it.
                        let target = 0;
                        let due = DueAssignment { holder, assignment, generation, ttl, target };
                        World::assign(&world, envoy, instance, &value, due);
                    }
                    WireAction::AbandonAction(_) => {
                        lock(&world.state).abandon(envoy, &value, world.now());
                    }
                }
            }
        });
    }
}

/// An assignment and its generation.
fn read(strategy: Strategy) -> (Assignment, u32) {
    match strategy {
        Strategy::BlanketRule(rule) if rule == i32::from(BlanketRule::AllowAll) => {
            (Assignment::AllowAll, u32::MAX)
        }
        Strategy::BlanketRule(_) => (Assignment::DenyAll, u32::MAX - 1),
        Strategy::TokenBucket(bucket) => {
            let interval = bucket.fill_interval.expect("an interval");
            let number = |number: u64| u32::try_from(number).expect("a small number");
            let assignment = Assignment::Bucket {
                max_tokens: bucket.max_tokens,
                tokens_per_fill: bucket.tokens_per_fill.expect("tokens"),
                fill_seconds: number(interval.seconds.unsigned_abs()),
            };
            (assignment, number(u64::from(interval.nanos.unsigned_abs())))
        }
        Strategy::RequestsPerTimeUnit(_) => panic!("Envoy ignores it"),
    }
}
