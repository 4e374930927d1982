//! Shrinks a failing schedule: drops events, instances' offsets and faults, as long as the same
//! law is broken.

use super::judge;
use super::network::Conditions;
use super::schedule::{Schedule, Then, What};

/// Attempts at most, so that a failing test ends soon.
const ATTEMPTS: usize = 3_000;

/// The smallest schedule found that breaks `law`.
pub(super) fn shrunk(schedule: Schedule, law: &str) -> Schedule {
    let mut best = schedule;
    let mut attempts = 0;
    let mut breaks = |candidate: &Schedule| {
        attempts += 1;
        attempts < ATTEMPTS && judge(candidate).0.is_some_and(|broken| broken.law == law)
    };
    // Large pieces first.
    let mut piece = best.events.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at < best.events.len() {
            let mut fewer = best.clone();
            fewer.events.drain(at..(at + piece).min(best.events.len()));
            if breaks(&fewer) {
                best = fewer;
            } else {
                at += piece;
            }
        }
        piece /= 2;
    }
    let Conditions { latency, jitter, loses } = best.conditions;
    for conditions in [
        Conditions { latency, jitter: 0, loses: 0 },
        Conditions { latency, jitter, loses: 0 },
        Conditions { latency, jitter: 0, loses },
    ] {
        let simpler = Schedule { conditions, ..best.clone() };
        if simpler != best && breaks(&simpler) {
            best = simpler;
        }
    }
    for index in 0..best.events.len() {
        let mut plain = best.clone();
        if let What::Request { then, parts, .. } = &mut plain.events[index].what {
            *then = Then::Nothing;
            parts.truncate(1);
        }
        if plain != best && breaks(&plain) {
            best = plain;
        }
    }
    best
}
