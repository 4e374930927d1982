//! What happens in a world, by its theme and seed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep_until;

use super::instance::{Instance, SimBackend, SimClock};
use super::judge::Exception;
use super::redis::{SimConnection, SimRedis};
use super::world::{State, World};
use super::{Fault, SimInstant, config, envoy};
use crate::limit::OnError;
use crate::quota::Quota;
use crate::rlqs::RlqsConfig;
use crate::testing::simulated_bucket::{Fallback, Fallbacks, SimBucket};
use crate::testing::{Rng, lock};
use crate::time::Micros;

/// What a world is about. Each has Envoys, and most have callers of ShouldRateLimit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Theme {
    /// A rule ceases to be divided by a reload, and begins again.
    BeginsAndCeases,
    /// The same with a memory store, and calls with as many hits as the limit.
    LargeHits,
    /// A reload gives a value another rule, and back.
    OtherRule,
    /// Callers begin at an instance while Envoys have the whole limit.
    FirstShare,
    /// The same, while Redis does not answer for a moment.
    Stall,
    /// An instance without RLQS has callers too.
    WithoutRlqs,
    /// An instance without a memory starts again, and an Envoy passes everything by its fallback.
    RelearnFallbacks,
}

impl Theme {
    pub(super) const ALL: [Theme; 7] = [
        Theme::BeginsAndCeases,
        Theme::LargeHits,
        Theme::OtherRule,
        Theme::FirstShare,
        Theme::Stall,
        Theme::WithoutRlqs,
        Theme::RelearnFallbacks,
    ];

    /// The limit of all values.
    fn quota(self) -> Quota {
        match self {
            Theme::LargeHits => Quota { requests: 60, window: Micros::from_secs(60), burst: 60 },
            _ => Quota { requests: 300, window: Micros::SECOND, burst: 60 },
        }
    }

    /// Virtual seconds. Debts of large calls add up.
    fn length(self) -> u64 {
        if self == Theme::LargeHits { 600 } else { 100 }
    }

    /// From when on nothing happens.
    fn calm(self) -> u64 {
        self.length() - 20
    }

    /// The milliseconds between two reloads: longer than the pause between two instances. A rule ceases to be
    /// divided in memory when the last assignments have expired.
    fn pause(self, rng: &mut Rng) -> u64 {
        let least = if self == Theme::LargeHits { 15_000 } else { 7_000 };
        least + rng.below(7_000)
    }

    /// The hits of a call.
    fn hits(self) -> u64 {
        if self == Theme::LargeHits { 60 } else { 1 }
    }
}

/// The only value of most themes, and the one that does not change its rule.
const VALUE: &str = "a";

/// When changes may begin: shares follow the demand.
const SETTLED: u64 = 20;

/// How long the counters of other instances decide after a rule began to be divided.
const ANNOUNCED: Micros = Micros::from_millis(2_500);

/// When no assignment of before a change is valid, and no holding.
const EXPIRED: Micros = Micros::from_secs(14);

/// When all Envoys have reported after a start.
const REPORTED: Micros = Micros::from_secs(6);

/// How long a new share takes at an Envoy with a stream: its instance reads the rules, and settles twice.
const PLACED: Micros = Micros::from_secs(2);

/// Most documented seconds until callers have their first share.
const FIRST_SHARE: Micros = Micros::from_millis(3_500);

/// The same for a later version.
const FIRST_SHARE_STRICT: Micros = Micros::from_millis(1_200);

/// The rules of a quota. `cost`: hits count twice, of a limit that is twice as large, so it is not divided.
fn rules(quota: Quota, own_rule: bool, cost: bool) -> String {
    let (requests, burst) = (quota.requests, quota.burst);
    let unit = if quota.window == Micros::SECOND { "second" } else { "minute" };
    let factor = if cost { 2 } else { 1 };
    let cost = if cost { ", cost: 2" } else { "" };
    let limit = format!(
        "rate_limit: {{algorithm: token_bucket, unit: {unit}, requests_per_unit: {}, \
         burst: {}{cost}}}",
        factor * requests,
        factor * burst
    );
    let own = format!("  - {{key: tenant, value: {VALUE}, {limit}}}\n");
    format!("{}  - {{key: tenant, {limit}}}\n", if own_rule { &*own } else { "" })
}

/// A world that has begun, with its Redis.
struct Setting {
    world: Arc<World>,
    redis: Arc<SimRedis>,
    begin: SimInstant,
    theme: Theme,
    rng: Rng,
}

