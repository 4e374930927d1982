//! Turns the metadata of a descriptor into JSON, and back.

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value as ProtoValue};
use serde_json::{Map, Number, Value};

/// Deepest nesting of metadata.
const DEPTH_MAX: usize = 32;

/// The largest whole number that a double represents exactly, together with all below it.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// The metadata as JSON. A number that JSON does not have, and a value nested deeper than
/// [`DEPTH_MAX`], becomes null and is added to `lost`.
pub(super) fn json_map(all: &Struct, lost: &mut usize) -> Map<String, Value> {
    map(all, 0, lost)
}

fn map(all: &Struct, depth: usize, lost: &mut usize) -> Map<String, Value> {
    all.fields.iter().map(|(name, value)| (name.clone(), json(value, depth + 1, lost))).collect()
}

fn json(value: &ProtoValue, depth: usize, lost: &mut usize) -> Value {
    let found = match &value.kind {
        None | Some(Kind::NullValue(_)) => return Value::Null,
        Some(Kind::BoolValue(flag)) => return Value::Bool(*flag),
        Some(Kind::StringValue(text)) => return Value::String(text.clone()),
        Some(Kind::NumberValue(value)) => number(*value).map(Value::Number),
        Some(Kind::StructValue(_) | Kind::ListValue(_)) if depth > DEPTH_MAX => None,
        Some(Kind::StructValue(fields)) => Some(Value::Object(map(fields, depth, lost))),
        Some(Kind::ListValue(list)) => {
            let items = list.values.iter().map(|item| json(item, depth + 1, lost));
            Some(Value::Array(items.collect()))
        }
    };
    *lost += usize::from(found.is_none());
    found.unwrap_or(Value::Null)
}

/// A whole number has no fraction in JSON, as if a file had it. `None` for infinite numbers and NaN.
fn number(value: f64) -> Option<Number> {
    if value.fract() == 0.0 && value.abs() < WHOLE_MAX {
        return Some(Number::from(value as i64));
    }
    Number::from_f64(value)
}

/// The metadata of a JSON map.
pub(super) fn of_json(map: &Map<String, Value>) -> Struct {
    Struct { fields: map.iter().map(|(name, value)| (name.clone(), proto(value))).collect() }
}

fn proto(value: &Value) -> ProtoValue {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(flag) => Kind::BoolValue(*flag),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(items) => {
            Kind::ListValue(ListValue { values: items.iter().map(proto).collect() })
        }
        Value::Object(fields) => Kind::StructValue(of_json(fields)),
    };
    ProtoValue { kind: Some(kind) }
}
