//! Files that load, and what is said about those that do not.
