//! The topology: which node owns which slot, as far as this instance knows.
//!
//! A snapshot that is swapped whole. Without a cluster there is one node and it owns all slots.

use std::sync::Arc;

use fred::types::Value;

use super::node::RedisNode;

/// Slots of a cluster (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>).
pub(super) const SLOTS: usize = 16_384;

/// Stands for a slot that nobody owns.
const NOBODY: u16 = u16::MAX;

/// Who owns what.
#[derive(Clone, Debug)]
pub(super) struct Topology {
    nodes: Vec<Arc<RedisNode>>,
    /// Index into `nodes` by slot; absent without a cluster.
    owners: Option<Box<[u16]>>,
}

/// A range of slots and the address of the node that owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotRange {
    /// First slot.
    pub(super) from: u16,
    /// Last slot.
    pub(super) to: u16,
    /// Host and port of the primary.
    pub(super) address: (String, u16),
}

impl Topology {
    /// Nothing is known yet.
    pub(super) fn unknown() -> Topology {
        Topology { nodes: Vec::new(), owners: None }
    }

    /// One node that owns everything.
    pub(super) fn single(node: Arc<RedisNode>) -> Topology {
        Topology { nodes: vec![node], owners: None }
    }

    /// A cluster: `node` gives the node at an address, the same one for the same address.
    pub(super) fn cluster(
        ranges: &[SlotRange],
        mut node: impl FnMut(&(String, u16)) -> Arc<RedisNode>,
    ) -> Topology {
        let mut nodes: Vec<Arc<RedisNode>> = Vec::new();
        let mut owners = vec![NOBODY; SLOTS].into_boxed_slice();
        for range in ranges {
            let owner = node(&range.address);
            let index = position(&mut nodes, owner);
            owners[usize::from(range.from)..=usize::from(range.to)].fill(index);
        }
        Topology { nodes, owners: Some(owners) }
    }

    /// The same, and `more` are known too.
    pub(super) fn with(mut self, more: impl Iterator<Item = Arc<RedisNode>>) -> Topology {
        for node in more {
            position(&mut self.nodes, node);
        }
        self
    }

    /// The same, but `slot` is `node`'s.
    pub(super) fn moved(&self, slot: u16, node: Arc<RedisNode>) -> Topology {
        let mut topology = self.clone();
        let index = position(&mut topology.nodes, node);
        if let Some(owners) = &mut topology.owners {
            owners[usize::from(slot)] = index;
        }
        topology
    }

    /// Slots matter.
    pub(super) fn is_cluster(&self) -> bool {
        self.owners.is_some()
    }

    /// The owner of `slot`.
    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<RedisNode>> {
        match &self.owners {
            None => self.nodes.first(),
            Some(owners) => self.nodes.get(usize::from(owners[usize::from(slot)])),
        }
    }

    /// Every node that is known, also those that own nothing yet.
    pub(super) fn nodes(&self) -> &[Arc<RedisNode>] {
        &self.nodes
    }
}

fn position(nodes: &mut Vec<Arc<RedisNode>>, node: Arc<RedisNode>) -> u16 {
    let found = nodes.iter().position(|known| Arc::ptr_eq(known, &node));
    let index = found.unwrap_or_else(|| {
        nodes.push(node);
        nodes.len() - 1
    });
    // A slot has one owner, so there are no more owners than slots.
    u16::try_from(index).unwrap_or(NOBODY)
}

/// Reads the answer of `CLUSTER SLOTS` that `asked` gave: a list of
/// `[from, to, [host, port, ...], replica...]`. An empty or unknown host is the one that was asked.
/// Nothing, if any part of it cannot be.
pub(super) fn slot_ranges(answer: &Value, asked: &str) -> Option<Vec<SlotRange>> {
    let Value::Array(entries) = answer else { return None };
    let slot = |value: &Value| {
        value.as_u64().and_then(|n| u16::try_from(n).ok()).filter(|n| usize::from(*n) < SLOTS)
    };
    let ranges: Option<Vec<SlotRange>> = entries
        .iter()
        .map(|entry| {
            let Value::Array(parts) = entry else { return None };
            let [from, to, Value::Array(primary), ..] = parts.as_slice() else { return None };
            let [host, port, ..] = primary.as_slice() else { return None };
            let host = host.as_string().filter(|host| !host.is_empty() && host != "?");
            let host = host.unwrap_or_else(|| asked.to_owned());
            let port = port.as_u64().and_then(|port| u16::try_from(port).ok())?;
            let (from, to) = (slot(from)?, slot(to)?);
            (from <= to).then_some(SlotRange { from, to, address: (host, port) })
        })
        .collect();
    ranges.filter(|ranges| !ranges.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: i64, to: i64, host: Value, port: i64) -> Value {
        let id = Value::from("07c37dfeb235213a872192d90877d0cd55635b91");
        let primary = Value::Array(vec![host, port.into(), id.clone()]);
        let replica = Value::Array(vec!["10.9.9.9".into(), 1.into(), id]);
        Value::Array(vec![from.into(), to.into(), primary, replica])
    }

    #[test]
    fn the_answer_of_cluster_slots_is_read_whole_or_not_at_all() {
        let answer = Value::Array(vec![
            range(0, 5460, "10.0.0.1".into(), 7000),
            range(5461, 16_383, "".into(), 7001),
        ]);
        let expected = vec![
            SlotRange { from: 0, to: 5460, address: ("10.0.0.1".into(), 7000) },
            SlotRange { from: 5461, to: 16_383, address: ("seed".into(), 7001) },
        ];
        assert_eq!(slot_ranges(&answer, "seed"), Some(expected));
        let bad = [
            Value::Null,
            Value::Array(vec![]),
            Value::Array(vec![range(0, 16_384, "a".into(), 1)]),
            Value::Array(vec![range(9, 3, "a".into(), 1)]),
            Value::Array(vec![range(0, 3, "a".into(), 70_000)]),
            Value::Array(vec![range(0, 3, "a".into(), 1), Value::Null]),
        ];
        for answer in bad {
            assert_eq!(slot_ranges(&answer, "seed"), None, "{answer:?}");
        }
    }

    #[test]
    fn a_slot_belongs_to_the_last_owner_that_was_told() {
        let [a, b, c] = ["a", "b", "c"].map(|name| Arc::new(RedisNode::for_testing(name)));
        let ranges = [
            SlotRange { from: 0, to: 99, address: ("a".into(), 1) },
            SlotRange { from: 100, to: 200, address: ("b".into(), 1) },
        ];
        let find = |address: &(String, u16)| if address.0 == "a" { a.clone() } else { b.clone() };
        let topology = Topology::cluster(&ranges, find);
        let owner = |topology: &Topology, slot| topology.owner(slot).map(|n| n.label().to_owned());
        assert_eq!(owner(&topology, 99).as_deref(), Some("a"));
        assert_eq!(owner(&topology, 100).as_deref(), Some("b"));
        assert_eq!(owner(&topology, 201), None, "nobody owns it");
        let moved = topology.moved(99, c);
        assert_eq!(owner(&moved, 99).as_deref(), Some("c"));
        assert_eq!(owner(&moved, 98).as_deref(), Some("a"));
        assert_eq!(owner(&Topology::single(a.clone()), 16_383).as_deref(), Some("a"));
        assert_eq!(owner(&Topology::unknown(), 0), None);
    }
}
