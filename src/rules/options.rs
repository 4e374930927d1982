//! This module holds the options with which rule files are read.

/// How rule files are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Joins the files of one domain, in the order of their names. Otherwise a second file is an
    /// error.
    pub merge_domains: bool,
    /// How a misplaced or unknown field is reported.
    pub unknown_fields: UnknownFields,
    /// For domains whose files do not set `denied_requests`.
    pub denied_requests: DeniedRequests,
}

/// How a misplaced or unknown field is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownFields {
    /// As an error.
    #[default]
    Error,
    /// As a warning; the field has no effect.
    Warn,
}

/// What happens to the hits of a denied request's other descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeniedRequests {
    /// They stay counted, as with envoyproxy/ratelimit.
    #[default]
    Count,
    /// They are given back.
    Free,
}

impl DeniedRequests {
    /// Parses the value of `denied_requests`.
    pub fn from_name(name: &str) -> Option<DeniedRequests> {
        match name {
            "count" => Some(DeniedRequests::Count),
            "free" => Some(DeniedRequests::Free),
            _ => None,
        }
    }
}
