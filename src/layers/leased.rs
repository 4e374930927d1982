//! Leased: hits are drawn from the store ahead, many at a time, and spent here.
//!
//! A draw is one step that takes `m` hits. The store knows nothing of leases: to it a draw is a
//! request, and so it never grants more than the limit. What has to be shown is that spending a
//! token later than it was drawn breaks no limit either.
//!
//! # Proof
//!
//! All instants are the store's: a request is decided as of the instant it read, and a token is
//! spent only by a request whose instant lies before the token's end. That comparison is made under
//! the counter's lock, so it does not matter which thread is late, or for how long it was stopped.
//!
//! **fixed_window.** A token belongs to the window that the store counted it in (its answer says
//! which) and ends with it. In every window: spent <= drawn <= limit.
//!
//! **sliding_window.** The same, and so at every instant, with `p` and `c` what was drawn in the
//! previous and the present window: spent in each <= drawn in each. The last draw of the window
//! passed with `p * rest / window + c <= limit`; since then `c` is the same and `rest` only
//! smaller. So every hit that is spent would have passed a counter that knows of the spent hits
//! only.
//!
//! **Several tiers.** A draw is counted in all of them, and its tokens end with the first window of
//! any that ends.
//!
//! **token_bucket, leaky_bucket.** A bucket of burst `B` that drains at rate `r` lets through at
//! most `B + r * (b - a)` in any interval `(a, b]`. Tokens live for `T`, so what is spent in
//! `(a, b]` was drawn in `(a - T, b]`. Draws are held against a bucket of `B - r * T`: they are at
//! most `B - r * T + r * (b - a + T) = B + r * (b - a)`. Everybody who counts on a leased counter
//! uses the smaller bucket; `T` is an eighth of the time that it takes to fill, a second at most.
//!
//! **Giving back.** Windows: the step is planned for an instant in the window, so a window that
//! began later loses nothing. Buckets: compare with the counter on which the tokens that are given
//! back had never been drawn. It is never fuller, and the difference is at least, for every draw
//! that is outstanding, its charge less the time since: it shrinks only while the other one is
//! empty, that is by one microsecond in a microsecond. So of a charge `c` as old as `t` at most
//! `c - t` is taken off again; `T` less, to allow for a step that is that long on its way.
//!
//! **Unknown fates.** A draw without an answer counts as spent, a way back without one as arrived:
//! neither is repeated. Both err to the safe side.
//!
//! # Cost
//!
//! A counter that is asked once in a while is asked of the store directly and leaves nothing here.
//! One that is busy costs a draw in two seconds, as long as the limit has that much room.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{Ask, Layer};
use crate::algorithm;
use crate::decision::Decision;
use crate::key::Key;
use crate::limit::Mode;
use crate::step::Step;
use crate::store::{self, Store, StoreError};
use crate::time::Micros;

mod counts;
mod demand;
mod holding;
mod recent;
mod terms;
mod under_way;

#[cfg(test)]
mod tests;

pub use counts::LeaseCounts;

use counts::add;
use holding::{Draw, Holding, Standing, Unspent};
use recent::Recent;
use terms::Terms;
use under_way::UnderWay;

/// Parts of the table, each with a lock of its own. One is looked through per tick.
const SHARDS: usize = 64;

/// Counters that tokens are held of, per shard. Beyond them counters are asked of the store directly.
const HOLDINGS_MAX: usize = 1_024;

/// Unspent tokens go back when nobody has asked for them for so long.
const IDLE: Micros = Micros::from_secs(4);

/// What is left to bring back at the end may take so long.
const CLOSING: Duration = Duration::from_secs(2);

/// Ways back that are under way at the same time at the end.
const CLOSING_AT_ONCE: usize = 256;

/// Decides leased rules.
pub struct Leased<S> {
    inner: Arc<Inner<S>>,
}

struct Inner<S> {
    store: Arc<S>,
    shards: Box<[Mutex<Shard>]>,
    /// The shard that is looked through next.
    turn: AtomicUsize,
    /// Nothing is drawn ahead any more.
    closed: AtomicBool,
    counts: LeaseCounts,
}

struct Shard {
    holdings: HashMap<Key, Holding>,
    recent: Recent,
}

/// What to do about a request.
enum Told {
    /// It is decided.
    Decided(Result<Decision, StoreError>),
    /// It waits for a draw.
    Waits(oneshot::Receiver<Result<Decision, StoreError>>),
    /// The store is asked about so many hits of it.
    Direct(i64),
}

