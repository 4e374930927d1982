//! Groups of counters whose runs are equal but for their instants. A script call has one argument for each group.
//!
//! Most counters of a call belong to few rules, so they have the same limit and window, and differ only in the
//! instants of their steps. Redis copies each argument twice and Lua parses it, so for 48 counters of one rule
//! one argument takes Redis a third less than 48.

use super::{Run, repeated};

/// The groups that a run is compared with, the newest ones. It bounds the comparisons in a call whose counters
/// all have other limits.
const COMPARED: usize = 8;

/// Sorts `runs` by their groups, and marks every run of a group but the first. Returns the number of counters in
/// each group, in two bytes each, big-endian; nothing if groups need as many arguments as single runs.
///
/// A run that repeats no step is a group by itself. Each run must be on another counter.
pub(super) fn group<K, T>(runs: &mut Vec<Run<K, T>>) -> Vec<u8> {
    // The first run of each group, and its size.
    let mut groups: Vec<(usize, u16)> = Vec::new();
    let mut places = Vec::with_capacity(runs.len());
    for (index, run) in runs.iter().enumerate() {
        let is_same = |&(first, size): &(usize, u16)| {
            let first: &Run<K, T> = &runs[first];
            first.is_repeatable()
                && run.is_repeatable()
                && first.steps.len() == run.steps.len()
                && size < u16::MAX
                && repeated::are_equal(&first.argument, &run.argument)
        };
        let newest = groups.len().saturating_sub(COMPARED);
        if let Some(found) = groups[newest..].iter().rposition(is_same) {
            groups[newest + found].1 += 1;
            places.push(newest + found);
        } else {
            places.push(groups.len());
            groups.push((index, 1));
        }
    }
    // The sizes are an argument too. The scripts tell groups by fewer arguments than counters.
    if groups.len() + 1 >= runs.len() {
        return Vec::new();
    }
    let mut sorted: Vec<(usize, Run<K, T>)> = places.into_iter().zip(runs.drain(..)).collect();
    sorted.sort_by_key(|&(group, _)| group);
    let mut last = None;
    runs.extend(sorted.into_iter().map(|(group, mut run)| {
        run.follows = last.replace(group) == Some(group);
        run.repeat();
        run
    }));
    groups.into_iter().flat_map(|(_, size)| size.to_be_bytes()).collect()
}
