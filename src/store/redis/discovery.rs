//! Discovery of the nodes: refreshes the topology, connects to each node, loads the scripts and
//! measures the node's clock.
//!
//! Discovery runs on a separate thread. No call waits for it; calls use the topology that it
//! published.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fred::interfaces::ClientLike;
use fred::types::config::{Config, Server, ServerConfig};
use fred::types::{ClusterHash, CustomCommand, Value};

use super::clock_offset::{RttSample, RttSamples};
use super::connection::{self, Connection};
use super::node::RedisNode;
use super::router::Router;
use super::script::Script;
use super::topology::{self, HashSlotRange, Topology};
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

/// Clock measurements right after connecting. The one with the fastest round trip is used.
const FIRST_SAMPLES: usize = 3;

/// Consecutive topologies that may lack a node before its connections are closed.
const MISSING_MAX: u32 = 5;

/// A node that discovery is connected to.
struct KnownNode {
    node: Arc<RedisNode>,
    connection: Arc<Connection>,
    /// Consecutive topologies that did not name the node.
    missing: u32,
}

/// Known nodes by host and port.
type KnownNodes = HashMap<(String, u16), KnownNode>;

/// Keeps `router` up to date until the store is dropped.
pub(super) async fn run(router: Arc<Router>, config: Config) {
    match &config.server {
        ServerConfig::Clustered { hosts, .. } => {
            let seeds = hosts.clone();
            run_cluster(&router, &config, &seeds).await;
        }
        _ => {
            let node = router.new_node(label(&config.server), config);
            let Some(connection) = node.connect_shared() else { return };
            router.set_topology(Topology::single(node.clone()));
            supervise_node(&router, &node, &connection).await;
        }
    }
}

/// The address of a server, for logs and metrics.
fn label(server: &ServerConfig) -> String {
    match server {
        ServerConfig::Centralized { server } => format!("{}:{}", server.host, server.port),
        ServerConfig::Unix { path } => path.display().to_string(),
        ServerConfig::Sentinel { service_name, .. } => format!("primary of {service_name}"),
        ServerConfig::Clustered { .. } => "cluster".to_owned(),
    }
}

