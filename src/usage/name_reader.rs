//! Reads the names of a rule from Redis in batches, from a position on.

use futures_util::future::try_join_all;

use super::name_set::{NameList, NameSet, SETS, StoredName, number_of};
use super::name_store::NameStore;
use super::set_commands::INSTANTS_END;
use crate::key::{CounterKey, RuleId};
use crate::store::StoreError;
use crate::time::Micros;

/// The fewest and the most names that one command asks for. Names of one instant that one command cannot
/// read are not found. A set has few of them, because an instant is a microsecond.
const NAMES_PER_READ: (usize, usize) = (100, 500);

/// Sets that are read at a time, while they are small.
const WIDTH_MAX: usize = 16;

/// A position between two names of a rule. Names are in the order of their sets, then of their instants,
/// then of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamePosition {
    /// The number of the set.
    pub(super) set: usize,
    /// The instant of the name before, and its key.
    pub(super) after: (Micros, CounterKey),
}

impl NamePosition {
    /// The position before all names.
    pub const START: NamePosition = NamePosition::start_of(0);

    const fn start_of(set: usize) -> NamePosition {
        NamePosition { set, after: (Micros::ZERO, CounterKey([0, 0])) }
    }

    /// The position after `name`.
    pub fn after(name: &StoredName) -> NamePosition {
        NamePosition { set: number_of(&name.key), after: (name.until, name.key) }
    }
}

/// A walk over the names of a rule. It sends a bounded number of commands.
pub struct NameReader<'s> {
    store: &'s dyn NameStore,
    rule: RuleId,
    local: Micros,
    position: NamePosition,
    /// The most names of one command.
    per_read: usize,
    /// Sets that the next batch reads.
    width: usize,
    /// Commands that are left.
    reads_left: usize,
    /// Members that were read and are no names.
    unreadable: u64,
}

impl<'s> NameReader<'s> {
    /// Reads the names after `position` with at most `reads` commands, at `local` by the local clock. A
    /// batch has about `wanted` names, if there are as many.
    pub fn new(
        store: &'s dyn NameStore,
        rule: RuleId,
        position: NamePosition,
        (wanted, reads): (usize, usize),
        local: Micros,
    ) -> NameReader<'s> {
        let (least, most) = NAMES_PER_READ;
        let per_read = wanted.clamp(least, most);
        let (width, reads_left, unreadable) = (1, reads, 0);
        NameReader { store, rule, local, position, per_read, width, reads_left, unreadable }
    }

    /// The names after the last batch; `None` at the end, and when all commands were sent. A batch may be
    /// empty.
    ///
    /// # Errors
    ///
    /// The error of the store. The position stays, so that the same batch can be read again.
    pub async fn next(&mut self) -> Result<Option<Vec<StoredName>>, StoreError> {
        let NamePosition { set, .. } = self.position;
        let width = self.width.min(SETS.saturating_sub(set)).min(self.reads_left);
        if width == 0 {
            return Ok(None);
        }
        let reads = (set..set + width).map(|number| self.read_set(number));
        let sets = try_join_all(reads).await?;
        self.reads_left -= width;
        let mut names = Vec::new();
        for (number, of_set) in (set..).zip(sets) {
            let SetPart { names: found, unreadable, rest } = of_set;
            names.extend(found);
            self.unreadable += unreadable;
            if let Some(rest) = rest {
                // A large set. Those after it are read when it ends.
                self.position = rest;
                self.width = 1;
                return Ok(Some(names));
            }
            self.position = NamePosition::start_of(number + 1);
        }
        self.width = (2 * self.width).min(WIDTH_MAX);
        Ok(Some(names))
    }

    /// The position after the last batch; `None` at the end.
    pub fn position(&self) -> Option<NamePosition> {
        (self.position.set < SETS).then_some(self.position)
    }

    /// How many members were read that are no names, of this version of weir. They are left out.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Reads names of the set `number`: those after the position, or all.
    async fn read_set(&self, number: usize) -> Result<SetPart, StoreError> {
        let set = NameSet { rule: self.rule, number };
        let position = if number == self.position.set {
            self.position
        } else {
            NamePosition::start_of(number)
        };
        let now = self.store.now(set, self.local)?;
        let (at, _) = position.after;
        let NameList { mut names, unreadable } =
            self.store.read(set, now.max(at), self.per_read).await?;
        let is_full = names.len() + unreadable.len() >= self.per_read;
        let last_name = names.last().map(|name| (name.until, name.key));
        let last_other = unreadable.last().map(|until| (*until, CounterKey([0, 0])));
        let next = match last_name.max(last_other) {
            Some(last) if last > position.after => last,
            // More members than a command reads have one instant. The next read is after all of them.
            _ => (Micros(at.0.saturating_add(1)), CounterKey([0, 0])),
        };
        let has_rest = is_full && next.0 < INSTANTS_END;
        let rest = has_rest.then_some(NamePosition { set: number, after: next });
        names.retain(|name| (name.until, name.key) > position.after);
        let read = names.len();
        names.retain(|name| NameSet::of(self.rule, &name.key) == set && name.has_texts());
        // Those at the instant of the position were counted when it was reached.
        let others = unreadable.iter().filter(|until| **until > at).count();
        let unreadable = (others + read - names.len()) as u64;
        Ok(SetPart { names, unreadable, rest })
    }
}

/// Names of one set.
struct SetPart {
    names: Vec<StoredName>,
    /// Members that are no names.
    unreadable: u64,
    /// The position after them if the set has more.
    rest: Option<NamePosition>,
}
