//! Discovery of the nodes: refreshes the topology, connects to each node, loads the functions or the
//! scripts, and measures the node's clock.
//!
//! Discovery runs on a separate thread. No call waits for it; calls use the topology that it
//! published.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::config::{HostPort, RedisConfig, Servers, Target, address_text};
use super::connection::RedisConnection;
use super::error::ConnectionError;
use super::function_use::CallForm;
use super::node::RedisNode;
use super::reply::{Reply, ReplyBound};
use super::router::Router;
use super::rtt_samples::{RttSample, RttSamples};
use super::script::Script;
use super::session::RedisSession;
use super::topology::{self, HashSlotRange, Topology};
use crate::outage_log::OutageLog;
use crate::time::Micros;

/// Interval of topology refreshes while all nodes are up. A call that is redirected because a hash
/// slot moved follows the redirect and triggers a refresh at once.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// Interval while a node is down. A cluster's failover takes a second or two.
const REFRESH_INTERVAL_DOWN: Duration = Duration::from_millis(200);

/// Shortest pause between two refreshes, however many calls request one.
const REFRESH_PAUSE: Duration = Duration::from_millis(5);

/// Timeout of each command.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Interval of clock measurements. Typical clocks drift by microseconds in that time.
const CLOCK_INTERVAL: Duration = Duration::from_secs(2);

/// Interval of attempts to use functions on a node that lacks them. Its user may get the rights.
const FUNCTIONS_INTERVAL: Duration = Duration::from_secs(60);

/// Clock measurements right after connecting. The one with the fastest round trip is used.
const FIRST_SAMPLES: usize = 3;

/// Consecutive topologies that may lack a node before its connections are closed.
const MISSING_MAX: u32 = 5;

/// The most errors that one log line names.
const ERRORS_SHOWN: usize = 8;

/// A node that discovery is connected to.
struct KnownNode {
    node: Arc<RedisNode>,
    connection: Arc<RedisConnection>,
    /// Consecutive topologies that did not name the node.
    missing: u32,
}

/// Known nodes by host and port.
type KnownNodes = HashMap<HostPort, KnownNode>;

/// The command that returns the owners of the hash slots.
static CLUSTER_SLOTS: [&[u8]; 2] = [b"CLUSTER", b"SLOTS"];

/// The most nodes at a time, so that no server can make weir open any number of connections. A
/// Cluster has at most 1000 (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>).
const NODES_MAX: usize = 1024;

/// Keeps `router` up to date until the store is dropped.
pub(super) async fn run(router: Arc<Router>, config: RedisConfig) {
    match &config.servers {
        Servers::Cluster(seeds) => run_cluster(&router, &config, seeds).await,
        Servers::Node(target) => {
            let node = router.new_node(config.address(), config.node(target.clone()));
            let Some(node) = node else { return };
            let connection = node.connect_shared();
            router.set_topology(Topology::single(node.clone()));
            supervise_node(&router, &node, &connection).await;
        }
    }
}

async fn run_cluster(router: &Arc<Router>, config: &RedisConfig, seeds: &[HostPort]) {
    let mut known = KnownNodes::new();
    let mut log = OutageLog::default();
    let mut round = 0;
    loop {
        round += 1;
        let began = router.now();
        match query_slots(config, &known, seeds, round).await {
            Ok(ranges) => {
                if log.up() {
                    tracing::info!(node = %config.address(), "reconnected to Redis");
                }
                refresh(router, config, &mut known, &ranges);
            }
            Err(error) => {
                if log.down(&error.to_string(), began) {
                    tracing::warn!(node = %config.address(), %error, "no connection to Redis");
                }
            }
        }
        let all_up = !known.is_empty() && known.values().all(|known| known.connection.is_up());
        let interval = if all_up { REFRESH_INTERVAL } else { REFRESH_INTERVAL_DOWN };
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = router.refresh_requested() => {}
        }
        let since = Duration::from_micros(router.now().saturating_sub(began).0);
        tokio::time::sleep(REFRESH_PAUSE.saturating_sub(since)).await;
    }
}

