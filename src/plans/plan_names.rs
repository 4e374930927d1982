//! Numbers of plan names that stay the same when the book changes, for the cache of customers.

use std::collections::HashMap;
use std::sync::Arc;

use super::book::{PLANS_MAX, PlanBook, PlanId};

/// Most names, below 2^16 - 2. Plans that come and go need more than one book has.
pub(super) const NAMES_MAX: usize = 4 * PLANS_MAX;

/// Names of plans, each with a number. Some may not be in the book.
#[derive(Debug, Default)]
pub(super) struct PlanNames {
    numbers: HashMap<Arc<str>, u16>,
    names: Vec<Arc<str>>,
}

impl PlanNames {
    /// The number of `name`, if it has one.
    pub(super) fn get(&self, name: &str) -> Option<u16> {
        self.numbers.get(name).copied()
    }

    /// Gives `name` a number. `None` if there are too many names: their numbers must be given again.
    pub(super) fn add(&mut self, name: &str) -> Option<u16> {
        let number = u16::try_from(self.names.len()).ok()?;
        if self.names.len() >= NAMES_MAX {
            return None;
        }
        let name: Arc<str> = name.into();
        self.numbers.insert(Arc::clone(&name), number);
        self.names.push(name);
        Some(number)
    }

    /// The plan of `book` for each number.
    pub(super) fn in_book(&self, book: &PlanBook) -> Box<[Option<PlanId>]> {
        self.names.iter().map(|name| book.id(name)).collect()
    }
}
