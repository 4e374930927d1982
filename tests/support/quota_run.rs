//! Real Envoys with load that share a quota by RLQS: what each was assigned, and what it admitted.

mod answers;
pub(crate) mod assigned;
mod envoy_config;
mod frames;
pub(crate) mod full_quota;
pub(crate) mod load;
pub(crate) mod record;
pub(crate) mod tap;

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use super::envoy::Envoy;
use answers::{ANSWER_MAX, check_answers};
use assigned::{Sent, rate_at};
use envoy_config::{Endpoint, config};
use load::Load;
use record::Record;
use tap::{Report, Tap};

pub(crate) use envoy_config::{DOMAIN, Fallback};

/// Time from the last Envoy's start to the first request.
const SETUP: Duration = Duration::from_millis(500);
/// Time after which the requests of a second are answered.
const ANSWERED: Duration = Duration::from_millis(200);

/// Running Envoys. All ends when this value is dropped.
pub(crate) struct Run {
    nodes: Vec<Node>,
    begin: Instant,
    version: String,
    /// The times in which a report needs no answer: without a server, or while it learns shares again.
    silent: Vec<(Instant, Instant)>,
}

/// An Envoy to start.
#[derive(Clone, Copy)]
pub(crate) struct NodeSetup<'a> {
    /// Its services, in the order of preference.
    pub(crate) services: &'a [SocketAddr],
    /// Requests per second.
    pub(crate) demand: u64,
    /// The address from which it connects.
    pub(crate) address: Ipv4Addr,
    pub(crate) fallback: Fallback,
}

/// The address of an Envoy: each has its own.
pub(crate) fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 11 + u8::try_from(number).expect("few Envoys"))
}

/// An Envoy, what is between it and its services, and its load.
struct Node {
    load: Load,
    taps: Vec<Tap>,
    /// `None` after it was killed.
    envoy: Option<Envoy>,
    /// The demand in each whole second.
    demands: Vec<(usize, u64)>,
    killed: Option<Instant>,
}

impl Run {
    /// Starts one Envoy per item, each with its services in the order of preference, and its demand in
    /// requests per second. Each has its own address, and denies without an assignment. All send requests
    /// for one tenant.
    pub(crate) fn start(version: &str, envoys: &[(&[SocketAddr], u64)]) -> Run {
        Run::of_tenants(version, &Run::own_addresses(envoys), &["acme".to_owned()])
    }

