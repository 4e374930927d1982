//! The bounds on the holders of a quota.

use weir::quota::{HOLDERS_MAX, HolderId, SHARES};
use weir::time::Micros;

use super::{BOTH, Instance, Pair, settlement};
use crate::support::redis::server::Server;
use crate::support::schedule::shared;

#[test]
fn a_quota_has_a_bounded_number_of_holders() {
    let _permit = shared();
    for functions in BOTH {
        let server = Server::local();
        let (instance, mut pair) = (Instance::on(&server, functions), Pair::new(1));
        let share = SHARES / HOLDERS_MAX as u64;
        let all: Vec<(u64, u64)> = (0..HOLDERS_MAX as u64).map(|id| (id, share)).collect();
        pair.settle(&instance, &all);
        server.client().run(&["CONFIG", "RESETSTAT"]);
        let further = [(HOLDERS_MAX as u64, share), (3, share / 2), (HOLDERS_MAX as u64 + 1, 0)];
        pair.settle(&instance, &further);
        pair.settle(&instance, &[]);
        let stats = server.client().run(&["INFO", "commandstats"]).text();
        let calls = stats.lines().filter(|line| line.contains("fcall") || line.contains("evalsha"));
        println!("{HOLDERS_MAX} holders, {functions:?}: {:?}", calls.collect::<Vec<_>>());
        // Every holding of another limit changes.
        let mut other = settlement(pair.now, []);
        other.requests = 333;
        let expected = pair.ledger.settle(&other);
        assert_eq!(expected.holdings.len(), HOLDERS_MAX);
        assert_eq!(instance.settle(&pair.key, &other), Ok(expected));
        pair.settle(&instance, &[(3, share)]);
    }
}

/// Each client may have as many holders as are left.
#[test]
fn one_client_leaves_holders_to_others() {
    let _permit = shared();
    for functions in BOTH {
        let server = Server::local();
        let (instance, mut pair) = (Instance::on(&server, functions), Pair::new(2));
        for (client, stored) in [(1, 5_000), (2, 7_500), (1, 7_500), (3, 8_750), (4, 9_375)] {
            pair.now = pair.now.saturating_add(Micros::from_millis(100));
            let mut settlement = settlement(pair.now, (0..5_100).map(|holder| (holder, 0)));
            for change in &mut settlement.changes {
                let HolderId([holder, _]) = change.holder;
                change.holder = HolderId([client, holder]);
            }
            let expected = pair.ledger.settle(&settlement);
            assert_eq!(expected.holdings.len(), stored, "{client}");
            assert_eq!(instance.settle(&pair.key, &settlement), Ok(expected), "{client}");
        }
    }
}
