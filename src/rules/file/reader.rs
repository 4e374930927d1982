//! Reads the value of a field, or reports that the value has the wrong kind.

use std::sync::Arc;

use super::fields::{MapKind, unknown_field};
use super::options::UnknownFields;
use super::problem::{Location, Position, Report};
use super::scalar;
use crate::duration::{self, DurationError, Style};
use crate::rules::excerpt::shorten;
use crate::time::Micros;
use crate::yaml::{Name, Node, NodeKind, Scalar};

/// A field that is present. Its value is `None` after a reported error.
#[derive(Clone, Debug)]
pub(in crate::rules) struct Field<T> {
    pub(in crate::rules) at: Position,
    pub(in crate::rules) value: Option<T>,
}

/// A text field.
pub(in crate::rules) type Text = Field<Arc<str>>;

/// Reads the nodes of one file.
pub(in crate::rules) struct FieldReader<'a> {
    pub(in crate::rules) file: &'a Arc<str>,
    pub(in crate::rules) unknown: UnknownFields,
    pub(in crate::rules) report: &'a mut Report,
}

impl FieldReader<'_> {
    /// Reports a field that this map does not have.
    pub(super) fn unknown_field(&mut self, map: MapKind, name: &Name, node: &Node) {
        // A misspelt name may hide rules.
        self.report.incomplete |= !matches!(node.kind, NodeKind::Scalar(_));
        let (what, hint) = unknown_field(map, &name.text);
        let location = name.at.in_file(self.file);
        match self.unknown {
            UnknownFields::Error => self.report.error(location, what, hint),
            UnknownFields::Warn => self.report.warn(location, what, hint),
        }
    }

    pub(super) fn text(&mut self, name: &Name, node: Node) -> Option<Text> {
        let at = node.at;
        let value = self.scalar(name, node, "a single value")?;
        Some(Field { at, value: value.map(|scalar| scalar.text) })
    }

    pub(super) fn texts(&mut self, name: &Name, node: Node) -> Option<Field<Vec<Text>>> {
        if node.is_null() {
            return None;
        }
        let at = node.at;
        let is_list = matches!(node.kind, NodeKind::List(_));
        let items = self.list(node, &format!("`{}`", name.text), "write `[name, name]`");
        let texts = items.into_iter().filter_map(|item| self.text(name, item)).collect();
        Some(Field { at, value: is_list.then_some(texts) })
    }

    pub(super) fn flag(&mut self, name: &Name, node: Node) -> Option<Field<bool>> {
        let at = node.at;
        let scalar = self.scalar(name, node, "true or false")?;
        let value = scalar.and_then(|scalar| {
            let flag = scalar::boolean(&scalar.text).filter(|_| scalar.plain);
            if flag.is_none() {
                let text = shorten(&scalar.text);
                let what = format!("`{}` must be true or false, not `{text}`", name.text);
                self.error(at, what, "write `true` or `false` without quotes");
            }
            flag
        });
        Some(Field { at, value })
    }

    pub(super) fn number(&mut self, name: &Name, node: Node) -> Option<Field<u64>> {
        let at = node.at;
        let scalar = self.scalar(name, node, "a whole number")?;
        let value = scalar.and_then(|scalar| {
            let number = match scalar.plain {
                true => scalar::integer(&scalar.text),
                false => Err("it must be a number without quotes"),
            };
            number.map_err(|why| self.bad(name, at, &scalar.text, why, "write for example 10")).ok()
        });
        Some(Field { at, value })
    }

    pub(super) fn duration(&mut self, name: &Name, node: Node) -> Option<Field<Micros>> {
        let at = node.at;
        let scalar = self.scalar(name, node, "a length of time")?;
        let value = scalar.and_then(|scalar| {
            let hint = "write a length of time like 500ms, 10s, 1m, 24h, 7d or 1h30m";
            let length = duration::parse(&scalar.text, Style::Whole).and_then(|nanos| {
                let micros = u64::try_from(nanos / 1_000);
                micros.map(Micros).map_err(|_| DurationError::TooLong)
            });
            length.map_err(|why| self.bad(name, at, &scalar.text, &why.to_string(), hint)).ok()
        });
        Some(Field { at, value })
    }

    /// A scalar. The outer `None` means an absent value. The inner `None` means a value of the
    /// wrong kind.
    fn scalar(&mut self, name: &Name, node: Node, expected: &str) -> Option<Option<Scalar>> {
        let noun = node.noun();
        match node.kind {
            NodeKind::Scalar(scalar) if scalar.is_null() => None,
            NodeKind::Scalar(scalar) => Some(Some(scalar)),
            NodeKind::List(_) | NodeKind::Map(_) => {
                let what = format!("`{}` must be {expected}, not {noun}", name.text);
                self.error(node.at, what, format!("write it as `{}: VALUE`", name.text));
                Some(None)
            }
        }
    }

    /// The items of a list. No value is an empty list.
    pub(super) fn list(&mut self, node: Node, whose: &str, hint: &str) -> Vec<Node> {
        let noun = node.noun();
        match node.kind {
            NodeKind::List(items) => items,
            NodeKind::Scalar(scalar) if scalar.is_null() => Vec::new(),
            NodeKind::Scalar(_) | NodeKind::Map(_) => {
                self.error(node.at, format!("{whose} must be a list, not {noun}"), hint);
                Vec::new()
            }
        }
    }

    pub(super) fn map(&mut self, node: Node, whose: &str, hint: &str) -> Option<Vec<(Name, Node)>> {
        let noun = node.noun();
        if let NodeKind::Map(entries) = node.kind {
            return Some(entries);
        }
        self.error(node.at, format!("{whose} must be a map, not {noun}"), hint);
        None
    }

    /// Like [`FieldReader::list`], for a list that may hold rules.
    pub(super) fn rule_list(&mut self, node: Node, whose: &str, hint: &str) -> Vec<Node> {
        self.report.incomplete |= !matches!(node.kind, NodeKind::List(_)) && !node.is_null();
        self.list(node, whose, hint)
    }

    /// Like [`FieldReader::map`], for a map that may hold rules.
    pub(super) fn rule_map(
        &mut self,
        node: Node,
        whose: &str,
        hint: &str,
    ) -> Option<Vec<(Name, Node)>> {
        let entries = self.map(node, whose, hint);
        self.report.incomplete |= entries.is_none();
        entries
    }

    fn bad(&mut self, name: &Name, at: Position, text: &str, why: &str, hint: &str) {
        let what = format!("`{}` cannot be `{}`: {why}", name.text, shorten(text));
        self.error(at, what, hint);
    }

    pub(super) fn error(&mut self, at: Position, what: impl Into<String>, hint: impl Into<String>) {
        self.report.error(self.location(at), what, hint);
    }

    fn location(&self, at: Position) -> Location {
        at.in_file(self.file)
    }
}
