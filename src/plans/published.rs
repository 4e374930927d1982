//! The content of [`Plans`](super::Plans) at one moment. Readers have one version for a whole lookup.

use std::sync::Arc;

use super::PlanLimit;
use super::book::{PlanBook, PlanId};
use super::compiled::{CompiledBook, CompiledUses, PlanOutcome};
use super::customer_cache::CustomerCache;
use super::customer_hash::CustomerHash;
use super::customer_table::{AssignedPlan, CustomerTable};
use super::plan_names::PlanNames;
use crate::descriptor::Entry;
use crate::key::KeySeed;
use crate::limit::Limit;
use crate::rules::{LimitFrom, PlanEntry};

/// A book, its customers, and its numbers for the active rules.
#[derive(Debug)]
pub(super) struct Published {
    book: Arc<PlanBook>,
    customers: Customers,
    /// The plan for each number of a name in the cache.
    cached_plans: Box<[Option<PlanId>]>,
    uses: Arc<CompiledUses>,
}

/// The customers in memory.
#[derive(Clone, Debug)]
pub(super) enum Customers {
    /// All customers.
    Table(Arc<CustomerTable>),
    /// Those that requests have named.
    Cache(Arc<CustomerCache>),
}

/// The plan that a descriptor selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selected {
    Plan(PlanId),
    /// The default of the rule.
    Default {
        /// Whether the customer has, or the entry names, a plan that is not defined.
        is_unknown_plan: bool,
    },
    /// The source must be asked about the customer.
    Unasked {
        customer_hash: u64,
    },
}

/// Why a descriptor has its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanSelection {
    /// It is the plan of the customer.
    Customer,
    /// The descriptor names it.
    Descriptor,
    /// It is the default of the rule.
    Default,
    /// There is none: the numbers of the rule decide.
    Rule,
}

impl PlanSelection {
    pub(super) fn of(from: &LimitFrom) -> PlanSelection {
        match from.names {
            PlanEntry::Customer => PlanSelection::Customer,
            PlanEntry::Plan => PlanSelection::Descriptor,
        }
    }

    /// The name at the admin port.
    pub const fn name(self) -> &'static str {
        match self {
            PlanSelection::Customer => "customer",
            PlanSelection::Descriptor => "descriptor",
            PlanSelection::Default => "default",
            PlanSelection::Rule => "rule",
        }
    }
}

impl Published {
    /// The content: a book for the active rules, and these customers.
    pub(super) fn new(
        compiled: CompiledBook,
        customers: Customers,
        names: &PlanNames,
    ) -> Published {
        let CompiledBook { book, uses, .. } = compiled;
        let cached_plans = names.in_book(&book);
        Published { book, customers, cached_plans, uses: Arc::new(uses) }
    }

    /// The same plans with this cache, and the plan for each number of a name in it.
    pub(super) fn with_cache(
        &self,
        cache: Arc<CustomerCache>,
        cached_plans: Vec<Option<PlanId>>,
    ) -> Published {
        Published {
            book: Arc::clone(&self.book),
            customers: Customers::Cache(cache),
            cached_plans: cached_plans.into(),
            uses: Arc::clone(&self.uses),
        }
    }

    pub(super) fn book(&self) -> &Arc<PlanBook> {
        &self.book
    }

    /// The plan for each number of a name in the cache.
    pub(super) fn cached_plans(&self) -> &[Option<PlanId>] {
        &self.cached_plans
    }

    pub(super) fn customers(&self) -> &Customers {
        &self.customers
    }

    /// The plan that a descriptor with these entries selects.
    pub(super) fn select(
        &self,
        from: &LimitFrom,
        entries: &[Entry<'_>],
        seed: &KeySeed,
        accepts_stale: bool,
    ) -> Selected {
        let value = from.value(entries);
        if value.is_empty() {
            return Selected::Default { is_unknown_plan: false };
        }
        match from.names {
            PlanEntry::Plan => match self.book.id(value) {
                Some(plan) => Selected::Plan(plan),
                None => Selected::Default { is_unknown_plan: true },
            },
            PlanEntry::Customer => {
                let customer = CustomerHash::of(seed, value);
                match &self.customers {
                    Customers::Table(table) => match table.find(customer) {
                        Some(AssignedPlan::Plan(plan)) => Selected::Plan(plan),
                        Some(AssignedPlan::Unknown) => Selected::Default { is_unknown_plan: true },
                        None => Selected::Default { is_unknown_plan: false },
                    },
                    Customers::Cache(cache) => self.cached(cache, customer, accepts_stale),
                }
            }
        }
    }

    fn cached(
        &self,
        cache: &CustomerCache,
        customer: CustomerHash,
        accepts_stale: bool,
    ) -> Selected {
        let Some(known) = cache.find(customer).filter(|known| accepts_stale || !known.is_stale)
        else {
            return match accepts_stale {
                true => Selected::Default { is_unknown_plan: false },
                false => Selected::Unasked { customer_hash: customer.short() },
            };
        };
        let Some(number) = known.plan else { return Selected::Default { is_unknown_plan: false } };
        match self.cached_plans.get(usize::from(number)).copied().flatten() {
            Some(plan) => Selected::Plan(plan),
            None => Selected::Default { is_unknown_plan: true },
        }
    }

    /// The default plan of a rule, if the book has it.
    pub(super) fn default_of(&self, from: &LimitFrom) -> Option<PlanId> {
        match self.uses.get(&from.use_id) {
            Some(compiled) => compiled.default,
            None => self.book.id(from.default.as_deref()?),
        }
    }

    /// The limit of a rule under `plan`.
    #[inline]
    pub(super) fn limit_of<'r>(
        &self,
        plan: Option<PlanId>,
        from: &LimitFrom,
        limit: &'r Limit,
    ) -> PlanLimit<'r> {
        let Some(plan) = plan else { return PlanLimit::Own(limit) };
        if let Some(compiled) = self.uses.get(&from.use_id)
            && let Some(outcome) = compiled.plans.get(usize::from(plan.0))
        {
            return outcome.apply(limit);
        }
        // The rule is newer than the compiled ones, or one of too many.
        let outcome = PlanOutcome::of(&self.book, plan, from, limit);
        outcome.map_or(PlanLimit::Own(limit), |outcome| outcome.apply(limit))
    }
}
