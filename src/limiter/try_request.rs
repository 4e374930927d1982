//! Tries a request: what it would be answered now. Nothing is taken, and no state changes.
//!
//! Rules, plans, changes and the overall code are found by the code that decides. A counter is read, and the
//! step is applied to a copy of its state.

use std::borrow::Cow;
use std::collections::HashMap;

use super::decided::DecidedDescriptor;
use super::fallback::{self, FailedQuery};
use super::resolved::{CounterQuery, LeaseUse, ResolvedDescriptor};
use super::{Backend, Limiter, PendingDescriptors, fold, resolve};
use crate::algorithm;
use crate::decision::{Code, Decision, DecisionReason, Status};
use crate::descriptor::Request;
use crate::key::CounterKey;
use crate::limit::{Limit, TierNumbers};
use crate::rules::{Rule, RuleSet};
use crate::step::{EntriesTier, Lease, State, StepParams, TierResult};
use crate::store::{SharedStore, StoreError};
use crate::time::Micros;

/// The result of a tried request.
#[derive(Debug)]
pub struct TriedRequest<'r> {
    /// The code that the request would get.
    pub code: Code,
    /// One result per descriptor, in the order of the request.
    pub descriptors: Vec<TriedDescriptor<'r>>,
}

/// The result of one descriptor of a tried request.
#[derive(Debug)]
pub struct TriedDescriptor<'r> {
    /// The status that it would get.
    pub status: Status,
    /// The rule that matched, if any.
    pub rule: Option<&'r Rule>,
    /// The counter and its limit; `None` if nothing would be counted.
    pub counter: Option<(CounterKey, Cow<'r, Limit>)>,
    /// The decision under the other numbers; the reason if they do not fit or the store failed. `None`
    /// without other numbers, or without a counter.
    pub with_limit: Option<Result<Decision, String>>,
    /// Whether the quota service divides the limit now, so that a share decides instead of the counter.
    pub is_divided: bool,
}

/// What the descriptors before have taken from copies of counters.
#[derive(Default)]
struct Previews {
    states: HashMap<CounterKey, Option<State>>,
    /// Units of logs and slots in a shared store, whose states are not read.
    units: HashMap<CounterKey, u64>,
}

