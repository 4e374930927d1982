//! A bounded cache of customers with their plans, for a source that is asked about each customer.
//!
//! Lookups take no lock: an entry is one number, and changes are made under the lock of
//! [`Plans`](super::Plans). When a set is full, the clock algorithm evicts an entry of it that no lookup
//! has used since the last eviction.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::customer_hash::CustomerHash;

/// Entries in one set, which is one cache line.
const WAYS: usize = 8;

/// The upper 46 bits of an entry are of the hash of the customer. Another customer has the same bits,
/// and the same set, with a probability below 2^-46.
const TAG_BITS: u64 = !0x3_ffff;

/// Whether a lookup has used the entry since the hand of the clock has passed.
const USED_BIT: u64 = 1 << 16;

/// Whether the source may have another plan by now.
const STALE_BIT: u64 = 1 << 17;

/// The lower 16 bits of the entry of a customer without a plan. An entry of 0 is empty.
const NO_PLAN: u64 = 0xffff;

/// What the cache knows about a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CachedCustomer {
    /// The number of the plan's name; `None` for a customer without a plan.
    pub(super) plan: Option<u16>,
    /// Whether the source may have another plan by now.
    pub(super) is_stale: bool,
}

/// Customers that requests have named, at most a number of them.
#[derive(Debug)]
pub struct CustomerCache {
    sets: Box<[CacheEntries]>,
    customers: AtomicUsize,
    /// The position of the clock's hand in every set.
    hand: AtomicUsize,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct CacheEntries([AtomicU64; WAYS]);

impl CustomerCache {
    /// A cache of at most `customers`, rounded up to a multiple of eight. It takes 8 bytes for each.
    pub fn new(customers: usize) -> CustomerCache {
        let sets = customers.div_ceil(WAYS).max(1);
        let sets = (0..sets).map(|_| CacheEntries::default()).collect();
        CustomerCache { sets, customers: AtomicUsize::new(0), hand: AtomicUsize::new(0) }
    }

    /// The number of customers.
    pub fn len(&self) -> usize {
        self.customers.load(Ordering::Relaxed)
    }

    /// The memory of the entries, in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.sets)
    }

    /// Whether there is no customer.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is known about a customer.
    pub(super) fn find(&self, customer: CustomerHash) -> Option<CachedCustomer> {
        let entries = self.entries(customer);
        for entry in entries {
            let found = entry.load(Ordering::Relaxed);
            if !holds(found, customer) {
                continue;
            }
            // Written only if it changes: all threads read the line.
            if found & USED_BIT == 0 {
                entry.fetch_or(USED_BIT, Ordering::Relaxed);
            }
            let plan = match found & 0xffff {
                NO_PLAN => None,
                plan => Some(plan as u16 - 1),
            };
            return Some(CachedCustomer { plan, is_stale: found & STALE_BIT != 0 });
        }
        None
    }

    /// Adds a customer, or replaces what is known about it. The caller holds the lock of changes.
    pub(super) fn insert(&self, customer: CustomerHash, plan: Option<u16>, is_stale: bool) {
        let plan = plan.map_or(NO_PLAN, |plan| u64::from(plan) + 1);
        let stale = if is_stale { STALE_BIT } else { 0 };
        let entries = self.entries(customer);
        let known = entries.iter().find(|entry| holds(entry.load(Ordering::Relaxed), customer));
        let entry = known.unwrap_or_else(|| self.room(entries));
        entry.store((customer.tag() & TAG_BITS) | stale | plan, Ordering::Relaxed);
    }

    /// Marks every customer as stale. The caller holds the lock of changes.
    pub(super) fn mark_stale(&self) {
        for entry in self.sets.iter().flat_map(|set| &set.0) {
            if entry.load(Ordering::Relaxed) != 0 {
                entry.fetch_or(STALE_BIT, Ordering::Relaxed);
            }
        }
    }

    fn entries(&self, customer: CustomerHash) -> &[AtomicU64; WAYS] {
        &self.sets[customer.place_in(self.sets.len())].0
    }

    /// An entry for a new customer: an empty one, or one that is evicted.
    fn room<'s>(&self, entries: &'s [AtomicU64; WAYS]) -> &'s AtomicU64 {
        if let Some(empty) = entries.iter().find(|entry| entry.load(Ordering::Relaxed) == 0) {
            self.customers.fetch_add(1, Ordering::Relaxed);
            return empty;
        }
        loop {
            let hand = self.hand.fetch_add(1, Ordering::Relaxed) % WAYS;
            let entry = &entries[hand];
            // In the second round at the latest, unless lookups set all bits again meanwhile.
            if entry.fetch_and(!USED_BIT, Ordering::Relaxed) & USED_BIT == 0 {
                return entry;
            }
        }
    }
}

/// Whether an entry is that of `customer`.
fn holds(entry: u64, customer: CustomerHash) -> bool {
    entry != 0 && entry & TAG_BITS == customer.tag() & TAG_BITS
}
