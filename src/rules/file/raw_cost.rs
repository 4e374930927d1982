//! Reads `cost`: one factor, or a factor per value of an entry.

use std::collections::HashMap;
use std::sync::Arc;

use super::fields::MapKind;
use super::problem::Position;
use super::reader::{Field, FieldReader, Text};
use super::scalar;
use crate::limit::{FACTORS_MAX, Factor, FactorError, FactorsByValue};
use crate::rules::excerpt::shorten;
use crate::yaml::{Name, Node, NodeKind};

const FACTOR_HINT: &str = "write for example 3, 0.25 or \"1/3\"";
const FACTORS_HINT: &str = "write a factor per value, such as `{ large: 10, small: 0.5 }`";
const FRACTION_HINT: &str = "write `{ numerator: 1, denominator: 3 }`";

/// The value of `cost`.
#[derive(Clone, Debug)]
pub(in crate::rules) enum RawCost {
    /// One factor, which is not 0.
    Fixed(Factor),
    /// A factor per value of the entry with the key `by`.
    ByValue { by: Text, factors: Arc<FactorsByValue>, default: Factor },
}

impl FieldReader<'_> {
    /// Reads `cost`. The value is `None` after a reported error.
    pub(super) fn cost(&mut self, node: Node) -> Option<Field<RawCost>> {
        if node.is_null() {
            return None;
        }
        let at = node.at;
        let value = match node.kind {
            NodeKind::Map(entries) if !is_fraction(&entries) => self.cost_by_value(at, entries),
            kind => self.fixed_cost(Node { at, kind }),
        };
        Some(Field { at, value })
    }

    fn fixed_cost(&mut self, node: Node) -> Option<RawCost> {
        let at = node.at;
        let factor = self.factor("cost", node)?;
        if factor == Factor::ZERO {
            let hint = "write `unlimited: true` in place of the limit";
            self.error(at, "`cost` cannot be `0`: nothing would be counted", hint);
            return None;
        }
        Some(RawCost::Fixed(factor))
    }

    fn cost_by_value(&mut self, at: Position, entries: Vec<(Name, Node)>) -> Option<RawCost> {
        let (mut by, mut factors, mut default) = (None, None, Some(Factor::ONE));
        for (name, node) in entries {
            match &*name.text {
                "by" => by = self.text(&name, node),
                "factors" | "default" if node.is_null() => {}
                "factors" => factors = Some(self.factors(node)),
                "default" => default = self.factor("default", node),
                _ => self.unknown_field(MapKind::Cost, &name, &node),
            }
        }
        if by.is_none() {
            let hint = "write the key of the entry that has the value, such as `by: model`";
            self.error(at, "`by` is missing", hint);
        }
        if factors.is_none() {
            self.error(at, "`factors` is missing", FACTORS_HINT);
        }
        Some(RawCost::ByValue { by: by?, factors: factors??, default: default? })
    }

    fn factors(&mut self, node: Node) -> Option<Arc<FactorsByValue>> {
        let at = node.at;
        let entries = self.map(node, "`factors`", FACTORS_HINT)?;
        let count = entries.len();
        if count == 0 || count > FACTORS_MAX {
            let what = format!("`factors` has {count} values");
            self.error(at, what, format!("write between 1 and {FACTORS_MAX}"));
            return None;
        }
        let mut factors = HashMap::with_capacity(count);
        for (name, node) in entries {
            if let Some(factor) = self.factor(&name.text, node) {
                factors.insert(Box::from(&*name.text), factor);
            }
        }
        (factors.len() == count).then(|| Arc::new(factors))
    }

    /// The factor of the field or value `name`; `None` after a reported error.
    fn factor(&mut self, name: &str, node: Node) -> Option<Factor> {
        let (at, noun) = (node.at, node.noun());
        let scalar = match node.kind {
            NodeKind::Scalar(scalar) => scalar,
            NodeKind::Map(entries) => return self.fraction(at, name, entries),
            NodeKind::List(_) => {
                let what =
                    format!("`{}` must be a number or a fraction, not {noun}", shorten(name));
                self.error(at, what, FACTOR_HINT);
                return None;
            }
        };
        // Whole numbers have the spellings of other fields, such as 1_000.
        let whole = scalar::integer(&scalar.text).ok().filter(|_| scalar.plain);
        let factor =
            whole.map_or_else(|| scalar.text.parse::<Factor>(), |number| Factor::new(number, 1));
        let report = |why: FactorError| {
            let text = shorten(&scalar.text);
            let what = format!("`{}` cannot be `{text}`: {why}", shorten(name));
            self.error(at, what, FACTOR_HINT);
        };
        factor.map_err(report).ok()
    }

    /// The factor of a map with a numerator and a denominator.
    fn fraction(&mut self, at: Position, name: &str, entries: Vec<(Name, Node)>) -> Option<Factor> {
        let (mut numerator, mut denominator) = (None, None);
        for (field, node) in entries {
            match &*field.text {
                "numerator" => numerator = self.number(&field, node),
                "denominator" => denominator = self.number(&field, node),
                _ => self.unknown_field(MapKind::Factor, &field, &node),
            }
        }
        for (field, is_missing) in
            [("numerator", numerator.is_none()), ("denominator", denominator.is_none())]
        {
            if is_missing {
                self.error(at, format!("`{field}` is missing"), FRACTION_HINT);
            }
        }
        let (numerator, denominator) = (numerator?.value?, denominator?.value?);
        let report = |why: FactorError| {
            let text = format!("{numerator}/{denominator}");
            let what = format!("`{}` cannot be `{text}`: {why}", shorten(name));
            self.error(at, what, FRACTION_HINT);
        };
        Factor::new(numerator, denominator).map_err(report).ok()
    }
}

/// Whether the map is a fraction, not a factor per value.
fn is_fraction(entries: &[(Name, Node)]) -> bool {
    entries.iter().any(|(name, _)| matches!(&*name.text, "numerator" | "denominator"))
}
