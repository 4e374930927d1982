//! A table of all customers with their plans: 8 bytes per place, and four places for three customers.
//!
//! A place has 48 bits of a hash in place of a name. Another customer of the same place has the same
//! bits with a probability of 2^-48, and a lookup compares a few places. So among 10 million customers,
//! the probability that any of them has the plan of another one is below 10^-6.

use super::book::{PlanBook, PlanId, check_customer_name, check_plan_name, shown};
use super::customer_hash::CustomerHash;
use crate::key::KeySeed;

/// The plan of a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AssignedPlan {
    /// A plan of the book.
    Plan(PlanId),
    /// A plan that the book does not have.
    Unknown,
}

/// The lower 16 bits of a place for [`AssignedPlan::Unknown`]. Those of a plan are its number plus 1,
/// so that 0 is an empty place.
const UNKNOWN_PLAN: u64 = 0xffff;

/// All customers of a source, each with a plan. It never changes; a source replaces it.
#[derive(Debug, Default)]
pub struct CustomerTable {
    /// The tag of a customer in the upper 48 bits, and its plan in the lower 16. A customer is at the
    /// first place after that of its hash that was empty.
    places: Box<[u64]>,
    customers: usize,
    unknown: UnknownPlans,
}

/// The customers whose plan the book does not have.
#[derive(Clone, Debug, Default)]
struct UnknownPlans {
    customers: usize,
    /// The first plan.
    first: Option<String>,
}

impl CustomerTable {
    /// The number of customers.
    pub fn len(&self) -> usize {
        self.customers
    }

    /// Whether there is no customer.
    pub fn is_empty(&self) -> bool {
        self.customers == 0
    }

    /// The memory of the places, in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.places)
    }

    /// A warning about customers whose plan the book does not have. They get the default.
    pub fn warning(&self) -> Option<String> {
        let UnknownPlans { customers, first } = &self.unknown;
        let first = shown(first.as_ref()?);
        Some(format!(
            "{customers} customers have a plan that is not defined, such as `{first}`; define it, \
             or they get the default of each rule"
        ))
    }

    /// The plan of a customer; `None` if the table does not have the customer.
    pub(super) fn find(&self, customer: CustomerHash) -> Option<AssignedPlan> {
        if self.places.is_empty() {
            return None;
        }
        let mut place = customer.place_in(self.places.len());
        // There is always an empty place.
        loop {
            let found = self.places[place];
            if found == 0 {
                return None;
            }
            if found & !0xffff == customer.tag() {
                return Some(match found & 0xffff {
                    UNKNOWN_PLAN => AssignedPlan::Unknown,
                    plan => AssignedPlan::Plan(PlanId(plan as u16 - 1)),
                });
            }
            place = if place + 1 == self.places.len() { 0 } else { place + 1 };
        }
    }
}

/// Builds a table in place.
pub struct CustomerTableBuilder<'b> {
    seed: KeySeed,
    book: &'b PlanBook,
    /// The most customers.
    room: usize,
    table: CustomerTable,
}

impl<'b> CustomerTableBuilder<'b> {
    /// A table for at most `room` customers, on plans of `book`. It takes 11 bytes for each, also if
    /// fewer are added.
    pub(super) fn new(seed: KeySeed, book: &'b PlanBook, room: usize) -> CustomerTableBuilder<'b> {
        // One more, so that there is an empty place.
        let places = room.saturating_add(room.div_ceil(3)).saturating_add(1);
        let places = vec![0; places].into_boxed_slice();
        let table = CustomerTable { places, ..CustomerTable::default() };
        CustomerTableBuilder { seed, book, room, table }
    }

    /// Adds a customer with the name of its plan. The plan of a customer that was added before is
    /// replaced.
    ///
    /// # Errors
    ///
    /// An invalid name, or more customers than there is room for.
    pub fn add(&mut self, customer: &str, plan: &str) -> Result<(), String> {
        check_customer_name(customer)?;
        let assigned = match self.book.id(plan) {
            Some(PlanId(plan)) => u64::from(plan) + 1,
            None => {
                check_plan_name(plan)?;
                let unknown = &mut self.table.unknown;
                unknown.customers += 1;
                unknown.first.get_or_insert_with(|| plan.to_owned());
                UNKNOWN_PLAN
            }
        };
        let hash = CustomerHash::of(&self.seed, customer);
        let places = &mut self.table.places;
        let mut place = hash.place_in(places.len());
        while places[place] != 0 && places[place] & !0xffff != hash.tag() {
            place = if place + 1 == places.len() { 0 } else { place + 1 };
        }
        if places[place] == 0 {
            if self.table.customers == self.room {
                let room = self.room;
                return Err(format!("more than {room} customers; raise plans.max_customers"));
            }
            self.table.customers += 1;
        }
        places[place] = hash.tag() | assigned;
        Ok(())
    }

    /// The table.
    pub fn finish(self) -> CustomerTable {
        self.table
    }
}
