//! Real Envoys with load that share a quota by RLQS: what each was assigned, and what it admitted.

pub(crate) mod assigned;
mod envoy_config;
mod frames;
pub(crate) mod full_quota;
pub(crate) mod load;
pub(crate) mod record;
pub(crate) mod tap;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use super::envoy::Envoy;
use assigned::{Sent, rate_at};
use envoy_config::{Endpoint, config};
use load::Load;
use record::Record;
use tap::{Report, Tap};

pub(crate) use envoy_config::DOMAIN;

/// Time from the last Envoy's start to the first request.
const SETUP: Duration = Duration::from_millis(500);
/// The interval of Envoy's reports, and the time after which one is answered.
const INTERVAL: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(1);
/// Time after which the requests of a second are answered.
const ANSWERED: Duration = Duration::from_millis(200);

/// Running Envoys. All ends when this value is dropped.
pub(crate) struct Run {
    nodes: Vec<Node>,
    begin: Instant,
    version: String,
}

/// An Envoy, what is between it and its services, and its load.
struct Node {
    load: Load,
    taps: Vec<Tap>,
    /// `None` after it was killed.
    envoy: Option<Envoy>,
    /// The demand in each whole second.
    demands: Vec<(usize, u64)>,
}

impl Run {
    /// Starts one Envoy per item, each with its services in the order of preference, and its demand in
    /// requests per second. All send requests for one tenant.
    pub(crate) fn start(version: &str, envoys: &[(&[SocketAddr], u64)]) -> Run {
        Run::of_tenants(version, envoys, &["acme".to_owned()])
    }

    /// The same for several tenants in turn.
    pub(crate) fn of_tenants(
        version: &str,
        envoys: &[(&[SocketAddr], u64)],
        tenants: &[String],
    ) -> Run {
        let started = envoys.iter().map(|(services, demand)| {
            let taps: Vec<Tap> = services.iter().map(|service| Tap::to(*service)).collect();
            let endpoints = taps.iter().zip(services.iter());
            let endpoints: Vec<Endpoint> = endpoints
                .map(|(tap, service)| Endpoint { address: tap.address, health: service.port() })
                .collect();
            (Envoy::with_workers(2, version, &config(&endpoints)), taps, *demand)
        });
        let started: Vec<_> = started.collect();
        let begin = Instant::now() + SETUP;
        let nodes = started.into_iter().map(|(envoy, taps, demand)| {
            let load = Load::start(envoy.ingress, tenants, begin, demand);
            Node { load, taps, envoy: Some(envoy), demands: vec![(0, demand)] }
        });
        Run { nodes: nodes.collect(), begin, version: version.to_owned() }
    }

    /// Whole seconds since the first request.
    pub(crate) fn second(&self) -> usize {
        self.second_of(Instant::now())
    }

    /// The whole second of an instant.
    pub(crate) fn second_of(&self, instant: Instant) -> usize {
        instant.saturating_duration_since(self.begin).as_secs() as usize
    }

    /// The instant at which a whole second begins.
    pub(crate) fn instant(&self, second: usize) -> Instant {
        self.begin + Duration::from_secs(second as u64)
    }

    /// Waits until `second` begins and the requests of those before it are answered.
    pub(crate) fn until_second(&self, second: usize) {
        until(self.instant(second) + ANSWERED);
    }

    /// Changes the demands, in requests per second.
    pub(crate) fn demand(&mut self, demands: &[u64]) {
        let second = self.second();
        for (node, demand) in self.nodes.iter_mut().zip(demands) {
            node.load.set(*demand);
            node.demands.push((second, *demand));
        }
    }

    /// Kills an Envoy.
    pub(crate) fn kill(&mut self, envoy: usize) {
        let second = self.second();
        let node = &mut self.nodes[envoy];
        node.load.stop();
        node.demands.push((second, 0));
        node.envoy = None;
    }

    /// Sends later connections to a service that has started instead of the first one.
    pub(crate) fn retarget(&self, service: SocketAddr) {
        self.nodes.iter().for_each(|node| node.taps[0].retarget(service));
    }

