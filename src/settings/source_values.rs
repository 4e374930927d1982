//! The values of one source, as a source of the `config` library.

use std::collections::BTreeMap;

use config::{ConfigError, Map, Source, Value};

use super::problem::Problem;

/// One value from an environment variable. A problem is reported only if no stronger source sets
/// the same path: another program's `PORT` is no error when weir's own file sets the listener.
#[derive(Debug)]
pub(super) struct SourceValue {
    pub(super) path: String,
    /// The file position, variable or flag that has the value.
    pub(super) origin: String,
    pub(super) value: Result<String, Problem>,
}

/// The texts of one source, by path.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceValues(BTreeMap<String, Value>);

impl SourceValues {
    pub(super) fn set(&mut self, path: &str, origin: &str, text: String) {
        self.0.insert(path.to_owned(), Value::new(Some(&origin.to_owned()), text));
    }
}

impl Source for SourceValues {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        Ok(self.0.clone().into_iter().collect())
    }
}

/// The text of a list.
pub(super) fn list(items: &[String]) -> String {
    serde_json::to_string(items).expect("texts have a JSON form")
}
