//! Turns a descriptor of a file into a node of the tree: its key, matcher and flags.

use std::sync::Arc;

use super::regex_budget::RegexBudget;
use crate::rules::excerpt::shorten;
use crate::rules::file::model::RawDescriptor;
use crate::rules::file::problem::{Location, Position, Report};
use crate::rules::file::reader::{Field, Text};
use crate::rules::lookup::matcher::{Matcher, MatcherError};
use crate::rules::lookup::rule::EntryMatcher;

/// Reads one descriptor of a file.
pub(super) struct EntryMatcherCompiler<'a> {
    /// The location of the descriptor.
    pub(super) location: &'a Location,
    pub(super) report: &'a mut Report,
}

impl EntryMatcherCompiler<'_> {
    /// The node of the descriptor. A wrong matcher is reported and becomes "any value".
    pub(super) fn entry_matcher(
        &mut self,
        raw: &RawDescriptor,
        regexes: &mut RegexBudget,
    ) -> EntryMatcher {
        let key = self.key(raw.key.as_ref());
        let matcher = self.matcher(raw, regexes);
        let share = raw.share_threshold.as_ref();
        let share = share.filter(|flag| flag.value == Some(true)).map(|flag| flag.at);
        if let Some(at) = share {
            self.check_share(at, &matcher);
        }
        let to_metric = raw.value_to_metric.as_ref().and_then(|flag| flag.value);
        EntryMatcher {
            key,
            matcher: matcher.unwrap_or(Matcher::Any),
            share_threshold: share.is_some(),
            value_to_metric: to_metric.unwrap_or(false),
        }
    }

    fn key(&mut self, written: Option<&Text>) -> Arc<str> {
        let Some(field) = written else {
            let what = "`key` is missing";
            self.report.error(
                self.location.clone(),
                what,
                "begin the descriptor with `- key: NAME`",
            );
            return Arc::from("");
        };
        let Some(key) = &field.value else { return Arc::from("") };
        if key.is_empty() {
            self.error(field.at, "`key` is empty", "write the key that the proxy sends");
        } else if key.contains('*') {
            let hint = "write the key exactly; a pattern belongs in `value`";
            self.error(field.at, format!("`key` cannot contain a `*`: `{}`", shorten(key)), hint);
        }
        Arc::clone(key)
    }

    /// The matcher of the descriptor; `None` after a reported error.
    fn matcher(&mut self, raw: &RawDescriptor, regexes: &mut RegexBudget) -> Option<Matcher> {
        let mut all_written = [
            ("value", &raw.value),
            ("value_template", &raw.value_template),
            ("value_regex", &raw.value_regex),
            ("value_cidr", &raw.value_cidr),
        ]
        .into_iter()
        .filter_map(|(name, field)| Some((name, field.as_ref()?)));
        let written: Option<(&str, &Text)> = all_written.next();
        if let (Some((first, _)), Some((second, field))) = (written, all_written.next()) {
            let hint = format!("keep one of `{first}` and `{second}`");
            let what = "a descriptor can match its value in one way only";
            self.error(field.at, what, hint);
            return None;
        }
        let count_by = self.count_by(raw.count_by.as_ref());
        if let (Some(field), None | Some(("value" | "value_cidr", _))) = (&raw.count_by, written) {
            let hint = "add `value_template` or `value_regex`, or remove `count_by`";
            self.error(field.at, "`count_by` has no variables to choose from", hint);
        }
        let Some((name, field)) = written else { return Some(Matcher::Any) };
        let text = field.value.clone()?;
        if text.is_empty() && name != "value" {
            let hint = "write a pattern, or leave it out to match every value";
            self.error(field.at, format!("`{name}` is empty"), hint);
            return None;
        }
        let matcher = match name {
            "value_template" => Matcher::template(Arc::clone(&text), &count_by),
            "value_regex" => regexes.compile(&text, &count_by),
            "value_cidr" => Matcher::cidr(Arc::clone(&text)),
            _ => Ok(Matcher::value(Arc::clone(&text))),
        };
        let report = |(why, hint): MatcherError| {
            self.error(field.at, format!("`{name}` cannot be `{}`: {why}", shorten(&text)), hint);
        };
        matcher.map_err(report).ok()
    }

    fn count_by(&mut self, written: Option<&Field<Vec<Text>>>) -> Vec<Arc<str>> {
        let Some(field) = written else { return Vec::new() };
        let Some(names) = &field.value else { return Vec::new() };
        let names: Vec<_> = names.iter().filter_map(|name| name.value.clone()).collect();
        if names.is_empty() {
            let hint = "write `count_by: [name]`, or remove it";
            self.error(field.at, "`count_by` has no names", hint);
        }
        names
    }

    fn check_share(&mut self, at: Position, matcher: &Option<Matcher>) {
        match matcher {
            Some(Matcher::Exact(_) | Matcher::Any) => {
                let what = "`share_threshold` needs a `value` with a `*` (or a template, regex or \
                            CIDR)";
                let hint = "add the pattern whose values share one limit, or remove the flag";
                self.error(at, what, hint);
            }
            Some(matcher) if !matcher.count_by().is_empty() => {
                let what = "`share_threshold` and `count_by` contradict each other";
                self.error(
                    at,
                    what,
                    "one counter for all: remove `count_by`; else remove the flag",
                );
            }
            _ => {}
        }
    }

    fn error(&mut self, at: Position, what: impl Into<String>, hint: impl Into<String>) {
        self.report.error(at.in_file(&self.location.file), what, hint);
    }
}
