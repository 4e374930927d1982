//! The fields of each map in a rule file, and suggestions for unknown names.

use crate::rules::excerpt::shorten;
use crate::spelling::nearest;

/// A kind of map in a rule file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MapKind {
    /// The top of a document.
    File,
    /// An item of `descriptors`.
    Descriptor,
    /// The map under `rate_limit`.
    RateLimit,
    /// An item of `tiers`.
    Tier,
    /// An item of `replaces`.
    Replaces,
    /// The map under `reserve`.
    Reserve,
    /// The map under `window`.
    Window,
    /// The map under `starts`.
    Starts,
    /// The map under `cost`.
    Cost,
    /// A factor of a cost, as a map.
    Factor,
    /// The map under `shadow`.
    Shadow,
    /// The map under `limit_from`.
    LimitFrom,
    /// The top of an overlay file.
    OverlayFile,
    /// An item of `overlays`.
    Overlay,
}

impl MapKind {
    /// All maps. A misplaced field is suggested for the first one that has it.
    const ALL: [MapKind; 14] = [
        MapKind::Descriptor,
        MapKind::RateLimit,
        MapKind::Tier,
        MapKind::File,
        MapKind::Replaces,
        MapKind::Reserve,
        MapKind::Window,
        MapKind::Starts,
        MapKind::Cost,
        MapKind::Factor,
        MapKind::Shadow,
        MapKind::LimitFrom,
        MapKind::OverlayFile,
        MapKind::Overlay,
    ];

    /// Every field of this map.
    pub(super) const fn fields(self) -> &'static [&'static str] {
        match self {
            MapKind::File => &["domain", "descriptors", "denied_requests"],
            MapKind::Descriptor => &[
                "key",
                "value",
                "value_template",
                "value_regex",
                "value_cidr",
                "count_by",
                "rate_limit",
                "descriptors",
                "shadow_mode",
                "quota_mode",
                "detailed_metric",
                "value_to_metric",
                "share_threshold",
                "metadata",
            ],
            MapKind::RateLimit => &[
                "unit",
                "requests_per_unit",
                "unit_multiplier",
                "algorithm",
                "tiers",
                "requests",
                "window",
                "burst",
                "max",
                "hold",
                "count_denied",
                "reserve",
                "on_error",
                "mode",
                "sync_interval",
                "over_limit_cache",
                "cost",
                "shadow",
                "limit_from",
                "usage",
                "log",
                "unlimited",
                "name",
                "replaces",
            ],
            MapKind::Tier => {
                &["requests", "window", "burst", "requests_per_unit", "unit", "unit_multiplier"]
            }
            MapKind::Replaces => &["name"],
            MapKind::Reserve => &["hold"],
            MapKind::Window => &["calendar", "zone", "starts"],
            MapKind::Starts => &["month", "day", "weekday", "hour"],
            MapKind::Cost => &["by", "factors", "default"],
            MapKind::Factor => &["numerator", "denominator"],
            MapKind::Shadow => &[
                "requests_per_unit",
                "unit",
                "unit_multiplier",
                "requests",
                "window",
                "burst",
                "tiers",
            ],
            MapKind::LimitFrom => &["customer", "plan", "limit", "default"],
            MapKind::OverlayFile => &["overlays"],
            MapKind::Overlay => &["domain", "rule", "rate_limit"],
        }
    }

    const fn location(self) -> &'static str {
        match self {
            MapKind::File => "at the top of the file, beside `domain`",
            MapKind::Descriptor => "in the descriptor, beside `key`",
            MapKind::RateLimit => "inside `rate_limit`",
            MapKind::Tier => "in an item of `tiers`",
            MapKind::Replaces => "in an item of `replaces`",
            MapKind::Reserve => "inside `reserve`",
            MapKind::Window => "inside `window`",
            MapKind::Starts => "inside `starts` of a `window`",
            MapKind::Cost => "inside `cost`",
            MapKind::Factor => "inside a factor of `cost`",
            MapKind::Shadow => "inside `shadow`",
            MapKind::LimitFrom => "inside `limit_from`",
            MapKind::OverlayFile => "at the top of an overlay file",
            MapKind::Overlay => "in an item of `overlays` of an overlay file",
        }
    }
}

/// The problem with a field that does not belong `here`, and the fix.
pub(super) fn unknown_field(here: MapKind, name: &str) -> (String, String) {
    let mut maps = MapKind::ALL.iter().filter(|map| map.fields().contains(&name));
    if let Some(map) = maps.next() {
        let what = format!("`{name}` has no effect here");
        return (what, format!("it belongs {}", map.location()));
    }
    let what = format!("unknown field `{}`", shorten(name));
    let hint = match nearest(name, here.fields().iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("the fields here are {}", here.fields().join(", ")),
    };
    (what, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_field_is_recognised() {
        for (here, name, expected) in [
            (MapKind::Descriptor, "ratelimit", "did you mean `rate_limit`?"),
            (MapKind::Descriptor, "Key", "did you mean `key`?"),
            (MapKind::RateLimit, "request_per_unit", "did you mean `requests_per_unit`?"),
            (MapKind::RateLimit, "algoritm", "did you mean `algorithm`?"),
            (MapKind::Descriptor, "name", "it belongs inside `rate_limit`"),
            (MapKind::RateLimit, "shadow_mode", "it belongs in the descriptor, beside `key`"),
            (MapKind::File, "rate_limit", "it belongs in the descriptor, beside `key`"),
            (MapKind::RateLimit, "zone", "it belongs inside `window`"),
            (MapKind::Window, "day", "it belongs inside `starts` of a `window`"),
            (MapKind::Starts, "weekdays", "did you mean `weekday`?"),
            (MapKind::Replaces, "zzz", "the fields here are name"),
            (MapKind::RateLimit, "customer", "it belongs inside `limit_from`"),
            (MapKind::LimitFrom, "defualt", "did you mean `default`?"),
        ] {
            assert_eq!(unknown_field(here, name).1, expected, "{name}");
        }
    }
}
