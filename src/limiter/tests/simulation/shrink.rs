//! Shrinks a failing schedule: drops events, nodes and faults, as long as the same law is broken.

use super::broken;
use super::schedule::{EventKind, FollowUp, Schedule};
use crate::testing::network::Conditions;

/// Attempts at most, so that a failing test ends soon.
const ATTEMPTS: usize = 3_000;

/// The smallest schedule found that breaks `law`.
pub(super) fn shrunk(schedule: Schedule, law: &str) -> Schedule {
    let mut best = schedule;
    let mut attempts = 0;
    let mut breaks = |candidate: &Schedule| {
        attempts += 1;
        attempts < ATTEMPTS && broken(candidate).is_some_and(|broken| broken.law == law)
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
    let one_node = best.events.iter().all(|event| event.what.node() == 0);
    let fewer = Schedule { nodes: 1, ..best.clone() };
    if one_node && fewer != best && breaks(&fewer) {
        best = fewer;
    }
    let given = best.conditions;
    for conditions in [
        Conditions { jitter: 0, loss_percent: 0, ..given },
        Conditions { loss_percent: 0, ..given },
        Conditions { jitter: 0, ..given },
    ] {
        let simpler = Schedule { conditions, ..best.clone() };
        if simpler != best && breaks(&simpler) {
            best = simpler;
        }
    }
    for index in 0..best.events.len() {
        let mut plain = best.clone();
        if let EventKind::Request { then, parts, .. } = &mut plain.events[index].what {
            *then = FollowUp::Nothing;
            parts.truncate(1);
        }
        if plain != best && breaks(&plain) {
            best = plain;
        }
    }
    best
}