/// Sends `CLUSTER SLOTS` to one node after the other until one replies, starting with another node
/// each round so that no node's stale view stays. Seeds are queried when no known node replies.
///
/// # Errors
/// The error of every node and seed.
async fn query_slots(
    config: &RedisConfig,
    known: &KnownNodes,
    seeds: &[HostPort],
    round: usize,
) -> Result<Vec<HashSlotRange>, ConnectionError> {
    let mut errors = Vec::new();
    let up: Vec<_> = known.iter().filter(|(_, known)| known.connection.is_up()).collect();
    for index in 0..up.len() {
        let (address, known) = up[(round + index) % up.len()];
        let query = known.connection.command(&CLUSTER_SLOTS, ReplyBound::TOPOLOGY);
        let reply = async { query.await.map_err(ConnectionError::from) };
        match read_ranges(address, reply).await {
            Ok(ranges) => return Ok(ranges),
            Err(error) => errors.push(error.at(&address_text(address)).to_string()),
        }
    }
    for seed in seeds {
        let reply = async {
            let mut session = RedisSession::open(seed, &config.access).await?;
            session.request_within(&CLUSTER_SLOTS, ReplyBound::TOPOLOGY).await
        };
        match read_ranges(seed, reply).await {
            Ok(ranges) => return Ok(ranges),
            Err(error) => errors.push(error.at(&address_text(seed)).to_string()),
        }
    }
    errors.truncate(ERRORS_SHOWN);
    Err(ConnectionError::new(errors.join("; ")))
}

/// The owners of the hash slots in the reply from the node at `address`.
async fn read_ranges(
    address: &HostPort,
    reply: impl Future<Output = Result<Reply, ConnectionError>>,
) -> Result<Vec<HashSlotRange>, ConnectionError> {
    let reply = tokio::time::timeout(TIMEOUT, reply).await;
    let late = || ConnectionError::new(format!("no answer within {} s", TIMEOUT.as_secs()));
    let reply = reply.unwrap_or_else(|_| Err(late()))?;
    topology::hash_slot_ranges(&reply, &address.0)
        .ok_or_else(|| ConnectionError::new("CLUSTER SLOTS names no owner of a hash slot"))
}

/// Publishes a new topology: connects to new nodes, and closes those that have left.
fn refresh(
    router: &Arc<Router>,
    config: &RedisConfig,
    known: &mut KnownNodes,
    ranges: &[HashSlotRange],
) {
    for one in known.values_mut() {
        one.missing += 1;
    }
    let redirected = router.take_redirect_targets();
    let mut ignored = 0;
    for address in ranges.iter().map(|range| &range.address).chain(&redirected) {
        if let Some(one) = known.get_mut(address) {
            one.missing = 0;
            continue;
        }
        let new_node =
            || router.new_node(address_text(address), config.node(Target::Tcp(address.clone())));
        let has_room = known.len() + ignored < NODES_MAX;
        let Some(node) = has_room.then(new_node).flatten() else {
            ignored += 1;
            continue;
        };
        let connection = node.connect_shared();
        tracing::info!(node = %node.address(), "Redis node joined the cluster");
        let supervised = (router.clone(), node.clone(), connection.clone());
        tokio::spawn(async move {
            supervise_node(&supervised.0, &supervised.1, &supervised.2).await;
        });
        known.insert(address.clone(), KnownNode { node, connection, missing: 0 });
    }
    if ignored > 0 && router.may_log_error_reply() {
        tracing::warn!(ignored, "Redis names too many nodes: some of them are ignored");
    }
    let owned: Vec<HashSlotRange> =
        ranges.iter().filter(|range| known.contains_key(&range.address)).cloned().collect();
    let topology = Topology::cluster(&owned, |address| known[address].node.clone())
        .with(known.values().map(|one| one.node.clone()));
    router.set_topology(topology);
    known.retain(|_, one| {
        let stays = one.missing <= MISSING_MAX;
        if !stays {
            tracing::info!(node = %one.node.address(), "Redis node left the cluster");
            one.node.close();
        }
        stays
    });
}

