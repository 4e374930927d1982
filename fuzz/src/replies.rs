//! Reads any bytes as the replies of a Redis server.

use std::sync::LazyLock;

use weir::algorithm::{plan, report, report_tiers};
use weir::limit::{Algorithm, Limit, Tier};
use weir::step::Step;
use weir::store::redis::batch::{StepBatch, StepReply};
use weir::store::redis::fuzz_harness::{Meaning, REPLY_BYTES_MAX, ReadReplies};
use weir::store::redis::script::{EncodedStep, decode};
use weir::time::Micros;

/// Replies whose meaning is checked.
const REPLIES_MAX: usize = 8;

/// Bytes of a short read, fewer than most lines have.
const SHORT: usize = 3;

/// The longest text of an error in the log, in characters.
const ERROR_CHARS_MAX: usize = 256;

/// The longest host name, in bytes.
const HOST_BYTES_MAX: usize = 255;

/// The number of hash slots of a Cluster.
const HASH_SLOTS: u16 = 16_384;

/// The instant of the first steps, and that of the next ones.
const INSTANTS: [Micros; 2] = [Micros(1_700_000_000_000_000), Micros(1_700_000_001_500_000)];

/// Hits of the steps of two calls, each on the counter beside it. The second one has counters that share an
/// argument.
const STEPS: [(&str, i64); 9] =
    [("a", 1), ("a", 3), ("b", -2), ("c", 0), ("d", 1), ("d", 1), ("e", 1), ("f", 1), ("g", 1)];

/// The steps of the first call.
const FIRST: usize = 4;

/// Limits of every algorithm, and steps on their counters.
static LIMITS: LazyLock<Vec<(Limit, Vec<Step>)>> = LazyLock::new(limits);

fn limits() -> Vec<(Limit, Vec<Step>)> {
    let tier = |seconds| Tier {
        requests: 10,
        window: Micros::from_secs(seconds),
        burst: 20,
        calendar: None,
    };
    let mut limits = Vec::new();
    for algorithm in Algorithm::ALL {
        for tiers in [vec![tier(1)], vec![tier(1), tier(60)]] {
            let limit = Limit { algorithm, tiers: tiers.into(), count_denied: false };
            let steps = STEPS.map(|(_, hits)| plan(&limit, hits, INSTANTS[0]));
            limits.push((limit, steps.into()));
        }
    }
    limits
}

/// Reads `bytes` as what a server sends. The size of a read must not change the replies, and every
/// reader must understand each of them or reject it. Returns whether all bytes were replies.
pub fn resp(bytes: &[u8]) -> bool {
    let [whole, short] = [usize::MAX, SHORT].map(|read_max| ReadReplies::read(bytes, read_max));
    assert!(whole.is_same(&short), "the size of a read changes the replies: {whole:?} {short:?}");
    assert!(whole.kept.max(short.kept) <= REPLY_BYTES_MAX, "{whole:?} {short:?}");
    assert!(whole.reads_back(), "{whole:?}");
    for meaning in whole.meanings().take(REPLIES_MAX) {
        check(&meaning);
        if let Some(result) = meaning.result {
            apply(&result);
        }
    }
    whole.is_complete()
}

/// Checks the bounds of what a reply means.
fn check(meaning: &Meaning) {
    let is_host = |host: &str| !host.is_empty() && host.len() <= HOST_BYTES_MAX;
    if let Some(text) = &meaning.error {
        let is_plain = !text.contains(char::is_control) && text.chars().count() <= ERROR_CHARS_MAX;
        assert!(is_plain, "{text:?}");
    }
    if let Some((hash_slot, (host, _))) = &meaning.redirect {
        // An empty host is that of the node that replied.
        assert!(*hash_slot < HASH_SLOTS && host.len() <= HOST_BYTES_MAX, "{meaning:?}");
    }
    for (from, to, (host, _)) in &meaning.owners {
        assert!(from <= to && *to < HASH_SLOTS && is_host(host), "{meaning:?}");
    }
    let hosts = meaning.primary.iter().chain(&meaning.sentinels);
    assert!(hosts.into_iter().all(|(host, _)| is_host(host)), "{meaning:?}");
    assert!(meaning.sentinels.len() <= 32, "{meaning:?}");
    if let Some((node, estimate)) = meaning.now {
        // A clock that is further away than an offset can be is not followed.
        assert!(node == estimate || i64::try_from(node.0).is_err(), "{node:?} {estimate:?}");
    }
}

/// Splits the result of a script among the steps of a call, for every limit.
fn apply(result: &[u8]) {
    for (limit, steps) in &*LIMITS {
        let mut batch = StepBatch::new(STEPS.len());
        for (item, (step, (key, _))) in steps.iter().zip(STEPS).enumerate() {
            let slot_group = u16::from(item >= FIRST);
            batch.add(slot_group, &key, &EncodedStep::of(step), item).expect("there is room");
        }
        let mut items = Vec::new();
        for call in batch.into_calls() {
            call.split_reply(result, |item, part| {
                items.push(item);
                if let StepReply::Outcome(bytes) = part {
                    check_outcome(limit, &steps[item], bytes);
                }
            });
        }
        items.sort_unstable();
        assert!(items.into_iter().eq(0..STEPS.len()), "each step gets one part of the reply");
        check_outcome(limit, &steps[0], result);
    }
}

/// If `bytes` are an outcome of `step`, reports it, and applies further steps to the state in it, as
/// the modes do.
fn check_outcome(limit: &Limit, step: &Step, bytes: &[u8]) {
    let Ok(outcome) = decode(step, bytes) else { return };
    assert_eq!(outcome.tiers.len(), limit.tiers.len());
    let decision = report(limit, step, &outcome);
    let tier = &limit.tiers[decision.tier];
    assert_eq!(decision.allowed, outcome.tiers.iter().all(|tier| tier.allowed));
    assert!(decision.remaining <= tier.requests.max(tier.burst), "{decision:?}");
    assert_eq!(report_tiers(limit, step, &outcome).len(), limit.tiers.len());
    let Some(state) = step.state_after(&outcome) else { return };
    for (_, hits) in STEPS {
        let (next, mut state) = (plan(limit, hits, INSTANTS[1]), Some(state.clone()));
        let outcome = next.apply(&mut state);
        let decision = report(limit, &next, &outcome);
        assert!(decision.remaining <= tier.requests.max(tier.burst), "{decision:?}");
        let _ = state.map(|state| next.expires_at(&state));
    }
}
