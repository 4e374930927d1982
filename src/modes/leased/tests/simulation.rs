//! Several instances in random trouble: never over the limit, and denied early only by what others
//! hold.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::fixture::{BEGIN, Dice, Instance, Weather, World};
use super::oracle::{Passed, broken};
use crate::key::Key;
use crate::limit::{Algorithm, Limit, Tier};
use crate::time::Micros;

/// Every edge of a window is a multiple of it, in microseconds.
const EDGES: u64 = 250_000;

const KEY: Key = Key([7, 7]);

/// What happened in one run.
#[derive(Default)]
struct Story {
    passed: Vec<Passed>,
    /// Hits that were denied, and when.
    denied: Vec<Passed>,
    refunds: u64,
}

fn limit(dice: &mut Dice, algorithm: Algorithm) -> Limit {
    let tiers = if dice.once_in(3) { 2 } else { 1 };
    let mut limit = Limit { algorithm, tiers: Box::new([]), count_denied: false };
    limit.tiers = (0..tiers)
        .map(|index| {
            let window = Micros::from_millis([250, 1_000, 3_000][dice.below(3) as usize] << index);
            let requests = 1 + dice.below(200);
            Tier { requests, window, burst: 1 + dice.below(100) }
        })
        .collect();
    limit
}

/// One run; the story of its traffic.
fn run(seed: u64, algorithm: Algorithm) -> (Limit, Story, Arc<World>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut dice = Dice(seed);
        let limit = limit(&mut dice, algorithm);
        let weather = Weather {
            latency: [0, 300, 5_000][dice.below(3) as usize],
            loses: [0, 0, 20][dice.below(3) as usize],
        };
        let world = World::new(dice.roll(), weather);
        let story = Arc::new(Mutex::new(Story::default()));
        let mut drivers = Vec::new();
        for _ in 0..=dice.below(4) {
            let offset = dice.below(600_000_000) as i64 - 300_000_000;
            let instance = Instance::new(&world, offset);
            let (world, story) = (world.clone(), story.clone());
            let driver = drive(instance, world, story, limit.clone(), Dice(dice.roll()));
            drivers.push(tokio::spawn(driver));
        }
        for driver in drivers {
            driver.await.unwrap();
        }
        // Whatever is still on its way arrives.
        tokio::time::sleep(Duration::from_secs(10)).await;
        let story = std::mem::take(&mut *story.lock().unwrap());
        (limit, story, world)
    })
}

/// The traffic of one instance.
async fn drive(
    instance: Arc<Instance>,
    world: Arc<World>,
    story: Arc<Mutex<Story>>,
    limit: Limit,
    mut dice: Dice,
) {
    let gap = [1_000, 10_000, 100_000][dice.below(3) as usize];
    let mut requests = Vec::new();
    for _ in 0..60 + dice.below(200) {
        let pause = match dice.below(100) {
            0 => dice.below(6_000_000),
            1..=20 => 0,
            _ => dice.below(2 * gap),
        };
        tokio::time::sleep(Duration::from_micros(pause)).await;
        if dice.once_in(30) {
            instance.run_due().await;
        }
        let hits = [1, 1, 1, 1, 2, 5, 0][dice.below(7) as usize];
        // A thread that is stopped after it has read the clock.
        // The oracle of sliding windows needs to know when a request counted: none is under way at
        // the edge of a window.
        let slides = limit.algorithm == Algorithm::SlidingWindow;
        let into = world.now().0 % EDGES;
        if slides && into > EDGES - 70_000 {
            tokio::time::sleep(Duration::from_micros(EDGES - into)).await;
        }
        let stops = if slides { 0 } else { 50 };
        let stopped = if dice.once_in(stops) { dice.below(3_000_000) } else { 0 };
        let refunds = dice.once_in(40);
        let (instance, world, story) = (instance.clone(), world.clone(), story.clone());
        let (limit, slow) = (limit.clone(), world.is_slow());
        requests.push(tokio::spawn(async move {
            let (from, local) = (world.now(), instance.local());
            tokio::time::sleep(Duration::from_micros(stopped)).await;
            let answer = instance.ask_as_of(&KEY, &limit, hits, local).await;
            let (to, hits) = (world.now(), hits.unsigned_abs());
            let passed = Passed { hits, from, to };
            match answer {
                Ok(decision) if decision.allowed && hits > 0 => {
                    // At once: what drains from a bucket meanwhile would come back twice.
                    if refunds && from == to && !slow {
                        // It may have arrived, whatever the answer.
                        let _ = instance.ask(&KEY, &limit, -(hits as i64)).await;
                        story.lock().unwrap().refunds += 1;
                        return;
                    }
                    story.lock().unwrap().passed.push(passed);
                }
                Ok(decision) if !decision.allowed => story.lock().unwrap().denied.push(passed),
                _ => {}
            }
        }));
    }
    if dice.once_in(2) {
        instance.close().await;
    }
    for request in requests {
        request.await.unwrap();
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("WEIR_LEASED_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WEIR_LEASED_SEEDS").unwrap_or(1_000),
    }
}

fn never_over(algorithm: Algorithm) {
    let (mut passed, mut denied, mut visits, mut refunds) = (0, 0, 0, 0);
    for seed in seeds() {
        let (limit, story, world) = run(seed, algorithm);
        if let Some(how) = broken(&limit, &story.passed) {
            panic!("{how}\nWEIR_LEASED_SEED={seed} {limit:?}");
        }
        passed += story.passed.len();
        denied += story.denied.len();
        refunds += story.refunds;
        visits += world.visits();
    }
    println!("{algorithm:?}: {passed} passed, {denied} denied, {refunds} refunds, {visits} visits");
    assert!(passed > 0);
}

#[test]
fn fixed_windows_are_never_over() {
    never_over(Algorithm::FixedWindow);
}

#[test]
fn sliding_windows_are_never_over() {
    never_over(Algorithm::SlidingWindow);
}

#[test]
fn token_buckets_are_never_over_in_any_interval() {
    never_over(Algorithm::TokenBucket);
}

#[test]
fn leaky_buckets_are_never_over_in_any_interval() {
    never_over(Algorithm::LeakyBucket);
}

#[test]
fn a_denial_means_that_everything_was_drawn() {
    for seed in seeds() {
        let (limit, story, world) = run(seed, Algorithm::FixedWindow);
        let [tier] = &*limit.tiers else { continue };
        let highest = world.highest.lock().unwrap();
        for denied in &story.denied {
            // Of the window it read, or of one that had begun when its draw arrived.
            let window = |at: Micros| Micros(at.0 - at.0 % tier.window.0);
            let its = |start: Micros| window(denied.from) <= start && start <= denied.to;
            let full = highest
                .iter()
                .any(|(&(_, start), drawn)| its(start) && drawn + denied.hits > tier.requests);
            let full = full || denied.hits > tier.requests;
            assert!(full, "{denied:?}\nWEIR_LEASED_SEED={seed} {limit:?}");
        }
        assert!(world.now() > BEGIN);
    }
}
