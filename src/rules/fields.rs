//! The fields of each map in a rule file, and suggestions for unknown names.

use super::quote::shorten;
use crate::spelling::nearest;

/// A kind of map in a rule file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
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
}

impl Section {
    /// All maps. A misplaced field is suggested for the first one that has it.
    const ALL: [Section; 6] = [
        Section::Descriptor,
        Section::RateLimit,
        Section::Tier,
        Section::File,
        Section::Replaces,
        Section::Reserve,
    ];

    /// Every field of this map.
    pub(super) const fn fields(self) -> &'static [&'static str] {
        match self {
            Section::File => &["domain", "descriptors", "denied_requests"],
            Section::Descriptor => &[
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
            Section::RateLimit => &[
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
                "unlimited",
                "name",
                "replaces",
            ],
            Section::Tier => {
                &["requests", "window", "burst", "requests_per_unit", "unit", "unit_multiplier"]
            }
            Section::Replaces => &["name"],
            Section::Reserve => &["hold"],
        }
    }

    const fn location(self) -> &'static str {
        match self {
            Section::File => "at the top of the file, beside `domain`",
            Section::Descriptor => "in the descriptor, beside `key`",
            Section::RateLimit => "inside `rate_limit`",
            Section::Tier => "in an item of `tiers`",
            Section::Replaces => "in an item of `replaces`",
            Section::Reserve => "inside `reserve`",
        }
    }
}

/// The problem with a field that does not belong `here`, and the fix.
pub(super) fn unknown_field(here: Section, name: &str) -> (String, String) {
    let sections = Section::ALL.iter().filter(|section| section.fields().contains(&name));
    if let Some(section) = sections.copied().next() {
        let what = format!("`{name}` does not belong here and would do nothing");
        return (what, format!("it belongs {}", section.location()));
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
            (Section::Descriptor, "ratelimit", "did you mean `rate_limit`?"),
            (Section::Descriptor, "Key", "did you mean `key`?"),
            (Section::RateLimit, "request_per_unit", "did you mean `requests_per_unit`?"),
            (Section::RateLimit, "algoritm", "did you mean `algorithm`?"),
            (Section::Descriptor, "name", "it belongs inside `rate_limit`"),
            (Section::RateLimit, "shadow_mode", "it belongs in the descriptor, beside `key`"),
            (Section::File, "rate_limit", "it belongs in the descriptor, beside `key`"),
            (Section::Replaces, "zzz", "the fields here are name"),
        ] {
            assert_eq!(unknown_field(here, name).1, expected, "{name}");
        }
    }
}
