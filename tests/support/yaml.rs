//! YAML as JSON, read by weir's own parser.

use serde_json::Value;
use weir::yaml::{Node, NodeKind, Scalar};

/// The first document of `text`. Plain scalars that are JSON become numbers and booleans.
pub(crate) fn json(text: &str) -> Value {
    let parsed = weir::yaml::parse(text);
    assert!(parsed.faults.is_empty(), "{:?}", parsed.faults);
    json_of(parsed.documents.first().expect("a document"))
}

fn json_of(node: &Node) -> Value {
    match &node.kind {
        NodeKind::Scalar(scalar) if scalar.is_null() => Value::Null,
        NodeKind::Scalar(Scalar { text, plain: true }) => {
            serde_json::from_str(text).unwrap_or_else(|_| text.as_ref().into())
        }
        NodeKind::Scalar(Scalar { text, .. }) => text.as_ref().into(),
        NodeKind::List(items) => items.iter().map(json_of).collect(),
        NodeKind::Map(entries) => {
            entries.iter().map(|(name, node)| (name.text.to_string(), json_of(node))).collect()
        }
    }
}
