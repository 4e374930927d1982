//! Dynamic metadata that the proxy stores with the request, in the format of
//! envoyproxy/ratelimit. `fallback` is an addition of weir.

use serde_json::{Map, Value, json};

use super::decided::DecidedDescriptor;
use crate::decision::{Code, DecisionReason, Status};
use crate::descriptor::{Descriptor, Request};

/// The metadata of a response; `None` unless `enabled`.
pub(super) fn of(
    enabled: bool,
    request: &Request<'_>,
    decided: &[DecidedDescriptor<'_>],
    statuses: &[Status],
) -> Option<Map<String, Value>> {
    if !enabled {
        return None;
    }
    let mut root = Map::new();
    root.insert("domain".into(), request.domain.into());
    root.insert("descriptors".into(), request.descriptors.iter().map(descriptor).collect());
    if request.hits_addend > 0 {
        root.insert("hitsAddend".into(), request.hits_addend.into());
    }
    let mut merged = Map::new();
    for (one, status) in decided.iter().zip(statuses) {
        if let Some(more) = one.passed_metadata(status) {
            merge(&mut merged, more);
        }
    }
    if !merged.is_empty() {
        root.insert("metadata".into(), Value::Object(merged));
    }
    Some(root)
}

/// Adds `fallback` to `metadata` if the fallback decided any descriptor: a list with the
/// `on_error` of each descriptor, or `none` if the fallback did not decide it. The statuses do not
/// show it.
pub(super) fn add_fallbacks(
    decided: &[DecidedDescriptor<'_>],
    metadata: &mut Option<Map<String, Value>>,
) {
    let on_error = |one: &DecidedDescriptor<'_>| match one.reason {
        DecisionReason::Fallback { on_error, .. } => Some(on_error.name()),
        _ => None,
    };
    if decided.iter().any(|one| on_error(one).is_some()) {
        let policies: Vec<Value> =
            decided.iter().map(|one| on_error(one).unwrap_or("none").into()).collect();
        metadata.get_or_insert_default().insert("fallback".into(), policies.into());
    }
}

impl DecidedDescriptor<'_> {
    /// The `metadata` of a rule that counted and passed.
    fn passed_metadata(&self, status: &Status) -> Option<&Map<String, Value>> {
        let counted =
            matches!(self.reason, DecisionReason::Counted { .. } | DecisionReason::Fallback { .. });
        if !counted || status.code != Code::Ok {
            return None;
        }
        self.resolved.rule()?.metadata.as_deref()
    }
}

fn descriptor(sent: &Descriptor<'_>) -> Value {
    let entries: Vec<Value> =
        sent.entries.iter().map(|entry| format!("{}={}", entry.key, entry.value).into()).collect();
    let mut map = Map::new();
    map.insert("entries".into(), entries.into());
    if let Some(limit) = sent.limit {
        let unit = limit.unit.name().to_uppercase();
        let text = format!("requests_per_unit:{} unit:{unit}", limit.requests_per_unit);
        map.insert("limit".into(), json!(text));
    }
    if let Some(hits) = sent.hits_addend {
        map.insert("hitsAddend".into(), hits.into());
    }
    Value::Object(map)
}

/// Adds `more` to `into`. Existing values stay. Nested maps are merged by the same rule.
fn merge(into: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (key, value) in more {
        match (into.get_mut(key), value) {
            (None, value) => {
                into.insert(key.clone(), value.clone());
            }
            (Some(Value::Object(inner)), Value::Object(more)) => merge(inner, more),
            (Some(_), _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_wins_and_nested_maps_merge() {
        let map = |value: Value| value.as_object().expect("the tests merge maps").clone();
        let mut into = map(json!({"a": 1, "m": {"x": 1}}));
        merge(&mut into, &map(json!({"a": 2, "b": 3, "m": {"x": 2, "y": {"z": 1}}})));
        assert_eq!(into, map(json!({"a": 1, "b": 3, "m": {"x": 1, "y": {"z": 1}}})));
    }
}