impl<S: SharedStore> Limiter<S> {
    /// What a valid request would be answered at `now` by the local clock. `numbers` are the other numbers
    /// to decide by besides, one per tier. Takes nothing.
    pub async fn try_request<'r>(
        &self,
        rules: &'r RuleSet,
        request: &Request<'_>,
        numbers: Option<&[TierNumbers]>,
        now: Micros,
    ) -> TriedRequest<'r> {
        let mut pending = PendingDescriptors::new();
        let unknown = self.resolve(&mut pending, rules, request, now);
        let mut timeout = request.timeout;
        // As in a decision: with counters in memory, no source of plans is asked.
        if self.backend.modes().is_some()
            && !unknown.is_empty()
            && self.ask(&unknown, request, &mut timeout).await
        {
            pending.clear();
            self.resolve(&mut pending, rules, request, now);
        }
        resolve::drop_replaced(&mut pending);
        resolve::open_leases(&mut pending, &self.lease_ids);
        let (mut own, mut other) = (Previews::default(), Previews::default());
        let (mut reasons, mut others) = (Vec::new(), Vec::new());
        for one in &mut pending {
            let ResolvedDescriptor::Counter(query) = &one.resolved else {
                reasons.push(None);
                others.push(None);
                continue;
            };
            let result = self.preview(&mut own, query, &query.limit, now).await;
            others.push(match numbers.map(|numbers| query.limit.with_numbers(numbers)) {
                None => None,
                Some(Err(problem)) => Some(Err(problem.to_string())),
                Some(Ok(limit)) => {
                    let decision = self.preview(&mut other, query, &limit, now).await;
                    Some(decision.map_err(|error| error.to_string()))
                }
            });
            match result {
                Ok(decision) => {
                    reasons.push(None);
                    one.result = Some(Ok(decision));
                }
                Err(error) => reasons.push(Some(self.try_fallback(query, error, now))),
            }
        }
        let concluded = pending.iter_mut().zip(reasons).map(|(one, reason)| match reason {
            Some(reason) => {
                let (by_share, owes_share, rollback) = (false, false, None);
                DecidedDescriptor {
                    resolved: &one.resolved,
                    reason,
                    by_share,
                    owes_share,
                    rollback,
                }
            }
            None => self.conclude(one),
        });
        let decided: Vec<DecidedDescriptor<'_>> = concluded.collect();
        let statuses: Vec<Status> = decided.iter().map(DecidedDescriptor::status).collect();
        let codes = decided.iter().map(|one| one.resolved).zip(statuses.iter().map(|it| it.code));
        let (code, _) = fold::response_code(&self.config, codes);
        drop(decided);
        let divided = self.divided();
        let tried = pending.into_iter().zip(statuses).zip(others);
        let tried = tried.map(|((one, status), with_limit)| {
            let rule = one.resolved.rule();
            let is_divided = match &one.resolved {
                ResolvedDescriptor::Counter(query) => query
                    .divided_check(now)
                    .is_some_and(|check| divided.is_some_and(|rules| rules.divides(check.rule))),
                ResolvedDescriptor::Uncounted { .. } | ResolvedDescriptor::Blocked { .. } => false,
            };
            let counter = match one.resolved {
                ResolvedDescriptor::Counter(query) => Some((query.key, query.limit)),
                ResolvedDescriptor::Uncounted { .. } | ResolvedDescriptor::Blocked { .. } => None,
            };
            TriedDescriptor { status, rule, counter, with_limit, is_divided }
        });
        TriedRequest { code, descriptors: tried.collect() }
    }

    /// The decision of the counter under `limit`, after those of earlier descriptors in `previews`.
    async fn preview(
        &self,
        previews: &mut Previews,
        query: &CounterQuery<'_>,
        limit: &Limit,
        local: Micros,
    ) -> Result<Decision, StoreError> {
        let CounterQuery { key, hits, .. } = query;
        let now = self.backend.now(key, local)?;
        let lease = lease_of(query, now);
        let step = algorithm::plan_with_lease(limit, *hits, lease, now);
        if let Backend::Memory(store) = &*self.backend {
            let state = previews.states.entry(*key).or_insert_with(|| store.get(key));
            let outcome = step.apply(state);
            return Ok(algorithm::report(limit, &step, &outcome));
        }
        let mut peek = algorithm::plan(limit, 0, now);
        if let StepParams::Log(tiers) | StepParams::Slots(tiers) = &mut peek.params {
            let before = previews.units.get(key).copied().unwrap_or(0);
            let wanted = step.hits.unsigned_abs().saturating_add(before);
            let limits: Vec<EntriesTier> = tiers.to_vec();
            if step.gives_back() {
                // What is given back is not known, so the state before it is reported.
                let mut outcome = self.backend.apply(key, &peek).await?;
                outcome.allowed = true;
                return Ok(algorithm::report(limit, &step, &outcome));
            }
            // With the room that the hits leave, a peek reports the expiry that a denial reports.
            for tier in tiers.iter_mut() {
                tier.max = tier.max.saturating_sub(wanted);
            }
            let mut outcome = self.backend.apply(key, &peek).await?;
            let fits = |(tier, result): (&EntriesTier, &TierResult)| {
                result.units().0.saturating_add(wanted) <= tier.max
            };
            outcome.allowed = limits.iter().zip(&outcome.tiers).all(fits);
            let taken = if outcome.allowed { wanted } else { before };
            for (tier, result) in limits.iter().zip(&mut outcome.tiers) {
                let (used, expires) = result.units();
                let allowed = fits((tier, &*result));
                let expires = match (outcome.allowed, allowed) {
                    (true, _) if used == 0 && taken > 0 => now.saturating_add(tier.window),
                    (false, true) => Micros::ZERO,
                    _ => expires,
                };
                *result =
                    TierResult { allowed, numbers: [used.saturating_add(taken), expires.0, 0] };
            }
            previews.units.insert(*key, taken);
            return Ok(algorithm::report(limit, &step, &outcome));
        }
        if !previews.states.contains_key(key) {
            let outcome = self.backend.apply(key, &peek).await?;
            previews.states.insert(*key, peek.state_after(&outcome));
        }
        let outcome = step.apply(previews.states.entry(*key).or_default());
        Ok(algorithm::report(limit, &step, &outcome))
    }

    /// The decision of the fallback, without taking hits from its local counters.
    fn try_fallback(
        &self,
        query: &CounterQuery<'_>,
        error: StoreError,
        local: Micros,
    ) -> DecisionReason {
        let CounterQuery { rule, limit, key, hits, .. } = query;
        let on_error = rule.and_then(|rule| rule.on_error).unwrap_or(self.on_error);
        let rule = rule.map(|rule| rule.index);
        let lease = lease_of(query, local);
        let failed = FailedQuery { rule, limit, key, hits: *hits, lease, error };
        fallback::preview(on_error, self.local.as_ref(), failed, local)
    }
}

/// The lease of a query. Until when a reservation may be settled decides nothing.
fn lease_of(query: &CounterQuery<'_>, now: Micros) -> Option<Lease> {
    query.lease.map(|lease| match lease {
        LeaseUse::Open(id) => Lease::Open { id, until: now },
        LeaseUse::Close(id) => Lease::Close(id),
    })
}
