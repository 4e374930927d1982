//! One instance decides requests to a bucket exactly as mode exact does, at any rate and latency.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::fixture::{Instance, network, within};
use crate::algorithm;
use crate::key::CounterKey;
use crate::limit::{Algorithm, Limit, Tier};
use crate::step::State;
use crate::testing::Rng;
use crate::time::Micros;

const KEY: CounterKey = CounterKey([9, 9]);

/// A request, in the order of arrival.
#[derive(Clone, Copy, Debug)]
struct Request {
    at: Micros,
    hits: i64,
    allowed: Option<bool>,
}

/// Buckets that fill in 1 ms to a day.
fn limit(rng: &mut Rng) -> Limit {
    let tiers = 1 + rng.below(4) / 3;
    let tiers = (0..tiers).map(|_| {
        let requests = rng.pick(&[1, 3, 60]);
        let micros = rng.pick(&[1_000, 7_000, 33_333, 200_000, 4_320_000_000]);
        let burst = rng.pick(&[1, 2, 3, 5, 20]);
        Tier { requests, window: Micros(requests * micros), burst, calendar: None }
    });
    let algorithm = Algorithm::LeakyBucket;
    Limit { algorithm, tiers: tiers.collect(), count_denied: false }
}

async fn ask(instance: &Instance, limit: &Limit, hits: i64, all: &Mutex<Vec<Request>>) {
    let number = {
        let mut all = all.lock().unwrap();
        all.push(Request { at: instance.local(), hits, allowed: None });
        all.len() - 1
    };
    let decision = instance.hit(&KEY, limit, hits).await.unwrap();
    all.lock().unwrap()[number].allowed = Some(decision.allowed);
}

/// Random requests, in phases that begin with an answered request.
async fn requests(seed: u64) -> (Limit, Vec<Request>) {
    let mut rng = Rng::new(seed);
    let limit = Arc::new(limit(&mut rng));
    let network = network(rng.next(), within(rng.pick(&[0, 1, 6, 60])));
    let instance = Instance::new(&network, 0);
    let all = Arc::new(Mutex::new(Vec::new()));
    let most = limit.tiers.iter().map(|tier| tier.burst).min().unwrap_or(1);
    for _ in 0..=rng.below(3) {
        // The store decides this one, and the next request has a credit pool.
        ask(&instance, &limit, 1, &all).await;
        let gap = rng.pick(&[500, 3_000, 20_000, 100_000]);
        let mut asking = Vec::new();
        for _ in 0..rng.below(40) {
            tokio::time::sleep(Duration::from_micros(rng.below(2 * gap))).await;
            let hits = if rng.once_in(4) { 1 + rng.below(most) } else { 1 };
            let (instance, limit, all) = (instance.clone(), limit.clone(), all.clone());
            asking.push(tokio::spawn(async move {
                ask(&instance, &limit, hits as i64, &all).await;
            }));
        }
        for one in asking {
            one.await.unwrap();
        }
        // Credits of an idle pool are returned.
        tokio::time::sleep(Duration::from_millis(rng.pick(&[1, 5_000]))).await;
        instance.run_due().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let all = all.lock().unwrap().clone();
    (Arc::unwrap_or_clone(limit), all)
}

#[test]
fn one_instance_decides_a_bucket_as_exact_does() {
    let (mut allowed, mut denied) = (0, 0);
    for seed in 0..400 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let (limit, all) = runtime.block_on(requests(seed));
        let mut state: Option<State> = None;
        for (number, request) in all.iter().enumerate() {
            let step = algorithm::plan(&limit, request.hits, request.at);
            let exact = step.apply(&mut state).allowed;
            assert_eq!(request.allowed, Some(exact), "seed {seed}, {number}: {limit:?} {all:#?}");
            *(if exact { &mut allowed } else { &mut denied }) += 1;
        }
    }
    println!("{allowed} allowed, {denied} denied");
    assert!(allowed > 1_000 && denied > 1_000);
}
