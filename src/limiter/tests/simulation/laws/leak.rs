//! Nothing is left over: every request is answered, and no instance keeps a call or a replica.

use super::*;

/// Every request has a decision.
pub(super) const ANSWERED: Law = Law {
    name: "answered",
    applies: |facts| !facts.requests.is_empty(),
    contradiction: unanswered,
};

/// After its end, an instance has no call in flight. If every call succeeded, it has no replica.
pub(super) const NOTHING_LEFT: Law =
    Law { name: "leak", applies: |_| true, contradiction: left_over };

fn unanswered(facts: &Facts<'_>) -> Option<String> {
    let open = facts.requests.iter().find(|request| request.decided == Decided::Pending)?;
    Some(format!("no decision for {open:?}"))
}

fn left_over(facts: &Facts<'_>) -> Option<String> {
    facts.history.left_over.iter().enumerate().find_map(|(instance, &(in_flight, replicas))| {
        if in_flight > 0 {
            return Some(format!("i{instance} has {in_flight} calls in flight"));
        }
        (facts.fault_free && replicas > 0).then(|| format!("i{instance} has {replicas} replicas"))
    })
}
