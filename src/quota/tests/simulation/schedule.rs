//! Random schedules: what happens to a world, by a seed and a theme.

use super::envoy::SimEnvoy;
use super::envoy_side::REPORT_PERIOD;
use super::instance::{Division, Instance};
use super::late::Late;
use super::laws::SimQuota;
use super::liars;
use super::network::Faults;
use super::world::{Action, Event, Setup, World};
use crate::quota::{GroupConfig, Quota};
use crate::testing::Rng;
use crate::testing::simulated_bucket::{Fallback, Fallbacks, SimBucket};
use crate::time::Micros;

/// What a schedule is about. Every theme has changes of demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Theme {
    /// Nothing else.
    Demand,
    /// Envoys start again, and streams end. The first law has no exception.
    Restarts,
    /// Streams end long before their instance notices it.
    HalfOpen,
    /// Calls are lost, late or out of order; instances stop.
    Calls,
    /// The ledger is away for all instances or for one.
    Outages,
    /// It is away for all instances, and holders are renewed without it.
    OutagesRenewed,
    /// It is away for one instance, which renews its holders without it.
    CutOffRenewed,
    /// A replica without the last writes becomes the primary.
    FailOver,
    /// The ledger loses everything.
    Flush,
    /// One instance with its own ledger, which starts again.
    Relearn,
    /// Limits change.
    Reload,
    /// The same, and streams end.
    ReloadCuts,
    /// One Envoy without a name starts again and again, beside three with more demand than the quota.
    CrashLoop,
    /// Envoys have the same name, and move between instances.
    SharedNames,
    /// Callers of ShouldRateLimit use the same quotas; calls are lost, and instances stop.
    LocalCallers,
    /// Many Envoys of one client want everything, beside those of two honest clients.
    Liars,
    /// Envoys have all kinds of fallbacks. They start again, the ledger is away, and instances stop.
    Fallbacks,
    /// As `Relearn`, with fallbacks that pass everything.
    RelearnFallbacks,
    /// Reports and assignments need up to five seconds. Streams end.
    SlowMessages,
}

impl Theme {
    pub(super) const ALL: [Theme; 19] = [
        Theme::Demand,
        Theme::Restarts,
        Theme::HalfOpen,
        Theme::Calls,
        Theme::Outages,
        Theme::OutagesRenewed,
        Theme::CutOffRenewed,
        Theme::FailOver,
        Theme::Flush,
        Theme::Relearn,
        Theme::Reload,
        Theme::ReloadCuts,
        Theme::CrashLoop,
        Theme::SharedNames,
        Theme::LocalCallers,
        Theme::Liars,
        Theme::Fallbacks,
        Theme::RelearnFallbacks,
        Theme::SlowMessages,
    ];
}

/// How large a world is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) envoys: usize,
    pub(super) quotas: usize,
    /// Quotas of which each Envoy has a bucket.
    pub(super) per_envoy: usize,
    /// Seconds.
    pub(super) length: u64,
    /// Changes of demand and faults, in ten seconds.
    pub(super) changes: u64,
    pub(super) faults: u64,
}

/// The times of a group with the default settings.
pub(super) fn config(shared: bool) -> GroupConfig {
    GroupConfig {
        grace: Micros::from_millis(500),
        ttl: Micros::from_secs(12),
        margin: Micros::SECOND,
        shared,
        relearn_until: Micros::ZERO,
    }
}

/// A random part of the demand of a quota for one of its `holders`.
fn demand(rng: &mut Rng, quota: &Quota, holders: usize) -> f64 {
    let fair = saturating(quota) / holders.max(1) as f64;
    let levels = [0.0, 0.1, 0.3, 0.5, 1.0, 1.0, 1.5, 2.0, 3.0, 3.0, 6.0];
    rng.pick(&levels) * fair
}

/// As much demand as the whole quota.
fn saturating(quota: &Quota) -> f64 {
    quota.requests as f64 * 1e6 / quota.window.0 as f64
}

