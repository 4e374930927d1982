//! Limits from plans: the numbers of a rule with `limit_from` are those of a customer's plan.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::{Limiter, until_due};
use crate::descriptor::{Entry, Request};
use crate::limit::Limit;
use crate::plans::{CustomerSource, PlanLimit, Plans};
use crate::rules::Rule;
use crate::store::{SharedStore, with_timeout};
use crate::time::Deadline;

/// The customers of a request about whom the source of plans must be asked.
pub(super) type UnknownCustomers<'d> = SmallVec<[&'d str; 1]>;

/// The plans of a limiter.
pub(super) struct PlannedLimits {
    plans: Arc<Plans>,
    /// The source that is asked about each customer, if it is one.
    pub(super) source: Option<Arc<dyn CustomerSource>>,
}

/// Finds the limits of the descriptors of one request.
pub(super) struct LimitFinder<'p, 'd> {
    /// `None` without plans: rules decide by their own numbers.
    pub(super) planned: Option<&'p PlannedLimits>,
    pub(super) unknown: UnknownCustomers<'d>,
}

impl<'d> LimitFinder<'_, 'd> {
    /// The limit of `rule` for a descriptor with these entries; `None` if its plan is unlimited. `own` is
    /// the limit of the rule. While the plan of a customer is not known, the last known plan or the
    /// default gives the limit.
    #[inline]
    pub(super) fn limit<'r>(
        &mut self,
        rule: &'r Rule,
        own: &'r Limit,
        entries: &[Entry<'d>],
    ) -> Option<Cow<'r, Limit>> {
        match (self.planned, &rule.limit_from) {
            (Some(planned), Some(from)) => {
                let customer = from.value(entries);
                self.of_plan(&planned.plans, rule, own, entries, customer)
            }
            _ => Some(Cow::Borrowed(own)),
        }
    }

    fn of_plan<'r>(
        &mut self,
        plans: &Plans,
        rule: &'r Rule,
        own: &'r Limit,
        entries: &[Entry<'d>],
        customer: &'d str,
    ) -> Option<Cow<'r, Limit>> {
        let mut found = plans.limit(rule, own, entries);
        if let PlanLimit::Unknown { .. } = found {
            if !self.unknown.contains(&customer) {
                self.unknown.push(customer);
            }
            found = plans.last_known(rule, own, entries);
        }
        match found {
            PlanLimit::Plan(limit) => Some(limit),
            PlanLimit::Unlimited => None,
            PlanLimit::Own(_) | PlanLimit::Unknown { .. } => Some(Cow::Borrowed(own)),
        }
    }

    /// The limit of `rule` for a descriptor that closes a lease. The lease was taken from a counter, so
    /// it is closed there also if the plan has become unlimited. A release of slots does not depend on
    /// their number, so it waits for no source.
    pub(super) fn limit_of_lease<'r>(
        &mut self,
        rule: &'r Rule,
        own: &'r Limit,
        entries: &[Entry<'d>],
    ) -> Cow<'r, Limit> {
        if !own.counts_slots() {
            return self.limit(rule, own, entries).unwrap_or(Cow::Borrowed(own));
        }
        match self.planned.map(|planned| planned.plans.last_known(rule, own, entries)) {
            Some(PlanLimit::Plan(limit)) => limit,
            _ => Cow::Borrowed(own),
        }
    }
}

impl<S: SharedStore> Limiter<S> {
    /// Adds the plans of rules with `limit_from`. Without them, these rules decide by their own numbers.
    /// `source` is asked about customers that are not known, before a request is decided; `None` if the
    /// source sends all customers. Only with counters in Redis: counters in memory are queried without
    /// waiting, so the last known plan or the default decides.
    pub fn with_plans(
        self,
        plans: Arc<Plans>,
        source: Option<Arc<dyn CustomerSource>>,
    ) -> Limiter<S> {
        Limiter { planned: Some(PlannedLimits { plans, source }), ..self }
    }

    /// Asks the source of plans about customers, as long as `request` may wait. Returns whether there is
    /// a source. `timeout` is that of the request, and then what is left of it.
    pub(super) async fn ask(
        &self,
        customers: &[&str],
        request: &Request<'_>,
        timeout: &mut Option<Duration>,
    ) -> bool {
        let source = self.planned.as_ref().and_then(|planned| planned.source.as_deref());
        let Some(source) = source else { return false };
        let fetched = source.fetch(customers);
        if let Some(most) = *timeout {
            let deadline = Deadline::after(Some(most));
            let fetched = async {
                fetched.await;
                Ok(())
            };
            until_due(request, pin!(with_timeout(most, fetched))).await;
            *timeout = deadline.left();
        } else {
            until_due(request, pin!(fetched)).await;
        }
        true
    }

    /// The active plans; `None` without a source of plans.
    pub fn plans(&self) -> Option<&Arc<Plans>> {
        self.planned.as_ref().map(|planned| &planned.plans)
    }
}
