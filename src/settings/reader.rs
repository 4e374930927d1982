//! A reader of settings: parses one setting at a time and collects all problems.

use std::collections::BTreeMap;

use super::format::Format;
use super::problem::Problem;
use super::secret;

/// The text of a setting, and the file position, variable or flag that it comes from.
#[derive(Clone, Debug)]
pub(super) struct WrittenText {
    pub(super) text: String,
    pub(super) origin: String,
}

/// A reader of settings from the texts of all sources.
#[derive(Debug, Default)]
pub(super) struct Reader<'a> {
    /// The texts by path. A setting without a text has its default.
    written: Option<&'a BTreeMap<String, WrittenText>>,
    pub(super) problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(written: &'a BTreeMap<String, WrittenText>) -> Reader<'a> {
        Reader { written: Some(written), problems: Vec::new() }
    }

    /// Reads one setting. A bad text is replaced by the default, so that reading continues.
    pub(super) fn read<T>(
        &mut self,
        section: &str,
        name: &str,
        default: &str,
        format: Format<T>,
    ) -> T {
        let key = format!("{section}.{name}");
        if let Some(WrittenText { text, origin }) = self.written.and_then(|all| all.get(&key)) {
            match (format.parse)(text) {
                Ok(value) => return value,
                Err(what) => {
                    let value = if format.is_secret { "hidden".into() } else { secret::mask(text) };
                    let origin = origin.clone();
                    self.problems.push(Problem::BadValue { origin, key: key.clone(), value, what });
                }
            }
        }
        (format.parse)(default).unwrap_or_else(|what| unreachable!("the default of {key} {what}"))
    }
}