/// A world with its schedule.
pub(super) fn world(seed: u64, theme: Theme, size: Size, division: Division) -> World {
    let mut rng = Rng::new(seed);
    let crashes = theme == Theme::CrashLoop;
    let size = match theme {
        Theme::CrashLoop => Size { envoys: 4, quotas: 1, per_envoy: 1, ..size },
        Theme::Liars => Size { envoys: liars::ENVOYS, quotas: 1, per_envoy: 1, ..size },
        _ => size,
    };
    let shared = !matches!(theme, Theme::Relearn | Theme::RelearnFallbacks);
    let setup = Setup {
        division,
        config: config(shared),
        relearn: !shared,
        renew_without_ledger: matches!(theme, Theme::OutagesRenewed | Theme::CutOffRenewed),
        fault: None,
        strict: false,
        excuse: !matches!(
            theme,
            Theme::Demand
                | Theme::Restarts
                | Theme::Relearn
                | Theme::CrashLoop
                | Theme::SharedNames
                | Theme::Liars
                | Theme::RelearnFallbacks
        ),
    };
    let mut quotas: Vec<SimQuota> = (0..size.quotas)
        .map(|index| {
            let requests = rng.pick(&[10, 60, 300, 1_000, 50_000]);
            let window = rng.pick(&[Micros::SECOND, Micros::SECOND, Micros::from_secs(60)]);
            let burst = (requests / 5).max(1);
            SimQuota::new(Quota { requests, window, burst }, index, Vec::new())
        })
        .collect();
    let mut envoys: Vec<SimEnvoy> = Vec::new();
    for index in 0..size.envoys {
        let mut envoy = SimEnvoy {
            client: index as u64,
            name: rng.chance(40).then_some(index as u64),
            home: None,
            epoch: 0,
            phase: Micros(rng.below(REPORT_PERIOD.0)),
            stream: None,
            buckets: std::collections::BTreeMap::new(),
        };
        for _ in 0..size.per_envoy {
            let quota = rng.below(size.quotas as u64) as usize;
            let fallbacks = fallbacks(&mut rng, theme);
            let bucket = SimBucket::new(index, fallbacks);
            if envoy.buckets.insert(quota, bucket).is_none() {
                quotas[quota].envoys.push(index);
            }
        }
        envoys.push(envoy);
    }
    for envoy in &mut envoys {
        for (quota, bucket) in &mut envoy.buckets {
            let holders = quotas[*quota].envoys.len();
            bucket.demand = demand(&mut rng, &quotas[*quota].quota, holders);
            if crashes {
                bucket.demand = saturating(&quotas[*quota].quota);
            }
        }
    }
    if crashes {
        envoys[0].name = None;
    }
    if theme == Theme::SharedNames {
        share_names(&mut envoys);
    }
    if theme == Theme::Liars {
        liars::arrange(&mut rng, &mut envoys, &mut quotas[0]);
    }
    let count = if shared { 1 + rng.below(4) as usize } else { 1 };
    let count = if theme == Theme::Demand { count } else { count.max(2) };
    let count = if shared { count } else { 1 };
    if theme == Theme::LocalCallers {
        add_local_callers(&mut rng, count, &mut envoys, &mut quotas);
    }
    let instances: Vec<Instance> =
        (0..count).map(|_| Instance::new(rng.below(100_000), setup.config)).collect();
    let actions = actions(&mut rng, theme, size, count, &envoys, &quotas);
    let replicates = theme == Theme::FailOver;
    if theme == Theme::SlowMessages {
        quotas.iter_mut().for_each(|quota| quota.exceptions.late = Late::new(setup.config.grace));
    }
    let mut world = World::new(setup, rng, envoys, instances, quotas, replicates);
    for (at, action) in actions {
        world.at(at, Event::Act(action));
    }
    world
}

/// What a bucket does without an assignment. Most themes judge assignments only.
fn fallbacks(rng: &mut Rng, theme: Theme) -> Fallbacks {
    match theme {
        Theme::Relearn => Fallbacks::default(),
        Theme::RelearnFallbacks => Fallbacks {
            unassigned: rng.pick(&[Fallback::AllowAll, Fallback::AllowAll, Fallback::DenyAll]),
            ..Fallbacks::default()
        },
        Theme::Fallbacks => Fallbacks {
            // A token bucket there crashes Envoy.
            unassigned: rng.pick(&[Fallback::DenyAll, Fallback::AllowAll]),
            expired: rng.pick(&[Fallback::DenyAll, Fallback::AllowAll, Fallback::Rate(5.0)]),
            expired_for: rng.pick(&[0, 2, 3_600].map(Micros::from_secs)),
        },
        _ => {
            let rate = Fallback::Rate(rng.pick(&[0.0, 0.0, 5.0]));
            Fallbacks { unassigned: rate, ..Fallbacks::default() }
        }
    }
}

/// Gives each name to two or three Envoys. All have one address, because a name is one of an address.
fn share_names(envoys: &mut [SimEnvoy]) {
    let names = (envoys.len() / 2).max(1) as u64;
    for (index, envoy) in envoys.iter_mut().enumerate() {
        envoy.client = 0;
        envoy.name = Some(index as u64 % names);
        envoy.buckets.values_mut().for_each(|bucket| bucket.shares_name = true);
    }
}

/// Gives most instances local callers in each quota.
fn add_local_callers(
    rng: &mut Rng,
    instances: usize,
    envoys: &mut Vec<SimEnvoy>,
    quotas: &mut [SimQuota],
) {
    for instance in 0..instances {
        if rng.chance(30) {
            continue;
        }
        let index = envoys.len();
        let mut buckets = std::collections::BTreeMap::new();
        for quota in quotas.iter_mut() {
            let mut bucket = SimBucket::new(index, Fallbacks::default());
            quota.envoys.push(index);
            bucket.demand = demand(rng, &quota.quota, quota.envoys.len());
            bucket.is_local = true;
            buckets.insert(quota.index, bucket);
        }
        envoys.push(SimEnvoy {
            client: index as u64,
            name: None,
            epoch: 0,
            phase: Micros(rng.below(REPORT_PERIOD.0)),
            stream: None,
            home: Some(instance),
            buckets,
        });
    }
}

