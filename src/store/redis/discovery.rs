//! The keeper: a thread of its own that knows where counters live and what the nodes' clocks show.
//!
//! No call waits for it. It asks a cluster who owns which slot, opens one connection to every node,
//! teaches it the scripts and measures its clock; calls use what it has found out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fred::interfaces::ClientLike;
use fred::types::config::{Config, Server, ServerConfig};
use fred::types::{ClusterHash, CustomCommand, Value};

use super::clock_offset::{RttSample, RttSamples};
use super::connection::{self, Connection};
use super::node::RedisNode;
use super::script::Script;
use super::topology::{self, SlotRange, Topology};
use super::{NodeRecord, Router};
use crate::store::NodeId;
use crate::time::{Clock, Micros};

/// How often a healthy cluster is asked who owns what. Calls that meet a moved slot do not wait for
/// this: they follow the answer, and have the cluster asked at once.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// How often while a node is away: failing over takes a cluster a second or two.
const ASK_WHILE_DOWN: Duration = Duration::from_millis(200);

/// The shortest pause between two questions, however many calls want one asked.
const ASK_PAUSE: Duration = Duration::from_millis(5);

/// How long one answer may take.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How often a clock is measured. Clocks that are off drift by microseconds in that time.
const MEASURE_EVERY: Duration = Duration::from_secs(2);

/// Measurements right after connecting, of which the best is taken.
const FIRST_MEASUREMENTS: usize = 3;

/// Questions about the topology that a node may be missing from before its connections are closed.
const MISSING_MAX: u32 = 5;

/// What the keeper knows of each node.
struct KnownNode {
    node: Arc<RedisNode>,
    connection: Arc<Connection>,
    /// Answers in a row that did not name it.
    missing: u32,
}

/// Keeps `shared` up to date until the store is dropped.
pub(super) async fn run(shared: Arc<Router>, config: Config) {
    match &config.server {
        ServerConfig::Clustered { hosts, .. } => {
            let seeds = hosts.clone();
            cluster(&shared, &config, &seeds).await;
        }
        _ => {
            let node = shared.node(label(&config.server), config);
            let Some(connection) = node.connect_shared() else { return };
            shared.topology.store(Arc::new(Topology::single(node.clone())));
            mind(&shared, &node, &connection).await;
        }
    }
}

/// What people call a server.
fn label(server: &ServerConfig) -> String {
    match server {
        ServerConfig::Centralized { server } => format!("{}:{}", server.host, server.port),
        ServerConfig::Unix { path } => path.display().to_string(),
        ServerConfig::Sentinel { service_name, .. } => format!("primary of {service_name}"),
        ServerConfig::Clustered { .. } => "cluster".to_owned(),
    }
}

async fn cluster(shared: &Arc<Router>, config: &Config, seeds: &[Server]) {
    let mut known: HashMap<(String, u16), KnownNode> = HashMap::new();
    let mut turn = 0;
    loop {
        turn += 1;
        let asked = shared.clock.now();
        if let Some(ranges) = ask(config, &known, seeds, turn).await {
            take(shared, config, &mut known, &ranges);
        }
        let whole = !known.is_empty() && known.values().all(|known| known.connection.is_up());
        let pause = if whole { ASK_EVERY } else { ASK_WHILE_DOWN };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.ask.notified() => {}
        }
        let since = Duration::from_micros(shared.clock.now().saturating_sub(asked).0);
        tokio::time::sleep(ASK_PAUSE.saturating_sub(since)).await;
    }
}

/// Asks one node after the other who owns what, beginning with another one each time: none may be
/// believed for ever. Seeds are asked when no node that is known answers.
async fn ask(
    config: &Config,
    known: &HashMap<(String, u16), KnownNode>,
    seeds: &[Server],
    turn: usize,
) -> Option<Vec<SlotRange>> {
    let up: Vec<_> = known.iter().filter(|(_, known)| known.connection.is_up()).collect();
    for index in 0..up.len() {
        let ((host, _), known) = up[(turn + index) % up.len()];
        let asking = known.connection.command("CLUSTER", vec!["SLOTS".into()]);
        if let Ok(Ok(answer)) = tokio::time::timeout(TIMEOUT, asking).await
            && let Some(ranges) = topology::slot_ranges(&answer, host)
        {
            return Some(ranges);
        }
    }
    for seed in seeds {
        let asking = ask_seed(config, seed);
        if let Ok(Some(answer)) = tokio::time::timeout(TIMEOUT, asking).await
            && let Some(ranges) = topology::slot_ranges(&answer, &seed.host)
        {
            return Some(ranges);
        }
    }
    None
}

async fn ask_seed(config: &Config, seed: &Server) -> Option<Value> {
    let client = connection::client(at(config, &seed.host, seed.port))?;
    let driver = client.connect();
    client.wait_for_connect().await.ok()?;
    let command = CustomCommand::new_static("CLUSTER", ClusterHash::FirstKey, false);
    let answer = client.custom(command, vec!["SLOTS"]).await;
    driver.abort();
    answer.ok()
}

