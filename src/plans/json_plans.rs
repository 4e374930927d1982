//! Reads the plans of a JSON document one by one, so that a hostile text of many megabytes takes no more memory
//! than the plans that it may define.

use std::collections::HashSet;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::book::{LIMITS_PER_PLAN_MAX, PLANS_MAX, PlanNumbers, shown};
use crate::limit::TIERS_MAX;

/// The most JSON values in one plan: itself, and for each limit a list of tiers with three fields each.
const VALUES_MAX: usize = 1 + LIMITS_PER_PLAN_MAX * (1 + 4 * TIERS_MAX);

/// The plans of a document, and the problems of those that are invalid.
#[derive(Debug, Default)]
pub(super) struct JsonPlans {
    pub(super) plans: Vec<(String, PlanNumbers)>,
    pub(super) problems: Vec<String>,
}

/// Reads the map of plans, or `null`. It stops after [`PLANS_MAX`] of them, and in a plan with too many
/// values.
pub(super) struct PlansVisitor;

impl<'de> DeserializeSeed<'de> for PlansVisitor {
    type Value = JsonPlans;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<JsonPlans, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for PlansVisitor {
    type Value = JsonPlans;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of plans to their limits")
    }

    fn visit_none<E: Error>(self) -> Result<JsonPlans, E> {
        Ok(JsonPlans::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<JsonPlans, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonPlans, A::Error> {
        let mut read = JsonPlans::default();
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if names.len() == PLANS_MAX {
                let what = format!("more than {PLANS_MAX} plans; join plans with equal numbers");
                return Err(A::Error::custom(what));
            }
            let mut left = VALUES_MAX;
            let value = map.next_value_seed(BoundedValue { left: &mut left })?;
            match PlanNumbers::from_json(&name, &value) {
                Ok(numbers) => read.plans.push((name.clone(), numbers)),
                Err(problem) => read.problems.push(problem),
            }
            if let Some(twice) = names.replace(name) {
                read.problems.push(format!("plan `{}` is defined twice; keep one", shown(&twice)));
            }
        }
        Ok(read)
    }
}

/// Reads one value with at most `left` values inside, itself included.
struct BoundedValue<'b> {
    left: &'b mut usize,
}

impl<'de> DeserializeSeed<'de> for BoundedValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        *self.left = self.left.checked_sub(1).ok_or_else(|| {
            let what = format!("a plan has more than {VALUES_MAX} values; remove limits or tiers");
            D::Error::custom(what)
        })?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedValue<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(BoundedValue { left: &mut *self.left })? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value_seed(BoundedValue { left: &mut *self.left })?;
            if entries.contains_key(&name) {
                return Err(A::Error::custom(format!(
                    "`{}` is written twice; keep one",
                    shown(&name)
                )));
            }
            entries.insert(name, value);
        }
        Ok(Value::Object(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plans::PlanBook;

    fn error(text: &str) -> String {
        PlanBook::parse_json_text(text).err().unwrap()
    }

    /// Each text ends after the first value that is too many. So that is found before the rest is read.
    #[test]
    fn plans_are_bounded_while_they_are_read() {
        let plans: String =
            (0..=PLANS_MAX).map(|plan| format!("\"p{plan}\":{{\"c\":1}},")).collect();
        let text = format!("{{\"plans\":{{{plans}");
        assert!(error(&text).contains("more than 10000 plans"), "{}", error(&text));
        let zeros = "0,".repeat(VALUES_MAX);
        let text = format!("{{\"plans\":{{\"a\":{{\"calls\":[{zeros}");
        assert!(error(&text).contains("a plan has more than 65001 values"), "{}", error(&text));
    }

    #[test]
    fn the_largest_plans_are_read() {
        let tier = "{\"requests\":2,\"burst\":3}";
        let tiers = vec![tier; TIERS_MAX].join(",");
        let limits = (0..LIMITS_PER_PLAN_MAX).map(|limit| format!("\"l{limit}\":[{tiers}]"));
        let limits = limits.collect::<Vec<_>>().join(",");
        let (book, _) =
            PlanBook::parse_json_text(&format!("{{\"plans\":{{\"a\":{{{limits}}}}}}}")).unwrap();
        assert_eq!(book.plans().next().unwrap().1.len(), LIMITS_PER_PLAN_MAX);
    }

    #[test]
    fn names_that_are_written_twice_are_refused() {
        let plans = error(r#"{"plans": {"free": {"calls": 7}, "free": {"calls": 9}}}"#);
        assert!(plans.contains("plan `free` is defined twice; keep one"), "{plans}");
        let limits = error(r#"{"plans": {"free": {"calls": 7, "calls": 9}}}"#);
        assert!(limits.contains("`calls` is written twice; keep one"), "{limits}");
    }
}