/// Loads the functions, or the scripts where there are none, and measures the clock; again after
/// every reconnection.
async fn supervise_node(router: &Router, node: &RedisNode, connection: &RedisConnection) {
    while connection.up().await.is_some() {
        // A call whose function or script is missing loads it. Here it is loaded before the first
        // call, which needs the node's clock. A node may have lost its functions while the connection
        // was down.
        load_functions(node, connection).await;
        let mut samples = RttSamples::default();
        for _ in 0..FIRST_SAMPLES {
            measure_clock(router, node, connection, &mut samples).await;
        }
        if node.functions().form() == CallForm::Script {
            for script in Script::ALL {
                let loaded = tokio::time::timeout(TIMEOUT, connection.load(script)).await;
                if let Ok(Err(error)) = loaded {
                    router.log_and_classify(node, &error);
                }
            }
        }
        router.request_refresh();
        let mut asked = router.now();
        loop {
            tokio::select! {
                () = connection.down() => {
                    // A call may have requested a refresh while this connection still seemed up.
                    router.request_refresh();
                    break;
                }
                () = tokio::time::sleep(CLOCK_INTERVAL) => {
                    measure_clock(router, node, connection, &mut samples).await;
                    let since = Duration::from_micros(router.now().saturating_sub(asked).0);
                    let uses_scripts = node.functions().form() == CallForm::Script;
                    // A node that was loading, for example, has not refused them.
                    let is_due = !node.functions().is_refused() || since >= FUNCTIONS_INTERVAL;
                    if uses_scripts && is_due {
                        asked = router.now();
                        load_functions(node, connection).await;
                    }
                }
            }
        }
    }
}

/// Loads the functions on a node, if the settings allow it.
async fn load_functions(node: &RedisNode, connection: &RedisConnection) {
    if node.functions().is_allowed() {
        // Without a reply, calls use what they used before.
        let _ = tokio::time::timeout(TIMEOUT, connection.load_functions()).await;
    }
}

async fn measure_clock(
    router: &Router,
    node: &RedisNode,
    connection: &RedisConnection,
    samples: &mut RttSamples,
) {
    let sent = router.now();
    let words: [&[u8]; 1] = [b"TIME"];
    let query = connection.command(&words, ReplyBound::USUAL);
    let reply = match tokio::time::timeout(TIMEOUT, query).await {
        Ok(Ok(reply)) => reply,
        Ok(Err(error)) => {
            // Without the node's clock nothing can be counted there, so the cause must be known.
            router.log_and_classify(node, &error);
            return;
        }
        Err(_) => return,
    };
    let received = router.now();
    if let Some(node_time) = parse_time(&reply) {
        node.set_offset(samples.add(RttSample { sent, received, node: node_time }));
    }
}

/// Parses the reply of `TIME`: seconds and microseconds as strings.
pub(super) fn parse_time(reply: &Reply) -> Option<Micros> {
    let Reply::Array(parts) = reply else { return None };
    let [seconds, micros] = parts.as_slice() else { return None };
    let micros = micros.number().filter(|micros| *micros < 1_000_000)?;
    Some(Micros::from_secs(seconds.number()?).saturating_add(Micros(micros)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_parsed_to_the_microsecond() {
        let text = |text: &'static str| Reply::Text(text.as_bytes().into());
        let reply = |a, b| Reply::Array(vec![text(a), text(b)]);
        assert_eq!(parse_time(&reply("1700000000", "42")), Some(Micros(1_700_000_000_000_042)));
        assert_eq!(parse_time(&reply("1", "1000000")), None);
        assert_eq!(parse_time(&reply("x", "1")), None);
        assert_eq!(parse_time(&Reply::Nil), None);
    }
}
