//! The topology: the node that owns each hash slot, as last discovered.
//!
//! A topology is an immutable snapshot that is replaced whole. Without a cluster one node owns all
//! hash slots.

use std::sync::Arc;

use super::config::HostPort;
use super::error::is_host;
use super::name::HASH_SLOTS;
use super::node::RedisNode;
use super::reply::Reply;

/// Marks a hash slot without an owner.
const NO_OWNER: u16 = u16::MAX;

/// Nodes and the hash slots they own.
#[derive(Clone, Debug)]
pub(super) struct Topology {
    nodes: Vec<Arc<RedisNode>>,
    /// Index into `nodes` per hash slot; `None` without a cluster.
    owners: Option<Box<[u16]>>,
}

/// Consecutive hash slots and the address of their owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HashSlotRange {
    /// First hash slot.
    pub(super) from: u16,
    /// Last hash slot.
    pub(super) to: u16,
    /// Host and port of the primary.
    pub(super) address: HostPort,
}

impl Topology {
    /// The topology without nodes, before the first discovery.
    pub(super) fn unknown() -> Topology {
        Topology { nodes: Vec::new(), owners: None }
    }

    /// One node that owns all hash slots.
    pub(super) fn single(node: Arc<RedisNode>) -> Topology {
        Topology { nodes: vec![node], owners: None }
    }

    /// A cluster. `node` returns the node at an address, the same one for the same address.
    pub(super) fn cluster(
        ranges: &[HashSlotRange],
        mut node: impl FnMut(&HostPort) -> Arc<RedisNode>,
    ) -> Topology {
        let mut nodes: Vec<Arc<RedisNode>> = Vec::new();
        let mut owners = vec![NO_OWNER; HASH_SLOTS].into_boxed_slice();
        for range in ranges {
            let owner = node(&range.address);
            let index = index_of(&mut nodes, owner);
            owners[usize::from(range.from)..=usize::from(range.to)].fill(index);
        }
        Topology { nodes, owners: Some(owners) }
    }

    /// This topology with further nodes, which may own no hash slot.
    pub(super) fn with(mut self, more: impl Iterator<Item = Arc<RedisNode>>) -> Topology {
        for node in more {
            index_of(&mut self.nodes, node);
        }
        self
    }

    /// A copy in which `node` owns `hash_slot`.
    pub(super) fn moved(&self, hash_slot: u16, node: Arc<RedisNode>) -> Topology {
        let mut topology = self.clone();
        let index = index_of(&mut topology.nodes, node);
        if let Some(owners) = &mut topology.owners {
            owners[usize::from(hash_slot)] = index;
        }
        topology
    }

    /// Whether hash slots have different owners.
    pub(super) fn is_cluster(&self) -> bool {
        self.owners.is_some()
    }

    /// The owner of `hash_slot`, if it has one.
    pub(super) fn owner(&self, hash_slot: u16) -> Option<&Arc<RedisNode>> {
        match &self.owners {
            None => self.nodes.first(),
            Some(owners) => self.nodes.get(usize::from(owners[usize::from(hash_slot)])),
        }
    }

    /// Every known node, with or without hash slots.
    pub(super) fn nodes(&self) -> &[Arc<RedisNode>] {
        &self.nodes
    }
}

fn index_of(nodes: &mut Vec<Arc<RedisNode>>, node: Arc<RedisNode>) -> u16 {
    let found = nodes.iter().position(|known| Arc::ptr_eq(known, &node));
    let index = found.unwrap_or_else(|| {
        nodes.push(node);
        nodes.len() - 1
    });
    // A hash slot has one owner, so there are at most as many owners as hash slots.
    u16::try_from(index).unwrap_or(NO_OWNER)
}