/// `config`, for one node.
fn at(config: &Config, host: &str, port: u16) -> Config {
    let server = ServerConfig::Centralized { server: Server::new(host, port) };
    Config { server, ..config.clone() }
}

/// Takes a new answer: begins to mind new nodes, and lets go of those that are named no more.
fn take(
    shared: &Arc<Router>,
    config: &Config,
    known: &mut HashMap<(String, u16), KnownNode>,
    ranges: &[SlotRange],
) {
    for one in known.values_mut() {
        one.missing += 1;
    }
    let named = std::mem::take(
        &mut *shared.named.lock().unwrap_or_else(std::sync::PoisonError::into_inner),
    );
    for address in ranges.iter().map(|range| &range.address).chain(&named) {
        if let Some(one) = known.get_mut(address) {
            one.missing = 0;
            continue;
        }
        let (host, port) = address;
        let node = shared.node(format!("{host}:{port}"), at(config, host, *port));
        let Some(connection) = node.connect_shared() else { continue };
        tracing::info!(node = %node.label(), "a node of the cluster");
        let minded = (shared.clone(), node.clone(), connection.clone());
        tokio::spawn(async move { mind(&minded.0, &minded.1, &minded.2).await });
        known.insert(address.clone(), KnownNode { node, connection, missing: 0 });
    }
    let ranges: Vec<SlotRange> =
        ranges.iter().filter(|range| known.contains_key(&range.address)).cloned().collect();
    let topology = Topology::cluster(&ranges, |address| known[address].node.clone())
        .with(known.values().map(|one| one.node.clone()));
    shared.topology.store(Arc::new(topology));
    known.retain(|_, one| {
        let stays = one.missing <= MISSING_MAX;
        if !stays {
            tracing::info!(node = %one.node.label(), "no longer a node of the cluster");
            one.node.leave();
        }
        stays
    });
}

/// Teaches one node the scripts and measures its clock, again after every new connection.
async fn mind(shared: &Router, node: &RedisNode, connection: &Connection) {
    while connection.up().await.is_some() {
        let mut samples = RttSamples::default();
        for _ in 0..FIRST_MEASUREMENTS {
            measure(shared, node, connection, &mut samples).await;
        }
        for script in Script::ALL {
            // Whoever meets a node without it loads it; this only spares the first caller that.
            let _ = tokio::time::timeout(TIMEOUT, connection.load(script.source())).await;
        }
        shared.ask.notify_one();
        loop {
            tokio::select! {
                () = connection.down() => {
                    // Calls may have noticed before, and had the cluster asked while it still
                    // seemed whole.
                    shared.ask.notify_one();
                    break;
                }
                () = tokio::time::sleep(MEASURE_EVERY) => {
                    measure(shared, node, connection, &mut samples).await;
                }
            }
        }
    }
}

async fn measure(
    shared: &Router,
    node: &RedisNode,
    connection: &Connection,
    samples: &mut RttSamples,
) {
    let sent = shared.clock.now();
    let asking = connection.command("TIME", Vec::new());
    let Ok(Ok(answer)) = tokio::time::timeout(TIMEOUT, asking).await else { return };
    let received = shared.clock.now();
    if let Some(node_time) = time(&answer) {
        node.set_offset(samples.add(RttSample { sent, received, node: node_time }));
    }
}

/// Reads the answer of `TIME`: seconds and microseconds, as texts.
fn time(answer: &Value) -> Option<Micros> {
    let Value::Array(node_records) = answer else { return None };
    let [seconds, micros] = node_records.as_slice() else { return None };
    let micros = micros.as_u64().filter(|micros| *micros < 1_000_000)?;
    Some(Micros::from_secs(seconds.as_u64()?).saturating_add(Micros(micros)))
}

impl Router {
    /// A new node, with the next number.
    fn node(&self, label: String, config: Config) -> Arc<RedisNode> {
        let mut node_records =
            self.node_records.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // A node that comes back is the same part: its breaker and its metrics go on.
        let index =
            node_records.iter().position(|known| known.label == label).unwrap_or_else(|| {
                node_records.push(NodeRecord { label: label.clone(), stats: Arc::default() });
                node_records.len() - 1
            });
        let stats = node_records[index].stats.clone();
        let part = NodeId(u32::try_from(index).unwrap_or(u32::MAX));
        Arc::new(RedisNode::new(part, label, config, (self.connections, self.steps_max), stats))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_read_to_the_microsecond() {
        let answer = |a: &str, b: &str| Value::Array(vec![a.into(), b.into()]);
        assert_eq!(time(&answer("1700000000", "42")), Some(Micros(1_700_000_000_000_042)));
        assert_eq!(time(&answer("1", "1000000")), None);
        assert_eq!(time(&answer("x", "1")), None);
        assert_eq!(time(&Value::Null), None);
    }
}