    /// Fails unless every Envoy that was not killed runs.
    pub(crate) fn check_alive(&mut self) -> Result<(), String> {
        let alive = self.nodes.iter_mut().filter_map(|node| node.envoy.as_mut());
        let crashed = alive.map(Envoy::is_alive).filter(|alive| !alive).count();
        record::check(crashed == 0, || format!("{crashed} Envoys have ended"))
    }

    /// The Envoys that were not killed.
    pub(crate) fn alive(&self) -> Vec<usize> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter(|(_, node)| node.envoy.is_some()).map(|(number, _)| number).collect()
    }

    /// What was admitted so far.
    pub(crate) fn record(&self) -> Record {
        Record { envoys: self.nodes.iter().map(|node| node.load.samples()).collect() }
    }

    /// The actions that each Envoy was sent, in order.
    pub(crate) fn actions(&self) -> Vec<Vec<Sent>> {
        let of = |node: &Node| {
            let mut actions: Vec<Sent> = node.taps.iter().flat_map(Tap::actions).collect();
            actions.sort_by_key(|sent| sent.at);
            actions
        };
        self.nodes.iter().map(of).collect()
    }

    /// The rate that an Envoy is assigned now.
    pub(crate) fn assigned(&self, envoy: usize) -> f64 {
        rate_at(&self.actions()[envoy], Instant::now())
    }

    /// The reports of an Envoy, in order.
    pub(crate) fn reports(&self, envoy: usize) -> Vec<Report> {
        let mut reports: Vec<Report> =
            self.nodes[envoy].taps.iter().flat_map(Tap::reports).collect();
        reports.sort_by_key(|report| report.at);
        reports
    }

    /// Fails if a message to an Envoy lacked what Envoy needs, or if the answer to a report expires
    /// before the report after the next one.
    pub(crate) fn check_messages(&self) -> Result<(), String> {
        let mut errors: Vec<String> =
            self.nodes.iter().flat_map(|node| &node.taps).flat_map(Tap::errors).collect();
        let actions = self.actions();
        for (envoy, actions) in actions.iter().enumerate() {
            for report in self.reports(envoy) {
                let after = |sent: &&Sent| sent.at >= report.at && sent.at < report.at + ANSWER;
                let ttl = actions.iter().filter(after).filter_map(|sent| Some(sent.assigned?.ttl));
                if let Some(ttl) = ttl.max().filter(|ttl: &Duration| *ttl < 2 * INTERVAL) {
                    errors.push(format!("Envoy {envoy}: a report was answered for {ttl:?}"));
                }
            }
        }
        let sent: usize = actions.iter().map(Vec::len).sum();
        record::check(sent > 0 && errors.is_empty(), || format!("{sent} actions, {errors:#?}"))
    }

    /// The demand of an Envoy in a whole second.
    pub(crate) fn demand_in(&self, envoy: usize, second: usize) -> u64 {
        let demands = &self.nodes[envoy].demands;
        let last = demands.iter().rfind(|(from, _)| *from <= second);
        last.map_or(0, |(_, demand)| *demand)
    }

    /// A table in CSV: a line per Envoy and whole second. `part` is its first column. `steps` are the first
    /// seconds of the steps, with their names. `quota` is what the Envoys share, in requests per second.
    pub(crate) fn csv(&self, part: &str, steps: &[(usize, &str)], quota: u32) -> String {
        let (record, actions) = (self.record(), self.actions());
        let mut text = String::new();
        for second in 0..self.second() {
            let step = steps.iter().rfind(|(first, _)| *first <= second);
            let step = step.map_or("", |(_, name)| *name);
            for (envoy, actions) in actions.iter().enumerate() {
                let sample = record.second(envoy, second);
                let assigned = rate_at(actions, self.instant(second));
                text += &format!(
                    "{part},{step},{},{quota},{second},{},{},{},{},{assigned:.1}\n",
                    self.version,
                    envoy + 1,
                    self.demand_in(envoy, second),
                    sample.admitted,
                    sample.denied,
                );
            }
        }
        text
    }
}

/// Waits until an instant.
pub(crate) fn until(instant: Instant) {
    thread::sleep(instant.saturating_duration_since(Instant::now()));
}

/// The first line of a file with the tables of [`Run::csv`].
pub(crate) const CSV_HEAD: &str =
    "part,step,envoy_version,quota,second,envoy,demand,admitted,denied,assigned\n";
