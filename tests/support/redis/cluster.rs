//! A Redis Cluster: three primaries with a replica each, all on loopback.

use super::resp::{Client, Reply};
use super::server::Server;
use crate::support::certificates::Certificates;
use crate::support::wait::until;

const PRIMARIES: usize = 3;
const SLOTS: usize = 16_384;

/// Six nodes. Numbers 0, 1 and 2 start as primaries; 3, 4 and 5 as their replicas.
pub(crate) struct Cluster {
    /// All nodes. Their order stays when roles change.
    pub(crate) nodes: Vec<Server>,
}

impl Cluster {
    /// Starts a cluster that fails a node over after 1 s without contact. When slots have no owner,
    /// the other nodes keep serving theirs.
    pub(crate) fn start() -> Cluster {
        let options = ["--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no"];
        Cluster::with(&options)
    }

    /// A cluster with these options on every node.
    pub(crate) fn with(options: &[&str]) -> Cluster {
        Cluster::of(|| Server::node(options))
    }

    /// A cluster with these options and TLS for clients and between nodes.
    pub(crate) fn tls(certificates: &Certificates, options: &[&str]) -> Cluster {
        Cluster::of(|| Server::tls_node(certificates, options))
    }

    fn of(node: impl Fn() -> Server) -> Cluster {
        let nodes: Vec<Server> = (0..2 * PRIMARIES).map(|_| node()).collect();
        let cluster = Cluster { nodes };
        for (index, node) in cluster.nodes.iter().enumerate() {
            let mut client = node.client();
            client.run(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            if index < PRIMARIES {
                let (first, end) = (index * SLOTS / PRIMARIES, (index + 1) * SLOTS / PRIMARIES);
                let (first, last) = (first.to_string(), (end - 1).to_string());
                client.run(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            }
        }
        cluster.meet();
        for (index, node) in cluster.nodes.iter().enumerate().skip(PRIMARIES) {
            node.client().run(&["CLUSTER", "REPLICATE", &cluster.id(index - PRIMARIES)]);
        }
        cluster.wait_until_whole();
        cluster
    }

    fn meet(&self) {
        let mut first = self.nodes[0].client();
        for node in &self.nodes[1..] {
            let bus = node.client().run(&["CONFIG", "GET", "cluster-port"]);
            let Reply::List(bus) = bus else { panic!("CONFIG GET answers with a list") };
            let port = node.port().to_string();
            first.run(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus[1].text()]);
        }
        until("every node lists all others", || {
            self.nodes.iter().all(|node| {
                let lines = lines(&mut node.client());
                let joined =
                    |line: &&str| line.contains(" connected") && !line.contains("handshake");
                lines.lines().filter(joined).count() == self.nodes.len()
            })
        });
    }

    /// Waits until every node serves, all nodes agree on the owner of every slot, and every replica
    /// is synchronized.
    pub(crate) fn wait_until_whole(&self) {
        until("the cluster is whole", || {
            let owners: Vec<Vec<String>> = self.nodes.iter().map(owners).collect();
            owners.iter().all(|one| one == &owners[0]) && self.nodes.iter().all(is_in_step)
        });
    }

    /// The node ID.
    pub(crate) fn id(&self, index: usize) -> String {
        self.nodes[index].client().run(&["CLUSTER", "MYID"]).text()
    }

    /// The hash slot of `key`.
    pub(crate) fn slot(&self, key: &str) -> i64 {
        match self.nodes[0].client().run(&["CLUSTER", "KEYSLOT", key]) {
            Reply::Integer(slot) => slot,
            other => panic!("CLUSTER KEYSLOT answers with a number: {other:?}"),
        }
    }

    /// The index of the node that serves `key`, as node `by` reports it.
    pub(crate) fn owner(&self, by: usize, key: &str) -> usize {
        let slot = self.slot(key);
        let owner = ranges(&self.nodes[by])
            .into_iter()
            .find(|(first, last, _)| (*first..=*last).contains(&slot));
        self.named(&owner.expect("every slot is served").2)
    }

    /// The index of the node with this ID.
    fn named(&self, id: &str) -> usize {
        let is_it = |node: &Server| {
            let client = node.try_client();
            client.is_ok_and(|mut client| client.run(&["CLUSTER", "MYID"]).text() == id)
        };
        self.nodes.iter().position(is_it).expect("all nodes are ours")
    }

    /// The index of a replica of node `primary`, once there is one: after a failover, the primary before
    /// takes a moment to become one.
    pub(crate) fn replica_of(&self, primary: usize) -> usize {
        let id = self.id(primary);
        let mut name = String::new();
        until("a replica", || {
            let lines = lines(&mut self.nodes[primary].client());
            let line = lines.lines().find(|line| line.contains("slave") && line.contains(&id));
            name = line.and_then(|line| line.split(' ').next()).unwrap_or_default().to_owned();
            !name.is_empty()
        });
        self.named(&name)
    }

    /// Fails over to `replica`, coordinated with its primary, so that no write is lost.
    pub(crate) fn fail_over(&self, replica: usize) {
        self.nodes[replica].client().run(&["CLUSTER", "FAILOVER"]);
        self.wait_for_primary(replica);
    }

    /// Waits until node `index` is a primary.
    pub(crate) fn wait_for_primary(&self, index: usize) {
        let mut client = self.nodes[index].client();
        until("the replica is a primary", || {
            lines(&mut client).lines().any(|line| line.contains("myself,master"))
        });
    }

    /// Moves a slot with its keys to another primary while clients may use it, as resharding does.
    /// `meanwhile` runs between the two halves: all keys of the slot have moved, and both nodes
    /// still report the slot as moving.
    pub(crate) fn move_slot(&self, slot: i64, from: usize, to: usize, meanwhile: impl FnOnce()) {
        let slot = slot.to_string();
        let (from_id, to_id) = (self.id(from), self.id(to));
        let (mut source, mut target) = (self.nodes[from].client(), self.nodes[to].client());
        target.run(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
        source.run(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
        let port = self.nodes[to].port().to_string();
        loop {
            let keys = source.run(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            let Reply::List(keys) = keys else { panic!("a list of keys") };
            if keys.is_empty() {
                break;
            }
            for key in keys {
                source.run(&["MIGRATE", "127.0.0.1", &port, &key.text(), "0", "5000"]);
            }
        }
        meanwhile();
        for client in [&mut target, &mut source] {
            client.run(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
        }
    }
}

fn lines(client: &mut Client) -> String {
    client.run(&["CLUSTER", "NODES"]).text()
}

/// First slot, last slot and the owner's ID, as this node reports them.
fn ranges(node: &Server) -> Vec<(i64, i64, String)> {
    let Reply::List(ranges) = node.client().run(&["CLUSTER", "SLOTS"]) else {
        panic!("CLUSTER SLOTS answers with a list");
    };
    let range = |range: &Reply| match range {
        Reply::List(parts) => match &parts[..] {
            [Reply::Integer(first), Reply::Integer(last), Reply::List(owner), ..] => {
                // Index 2 is the ID. The address and the port before it can differ between nodes.
                (*first, *last, owner[2].text())
            }
            _ => panic!("not a range of slots: {parts:?}"),
        },
        _ => panic!("not a range of slots: {range:?}"),
    };
    ranges.iter().map(range).collect()
}

/// The ranges as text, sorted.
fn owners(node: &Server) -> Vec<String> {
    let mut owners: Vec<String> = ranges(node).iter().map(|range| format!("{range:?}")).collect();
    owners.sort();
    owners
}

fn is_in_step(node: &Server) -> bool {
    let mut client = node.client();
    let state = client.run(&["CLUSTER", "INFO"]).text();
    let role = client.run(&["INFO", "replication"]).text();
    let whole = state.contains("cluster_state:ok") && state.contains("cluster_slots_ok:16384");
    let synced = role.contains("role:master") && role.contains("connected_slaves:1")
        || role.contains("master_link_status:up");
    whole && synced
}
