//! The memory store: counters of one process.