impl<S: Store> Leased<S> {
    /// Around `store`.
    pub(super) fn new(store: Arc<S>) -> Leased<S> {
        let shard = || Mutex::new(Shard { holdings: HashMap::new(), recent: Recent::new() });
        Leased {
            inner: Arc::new(Inner {
                store,
                shards: (0..SHARDS).map(|_| shard()).collect(),
                turn: AtomicUsize::new(0),
                closed: AtomicBool::new(false),
                counts: LeaseCounts::default(),
            }),
        }
    }
}

impl<S> Leased<S> {
    /// What leases did since the start.
    pub fn counts(&self) -> &LeaseCounts {
        &self.inner.counts
    }

    /// Drops the unspent tokens of a counter that is emptied.
    pub(super) fn forget(&self, key: &Key) {
        self.inner.shard(key).holdings.get_mut(key).map(Holding::empty);
    }

    /// Counters that tokens are held of, or were a moment ago.
    pub fn held(&self) -> usize {
        self.inner.shards.iter().map(|shard| lock(shard).holdings.len()).sum()
    }
}

impl<S: Store> Layer for Leased<S> {
    async fn ask(&self, ask: &Ask<'_>) -> Result<Decision, StoreError> {
        match self.inner.decide(ask) {
            Told::Decided(result) => result,
            Told::Direct(hits) => self.inner.direct(ask, hits).await,
            Told::Waits(told) => {
                let told = async { told.await.unwrap_or(Err(StoreError::Lost)) };
                // As long as for the store itself, however many draws that takes.
                match ask.timeout.into_iter().chain(self.inner.store.deadline()).min() {
                    None => told.await,
                    Some(timeout) => store::within(timeout, told).await,
                }
            }
        }
    }

    fn tell(&self, key: &Key, _mode: Mode, step: Step) {
        if !self.inner.keep(key, &step) {
            self.inner.store.tell(key, step);
        }
    }

    async fn tick(&self, local: Micros) {
        let shards = &self.inner.shards;
        let turn = self.inner.turn.fetch_add(1, Ordering::Relaxed) % shards.len();
        for (key, unspent) in self.inner.tidy(&shards[turn], local) {
            self.inner.send_back(&key, unspent, Some(local));
        }
    }

    async fn close(&self, local: Micros) {
        self.inner.closed.store(true, Ordering::Relaxed);
        let mut back = Vec::new();
        for shard in &self.inner.shards {
            for (key, holding) in &mut lock(shard).holdings {
                for step in self.inner.ways_back(key, holding.empty(), Some(local)) {
                    back.push((*key, step));
                }
            }
        }
        let store = &self.inner.store;
        let all = async {
            for some in back.chunks(CLOSING_AT_ONCE) {
                join_all(some.iter().map(|(key, step)| store.apply(key, step))).await;
            }
        };
        if tokio::time::timeout(CLOSING, all).await.is_err() {
            tracing::warn!("some unspent leases were not given back: they end by themselves");
        }
    }
}

impl<S> Inner<S> {
    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        lock(&self.shards[(key.0[0] % self.shards.len() as u64) as usize])
    }
}

impl<S: Store> Inner<S> {
    /// Decides from memory, or says who will.
    fn decide(self: &Arc<Self>, ask: &Ask<'_>) -> Told {
        if ask.lease.is_some() || self.closed.load(Ordering::Relaxed) {
            return Told::Direct(ask.hits);
        }
        let mut shard = self.shard(ask.key);
        let Some(holding) = shard.holding(ask) else {
            return Told::Direct(ask.hits);
        };
        let mut unspent = Unspent::new();
        let now = holding.touch(ask.local, ask.now.ok());
        if holding.terms().limit() != ask.limit {
            match Terms::of(ask.limit) {
                Some(terms) => unspent = holding.change(terms),
                None => {
                    unspent = holding.empty();
                    drop(shard);
                    self.send_back(ask.key, unspent, Some(ask.local));
                    return Told::Direct(ask.hits);
                }
            }
        }
        unspent.extend(holding.expire(now));
        let (told, draw) = self.serve(holding, ask, now);
        drop(shard);
        if let Some(draw) = draw {
            self.start(*ask.key, draw);
        }
        self.send_back(ask.key, unspent, Some(ask.local));
        told
    }

