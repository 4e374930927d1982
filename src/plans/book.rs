//! A book of plans: the numbers of the limits of each plan, by names.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::escape::excerpt;
use crate::limit::TierNumbers;

/// Most plans of one book.
pub const PLANS_MAX: usize = 10_000;

/// Most limits of one plan.
pub const LIMITS_PER_PLAN_MAX: usize = 1_000;

/// Longest name of a plan, or of a limit in it, in bytes.
pub const PLAN_NAME_BYTES_MAX: usize = 256;

/// Longest name of a customer, in bytes.
pub const CUSTOMER_BYTES_MAX: usize = 4_096;

/// Longest part of a name in a message, in characters.
const CHARS_MAX: usize = 80;

/// Customers with the names of their plans.
pub type CustomerPlans = Vec<(String, String)>;

/// The number of a plan in its book, below [`PLANS_MAX`]. Another book has other numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlanId(pub u16);

/// What a plan says about one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitNumbers {
    /// Allows every hit and counts none.
    Unlimited,
    /// One item per tier of the rule.
    Tiers(Box<[TierNumbers]>),
}

/// The limits of one plan, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanNumbers(BTreeMap<Box<str>, LimitNumbers>);

/// All plans of a source. It never changes; a source replaces it by another one.
#[derive(Clone, Debug, Default)]
pub struct PlanBook {
    plans: Vec<(Arc<str>, PlanNumbers)>,
    ids: HashMap<Arc<str>, PlanId>,
}

impl PlanNumbers {
    /// The numbers of the limit with this name; `None` if the plan does not have it.
    pub fn limit(&self, name: &str) -> Option<&LimitNumbers> {
        self.0.get(name)
    }

    /// All limits, in the order of their names.
    pub fn limits(&self) -> impl Iterator<Item = (&str, &LimitNumbers)> {
        self.0.iter().map(|(name, numbers)| (&**name, numbers))
    }

    /// The number of limits.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the plan has no limits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a limit, or replaces the one with this name.
    pub(super) fn insert(&mut self, name: &str, numbers: LimitNumbers) {
        self.0.insert(name.into(), numbers);
    }
}

impl PlanBook {
    /// A book of these plans.
    ///
    /// # Errors
    ///
    /// The first name that is invalid or defined twice, or more than [`PLANS_MAX`] plans.
    pub fn new(plans: impl IntoIterator<Item = (String, PlanNumbers)>) -> Result<PlanBook, String> {
        let mut book = PlanBook::default();
        for (name, numbers) in plans {
            check_plan_name(&name)?;
            let Some(id) = u16::try_from(book.plans.len()).ok().filter(|id| *id < ID_END) else {
                return Err(format!("more than {PLANS_MAX} plans; join plans with equal numbers"));
            };
            let shared: Arc<str> = name.as_str().into();
            if book.ids.insert(Arc::clone(&shared), PlanId(id)).is_some() {
                return Err(format!("plan `{}` is defined twice; keep one", shown(&name)));
            }
            book.plans.push((shared, numbers));
        }
        Ok(book)
    }

    /// The number of the plan with this name.
    pub fn id(&self, name: &str) -> Option<PlanId> {
        self.ids.get(name).copied()
    }

    /// The name of a plan of this book.
    pub fn name(&self, plan: PlanId) -> Option<&Arc<str>> {
        self.plans.get(usize::from(plan.0)).map(|(name, _)| name)
    }

    /// The numbers of a plan of this book.
    pub fn numbers(&self, plan: PlanId) -> Option<&PlanNumbers> {
        self.plans.get(usize::from(plan.0)).map(|(_, numbers)| numbers)
    }

    /// All plans, in the order of their numbers.
    pub fn plans(&self) -> impl Iterator<Item = (&str, &PlanNumbers)> {
        self.plans.iter().map(|(name, numbers)| (&**name, numbers))
    }

    /// How many plans there are.
    pub fn len(&self) -> usize {
        self.plans.len()
    }

    /// Whether there is no plan.
    pub fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }
}

/// End (exclusive) of the range of [`PlanId`].
const ID_END: u16 = PLANS_MAX as u16;

/// Checks the name of a plan, or of a limit in it.
///
/// # Errors
///
/// An empty name, one of more than [`PLAN_NAME_BYTES_MAX`] bytes, or one with control characters.
pub fn check_plan_name(name: &str) -> Result<(), String> {
    let (length, max) = (name.len(), PLAN_NAME_BYTES_MAX);
    if name.is_empty() {
        return Err("a name of a plan or of a limit is empty; write one".to_owned());
    }
    if length > max {
        let name = shown(name);
        return Err(format!("the name `{name}` has {length} bytes; write at most {max}"));
    }
    if name.chars().any(char::is_control) {
        let name = shown(name);
        return Err(format!("the name `{name}` has a control character; remove it"));
    }
    Ok(())
}

/// Checks the name of a customer, which is a value of requests.
///
/// # Errors
///
/// An empty name, or one of more than [`CUSTOMER_BYTES_MAX`] bytes.
pub fn check_customer_name(name: &str) -> Result<(), String> {
    let (length, max) = (name.len(), CUSTOMER_BYTES_MAX);
    if name.is_empty() {
        return Err("the name of a customer is empty; write the value of its requests".to_owned());
    }
    if length > max {
        // The name may be a secret key.
        return Err(format!("the name of a customer has {length} bytes; write at most {max}"));
    }
    Ok(())
}

/// A name for a message: short and on one line.
pub(super) fn shown(name: &str) -> String {
    excerpt(name, CHARS_MAX)
}
