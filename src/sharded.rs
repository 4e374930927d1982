//! Sharded metrics: copies of the same atomics, so that few threads write to one cache line.
//!
//! There is one shard per core, rounded up to a power of two, and at most 8.

use std::cell::Cell;
use std::num::NonZero;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Most shards. More shards would make pages of metrics slower and rules larger.
const SHARDS_MAX: usize = 8;

/// Copies of `T`, one per shard.
#[derive(Debug)]
pub struct Sharded<T>(Box<[Shard<T>]>);

/// One copy. It is aligned to two cache lines, because processors prefetch the next line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard<T>(T);

impl<T: Default> Default for Sharded<T> {
    /// One shard per core, at most 8, rounded up to a power of two.
    fn default() -> Self {
        // Cached, because every rule has shards and `available_parallelism` reads cgroup files.
        static CORES: LazyLock<usize> =
            LazyLock::new(|| thread::available_parallelism().map_or(1, NonZero::get));
        Sharded::new(CORES.min(SHARDS_MAX).next_power_of_two())
    }
}

impl<T: Default> Sharded<T> {
    /// `number` shards, a power of two.
    fn new(number: usize) -> Sharded<T> {
        Sharded((0..number).map(|_| Shard::default()).collect())
    }
}

impl<T> Sharded<T> {
    /// The shard of the current thread. Threads share one only if there are more threads than shards.
    pub fn local(&self) -> &T {
        &self.0[number() & (self.0.len() - 1)].0
    }

    /// All shards, for sums.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|shard| &shard.0)
    }
}

/// The number of the current thread, assigned at first use.
fn number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    NUMBER.with(|number| {
        if number.get() == usize::MAX {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn counts_of_all_threads_add_up() {
        for number in [1, 2, 8] {
            let shards: Sharded<AtomicU64> = Sharded::new(number);
            thread::scope(|scope| {
                for _ in 0..5 {
                    scope.spawn(|| {
                        for _ in 0..1000 {
                            shards.local().fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            });
            let sum: u64 = shards.all().map(|shard| shard.load(Ordering::Relaxed)).sum();
            assert_eq!(sum, 5000);
        }
    }
}