    fn serve(&self, holding: &mut Holding, ask: &Ask<'_>, now: Micros) -> (Told, Option<Draw>) {
        let hits = ask.hits.unsigned_abs();
        if ask.hits < 0 {
            let rest = hits - holding.unspend(hits, now);
            return match i64::try_from(rest) {
                Ok(0) => (Told::Decided(Ok(holding.look(now))), None),
                _ => (Told::Direct(-i64::try_from(rest).unwrap_or(i64::MAX)), None),
            };
        }
        if holding.available(now) < hits.max(1) {
            // Only the store can tell, or nobody.
            match ask.now {
                Err(error) => return (Told::Decided(Err(error)), None),
                Ok(_) if hits == 0 || Handle::try_current().is_err() => {
                    return (Told::Direct(ask.hits), None);
                }
                Ok(_) => {}
            }
        }
        if hits == 0 {
            return (Told::Decided(Ok(holding.look(now))), None);
        }
        let ahead = ask.now.is_ok() && Handle::try_current().is_ok();
        match holding.ask(hits, now, ahead, &self.counts) {
            (Standing::Spent(decision), draw) => (Told::Decided(Ok(decision)), draw),
            (Standing::Waits(told), draw) => (Told::Waits(told), draw),
        }
    }

    /// Asks the store about `hits`, as a draw that is spent at once.
    async fn direct(&self, ask: &Ask<'_>, hits: i64) -> Result<Decision, StoreError> {
        let step = match Terms::of(ask.limit) {
            Some(terms) if ask.lease.is_none() => terms.plan(hits, ask.now?),
            _ => {
                let mut step = algorithm::plan(ask.limit, hits, ask.now?);
                step.lease = ask.lease;
                step
            }
        };
        add(&self.counts.direct, 1);
        let outcome = self.store.apply_within(ask.key, &step, ask.timeout).await?;
        Ok(algorithm::report(ask.limit, &step, &outcome))
    }

    /// Takes the hits of a way back in, if all of them can be spent here again.
    fn keep(&self, key: &Key, step: &Step) -> bool {
        let mut shard = self.shard(key);
        let Some(holding) = shard.holdings.get_mut(key) else { return false };
        let hits = step.hits.unsigned_abs();
        let ours = algorithm::plan(holding.terms().limit(), step.hits, step.now) == *step;
        if step.hits >= 0 || !ours {
            return false;
        }
        holding.spent(step.now) >= hits && holding.unspend(hits, step.now) == hits
    }

    /// Draws, on a task of its own: whoever waits may go away meanwhile.
    fn start(self: &Arc<Self>, key: Key, draw: Draw) {
        let inner = self.clone();
        let mut under_way = UnderWay { inner, key, draw: Some(draw) };
        tokio::spawn(async move {
            while let Some(draw) = under_way.draw.clone() {
                let result = under_way.inner.store.apply(&key, &draw.step).await;
                under_way.settle(&result);
            }
        });
    }

    /// Gives back what can be at `local`, without waiting; not knowing the time, what does not depend
    /// on it.
    fn send_back(&self, key: &Key, unspent: Unspent, local: Option<Micros>) {
        for step in self.ways_back(key, unspent, local) {
            self.store.tell(key, step);
        }
    }

    /// The steps that give back what can be; the rest has ended.
    fn ways_back(&self, key: &Key, unspent: Unspent, local: Option<Micros>) -> Vec<Step> {
        let mut steps = Vec::new();
        if unspent.is_empty() {
            return steps;
        }
        let now = local.and_then(|local| self.store.now(key, local).ok());
        for (terms, batch) in unspent {
            let step = terms.give_back(&batch, now);
            let returned = step.as_ref().map_or(0, |step| step.hits.unsigned_abs());
            add(&self.counts.returned, returned);
            add(&self.counts.expired, batch.tokens - returned);
            steps.extend(step);
        }
        steps
    }

    /// Takes unspent tokens from counters that nobody asks for, and forgets those without any.
    fn tidy(&self, shard: &Mutex<Shard>, local: Micros) -> Vec<(Key, Unspent)> {
        let mut idle = Vec::new();
        lock(shard).holdings.retain(|key, holding| {
            if holding.is_busy() || holding.idle(local) < IDLE {
                return true;
            }
            idle.push((*key, holding.empty()));
            false
        });
        idle
    }
}

impl Shard {
    /// What is held of the counter. One that is asked for the second time in a moment is held from
    /// then on, if there is room and its limit can be leased.
    fn holding(&mut self, ask: &Ask<'_>) -> Option<&mut Holding> {
        if !self.holdings.contains_key(ask.key) {
            let full = self.holdings.len() >= HOLDINGS_MAX;
            if ask.hits <= 0 || !self.recent.note(ask.key, ask.local) || full {
                return None;
            }
            let holding = Holding::new(Terms::of(ask.limit)?, ask.now.ok()?, ask.local);
            self.holdings.insert(*ask.key, holding);
        }
        self.holdings.get_mut(ask.key)
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
