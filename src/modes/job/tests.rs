//! Tests of the background job: when it runs, and when it sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep};

use super::*;
use crate::key::CounterKey;
use crate::limit::{Algorithm, Limit, Mode, Tier};
use crate::modes::CounterCheck;
use crate::testing::FakeStore;

const INTERVAL: Micros = Micros::SECOND;

/// The time of the runtime, which counts the readings.
struct TestClock {
    start: Instant,
    readings: AtomicUsize,
}

impl TestClock {
    fn new() -> TestClock {
        TestClock { start: Instant::now(), readings: AtomicUsize::new(0) }
    }
}

impl Clock for Arc<TestClock> {
    fn now(&self) -> Micros {
        self.readings.fetch_add(1, Ordering::Relaxed);
        let passed = self.start.elapsed().as_micros();
        Micros(1_000_000_000 + u64::try_from(passed).expect("a short test"))
    }
}

/// The modes, with their background job.
struct Running {
    modes: Arc<Modes<FakeStore>>,
    clock: Arc<TestClock>,
    stop: oneshot::Sender<()>,
    job: JoinHandle<()>,
}

impl Running {
    fn start() -> Running {
        let (modes, clock) = (Arc::new(Modes::small(FakeStore::new())), Arc::new(TestClock::new()));
        let (stop, stopped) = oneshot::channel();
        let job = {
            let (modes, clock) = (modes.clone(), clock.clone());
            tokio::spawn(async move {
                modes.run(&clock, JOB_PERIOD, async { drop(stopped.await) }).await;
            })
        };
        Running { modes, clock, stop, job }
    }

    /// Takes a hit from the counter `number`.
    async fn hit(&self, number: u64, mode: Mode) {
        let tier = Tier {
            requests: 1_000,
            window: Micros::from_secs(1_000),
            burst: 1_000,
            calendar: None,
        };
        let limit =
            Limit { algorithm: Algorithm::FixedWindow, tiers: [tier].into(), count_denied: false };
        let (key, local) = (CounterKey([number, 0]), self.clock.now());
        let check = CounterCheck {
            key: &key,
            limit: &limit,
            hits: 1,
            lease: None,
            mode,
            over_limit_cache: true,
            local_now: local,
            store_now: Ok(local),
            timeout: None,
        };
        self.modes.check(&check).await.expect("the store works");
    }

    /// How often the job read the clock in this time.
    async fn readings(&self, time: Duration) -> usize {
        let before = self.clock.readings.load(Ordering::Relaxed);
        sleep(time).await;
        self.clock.readings.load(Ordering::Relaxed) - before
    }

    async fn end(self) {
        drop(self.stop);
        self.job.await.expect("the job does not panic");
    }
}

#[tokio::test(start_paused = true)]
async fn the_job_sleeps_without_counters_of_its_modes() {
    let running = Running::start();
    sleep(Duration::from_millis(1)).await;
    running.hit(1, Mode::Exact).await;
    assert_eq!(running.readings(Duration::from_secs(3_600)).await, 0);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_wakes_the_job_for_its_exchange() {
    let running = Running::start();
    sleep(Duration::from_secs(60)).await;
    let exchanges = || running.modes.synced().metrics().exchanges();
    running.hit(1, Mode::Synced { interval: Micros::from_secs(100) }).await;
    running.hit(2, Mode::Synced { interval: INTERVAL }).await;
    running.hit(2, Mode::Synced { interval: INTERVAL }).await;
    // An exchange takes place every half interval.
    sleep(Duration::from_millis(499)).await;
    assert_eq!(exchanges(), 0);
    sleep(Duration::from_millis(12)).await;
    assert_eq!(exchanges(), 1);
    // Two exchanges of the second counter per second, each with a few readings.
    let readings = running.readings(Duration::from_secs(5)).await;
    assert!((5..60).contains(&readings), "{readings}");
    running.end().await;
}

/// New replicas wake the job all the time, and the exchanges take place when they are due.
#[tokio::test(start_paused = true)]
async fn new_work_puts_no_exchange_off() {
    let running = Running::start();
    running.hit(0, Mode::Synced { interval: INTERVAL }).await;
    running.hit(0, Mode::Synced { interval: INTERVAL }).await;
    for number in 1..600 {
        advance(Duration::from_millis(1)).await;
        // Each is due earlier than the ones before.
        let interval = Micros::from_millis(2_000 - 2 * number);
        running.hit(number, Mode::Synced { interval }).await;
    }
    assert!(running.modes.synced().metrics().exchanges() > 0);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn idle_credits_go_back() {
    let running = Running::start();
    sleep(Duration::from_secs(60)).await;
    for _ in 0..4 {
        running.hit(1, Mode::Leased).await;
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(running.modes.leased().pools(), 1);
    // About twenty runs in the second, each with a few readings. The job ran a hundred times per second.
    let readings = running.readings(Duration::from_secs(1)).await;
    assert!((20..100).contains(&readings), "{readings}");
    // At most five seconds: see docs/guides/modes.md. A pool without credits is removed later.
    sleep(Duration::from_secs(30)).await;
    assert_eq!(running.modes.leased().pools(), 0);
    assert_eq!(running.readings(Duration::from_secs(60)).await, 0);
    running.end().await;
}
