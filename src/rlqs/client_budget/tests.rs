//! Tests of the bound on what clients hold.

use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

fn client(text: &str) -> ClientAddress {
    text.parse::<IpAddr>().expect("an address").into()
}

/// How many more `client` may hold, up to `number`.
fn reserve(budget: &ClientBudget, client: ClientAddress, number: usize) -> usize {
    (0..number).take_while(|_| budget.reserve(client).is_ok()).count()
}

#[test]
fn an_address_alone_holds_half() {
    for (max, half) in [(1, 1), (2, 1), (3, 2), (10, 5), (40_000, 20_000)] {
        let budget = ClientBudget::new(max);
        assert_eq!(reserve(&budget, client("10.0.0.1"), 2 * max), half, "{max}");
    }
}

#[test]
fn a_refusal_says_what_is_full() {
    let budget = ClientBudget::new(3);
    let [one, other] = ["10.0.0.1", "10.0.0.2"].map(client);
    assert_eq!(reserve(&budget, one, 3), 2);
    assert_eq!(budget.reserve(one), Err(BudgetFull::ForAddress));
    assert_eq!(budget.reserve(other), Ok(()));
    assert_eq!([one, other].map(|client| budget.reserve(client)), [Err(BudgetFull::ForAll); 2]);
}

/// Ended buckets count for the address that had them, and only for as long as their assignments may be
/// in use.
#[test]
fn ended_ones_count_for_their_address() {
    let budget = ClientBudget::new(100);
    let [flood, honest] = ["10.0.0.1", "10.0.0.2"].map(client);
    let second = |seconds| Micros::from_secs(seconds);
    assert_eq!(reserve(&budget, flood, 100), 50);
    (0..50).for_each(|_| budget.release_at(flood, second(13)));
    assert_eq!(budget.reserve(flood), Err(BudgetFull::ForAddress));
    assert_eq!(reserve(&budget, honest, 20), 20);
    budget.expire(Micros(12_999_999));
    assert_eq!(budget.reserve(flood), Err(BudgetFull::ForAddress));
    budget.expire(second(13));
    assert_eq!(reserve(&budget, flood, 100), 40, "half of what the other address left");
}

#[test]
fn a_network_of_ipv6_is_one_address() {
    let budget = ClientBudget::new(100);
    let network = (0..100).map(|host| client(&format!("2001:db8:1:2::{host:x}")));
    assert_eq!(network.filter(|host| budget.reserve(*host).is_ok()).count(), 50);
    assert!(budget.reserve(client("2001:db8:1:3::1")).is_ok(), "another network");
    assert!(budget.reserve(client("::ffff:10.0.0.1")).is_ok());
    budget.release(client("10.0.0.1"));
    assert_eq!(budget.held.lock().expect("no panic").by_address.len(), 2);
}

proptest! {
    /// Four addresses reserve and release in any order, and one of them takes what it can. An address
    /// that holds nothing is always served, and at the end the tables are empty.
    #[test]
    fn a_flood_leaves_a_part_to_others(
        max in 8_usize..500,
        steps in prop::collection::vec((1_usize..4, any::<bool>(), 0_u64..30), 1..300),
    ) {
        let budget = ClientBudget::new(max);
        let clients = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"].map(client);
        let mut open = [0_u64; 4];
        let mut now = 0;
        for (index, opens, seconds) in steps {
            // The flood ends all it has and begins again.
            (0..open[0]).for_each(|_| budget.release_at(clients[0], Micros::from_secs(now + 13)));
            open[0] = reserve(&budget, clients[0], 2 * max) as u64;
            if opens {
                let was_new = !budget.held.lock().unwrap().by_address.contains_key(&clients[index]);
                let is_served = budget.reserve(clients[index]).is_ok();
                // The three others leave at least an eighth.
                prop_assert!(is_served || !was_new, "{} of {}", index, max);
                open[index] += u64::from(is_served);
            } else if open[index] > 0 {
                open[index] -= 1;
                budget.release(clients[index]);
            }
            now += seconds;
            budget.expire(Micros::from_secs(now));
            let held = budget.held.lock().unwrap();
            prop_assert_eq!(held.total, held.by_address.values().sum::<u64>());
            prop_assert!(held.total <= max as u64);
        }
        for (client, number) in clients.into_iter().zip(open) {
            (0..number).for_each(|_| budget.release_at(client, Micros::from_secs(now)));
        }
        budget.expire(Micros::from_secs(now + 14));
        let held = budget.held.lock().unwrap();
        prop_assert_eq!((held.total, held.by_address.len()), (0, 0));
    }
}
