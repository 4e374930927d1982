//! This module holds one value of one source, and where each value came from.

use std::collections::BTreeMap;

use config::Value;

use super::problem::Problem;

/// Where each value came from, for messages.
#[derive(Debug, Default)]
pub(super) struct Origins(BTreeMap<String, String>);

impl Origins {
    pub(super) fn add(&mut self, path: String, origin: String) {
        self.0.insert(path, origin);
    }

    /// The file, variable or flag that set `path`.
    pub(super) fn of(&self, path: &str) -> String {
        self.0.get(path).cloned().unwrap_or_else(|| "default".to_owned())
    }
}

/// One value of one source. A problem counts only if no stronger source sets the same path: another
/// program's `PORT` is no error when weir's own file sets the listener.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) path: String,
    pub(super) origin: String,
    pub(super) value: Result<Value, Problem>,
}
