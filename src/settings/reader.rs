//! This module reads one setting at a time and collects problems.

use super::leaf::Origins;
use super::problem::Problem;
use super::raw::Raw;
use super::{scalar, secret};

/// Reads one value after the other and remembers what was wrong.
pub(super) struct Reader<'a> {
    pub(super) raw: &'a Raw,
    /// Stand in for bad values, so that reading goes on.
    defaults: Raw,
    origins: &'a Origins,
    pub(super) problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(raw: &'a Raw, origins: &'a Origins) -> Reader<'a> {
        Reader { raw, defaults: Raw::default(), origins, problems: Vec::new() }
    }

    pub(super) fn read<T>(
        &mut self,
        path: &str,
        text: fn(&Raw) -> &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> T {
        let written = text(self.raw);
        parse(written).unwrap_or_else(|what| {
            self.bad(path, written, what);
            parse(text(&self.defaults)).unwrap_or_else(|what| {
                unreachable!("the default of {path} {what}");
            })
        })
    }

    pub(super) fn switch(&mut self, path: &str, text: fn(&Raw) -> &str) -> bool {
        self.read(path, text, scalar::switch)
    }

    /// [`Reader::read`] for a text that is shown to nobody, even when it is bad.
    pub(super) fn secret<T: Default>(
        &mut self,
        path: &str,
        text: fn(&Raw) -> &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> T {
        parse(text(self.raw)).unwrap_or_else(|what| {
            self.bad(path, "hidden", what);
            T::default()
        })
    }

    /// A text; empty means that there is none.
    pub(super) fn optional(&self, text: fn(&Raw) -> &str) -> Option<String> {
        Some(text(self.raw).to_owned()).filter(|text| !text.is_empty())
    }

    pub(super) fn bad(&mut self, path: &str, value: &str, what: String) {
        self.problems.push(Problem::BadValue {
            origin: self.origins.of(path),
            key: path.to_owned(),
            value: secret::mask(value),
            what,
        });
    }
}
