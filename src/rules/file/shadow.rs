//! Reads the map under `shadow`, the what-if limit of a rule.

use super::fields::MapKind;
use super::model::RawRateLimit;
use super::reader::FieldReader;
use crate::yaml::Node;

impl FieldReader<'_> {
    /// `tiers`, or the fields of the only tier.
    pub(super) fn shadow(&mut self, node: Node) -> Option<Box<RawRateLimit>> {
        if node.is_null() {
            return None;
        }
        let at = node.at;
        let entries = self.map(node, "`shadow`", "write `shadow: { requests_per_unit: 200 }`")?;
        let mut limit = RawRateLimit { at, ..RawRateLimit::default() };
        limit.tier.at = at;
        for (name, node) in entries {
            if &*name.text == "tiers" {
                limit.tiers = self.tiers(node);
            } else if let Some(node) = self.tier_field(&mut limit.tier, &name, node) {
                self.unknown_field(MapKind::Shadow, &name, &node);
            }
        }
        Some(Box::new(limit))
    }
}