/// Runs a world to its end.
pub(super) async fn run(seed: u64, theme: Theme, fault: Option<Fault>, strict: bool) -> Arc<World> {
    let mut rng = Rng::new(seed);
    let (begin, redis, quota) = (SimInstant::now(), SimRedis::new(rng.next()), theme.quota());
    let clock = SimClock(begin);
    let relearns = theme == Theme::RelearnFallbacks;
    let in_memory = relearns || theme == Theme::LargeHits;
    let instances = (0..if in_memory { 1 } else { 2 }).map(|number| {
        let redis = || SimBackend::Redis(SimConnection(redis.clone()));
        let backend = if in_memory { SimBackend::Memory } else { redis() };
        let has_rlqs = theme != Theme::WithoutRlqs || number == 0;
        // Without a share, no call passes by the fallback.
        let on_error = if theme == Theme::FirstShare { OnError::Deny } else { OnError::Allow };
        let config = RlqsConfig { relearn: relearns, on_error, ..config() };
        Instance::new(backend, clock, has_rlqs, config, &rules(quota, false, false))
    });
    let instances: Vec<Instance> = instances.collect();
    let limit = quota.requests as f64 * 1e6 / quota.window.0 as f64;
    let fallbacks = Fallbacks { unassigned: Fallback::AllowAll, ..Fallbacks::default() };
    let fallbacks = if relearns { fallbacks } else { Fallbacks::default() };
    let bucket = |index: usize, part: f64| {
        let mut bucket = SimBucket::new(index, fallbacks);
        bucket.demand = part * limit;
        BTreeMap::from([(VALUE.to_owned(), bucket)])
    };
    let parts = [1.3, 0.3, 0.2];
    let envoys: Vec<_> =
        parts.iter().enumerate().map(|(index, part)| bucket(index, *part)).collect();
    let mut state = State::new(rng.next(), quota, envoys, &[VALUE]);
    let judge = state.judge(VALUE);
    judge.strict = strict;
    judge.demand = 10.0 * limit;
    judge.first_share_max = if strict { FIRST_SHARE_STRICT } else { FIRST_SHARE };
    judge.apart = (theme == Theme::WithoutRlqs).then_some(1);
    judge.used_from = Micros::from_secs(3_600 + theme.calm());
    if theme == Theme::LargeHits {
        // A call waits until a share is full, and there is one in a minute.
        (judge.first_share_max, judge.used_from) = (Micros(u64::MAX), Micros(u64::MAX));
    }
    let alone = matches!(theme, Theme::FirstShare | Theme::Stall);
    let world = World::new(clock, instances, state, fault, alone);
    world.instances.iter().for_each(Instance::start);
    for number in 0..parts.len() {
        let first = begin + Duration::from_millis(rng.below(5_000));
        tokio::spawn(envoy::run(world.clone(), number, first));
    }
    let end = begin + Duration::from_secs(theme.length());
    let mut setting = Setting { world: world.clone(), redis, begin, theme, rng };
    setting.begin(limit);
    tokio::spawn(world.clone().sample(end));
    setting.act().await;
    sleep_until(end + Duration::from_secs(1)).await;
    world.instances.iter().for_each(Instance::stop);
    world
}

impl Setting {
    /// The instant that is this many milliseconds after the begin.
    fn at(&self, millis: u64) -> SimInstant {
        self.begin + Duration::from_millis(millis)
    }

