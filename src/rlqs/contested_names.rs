//! Names that two Envoys of one client had at a time, at two instances.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};

use crate::client_address::ClientAddress;
use crate::key::CounterKey;
use crate::time::Micros;

/// How long a name is contested.
const CONTESTED_FOR: Micros = Micros::from_secs(3_600);

/// The most names, with which the table takes less than 3 MB, also if each has another client.
const NAMES_MAX: usize = 4_096;

/// The contested names of one instance, each as a keyed hash with its client and domain.
///
/// Only a report shows that two Envoys have one name: one whose holder another instance has written since. An
/// Envoy that moves to another instance sends no report by its old stream, so its name is not contested.
///
/// With more than [`NAMES_MAX`], the first name of the client with the most is not contested any longer, and the
/// first one of all such clients if there are several. So a client that contests many names loses its own ones,
/// and each other client keeps up to its equal part.
#[derive(Debug, Default)]
pub(super) struct ContestedNames {
    names: HashSet<CounterKey>,
    /// The names of all clients, in the order of their ends.
    ends: BTreeSet<(Micros, ClientAddress, CounterKey)>,
    /// The names of each client that has any, in the order of their ends.
    of_clients: HashMap<ClientAddress, BTreeSet<(Micros, CounterKey)>>,
    /// These clients, from the one that loses a name last to the one that loses it next.
    losers: BTreeSet<LosesNext>,
}

/// The number of a client's names, and the end of its first one.
type LosesNext = (usize, Reverse<Micros>, ClientAddress);

impl ContestedNames {
    /// A name of `client` is contested from `now` on.
    pub(super) fn add(&mut self, client: ClientAddress, name: CounterKey, now: Micros) {
        self.expire(now);
        if !self.names.insert(name) {
            return;
        }
        let end = now.saturating_add(CONTESTED_FOR);
        self.ends.insert((end, client, name));
        self.change_client(client, |names| names.insert((end, name)));
        if self.names.len() > NAMES_MAX {
            self.remove_next();
        }
    }

    /// Whether a name is contested at `now`.
    pub(super) fn has(&mut self, name: &CounterKey, now: Micros) -> bool {
        self.expire(now);
        self.names.contains(name)
    }

    fn expire(&mut self, now: Micros) {
        while let Some(&(end, client, name)) = self.ends.first()
            && end <= now
        {
            self.remove(end, client, name);
        }
    }

    fn remove_next(&mut self) {
        let Some(&(_, _, client)) = self.losers.last() else { return };
        let first = self.of_clients.get(&client).and_then(|names| names.first().copied());
        if let Some((end, name)) = first {
            self.remove(end, client, name);
        }
    }

    fn remove(&mut self, end: Micros, client: ClientAddress, name: CounterKey) {
        self.names.remove(&name);
        self.ends.remove(&(end, client, name));
        self.change_client(client, |names| names.remove(&(end, name)));
    }

    /// Changes the names of a client, and its place among the others.
    fn change_client(
        &mut self,
        client: ClientAddress,
        change: impl FnOnce(&mut BTreeSet<(Micros, CounterKey)>) -> bool,
    ) {
        let place = |names: &BTreeSet<(Micros, CounterKey)>| {
            names.first().map(|(end, _)| (names.len(), Reverse(*end), client))
        };
        let names = self.of_clients.entry(client).or_default();
        if let Some(before) = place(names) {
            self.losers.remove(&before);
        }
        change(names);
        match place(names) {
            Some(after) => drop(self.losers.insert(after)),
            None => drop(self.of_clients.remove(&client)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn name(number: u64) -> CounterKey {
        CounterKey([number, 0])
    }

    fn client(number: u64) -> ClientAddress {
        ClientAddress::from(IpAddr::V4(Ipv4Addr::from(number as u32)))
    }

    /// Checks the size of each table.
    fn assert_sizes(names: &ContestedNames, number: usize, clients: usize) {
        let of_clients: usize = names.of_clients.values().map(BTreeSet::len).sum();
        assert_eq!([names.names.len(), names.ends.len(), of_clients], [number; 3]);
        assert_eq!([names.of_clients.len(), names.losers.len()], [clients; 2]);
    }

    #[test]
    fn a_name_is_contested_for_an_hour() {
        let mut names = ContestedNames::default();
        names.add(client(1), name(1), Micros::from_secs(10));
        names.add(client(1), name(1), Micros::from_secs(20));
        names.add(client(2), name(2), Micros::from_secs(30));
        for (now, expected) in [(3_609, [true, true]), (3_610, [false, true]), (3_630, [false; 2])]
        {
            let has = [1, 2].map(|number| names.has(&name(number), Micros::from_secs(now)));
            assert_eq!(has, expected, "{now}");
        }
        assert_sizes(&names, 0, 0);
    }

    #[test]
    fn the_client_with_the_most_names_loses_its_first() {
        assert_eq!(NAMES_MAX, 4_096, "for the numbers below");
        // Clients with the numbers of their next names, and which of all names stay.
        type Case = (&'static [(u64, u64)], &'static dyn Fn(u64) -> bool);
        let cases: [Case; 5] = [
            (&[(1, 1), (2, 10 * 4_096)], &|name| name == 0 || name > 9 * 4_096 + 1),
            (&[(2, 4_096), (1, 1)], &|name| name > 0),
            (&[(1, 2_048), (2, 4_096)], &|name| !(2_048..4_096).contains(&name)),
            // More than its equal part is the first to be lost.
            (&[(1, 3_000), (2, 2_048)], &|name| name >= 952),
            (&[(1, 3_000), (2, 3_000)], &|name| (952..3_000).contains(&name) || name >= 3_952),
        ];
        for (number, (parts, expected)) in cases.iter().enumerate() {
            let (mut names, mut next) = (ContestedNames::default(), 0);
            for (of, count) in *parts {
                for _ in 0..*count {
                    names.add(client(*of), name(next), Micros(next));
                    next += 1;
                }
            }
            let now = Micros(1 << 20);
            let wrong = (0..next).find(|at| names.has(&name(*at), now) != expected(*at));
            assert_eq!(wrong, None, "case {number}");
            assert_sizes(&names, NAMES_MAX, 2);
        }
    }

    #[test]
    fn many_clients_with_a_name_each_are_bounded() {
        let mut names = ContestedNames::default();
        for number in 0..2 * NAMES_MAX as u64 {
            names.add(client(number), name(number), Micros(number));
        }
        assert_sizes(&names, NAMES_MAX, NAMES_MAX);
        // The first of them, because all have one.
        let now = Micros(2 * NAMES_MAX as u64);
        let first = (0..).find(|number| names.has(&name(*number), now));
        assert_eq!(first, Some(NAMES_MAX as u64));
        // A client with two names loses its first.
        let [first, second] = [1 << 32, (1 << 32) + 1].map(name);
        for name in [first, second] {
            names.add(client(0), name, Micros(1 << 20));
        }
        let now = Micros(1 << 20);
        assert_eq!([first, second].map(|name| names.has(&name, now)), [false, true]);
        assert!(!names.has(&second, Micros::from_secs(3_602)));
        assert_sizes(&names, 0, 0);
    }
}
