//! What is known about the active plans, for pages and metrics.

use std::sync::atomic::Ordering;

use super::Plans;
use super::published::Customers;

/// What is known about plans, for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlansStatus {
    /// The number of plans.
    pub plans: usize,
    /// The number of customers in memory.
    pub customers: usize,
    /// The memory of customers, in bytes.
    pub customer_bytes: usize,
    /// Decisions about customers whose plan was not defined, and about descriptors that named an
    /// undefined plan. The default decided.
    pub decided_by_unknown_plan: u64,
    /// Numbers that do not fit a rule, and names that are not defined.
    pub warnings: Vec<String>,
}

impl Plans {
    /// What is known about plans.
    pub fn status(&self) -> PlansStatus {
        let warnings = self.writer().warnings.clone();
        let published = self.published.load();
        let (customers, customer_bytes, of_table) = match published.customers() {
            Customers::Table(table) => (table.len(), table.bytes(), table.warning()),
            Customers::Cache(cache) => (cache.len(), cache.bytes(), None),
        };
        let unknown = self.unknown_plans.all().map(|count| count.load(Ordering::Relaxed));
        PlansStatus {
            plans: published.book().len(),
            customers,
            customer_bytes,
            decided_by_unknown_plan: unknown.sum(),
            warnings: of_table.into_iter().chain(warnings).collect(),
        }
    }
}