/// Parses the reply of `CLUSTER SLOTS` from the host `sender`: a list of
/// `[from, to, [host, port, ...], replica...]`. An empty or unknown host means `sender`. Returns
/// `None` if any part is malformed.
pub(super) fn hash_slot_ranges(reply: &Reply, sender: &str) -> Option<Vec<HashSlotRange>> {
    let Reply::Array(entries) = reply else { return None };
    let hash_slot = |value: &Reply| {
        value.number().and_then(|n| u16::try_from(n).ok()).filter(|n| usize::from(*n) < HASH_SLOTS)
    };
    let ranges: Option<Vec<HashSlotRange>> = entries
        .iter()
        .map(|entry| {
            let Reply::Array(parts) = entry else { return None };
            let [from, to, Reply::Array(primary), ..] = parts.as_slice() else { return None };
            let [host, port, ..] = primary.as_slice() else { return None };
            let host = host.text().filter(|host| !host.is_empty() && *host != "?");
            let host = host.unwrap_or(sender).to_owned();
            let port = port.number().and_then(|port| u16::try_from(port).ok())?;
            let (from, to) = (hash_slot(from)?, hash_slot(to)?);
            let is_valid = from <= to && is_host(&host);
            is_valid.then_some(HashSlotRange { from, to, address: (host, port) })
        })
        .collect();
    ranges.filter(|ranges| !ranges.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Reply {
        Reply::Text(bytes::Bytes::copy_from_slice(text.as_bytes()))
    }

    fn range(from: i64, to: i64, host: &str, port: i64) -> Reply {
        let id = text("07c37dfeb235213a872192d90877d0cd55635b91");
        let primary = Reply::Array(vec![text(host), Reply::Integer(port), id.clone()]);
        let replica = Reply::Array(vec![text("10.9.9.9"), Reply::Integer(1), id]);
        Reply::Array(vec![Reply::Integer(from), Reply::Integer(to), primary, replica])
    }

    #[test]
    fn a_malformed_cluster_slots_reply_is_rejected() {
        let reply =
            Reply::Array(vec![range(0, 5460, "10.0.0.1", 7000), range(5461, 16_383, "", 7001)]);
        let expected = vec![
            HashSlotRange { from: 0, to: 5460, address: ("10.0.0.1".into(), 7000) },
            HashSlotRange { from: 5461, to: 16_383, address: ("seed".into(), 7001) },
        ];
        assert_eq!(hash_slot_ranges(&reply, "seed"), Some(expected));
        let bad = [
            Reply::Nil,
            Reply::Array(vec![]),
            Reply::Array(vec![range(0, 16_384, "a", 1)]),
            Reply::Array(vec![range(9, 3, "a", 1)]),
            Reply::Array(vec![range(0, 3, "a", 70_000)]),
            Reply::Array(vec![range(0, 3, &"a".repeat(256), 1)]),
            Reply::Array(vec![range(0, 3, "a", 1), Reply::Nil]),
        ];
        for reply in bad {
            assert_eq!(hash_slot_ranges(&reply, "seed"), None, "{reply:?}");
        }
    }

    #[test]
    fn a_hash_slot_belongs_to_its_latest_owner() {
        let [a, b, c] = ["a", "b", "c"].map(|name| Arc::new(RedisNode::for_testing(name)));
        let ranges = [
            HashSlotRange { from: 0, to: 99, address: ("a".into(), 1) },
            HashSlotRange { from: 100, to: 200, address: ("b".into(), 1) },
        ];
        let find = |address: &(String, u16)| if address.0 == "a" { a.clone() } else { b.clone() };
        let topology = Topology::cluster(&ranges, find);
        let owner = |topology: &Topology, hash_slot| {
            topology.owner(hash_slot).map(|node| node.address().to_owned())
        };
        assert_eq!(owner(&topology, 99).as_deref(), Some("a"));
        assert_eq!(owner(&topology, 100).as_deref(), Some("b"));
        assert_eq!(owner(&topology, 201), None, "it has no owner");
        let moved = topology.moved(99, c);
        assert_eq!(owner(&moved, 99).as_deref(), Some("c"));
        assert_eq!(owner(&moved, 98).as_deref(), Some("a"));
        assert_eq!(owner(&Topology::single(a.clone()), 16_383).as_deref(), Some("a"));
        assert_eq!(owner(&Topology::unknown(), 0), None);
    }
}
