//! envoyproxy/ratelimit under saturation, in the rounds of the servers, and weir on Redis beside it.

use std::path::Path;

use weir_bench::Plan;
use weir_charts::short;

use crate::child::Server;
use crate::envoy_ratelimit::{EnvoyRatelimit, PIPELINES};
use crate::figures::Figures;
use crate::fleet::ENVOY_RATELIMIT;
use crate::redis::Redis;
use crate::rounds::{redis_cpu_figure, saturation};

/// A running envoyproxy/ratelimit, and the Redis that only it counts in.
pub(crate) struct Peer {
    name: &'static str,
    server: Server,
    redis: Redis,
}

/// Starts the build `program` of envoyproxy/ratelimit twice: without and with pipelines.
pub(crate) fn start(program: &Path, folder: &Path) -> anyhow::Result<Vec<Peer>> {
    let rules = crate::rules("fixed_window").replace(", algorithm: fixed_window", "");
    let build = EnvoyRatelimit::new(program, folder, &rules)?;
    let mut peers = Vec::new();
    for (name, variables) in ENVOY_RATELIMIT.into_iter().zip([&[][..], PIPELINES]) {
        let redis = Redis::start();
        let server = build.start(redis.address(), variables)?;
        peers.push(Peer { name, server, redis });
    }
    Ok(peers)
}

impl Peer {
    /// Loads the service without measuring it.
    pub(crate) fn warm_up(&self, plan: &Plan) -> anyhow::Result<()> {
        self.server.load(plan).map(|_| ())
    }

    /// Adds the figures of one closed loop.
    pub(crate) fn measure(&self, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
        saturation(self.name, &self.server, Some(&self.redis), plan, figures)
    }
}

/// The CPU time of Redis per decision of weir, divided by that of envoyproxy/ratelimit, without or with
/// pipelines, whichever makes the ratio larger.
pub(crate) fn redis_ratio(figures: &Figures) -> Option<f64> {
    let of = redis_cpu_figure("Redis");
    let [without, with] = ENVOY_RATELIMIT.map(|by| figures.ratio(&of, &redis_cpu_figure(by)));
    Some(without?.max(with?))
}

/// The table.
pub(crate) fn table(figures: &Figures) -> String {
    if redis_ratio(figures).is_none() {
        return "The run had no `--envoy-ratelimit` or no Redis, so envoyproxy/ratelimit was not \
                measured."
            .to_owned();
    }
    let mut rows = "| service | CPU s of the service | CPU s of Redis | calls per second | \
                    CPU of Redis under weir, of this |\n| --- | --- | --- | --- | --- |\n"
        .to_owned();
    let services =
        [("weir on Redis", "Redis"), ("weir on Redis, the build before", "Redis, before")];
    for (name, of) in services.into_iter().chain(ENVOY_RATELIMIT.map(|name| (name, name))) {
        let figure = |what: &str| figures.get(&format!("saturated: {what}: {of}"));
        let Some(cpu) = figure("CPU s per 100 000") else { continue };
        let redis = figures.get(&redis_cpu_figure(of)).map(|million| million / 10.0);
        let ratio = figures.ratio(&redis_cpu_figure("Redis"), &redis_cpu_figure(of));
        let cells = [Some(cpu), redis, figure("calls per second"), ratio];
        let cells = cells.map(|cell| cell.map_or("-".to_owned(), short)).join(" | ");
        rows += &format!("| {name} | {cells} |\n");
    }
    rows
}
