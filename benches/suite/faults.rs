//! The effect of a fault on clients: a primary of a Redis Cluster is killed, or stalls.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use weir_bench::{Plan, Report};

use crate::child::Server;
use crate::figures::Figures;
use crate::support::redis::cluster::Cluster;

/// Time from the start of the load to the fault. The connections are open by then.
const AFTER: Duration = Duration::from_millis(500);

/// The faults, by the names of their figures.
pub(crate) const FAULTS: [&str; 2] = ["primary killed", "primary stalled"];

/// Measures the latency before, across and after each fault, while the node is still down.
///
/// Each measurement uses a new cluster with a node timeout of one second. The instance has the
/// default store timeout.
pub(crate) fn measure(rules: &Path, open: &Plan) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    for fault in FAULTS {
        println!("{fault}");
        let mut cluster = match fault {
            "primary killed" => Cluster::start(),
            // No failover: the stall itself is tested.
            _ => Cluster::with(&[
                "--cluster-node-timeout",
                "60000",
                "--cluster-require-full-coverage",
                "no",
            ]),
        };
        let server = on(&cluster, rules)?;
        let warm = Plan { duration: Duration::from_secs(2), ..open.clone() };
        server.load(&warm)?;
        add(&mut figures, fault, "before", &server.load(open)?.0);
        let across = thread::scope(|scope| {
            let load = scope.spawn(|| server.load(open));
            thread::sleep(AFTER);
            match fault {
                "primary killed" => cluster.nodes[0].kill(),
                _ => cluster.nodes[0].process().freeze(),
            }
            load.join().map_err(|_| anyhow::anyhow!("a defect"))?
        });
        add(&mut figures, fault, "across", &across?.0);
        add(&mut figures, fault, "after", &server.load(open)?.0);
        if fault == "primary stalled" {
            cluster.nodes[0].process().thaw();
        }
    }
    Ok(figures)
}

fn on(cluster: &Cluster, rules: &Path) -> anyhow::Result<Server> {
    let [first, second] = [&cluster.nodes[0], &cluster.nodes[1]].map(|node| node.address());
    let url = format!("redis-cluster://{first}?node={second}");
    let settings = [
        ("WEIR__STORE__KIND", "redis"),
        ("WEIR__REDIS__URL", url.as_str()),
        ("WEIR__RESPONSE__DECISION_HEADER", "true"),
    ];
    Server::weir(rules, &settings).context("weir over a cluster")
}

fn add(figures: &mut Figures, fault: &str, when: &str, report: &Report) {
    let of = &report.latency_us;
    for (point, value) in [("p50", of.p50), ("p99", of.p99), ("p99.9", of.p99_9)] {
        figures.add(&format!("{fault}: {point}, us: {when}"), value);
    }
    let fallen = report.by_fallback.unwrap_or_default() as f64 / report.decided as f64;
    figures.add(&format!("{fault}: by fallback, %: {when}"), 100.0 * fallen);
    if let Some(lateness) = &report.lateness_us {
        figures.add(&format!("{fault}: sent late p99.9, us: {when}"), lateness.p99_9);
    }
}