    /// Envoys of which each has its own address, and denies without an assignment.
    pub(crate) fn own_addresses<'a>(envoys: &[(&'a [SocketAddr], u64)]) -> Vec<NodeSetup<'a>> {
        let fallback = Fallback::DenyAll;
        let setup = |(number, (services, demand)): (usize, &(&'a [SocketAddr], u64))| NodeSetup {
            services,
            demand: *demand,
            address: address(number),
            fallback,
        };
        envoys.iter().enumerate().map(setup).collect()
    }

    /// The same for several tenants in turn, and for any Envoys.
    pub(crate) fn of_tenants(version: &str, envoys: &[NodeSetup<'_>], tenants: &[String]) -> Run {
        let started = envoys.iter().map(|NodeSetup { services, demand, address, fallback }| {
            let taps: Vec<Tap> = services.iter().map(|service| Tap::to(*service)).collect();
            let endpoints = taps.iter().zip(services.iter());
            let endpoints: Vec<Endpoint> = endpoints
                .map(|(tap, service)| Endpoint { address: tap.address, health: service.port() })
                .collect();
            let config = config(&endpoints, *address, *fallback);
            (Envoy::with_workers(2, version, &config), taps, *demand)
        });
        let started: Vec<_> = started.collect();
        let begin = Instant::now() + SETUP;
        let nodes = started.into_iter().map(|(envoy, taps, demand)| {
            let load = Load::start(envoy.ingress, tenants, begin, demand);
            Node { load, taps, envoy: Some(envoy), demands: vec![(0, demand)], killed: None }
        });
        let (nodes, version) = (nodes.collect(), version.to_owned());
        Run { nodes, begin, version, silent: Vec::new() }
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
        node.killed = Some(Instant::now());
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

    /// Reports need no answer from a moment before `from` until `to`: there is no server, or it learns shares
    /// again.
    pub(crate) fn needs_no_answer(&mut self, from: Instant, to: Instant) {
        self.silent.push((from - ANSWER_MAX, to));
    }

    /// Reports need answers from `at` on.
    pub(crate) fn answers_again(&mut self, at: Instant) {
        if let Some((_, to)) = self.silent.last_mut() {
            *to = at;
        }
    }

    /// Ends the load. Fails unless each Envoy counted as many successful responses as its clients.
    pub(crate) fn check_counts(&mut self) -> Result<(), String> {
        self.nodes.iter_mut().for_each(|node| node.load.stop());
        for (number, node) in self.nodes.iter().enumerate() {
            let Some(envoy) = &node.envoy else { continue };
            let admitted: u64 = node.load.samples().iter().map(|sample| sample.admitted).sum();
            let counted = envoy.counter("http.ingress.downstream_rq_2xx");
            record::check(counted == admitted, || {
                format!(
                    "Envoy {number} counted {counted} admitted requests, its clients {admitted}"
                )
            })?;
        }
        Ok(())
    }

    /// Fails if a message to an Envoy lacked what Envoy needs, if a report had no answer, or if what an Envoy
    /// was sent expires too early.
    pub(crate) fn check_messages(&self) -> Result<(), String> {
        let mut errors: Vec<String> =
            self.nodes.iter().flat_map(|node| &node.taps).flat_map(Tap::errors).collect();
        let (actions, now) = (self.actions(), Instant::now());
        let (mut sent, mut answered) = (0, 0);
        for (envoy, actions) in actions.iter().enumerate() {
            sent += actions.len();
            let ends = self.nodes[envoy].killed.unwrap_or(now);
            let needs_answer = |at: Instant| {
                let is_silent = self.silent.iter().any(|(from, to)| (*from..*to).contains(&at));
                at + ANSWER_MAX <= ends && !is_silent
            };
            let found = check_answers(&self.reports(envoy), actions, needs_answer);
            answered += found.answered;
            errors.extend(
                found.errors.into_iter().map(|(at, what)| {
                    format!("Envoy {envoy}, second {}: {what}", self.second_of(at))
                }),
            );
        }
        record::check(sent > 0 && answered > 0 && errors.is_empty(), || {
            format!("{sent} actions, {answered} reports that need an answer, {errors:#?}")
        })
    }

    /// The demand of an Envoy in a whole second.
    pub(crate) fn demand_in(&self, envoy: usize, second: usize) -> u64 {
        let demands = &self.nodes[envoy].demands;
        let last = demands.iter().rfind(|(from, _)| *from <= second);
        last.map_or(0, |(_, demand)| *demand)
    }

    /// A table in CSV: a line per Envoy and whole second. `commit` is that of weir, and `part` names the run.
    /// `steps` are the first seconds of the steps, with their names. `quota` is what the Envoys share, in
    /// requests per second.
    pub(crate) fn csv(
        &self,
        commit: &str,
        part: &str,
        steps: &[(usize, &str)],
        quota: u32,
    ) -> String {
        let (record, actions) = (self.record(), self.actions());
        let mut text = String::new();
        for second in 0..self.second() {
            let step = steps.iter().rfind(|(first, _)| *first <= second);
            let step = step.map_or("", |(_, name)| *name);
            for (envoy, actions) in actions.iter().enumerate() {
                let sample = record.second(envoy, second);
                let assigned = rate_at(actions, self.instant(second));
                let row = format!(
                    "{commit},{part},{step},{},{quota},{second},{},{},{},{},{assigned:.1}\n",
                    self.version,
                    envoy + 1,
                    self.demand_in(envoy, second),
                    sample.admitted,
                    sample.denied,
                );
                // No field is quoted, so none may have a comma.
                assert_eq!(row.split(',').count(), CSV_HEAD.split(',').count(), "{row}");
                text += &row;
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
    "commit,part,step,envoy_version,quota,second,envoy,demand,admitted,denied,assigned\n";
