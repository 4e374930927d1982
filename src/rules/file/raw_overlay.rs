//! Reads the fields of an overlay file into raw types, before their values are interpreted.

use super::fields::MapKind;
use super::model::RawRateLimit;
use super::problem::Position;
use super::reader::{Field, FieldReader, Text};
use crate::yaml::Node;

const ITEM_HINT: &str = "write items like `- { domain: shop, rule: user, rate_limit: { .. } }`";

/// An item of `overlays`.
#[derive(Debug)]
pub(in crate::rules) struct RawOverlay {
    pub(in crate::rules) at: Position,
    pub(in crate::rules) domain: Option<Text>,
    pub(in crate::rules) rule: Option<Text>,
    /// Without the fields that an overlay cannot set.
    pub(in crate::rules) rate_limit: Option<RawRateLimit>,
}

impl FieldReader<'_> {
    /// The items of one document of an overlay file.
    pub(in crate::rules) fn overlays(&mut self, node: Node) -> Vec<RawOverlay> {
        if node.is_null() {
            return Vec::new();
        }
        let entries = self.map(node, "an overlay file", "write `overlays:` and items below it");
        let mut overlays = Vec::new();
        for (name, node) in entries.unwrap_or_default() {
            if &*name.text != "overlays" {
                self.unknown_field(MapKind::OverlayFile, &name, &node);
                continue;
            }
            for item in self.list(node, "`overlays`", ITEM_HINT) {
                overlays.extend(self.overlay(item));
            }
        }
        overlays
    }

    fn overlay(&mut self, node: Node) -> Option<RawOverlay> {
        let at = node.at;
        let entries = self.map(node, "an item of `overlays`", ITEM_HINT)?;
        let mut overlay = RawOverlay { at, domain: None, rule: None, rate_limit: None };
        for (name, node) in entries {
            match &*name.text {
                "domain" => overlay.domain = self.text(&name, node),
                "rule" => overlay.rule = self.text(&name, node),
                "rate_limit" => overlay.rate_limit = self.overlay_limit(node),
                _ => self.unknown_field(MapKind::Overlay, &name, &node),
            }
        }
        Some(overlay)
    }

    fn overlay_limit(&mut self, node: Node) -> Option<RawRateLimit> {
        fn at<T>(field: &Option<Field<T>>) -> Option<Position> {
            field.as_ref().map(|field| field.at)
        }
        let limit = self.rate_limit(node)?;
        let numbers = "write `tiers: [{ requests: 100, window: 1m }]`";
        let of_rule = "change the rule itself";
        for (name, at, hint) in [
            ("unit", at(&limit.tier.unit), numbers),
            ("requests_per_unit", at(&limit.tier.requests_per_unit), numbers),
            ("unit_multiplier", at(&limit.tier.unit_multiplier), numbers),
            ("requests", at(&limit.tier.requests), numbers),
            ("window", limit.tier.window_at(), numbers),
            ("unlimited", at(&limit.unlimited), of_rule),
            ("name", at(&limit.name), of_rule),
            ("limit_from", limit.limit_from.as_ref().map(|from| from.at), of_rule),
            ("replaces", limit.replaces.first().map(|name| name.at), of_rule),
        ] {
            if let Some(at) = at {
                self.error(at, format!("an overlay cannot set `{name}`"), hint);
            }
        }
        Some(limit)
    }
}