    /// Callers begin, and the exceptions of the begin hold.
    fn begin(&mut self, limit: f64) {
        let quota = self.theme.quota();
        let burst = quota.burst as f64;
        let number = self.world.instances.len();
        let always = (Micros::ZERO, Micros(u64::MAX));
        let begins = self.world.now();
        let announced = begins.saturating_add(Micros::from_secs(5)).saturating_add(ANNOUNCED);
        let mut state = lock(&self.world.state);
        let judge = state.judge(VALUE);
        // The counter may be full whenever it decides.
        judge.allow(Exception::Begins, 0.0, burst, always);
        judge.allow(Exception::Begins, limit, 0.0, (begins, announced));
        if self.theme == Theme::LargeHits {
            // A full share of each further instance allows a call of the whole limit.
            judge.allow(Exception::LargeHits, 0.0, burst * (number - 1) as f64, always);
        }
        drop(state);
        let (first, instances) = match self.theme {
            Theme::RelearnFallbacks => return,
            // Only where no Envoy has a stream, or where the theme needs them.
            Theme::FirstShare | Theme::Stall => {
                (SETTLED * 1_000 + self.rng.below(5_000), 1..number)
            }
            _ => (0, 0..number),
        };
        // Calls of a moment must be more than what Envoys have saved up.
        let parts = if self.theme == Theme::Stall { [10.0, 15.0, 20.0] } else { [0.5, 1.0, 2.0] };
        let demand = self.rng.pick(&parts) * limit.max(12.0);
        let length = if self.theme == Theme::Stall { 5_000 } else { self.theme.length() * 1_000 };
        for instance in instances {
            let time = (self.at(first), self.at(first + length));
            let calls = self.world.clone().call(instance, VALUE, (demand, self.theme.hits()), time);
            tokio::spawn(calls);
        }
        if self.theme == Theme::Stall {
            let stall = Duration::from_millis(30 + self.rng.below(70));
            let before = self.rng.below(5);
            let (redis, at) = (self.redis.clone(), self.at(first - before));
            tokio::spawn(async move {
                sleep_until(at).await;
                redis.stall(stall);
            });
            let judge = &mut lock(&self.world.state);
            // A failed first read is tried again after 20 ms, and the driver looks every 250 ms.
            let ends = Micros::from_millis(first).saturating_add(Micros::from_millis(500));
            let time =
                (begins.saturating_add(Micros::from_millis(first)), begins.saturating_add(ends));
            judge.judge(VALUE).allow(Exception::NoAnswer, demand, 0.0, time);
        }
    }

    /// What happens after the begin.
    async fn act(&mut self) {
        let mut toggled = false;
        let mut at = SETTLED * 1_000 + self.rng.below(3_000);
        while at < self.theme.calm() * 1_000 - 30_000 {
            sleep_until(self.at(at)).await;
            toggled = !toggled;
            match self.theme {
                Theme::FirstShare | Theme::Stall | Theme::WithoutRlqs => return,
                Theme::RelearnFallbacks => self.restart().await,
                _ => self.reload(toggled),
            }
            at += self.theme.pause(&mut self.rng);
        }
        if toggled && self.theme != Theme::RelearnFallbacks {
            sleep_until(self.at(at)).await;
            self.reload(false);
        }
    }

    /// A reload, which one instance reads up to two seconds later than the other.
    fn reload(&mut self, toggled: bool) {
        let quota = self.theme.quota();
        let (burst, now) = (quota.burst as f64, self.world.now());
        let number = self.world.instances.len() as f64;
        let pause = Micros(self.rng.below(2_000_000));
        let text = match self.theme {
            Theme::OtherRule => rules(quota, toggled, false),
            _ => rules(quota, false, toggled),
        };
        let mut state = lock(&self.world.state);
        let judge = state.judge(VALUE);
        let limit = judge.limit();
        let read = now.saturating_add(pause);
        let until = |time: Micros| (now, read.saturating_add(time));
        match self.theme {
            Theme::OtherRule => {
                judge.allow(Exception::OtherRule, limit, burst, until(PLACED));
                judge.allow(Exception::Begins, limit, burst, until(ANNOUNCED));
            }
            _ if toggled => judge.allow(Exception::Ceases, limit, 0.0, until(EXPIRED)),
            _ => {
                // Streams place their buckets again at once.
                judge.allow(Exception::Begins, limit, 0.0, until(ANNOUNCED));
                let again = if self.theme == Theme::LargeHits { burst } else { 0.0 };
                judge.allow(Exception::BeginsAgain, 0.0, number * again, until(EXPIRED));
            }
        }
        drop(state);
        let all = self.world.instances.len();
        let first = self.rng.below(all as u64) as usize;
        for (order, instance) in (first..first + all).map(|one| one % all).enumerate() {
            let (world, text) = (self.world.clone(), text.clone());
            let at = SimInstant::now() + Duration::from_micros(pause.0) * order as u32;
            tokio::spawn(async move {
                sleep_until(at).await;
                world.instances[instance].reload(&text);
            });
        }
    }

    /// The only instance starts again, and an Envoy too while it is away.
    async fn restart(&mut self) {
        let away = 500 + self.rng.below(6_000);
        let (now, envoy) = (self.world.now(), self.rng.below(3) as usize);
        let starts = now.saturating_add(Micros::from_millis(away));
        let limit = lock(&self.world.state).judge(VALUE).limit();
        let time = (now, starts.saturating_add(REPORTED));
        lock(&self.world.state).judge(VALUE).allow(Exception::Relearnt, limit, 0.0, time);
        self.world.instances[0].stop();
        self.world.restart(envoy);
        tokio::time::sleep(Duration::from_millis(away)).await;
        self.world.instances[0].start();
    }
}
