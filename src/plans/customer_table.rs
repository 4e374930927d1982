//! A table of all customers with their plans: 8 bytes per place, and four places for three customers.
//!
//! A place has 48 bits of a hash in place of a name. Another customer of the same place has the same
//! bits with a probability of 2^-48, and a lookup compares a few places. So among 10 million customers,
//! the probability that any of them has the plan of another one is below 10^-6.

use std::hint::black_box;

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

/// Customers whose places are read before they are added: more than the reads that a processor has in
/// flight, and few enough for its first cache.
const GROUP: usize = 32;

/// All customers of a source, each with a plan. It never changes; a source replaces it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CustomerTable {
    /// The tag of a customer in the upper 48 bits, and its plan in the lower 16. A customer is at the
    /// first place after that of its hash that was empty.
    places: Box<[u64]>,
    customers: usize,
    unknown: UnknownPlans,
}

/// The customers whose plan the book does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct UnknownPlans {
    customers: usize,
    /// The first such plan of any line.
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
        // A later line of each customer may have a plan of the book.
        let first = shown(first.as_ref().filter(|_| *customers > 0)?);
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

/// A customer in the form of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct HashedCustomer {
    /// The first place where the customer may be.
    place: usize,
    /// The tag and the plan.
    content: u64,
    /// The number of its line.
    line: u64,
}

impl HashedCustomer {
    /// Whether the book does not have the plan.
    pub(super) fn has_unknown_plan(self) -> bool {
        has_unknown_plan(self.content)
    }
}

/// Whether the book does not have the plan of this content of a place.
fn has_unknown_plan(content: u64) -> bool {
    content & 0xffff == UNKNOWN_PLAN
}

/// Hashes the customers of one table. Threads share it.
#[derive(Clone, Copy)]
pub(super) struct CustomerHasher<'b> {
    seed: KeySeed,
    book: &'b PlanBook,
    /// The number of places of the table.
    places: usize,
}

impl CustomerHasher<'_> {
    /// The customer of line `line`, with the name of its plan.
    ///
    /// # Errors
    ///
    /// An invalid name.
    pub(super) fn hash(
        self,
        customer: &str,
        plan: &str,
        line: u64,
    ) -> Result<HashedCustomer, String> {
        check_customer_name(customer)?;
        let assigned = match self.book.id(plan) {
            Some(PlanId(plan)) => u64::from(plan) + 1,
            None => {
                check_plan_name(plan)?;
                UNKNOWN_PLAN
            }
        };
        let hash = CustomerHash::of(&self.seed, customer);
        let (place, content) = (hash.place_in(self.places), hash.tag() | assigned);
        Ok(HashedCustomer { place, content, line })
    }
}

/// Builds a table in place.
pub struct CustomerTableBuilder<'b> {
    hasher: CustomerHasher<'b>,
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
        let hasher = CustomerHasher { seed, book, places };
        let places = vec![0; places].into_boxed_slice();
        let table = CustomerTable { places, ..CustomerTable::default() };
        CustomerTableBuilder { hasher, room, table }
    }

    /// What hashes customers for [`add_hashed`](CustomerTableBuilder::add_hashed).
    pub(super) fn hasher(&self) -> CustomerHasher<'b> {
        self.hasher
    }

    /// Adds a customer with the name of its plan. The plan of a customer that was added before is
    /// replaced.
    ///
    /// # Errors
    ///
    /// An invalid name, or more customers than there is room for.
    pub fn add(&mut self, customer: &str, plan: &str) -> Result<(), String> {
        let hashed = self.hasher.hash(customer, plan, 0)?;
        if hashed.has_unknown_plan() {
            self.table.unknown.first.get_or_insert_with(|| plan.to_owned());
        }
        self.insert(hashed)
    }

    /// Adds customers in this order, as [`add`](CustomerTableBuilder::add) does. `first_unknown` is the
    /// first of their plans that the book does not have.
    ///
    /// # Errors
    ///
    /// The line of the first customer for whom there is no room, and the problem.
    pub(super) fn add_hashed(
        &mut self,
        customers: &[HashedCustomer],
        first_unknown: Option<String>,
    ) -> Result<(), (u64, String)> {
        if let Some(plan) = first_unknown {
            self.table.unknown.first.get_or_insert(plan);
        }
        for group in customers.chunks(GROUP) {
            // These places are anywhere in a large memory, and no read depends on another one. So the
            // processor fetches several at once, and they are near when the customers are added.
            let places = &self.table.places;
            black_box(group.iter().fold(0_u64, |seen, customer| seen ^ places[customer.place]));
            for customer in group {
                self.insert(*customer).map_err(|what| (customer.line, what))?;
            }
        }
        Ok(())
    }

    fn insert(&mut self, customer: HashedCustomer) -> Result<(), String> {
        let HashedCustomer { mut place, content, .. } = customer;
        let places = &mut self.table.places;
        while places[place] != 0 && places[place] & !0xffff != content & !0xffff {
            place = if place + 1 == places.len() { 0 } else { place + 1 };
        }
        if places[place] == 0 {
            if self.table.customers == self.room {
                let room = self.room;
                return Err(format!("more than {room} customers; raise plans.max_customers"));
            }
            self.table.customers += 1;
        }
        let unknown = &mut self.table.unknown.customers;
        *unknown -= usize::from(has_unknown_plan(places[place]));
        *unknown += usize::from(has_unknown_plan(content));
        places[place] = content;
        Ok(())
    }

    /// The table.
    pub fn finish(self) -> CustomerTable {
        self.table
    }
}
