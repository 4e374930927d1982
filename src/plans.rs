//! Plans: named numbers for the limits of rules, and the customers who have them.
//!
//! A rule with `limit_from` names an entry whose value is a customer, or a plan. The first of these that
//! exists gives the numbers of its limit:
//!
//! 1. the plan of the customer, or the plan that the entry names;
//! 2. the default plan of the rule;
//! 3. the numbers of the rule.
//!
//! The algorithm and the windows are always those of the rule. A counter does not depend on numbers, so
//! it continues when a customer gets another plan.
//!
//! A [`PlanBook`] has the plans of a source. The customers are in a [`CustomerTable`], which has all of
//! them, or in a [`CustomerCache`], to which a [`CustomerSource`] adds those that requests name.
//! [`Plans`] is what the limiter reads. A source replaces its content, which takes no lock of readers.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;

use crate::descriptor::Entry;
use crate::key::KeySeed;
use crate::limit::Limit;
use crate::rules::{Rule, RuleSet};
use crate::sharded::Sharded;

mod book;
mod compiled;
mod customer_cache;
mod customer_hash;
mod customer_load;
mod customer_table;
mod customers_csv;
mod json_book;
mod json_plans;
mod line_blocks;
mod plan_names;
mod plan_value;
mod plans_status;
mod published;
#[cfg(test)]
mod tests;
mod yaml_book;

pub use book::{
    CUSTOMER_BYTES_MAX, CustomerPlans, LIMITS_PER_PLAN_MAX, LimitNumbers, PLAN_NAME_BYTES_MAX,
    PLANS_MAX, PlanBook, PlanId, PlanNumbers, check_customer_name, check_plan_name,
};
pub use customer_cache::CustomerCache;
pub use customer_load::load_customers;
pub use customer_table::{CustomerTable, CustomerTableBuilder};
pub use customers_csv::{CustomersError, count_lines, read_customers};
pub use plans_status::PlansStatus;
pub use published::PlanSelection;

use compiled::{CompiledBook, PlanCompiler, PlanUse};
use customer_hash::CustomerHash;
use plan_names::PlanNames;
use published::{Customers, Published, Selected};

/// How plans are kept.
#[derive(Clone, Copy, Debug)]
pub struct PlansConfig {
    /// The most customers in memory.
    pub max_customers: usize,
    /// Whether a source is asked about each customer. Otherwise it sends all customers.
    pub asks_per_customer: bool,
}

/// The active plans, and the customers who have them.
pub struct Plans {
    config: PlansConfig,
    seed: KeySeed,
    published: ArcSwap<Published>,
    /// The rules for which plans are compiled. Locked while they are, which takes long for many rules and
    /// plans, and while the result becomes active. Locked before `writer`.
    compiler: Mutex<PlanCompiler>,
    /// Locked while the content is changed. Nothing is compiled meanwhile.
    writer: Mutex<Writer>,
    /// Decisions about customers whose plan is not defined.
    unknown_plans: Sharded<AtomicU64>,
}

/// What only changes need.
#[derive(Debug, Default)]
struct Writer {
    names: PlanNames,
    /// How many changes of customers were applied.
    changes: u64,
    warnings: Vec<String>,
    /// Replaced content, until no request uses it. It may have a table of millions, and freeing that takes
    /// longer than a request.
    retired: Vec<Arc<Published>>,
}

/// The limit of a rule under the plan of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanLimit<'r> {
    /// The limit of the rule.
    Own(&'r Limit),
    /// The limit of the rule with the numbers of the plan.
    Plan(Cow<'r, Limit>),
    /// The plan allows every hit and counts none.
    Unlimited,
    /// The source must be asked about this customer. Only with `asks_per_customer`.
    Unknown {
        /// 64 bits of a keyed hash of the customer's name.
        customer_hash: u64,
    },
}

/// The plan of a descriptor, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanChoice<'r> {
    /// The name of the plan; `None` without one.
    pub plan: Option<Arc<str>>,
    /// Why this plan.
    pub selection: PlanSelection,
    /// The limit under this plan.
    pub limit: PlanLimit<'r>,
}

/// A source that is asked about each customer.
pub trait CustomerSource: Send + Sync + 'static {
    /// Asks for the plans of `customers`, and passes them to [`Plans::assign_fetched`]. Takes at most the
    /// timeout of the source. After a failure, what was known stays.
    fn fetch<'a>(&'a self, customers: &'a [&'a str]) -> BoxFuture<'a, ()>;
}

