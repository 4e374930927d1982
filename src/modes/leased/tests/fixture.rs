//! A store that several instances share, slow and unreliable as asked for, in paused time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::decision::Decision;
use crate::key::Key;
use crate::limit::{Limit, Mode};
use crate::modes::CounterCheck;
use crate::modes::leased::LeasedPath;
use crate::step::{Outcome, State, Step};
use crate::store::{Store, StoreError};
use crate::time::Micros;

/// The instant at which every test begins: the start of a window of any length that they use.
pub(super) const BEGIN: Micros = Micros::from_secs(1_800_000_000);

/// SplitMix64.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.roll() % end.max(1)
    }

    /// Once in `times`; never, if that is 0.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        times > 0 && self.below(times) == 0
    }
}

/// What the shared store does to calls.
pub(super) struct Weather {
    /// The longest way there, and back, in microseconds.
    pub(super) latency: u64,
    /// One answer in so many is lost, before or after the step is applied.
    pub(super) loses: u64,
}

/// The counters that all instances share.
pub(super) struct World {
    begin: Instant,
    weather: Weather,
    dice: Mutex<Dice>,
    counters: Mutex<HashMap<Key, Option<State>>>,
    /// The largest hits of each fixed window that were ever counted.
    pub(super) highest: Mutex<HashMap<(Key, Micros), u64>>,
    pub(super) visits: AtomicU64,
    pub(super) lost: AtomicU64,
    /// Nothing can be reached.
    pub(super) away: AtomicBool,
    /// Nothing is answered.
    pub(super) stalled: AtomicBool,
    /// How long an answer is waited for, in milliseconds; 0 is for ever.
    pub(super) deadline: AtomicU64,
}

impl World {
    pub(super) fn new(seed: u64, weather: Weather) -> Arc<World> {
        Arc::new(World {
            begin: Instant::now(),
            weather,
            dice: Mutex::new(Dice(seed)),
            counters: Mutex::default(),
            highest: Mutex::default(),
            visits: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            away: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            deadline: AtomicU64::new(0),
        })
    }

    /// The instant, by the store's clock.
    pub(super) fn now(&self) -> Micros {
        BEGIN.saturating_add(Micros(self.begin.elapsed().as_micros() as u64))
    }

    pub(super) fn is_slow(&self) -> bool {
        self.weather.latency > 0
    }

    pub(super) fn visits(&self) -> u64 {
        self.visits.load(Ordering::Relaxed)
    }

    async fn travel(&self) {
        let latency = self.dice.lock().unwrap().below(self.weather.latency + 1);
        if latency > 0 {
            tokio::time::sleep(Duration::from_micros(latency)).await;
        }
    }

    fn loses(&self) -> bool {
        let lost = self.dice.lock().unwrap().once_in(self.weather.loses);
        self.lost.fetch_add(u64::from(lost), Ordering::Relaxed);
        lost
    }

    async fn apply(&self, key: Key, step: Step) -> Result<Outcome, StoreError> {
        if self.away.load(Ordering::Relaxed) {
            return Err(StoreError::Unreachable);
        }
        self.visits.fetch_add(1, Ordering::Relaxed);
        if self.stalled.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.travel().await;
        if self.loses() {
            return Err(StoreError::Timeout);
        }
        let outcome = self.count(key, &step);
        self.travel().await;
        if self.loses() { Err(StoreError::Lost) } else { Ok(outcome) }
    }

    fn count(&self, key: Key, step: &Step) -> Outcome {
        let mut counters = self.counters.lock().unwrap();
        let state = counters.entry(key).or_default();
        let outcome = step.apply(state);
        if let Some(State::FixedWindow(tiers)) = state {
            let first = tiers.as_slice()[0];
            let mut highest = self.highest.lock().unwrap();
            let most = highest.entry((key, first.start)).or_default();
            *most = first.count.max(*most);
        }
        outcome
    }
}

/// How one instance sees the world.
pub(super) struct Shared {
    world: Arc<World>,
    /// The instance's clock less the store's.
    offset: i64,
}

impl Store for Shared {
    fn now(&self, _key: &Key, local: Micros) -> Result<Micros, StoreError> {
        if self.world.away.load(Ordering::Relaxed) {
            return Err(StoreError::Unreachable);
        }
        Ok(Micros(local.0.saturating_add_signed(-self.offset)))
    }

    fn timeout(&self) -> Option<Duration> {
        let millis = self.world.deadline.load(Ordering::Relaxed);
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    async fn apply_within(
        &self,
        key: &Key,
        step: &Step,
        _: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        self.world.apply(*key, step.clone()).await
    }

    fn apply_detached(&self, key: &Key, step: Step) {
        let (world, key) = (self.world.clone(), *key);
        tokio::spawn(async move { world.apply(key, step).await });
    }

    async fn forget(&self, _: &Key) -> Result<bool, StoreError> {
        unreachable!("nobody empties counters here")
    }
}

/// One instance.
pub(super) struct Instance {
    pub(super) leased: LeasedPath<Shared>,
    world: Arc<World>,
    offset: i64,
}

impl Instance {
    pub(super) fn new(world: &Arc<World>, offset: i64) -> Arc<Instance> {
        let shared = Shared { world: world.clone(), offset };
        let leased = LeasedPath::new(Arc::new(shared));
        Arc::new(Instance { leased, world: world.clone(), offset })
    }

    /// What its own clock shows.
    pub(super) fn local(&self) -> Micros {
        Micros(self.world.now().0.saturating_add_signed(self.offset))
    }

    /// A request of this moment.
    pub(super) async fn ask(
        &self,
        key: &Key,
        limit: &Limit,
        hits: i64,
    ) -> Result<Decision, StoreError> {
        self.ask_as_of(key, limit, hits, self.local()).await
    }

    /// A request that read its clock at `local`.
    pub(super) async fn ask_as_of(
        &self,
        key: &Key,
        limit: &Limit,
        hits: i64,
        local: Micros,
    ) -> Result<Decision, StoreError> {
        self.ask_within(key, limit, hits, local, None).await
    }

    /// The same by somebody who waits no longer than `timeout`.
    pub(super) async fn ask_within(
        &self,
        key: &Key,
        limit: &Limit,
        hits: i64,
        local: Micros,
        timeout: Option<Duration>,
    ) -> Result<Decision, StoreError> {
        let shared = Shared { world: self.world.clone(), offset: self.offset };
        let now = shared.now(key, local);
        let mode = Mode::Leased;
        let check = CounterCheck {
            key,
            limit,
            hits,
            lease: None,
            mode,
            over_limit_cache: true,
            local,
            now,
            timeout,
        };
        self.leased.check(&check).await
    }

    /// As many ticks as look through the whole table.
    pub(super) async fn run_due(&self) {
        for _ in 0..super::super::SHARDS {
            self.leased.run_due(self.local());
        }
    }

    pub(super) async fn close(&self) {
        self.leased.close(self.local()).await;
    }
}