async fn run_cluster(router: &Arc<Router>, config: &Config, seeds: &[Server]) {
    let mut known = KnownNodes::new();
    let mut round = 0;
    loop {
        round += 1;
        let began = router.now();
        if let Some(ranges) = query_slots(config, &known, seeds, round).await {
            refresh(router, config, &mut known, &ranges);
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
async fn query_slots(
    config: &Config,
    known: &KnownNodes,
    seeds: &[Server],
    round: usize,
) -> Option<Vec<HashSlotRange>> {
    let up: Vec<_> = known.iter().filter(|(_, known)| known.connection.is_up()).collect();
    for index in 0..up.len() {
        let ((host, _), known) = up[(round + index) % up.len()];
        let query = known.connection.command("CLUSTER", vec!["SLOTS".into()]);
        if let Ok(Ok(reply)) = tokio::time::timeout(TIMEOUT, query).await
            && let Some(ranges) = topology::hash_slot_ranges(&reply, host)
        {
            return Some(ranges);
        }
    }
    for seed in seeds {
        let query = query_seed(config, seed);
        if let Ok(Some(reply)) = tokio::time::timeout(TIMEOUT, query).await
            && let Some(ranges) = topology::hash_slot_ranges(&reply, &seed.host)
        {
            return Some(ranges);
        }
    }
    None
}

async fn query_seed(config: &Config, seed: &Server) -> Option<Value> {
    let client = connection::client(config_for(config, &seed.host, seed.port))?;
    let driver = client.connect();
    client.wait_for_connect().await.ok()?;
    let command = CustomCommand::new_static("CLUSTER", ClusterHash::FirstKey, false);
    let reply = client.custom(command, vec!["SLOTS"]).await;
    driver.abort();
    reply.ok()
}

/// `config` for one node.
fn config_for(config: &Config, host: &str, port: u16) -> Config {
    let server = ServerConfig::Centralized { server: Server::new(host, port) };
    Config { server, ..config.clone() }
}

/// Publishes a new topology: connects to new nodes, and closes those that have left.
fn refresh(
    router: &Arc<Router>,
    config: &Config,
    known: &mut KnownNodes,
    ranges: &[HashSlotRange],
) {
    for one in known.values_mut() {
        one.missing += 1;
    }
    let redirected = router.take_redirect_targets();
    for address in ranges.iter().map(|range| &range.address).chain(&redirected) {
        if let Some(one) = known.get_mut(address) {
            one.missing = 0;
            continue;
        }
        let (host, port) = address;
        let node = router.new_node(format!("{host}:{port}"), config_for(config, host, *port));
        let Some(connection) = node.connect_shared() else { continue };
        tracing::info!(node = %node.label(), "Redis node joined the cluster");
        let supervised = (router.clone(), node.clone(), connection.clone());
        tokio::spawn(async move {
            supervise_node(&supervised.0, &supervised.1, &supervised.2).await;
        });
        known.insert(address.clone(), KnownNode { node, connection, missing: 0 });
    }
    let owned: Vec<HashSlotRange> =
        ranges.iter().filter(|range| known.contains_key(&range.address)).cloned().collect();
    let topology = Topology::cluster(&owned, |address| known[address].node.clone())
        .with(known.values().map(|one| one.node.clone()));
    router.set_topology(topology);
    known.retain(|_, one| {
        let stays = one.missing <= MISSING_MAX;
        if !stays {
            tracing::info!(node = %one.node.label(), "Redis node left the cluster");
            one.node.close();
        }
        stays
    });
}

/// Loads the scripts and measures the clock, again after every reconnection.
async fn supervise_node(router: &Router, node: &RedisNode, connection: &Connection) {
    while connection.up().await.is_some() {
        let mut samples = RttSamples::default();
        for _ in 0..FIRST_SAMPLES {
            measure_clock(router, node, connection, &mut samples).await;
        }
        for script in Script::ALL {
            // A call whose script is missing loads it. Here it is loaded before the first call.
            let _ = tokio::time::timeout(TIMEOUT, connection.load(script.source())).await;
        }
        router.request_refresh();
        loop {
            tokio::select! {
                () = connection.down() => {
                    // A call may have requested a refresh while this connection still seemed up.
                    router.request_refresh();
                    break;
                }
                () = tokio::time::sleep(CLOCK_INTERVAL) => {
                    measure_clock(router, node, connection, &mut samples).await;
                }
            }
        }
    }
}

async fn measure_clock(
    router: &Router,
    node: &RedisNode,
    connection: &Connection,
    samples: &mut RttSamples,
) {
    let sent = router.now();
    let query = connection.command("TIME", Vec::new());
    let Ok(Ok(reply)) = tokio::time::timeout(TIMEOUT, query).await else { return };
    let received = router.now();
    if let Some(node_time) = parse_time(&reply) {
        node.set_offset(samples.add(RttSample { sent, received, node: node_time }));
    }
}

/// Parses the reply of `TIME`: seconds and microseconds as strings.
fn parse_time(reply: &Value) -> Option<Micros> {
    let Value::Array(parts) = reply else { return None };
    let [seconds, micros] = parts.as_slice() else { return None };
    let micros = micros.as_u64().filter(|micros| *micros < 1_000_000)?;
    Some(Micros::from_secs(seconds.as_u64()?).saturating_add(Micros(micros)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_parsed_to_the_microsecond() {
        let reply = |a: &str, b: &str| Value::Array(vec![a.into(), b.into()]);
        assert_eq!(parse_time(&reply("1700000000", "42")), Some(Micros(1_700_000_000_000_042)));
        assert_eq!(parse_time(&reply("1", "1000000")), None);
        assert_eq!(parse_time(&reply("x", "1")), None);
        assert_eq!(parse_time(&Value::Null), None);
    }
}
