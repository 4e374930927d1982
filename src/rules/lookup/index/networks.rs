//! Finds the first network that contains an address, in sorted ranges of addresses.
//!
//! `matcher.rs` parses `value_cidr` and the address. This table looks the address up.
//!
//! The ranges are a flattened prefix trie. Two networks are disjoint, or one contains the other, so
//! the borders of all networks split the addresses into ranges with one result each. Of nested
//! networks the first in the file wins, not the longest prefix. 10,000 networks make at most 20,001
//! ranges, and a lookup compares 15 of them.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::rules::lookup::matcher::EntryValue;

/// Networks by address, IPv4 and IPv6 apart.
#[derive(Debug, Default)]
pub(super) struct NetworkTable {
    v4: Ranges,
    v6: Ranges,
}

/// The first address of each range, with the first network that contains the range.
type Ranges = Box<[(u128, Option<u32>)]>;

/// First address, last address and number of a network.
type NetworkSpan = (u128, u128, u32);

impl NetworkTable {
    pub(super) fn new(networks: &[(u32, IpNet)]) -> NetworkTable {
        let (mut v4, mut v6): (Vec<NetworkSpan>, Vec<NetworkSpan>) = (Vec::new(), Vec::new());
        for (number, network) in networks {
            let span = (bits(network.network()), bits(network.broadcast()), *number);
            match network {
                IpNet::V4(_) => v4.push(span),
                IpNet::V6(_) => v6.push(span),
            }
        }
        NetworkTable { v4: ranges(v4), v6: ranges(v6) }
    }

    pub(super) fn first(&self, value: &EntryValue<'_>) -> Option<u32> {
        // Most levels have no network, so the value need not be parsed as an address.
        if self.v4.is_empty() && self.v6.is_empty() {
            return None;
        }
        let address = value.address()?;
        let ranges = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        let after = ranges.partition_point(|(start, _)| *start <= bits(address));
        ranges[..after].last()?.1
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Splits the addresses at the borders of networks, outer networks before inner ones.
fn ranges(mut spans: Vec<NetworkSpan>) -> Ranges {
    spans.sort_unstable_by_key(|(start, end, _)| (*start, u128::MAX - end));
    let mut ranges: Vec<(u128, Option<u32>)> = Vec::new();
    // The networks that contain the current one: last address, and the first in the file so far.
    let mut around: Vec<(u128, u32)> = Vec::new();
    for (start, end, number) in spans {
        end_networks(&mut around, &mut ranges, |last| last < start);
        let first = around.last().map_or(number, |(_, outer)| number.min(*outer));
        around.push((end, first));
        start_range(&mut ranges, start, Some(first));
    }
    end_networks(&mut around, &mut ranges, |_| true);
    ranges.into()
}

/// Ends the innermost networks whose last address `is_over`.
fn end_networks(
    around: &mut Vec<(u128, u32)>,
    ranges: &mut Vec<(u128, Option<u32>)>,
    is_over: impl Fn(u128) -> bool,
) {
    while let Some((last, _)) = around.pop_if(|(last, _)| is_over(*last)) {
        // The highest address has no successor.
        if let Some(next) = last.checked_add(1) {
            start_range(ranges, next, around.last().map(|(_, outer)| *outer));
        }
    }
}

/// Starts a range at `start`, whose first network is `first`.
fn start_range(ranges: &mut Vec<(u128, Option<u32>)>, start: u128, first: Option<u32>) {
    match ranges.last_mut() {
        Some(last) if last.0 == start => last.1 = first,
        _ => ranges.push((start, first)),
    }
}