impl Plans {
    /// No plans: the numbers of the rules decide.
    pub fn new(config: PlansConfig) -> Arc<Plans> {
        let customers = match config.asks_per_customer {
            true => Customers::Cache(Arc::new(CustomerCache::new(config.max_customers))),
            false => Customers::Table(Arc::default()),
        };
        let published = Published::new(CompiledBook::default(), customers, &PlanNames::default());
        Arc::new(Plans {
            config,
            seed: KeySeed::random(),
            published: ArcSwap::from_pointee(published),
            compiler: Mutex::default(),
            writer: Mutex::default(),
            unknown_plans: Sharded::default(),
        })
    }

    /// The limit of `rule` for a descriptor with these entries, which matches it. `limit` is the rule's
    /// limit. A lookup takes no lock and does not wait.
    #[inline]
    pub fn limit<'r>(
        &self,
        rule: &'r Rule,
        limit: &'r Limit,
        entries: &[Entry<'_>],
    ) -> PlanLimit<'r> {
        self.find(rule, limit, entries, false)
    }

    /// Like [`limit`](Plans::limit), without asking: the last known plan of the customer, or else the
    /// default. Never [`PlanLimit::Unknown`].
    pub fn last_known<'r>(
        &self,
        rule: &'r Rule,
        limit: &'r Limit,
        entries: &[Entry<'_>],
    ) -> PlanLimit<'r> {
        self.find(rule, limit, entries, true)
    }

    #[inline]
    fn find<'r>(
        &self,
        rule: &'r Rule,
        limit: &'r Limit,
        entries: &[Entry<'_>],
        accepts_stale: bool,
    ) -> PlanLimit<'r> {
        let Some(from) = &rule.limit_from else { return PlanLimit::Own(limit) };
        let published = self.published.load();
        match published.select(from, entries, &self.seed, accepts_stale) {
            Selected::Plan(plan) => published.limit_of(Some(plan), from, limit),
            Selected::Default { is_unknown_plan } => {
                if is_unknown_plan {
                    self.unknown_plans.local().fetch_add(1, Ordering::Relaxed);
                }
                published.limit_of(published.default_of(from), from, limit)
            }
            Selected::Unasked { customer_hash } => PlanLimit::Unknown { customer_hash },
        }
    }

    /// The plan of a descriptor, and why. `None` if the rule does not use plans. Does not count as a
    /// decision.
    pub fn choice<'r>(
        &self,
        rule: &'r Rule,
        limit: &'r Limit,
        entries: &[Entry<'_>],
    ) -> Option<PlanChoice<'r>> {
        let from = rule.limit_from.as_ref()?;
        let published = self.published.load();
        let (plan, selection) = match published.select(from, entries, &self.seed, true) {
            Selected::Plan(plan) => (Some(plan), PlanSelection::of(from)),
            Selected::Default { .. } | Selected::Unasked { .. } => {
                let default = published.default_of(from);
                let selection =
                    if default.is_some() { PlanSelection::Default } else { PlanSelection::Rule };
                (default, selection)
            }
        };
        let limit = published.limit_of(plan, from, limit);
        let plan = plan.and_then(|plan| published.book().name(plan).cloned());
        Some(PlanChoice { plan, selection, limit })
    }

    /// A builder of a table for [`publish`](Plans::publish), with room for `room` customers.
    pub fn table<'b>(&self, book: &'b PlanBook, room: usize) -> CustomerTableBuilder<'b> {
        CustomerTableBuilder::new(self.seed, book, room)
    }

    /// Replaces all plans and all customers. `customers` was built for `book`.
    pub fn publish(&self, book: PlanBook, customers: CustomerTable) {
        let compiler = self.compiler();
        let compiled = compiler.compile(Arc::new(book));
        self.activate(compiled, Some(Customers::Table(Arc::new(customers))));
    }

    /// Replaces all plans. The customers in a cache stay. Those of a table have numbers of another book,
    /// so they are removed.
    pub fn publish_book(&self, book: PlanBook) {
        let compiler = self.compiler();
        let compiled = compiler.compile(Arc::new(book));
        // A table is replaced only by a caller that has `compiler`, so this one is current.
        let customers = match self.published.load().customers() {
            Customers::Cache(_) => None,
            Customers::Table(_) => Some(Customers::Table(Arc::default())),
        };
        self.activate(compiled, customers);
    }

    /// Applies a change: sets the plan of a customer in the cache; `None` if the customer has none. The
    /// plan may be defined later. Without `asks_per_customer` this has no effect.
    pub fn assign(&self, customer: &str, plan: Option<&str>) {
        let mut writer = self.writer();
        writer.changes += 1;
        self.insert(&mut writer, customer, plan, false);
    }

    /// Like [`assign`](Plans::assign), for a plan that a source returned. `changes` is the result of
    /// [`changes`](Plans::changes) from before the source was asked. If one was applied since then, the
    /// plan may be older than the change, so the source is asked again.
    pub fn assign_fetched(&self, customer: &str, plan: Option<&str>, changes: u64) {
        let mut writer = self.writer();
        let is_stale = writer.changes != changes;
        self.insert(&mut writer, customer, plan, is_stale);
    }

    /// How many changes were applied.
    pub fn changes(&self) -> u64 {
        self.writer().changes
    }

    /// Whether the cache has this customer, possibly out of date. Then its last known plan decides until
    /// the source answers. False without `asks_per_customer`.
    pub fn has_in_memory(&self, customer: &str) -> bool {
        let hash = CustomerHash::of(&self.seed, customer);
        match self.published.load().customers() {
            Customers::Cache(cache) => cache.find(hash).is_some(),
            Customers::Table(_) => false,
        }
    }

    fn insert(&self, writer: &mut Writer, customer: &str, plan: Option<&str>, is_stale: bool) {
        let published = self.published.load_full();
        let Customers::Cache(cache) = published.customers() else { return };
        let hash = CustomerHash::of(&self.seed, customer);
        let Some(plan) = plan else { return cache.insert(hash, None, is_stale) };
        if let Some(number) = writer.names.get(plan) {
            return cache.insert(hash, Some(number), is_stale);
        }
        let mut cache = Arc::clone(cache);
        let mut cached_plans = published.cached_plans().to_vec();
        let number = writer.names.add(plan).or_else(|| {
            // Numbers are given again, so the source must be asked about all customers again.
            cache = Arc::new(CustomerCache::new(self.config.max_customers));
            cached_plans.clear();
            writer.names = PlanNames::default();
            writer.names.add(plan)
        });
        cached_plans.push(published.book().id(plan));
        // Before the entry, so that a lookup finds its plan.
        self.swap(writer, published.with_cache(Arc::clone(&cache), cached_plans));
        cache.insert(hash, number, is_stale);
    }

    /// Has every customer asked about again, because changes were missed. Until then, and if the source
    /// does not answer, the last known plan decides.
    pub fn forget_customers(&self) {
        let mut writer = self.writer();
        writer.changes += 1;
        if let Customers::Cache(cache) = self.published.load().customers() {
            cache.mark_stale();
        }
    }

    /// Checks the plans with the rules of `rules`, which use them from now on. Numbers that do not fit
    /// cause warnings, and the numbers of the rule decide.
    pub fn use_rules(&self, rules: &RuleSet) {
        self.use_rule_sets(&[rules]);
    }

    /// Like [`use_rules`](Plans::use_rules), for rule sets that use the same plans.
    pub fn use_rule_sets(&self, sets: &[&RuleSet]) {
        let uses = PlanUse::all(sets);
        let mut compiler = self.compiler();
        if uses.is_empty() && compiler.uses.is_empty() {
            return;
        }
        compiler.uses = uses;
        let book = Arc::clone(self.published.load().book());
        self.activate(compiler.compile(book), None);
    }

    /// All plans.
    pub fn book(&self) -> Arc<PlanBook> {
        Arc::clone(self.published.load().book())
    }

    /// Frees replaced plans and customers that no request uses. Sources call it when they look for
    /// changes.
    pub fn free_retired(&self) {
        free(&mut self.writer().retired);
    }

    /// Publishes a compiled book. `None` for `customers`: those that are in memory by now, with all
    /// changes that came while the book was compiled. Logs the warnings that the content before did not
    /// have. The caller has the lock of `compiler`.
    fn activate(&self, mut compiled: CompiledBook, customers: Option<Customers>) {
        let warnings = std::mem::take(&mut compiled.warnings);
        let mut writer = self.writer();
        let new = |warning: &&String| !writer.warnings.contains(warning);
        let new: Vec<String> = warnings.iter().filter(new).cloned().collect();
        writer.warnings = warnings;
        let customers = customers.unwrap_or_else(|| self.published.load().customers().clone());
        let next = Published::new(compiled, customers, &writer.names);
        self.swap(&mut writer, next);
        drop(writer);
        for warning in new {
            tracing::warn!("{warning}");
        }
    }

    fn swap(&self, writer: &mut Writer, next: Published) {
        free(&mut writer.retired);
        writer.retired.push(self.published.swap(Arc::new(next)));
    }

    fn compiler(&self) -> MutexGuard<'_, PlanCompiler> {
        // A panic leaves the rules of the last call, which are valid.
        self.compiler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A panic leaves the content before the change, which is valid.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn free(retired: &mut Vec<Arc<Published>>) {
    retired.retain(|published| Arc::strong_count(published) > 1);
}
