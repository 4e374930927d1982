//! Reads the map under `limit_from`, before its values are interpreted.

use super::fields::MapKind;
use super::problem::Position;
use super::reader::{FieldReader, Text};
use crate::yaml::Node;

/// The map under `limit_from`.
#[derive(Clone, Debug, Default)]
pub(in crate::rules) struct RawLimitFrom {
    pub(in crate::rules) at: Position,
    pub(in crate::rules) customer: Option<Text>,
    pub(in crate::rules) plan: Option<Text>,
    pub(in crate::rules) limit: Option<Text>,
    pub(in crate::rules) default: Option<Text>,
}

impl FieldReader<'_> {
    pub(super) fn limit_from(&mut self, node: Node) -> Option<RawLimitFrom> {
        if node.is_null() {
            return None;
        }
        let at = node.at;
        let hint = "write for example `limit_from: { customer: api_key, limit: calls }`";
        let entries = self.map(node, "`limit_from`", hint)?;
        let mut from = RawLimitFrom { at, ..RawLimitFrom::default() };
        for (name, node) in entries {
            match &*name.text {
                "customer" => from.customer = self.text(&name, node),
                "plan" => from.plan = self.text(&name, node),
                "limit" => from.limit = self.text(&name, node),
                "default" => from.default = self.text(&name, node),
                _ => self.unknown_field(MapKind::LimitFrom, &name, &node),
            }
        }
        Some(from)
    }
}
