//! The current changes of this process, for the threads that decide.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};

use super::active::ActiveChanges;
use crate::atomic_count::AtomicCount;
use crate::rules::RuleSet;
use crate::time::Micros;

/// The changes that apply to requests. A [`ChangeRegistry`](super::ChangeRegistry) replaces them.
pub struct CurrentChanges {
    /// False while there is no change. A decision then reads nothing else.
    any: AtomicBool,
    active: ArcSwap<ActiveChanges>,
    /// Locked while the changes are replaced, and while new rules become active.
    writer: Mutex<()>,
    /// The clock of the store minus the local clock, in microseconds. The end of a change is by the clock
    /// of the store, so that it is the same instant for all instances.
    clock_offset: AtomicI64,
    /// Ids of stored changes that this version cannot read.
    unreadable: ArcSwap<Vec<String>>,
    /// Why the shared changes could not be read the last time.
    last_error: ArcSwapOption<String>,
    poll_errors: AtomicCount,
}

impl Default for CurrentChanges {
    fn default() -> CurrentChanges {
        CurrentChanges {
            any: AtomicBool::new(false),
            active: ArcSwap::from_pointee(ActiveChanges::none()),
            writer: Mutex::default(),
            clock_offset: AtomicI64::new(0),
            unreadable: ArcSwap::default(),
            last_error: ArcSwapOption::empty(),
            poll_errors: AtomicCount::default(),
        }
    }
}

impl CurrentChanges {
    /// The changes, for use within a few microseconds. `None` while there are none.
    #[inline]
    pub fn get(&self) -> Option<Guard<Arc<ActiveChanges>>> {
        self.any.load(Ordering::Acquire).then(|| self.active.load())
    }

    /// All changes, for pages.
    pub fn all(&self) -> Arc<ActiveChanges> {
        self.active.load_full()
    }

    /// The instant by the clock by which changes end, at `local` by the local clock.
    #[inline]
    pub fn now(&self, local: Micros) -> Micros {
        Micros(local.0.saturating_add_signed(self.clock_offset.load(Ordering::Relaxed)))
    }

    /// The ids of stored changes that this version cannot read. They have no effect.
    pub fn unreadable(&self) -> Arc<Vec<String>> {
        self.unreadable.load_full()
    }

    /// Why the shared changes could not be read the last time; `None` if they were.
    pub fn last_error(&self) -> Option<Arc<String>> {
        self.last_error.load_full()
    }

    /// How often the shared changes could not be read.
    pub fn poll_errors(&self) -> u64 {
        self.poll_errors.get()
    }

    /// Compiles the changes for `rules`, which are about to become active. Until then, the changes also
    /// apply to the rules before. The changes are not replaced while the result exists, so drop it when
    /// the rules are active.
    pub fn use_rules(&self, rules: &RuleSet) -> MutexGuard<'_, ()> {
        let writer = self.writer();
        let active = self.active.load_full();
        if !active.list().is_empty() {
            self.active.store(Arc::new(active.with_rules(rules)));
        }
        writer
    }

    fn writer(&self) -> MutexGuard<'_, ()> {
        // A panic leaves the changes before it, which are valid.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces all changes.
    pub(super) fn publish(&self, active: ActiveChanges, unreadable: Vec<String>) {
        let _writer = self.writer();
        let any = !active.list().is_empty();
        self.active.store(Arc::new(active));
        self.unreadable.store(Arc::new(unreadable));
        self.any.store(any, Ordering::Release);
    }

    /// Sets the clock by which changes end: it shows `store` at `local`.
    pub(super) fn set_clock(&self, local: Micros, store: Micros) {
        let offset = i128::from(store.0) - i128::from(local.0);
        let offset = i64::try_from(offset).unwrap_or_default();
        self.clock_offset.store(offset, Ordering::Relaxed);
    }

    /// Sets the result of the last read of the shared changes.
    pub(super) fn set_error(&self, error: Option<String>) {
        if error.is_some() {
            self.poll_errors.add();
        }
        if error.is_some() || self.last_error.load().is_some() {
            self.last_error.store(error.map(Arc::new));
        }
    }
}
