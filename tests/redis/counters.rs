//! Counters by the admin interface: any instance shows and deletes them for all.

use crate::support::http::{get, send};
use crate::support::on_redis::{cluster_url, over, ready};
use crate::support::redis::cluster::Cluster;
use crate::support::rls::{Client, descriptor, request};
use crate::support::schedule::shared;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { requests: 3, window: 1000d }
";

const USERS: [&str; 6] = ["ann", "bob", "cid", "dee", "eve", "fay"];

fn take(client: &Client, user: &str) -> i32 {
    client.check(request("d", vec![descriptor(&[("user", user)])])).overall_code
}

/// While a slot moves, its counter is deleted on the node that has it.
#[test]
fn a_counter_of_a_moving_slot_is_deleted() {
    let _permit = shared();
    let cluster = Cluster::start();
    let weir = over(&cluster_url(&cluster), RULES).store_timeout("20s").start();
    ready(&weir);
    let client = weir.client();
    let path = "/counters?domain=d&descriptor=user=ann";
    assert_eq!([take(&client, "ann"), take(&client, "ann")], [1, 1]);
    let shown = get(weir.admin, path).json();
    let key = shown["key"].as_str().expect("a name");
    let from = cluster.owner(0, key);
    cluster.move_slot(cluster.slot(key), from, (from + 1) % 3, || {
        let emptied = send(weir.admin, "DELETE", path, &[], b"").json();
        assert_eq!(emptied["existed"], true, "{emptied}");
    });
    assert_eq!(get(weir.admin, path).json()["tiers"][0]["used"], 0);
    assert_eq!([take(&client, "ann"), take(&client, "ann")], [1, 1]);
}

/// A counter of one instance is shown and deleted through another.
#[test]
fn any_instance_shows_and_deletes_a_counter() {
    let _permit = shared();
    let cluster = Cluster::start();
    let url = cluster_url(&cluster);
    let [one, two] = [(); 2].map(|()| over(&url, RULES).store_timeout("20s").start());
    ready(&one);
    ready(&two);
    let (first, second) = (one.client(), two.client());
    let mut nodes = std::collections::BTreeSet::new();
    for user in USERS {
        let path = format!("/counters?domain=d&descriptor=user={user}");
        assert_eq!([take(&first, user), take(&second, user), take(&first, user)], [1, 1, 1]);
        let shown = get(two.admin, &path).json();
        assert_eq!(shown["store"], "redis", "{shown}");
        let key = shown["key"].as_str().expect("a name").to_owned();
        assert!(key.starts_with("weir:{"), "{key}");
        nodes.insert(key[6..9].to_owned());
        assert_eq!(shown["tiers"][0]["used"], 3);
        assert_eq!(take(&second, user), 2, "at the limit");
        let emptied = send(two.admin, "DELETE", &path, &[], b"").json();
        assert_eq!(emptied["existed"], true, "{emptied}");
        assert_eq!(send(one.admin, "DELETE", &path, &[], b"").json()["existed"], false);
        assert_eq!(get(one.admin, &path).json()["tiers"][0]["used"], 0);
        assert_eq!([take(&first, user), take(&second, user)], [1, 1]);
    }
    println!("{} counters in {} hash tags", USERS.len(), nodes.len());
}