/// The actions of a world. There are faults in the first half of its time only.
fn actions(
    rng: &mut Rng,
    theme: Theme,
    size: Size,
    instances: usize,
    envoys: &[SimEnvoy],
    quotas: &[SimQuota],
) -> Vec<(Micros, Action)> {
    if theme == Theme::CrashLoop {
        // A process that runs for 6 s has two reports, so its demand is known.
        let period = rng.pick(&[300, 1_000, 1_000, 2_500, 6_000]);
        let period = Micros::from_millis(period);
        return vec![(Micros::from_secs(15), Action::CrashLoop { envoy: 0, period })];
    }
    if theme == Theme::Liars {
        return liars::actions(rng, Micros::from_secs(size.length));
    }
    let mut actions = Vec::new();
    let length = size.length * 1_000_000;
    for _ in 0..size.length * size.changes / 10 {
        let envoy = rng.below(envoys.len() as u64) as usize;
        let known: Vec<usize> = envoys[envoy].buckets.keys().copied().collect();
        let quota = rng.pick(&known);
        let holders = quotas[quota].envoys.len();
        let demand = demand(rng, &quotas[quota].quota, holders);
        actions.push((Micros(rng.below(length)), Action::Demand { envoy, quota, demand }));
    }
    if theme == Theme::Demand {
        return actions;
    }
    for _ in 0..(size.length * size.faults / 20).max(1) {
        let at = Micros(rng.below(length / 2));
        let envoy = rng.below(envoys.len() as u64) as usize;
        let instance = rng.below(instances as u64) as usize;
        let pause = Micros(500_000 + rng.below(20_000_000));
        let ends = at.saturating_add(pause);
        let noticed = Micros(rng.below(200_000));
        match theme {
            Theme::Demand | Theme::CrashLoop | Theme::Liars => {}
            Theme::ReloadCuts | Theme::SlowMessages if rng.chance(40) => {
                actions.push((at, Action::Cut { envoy, noticed }));
            }
            Theme::Fallbacks if rng.chance(60) => {
                actions.push((at, Action::Restart { envoy }));
            }
            Theme::Fallbacks if rng.chance(30) => {
                actions.push((at, Action::Stop { instance, pause }));
            }
            Theme::Restarts if rng.chance(50) => actions.push((at, Action::Restart { envoy })),
            Theme::Restarts | Theme::SharedNames => {
                actions.push((at, Action::Cut { envoy, noticed }));
            }
            Theme::HalfOpen => {
                let noticed = Micros(rng.below(20_000_000));
                actions.push((at, Action::Cut { envoy, noticed }));
            }
            Theme::Calls | Theme::LocalCallers if rng.chance(30) => {
                actions.push((at, Action::Stop { instance, pause }));
            }
            Theme::Calls | Theme::LocalCallers => {
                let mut percent = || rng.below(30);
                let (lost_requests, lost_replies) = (percent(), percent());
                let faults = Faults {
                    lost_requests,
                    lost_replies,
                    late_requests: percent(),
                    cut_off: vec![],
                };
                actions.push((at, Action::Faults(faults)));
                actions.push((ends, Action::Faults(Faults::default())));
            }
            Theme::Outages | Theme::OutagesRenewed | Theme::CutOffRenewed | Theme::Fallbacks => {
                let all = match theme {
                    Theme::CutOffRenewed => false,
                    Theme::Fallbacks => true,
                    _ => rng.chance(50) || theme == Theme::OutagesRenewed,
                };
                let cut_off = if all { (0..instances).collect() } else { vec![instance] };
                let long = Micros(pause.0 * rng.below(3));
                actions.push((at, Action::Faults(Faults { cut_off, ..Faults::default() })));
                actions.push((ends.saturating_add(long), Action::Faults(Faults::default())));
            }
            Theme::FailOver => {
                let lag = Micros(rng.below(2_000_000));
                actions.push((at, Action::FailOver { lag }));
            }
            Theme::Flush => actions.push((at, Action::Flush)),
            Theme::Relearn | Theme::RelearnFallbacks => {
                let pause = Micros(pause.0 / 3);
                if theme == Theme::RelearnFallbacks {
                    let after = at.saturating_add(Micros(rng.below(pause.0)));
                    actions.push((after, Action::Restart { envoy }));
                }
                actions.push((at, Action::Stop { instance, pause }));
            }
            Theme::Reload | Theme::ReloadCuts => {
                let quota = rng.below(quotas.len() as u64) as usize;
                let before = quotas[quota].quota.requests;
                let requests = (before * (1 + rng.below(30)) / 10).max(1);
                let pause = Micros(rng.below(3_000_000));
                actions.push((at, Action::Requests { quota, requests, pause }));
            }
            Theme::SlowMessages => {
                actions.push((at, Action::Slow { percent: 1 + rng.below(60) }));
                actions.push((ends, Action::Slow { percent: 0 }));
            }
        }
    }
    actions
}
