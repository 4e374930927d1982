//! Options of a load: what the settings decide about rule files.

/// How rule files are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Files of one domain are joined in the order of their names; else a second one is an error.
    pub merge_domains: bool,
    /// What a misplaced or unknown field is.
    pub unknown_fields: UnknownFields,
    /// For domains whose files do not say.
    pub denied_requests: DeniedRequests,
}

/// What a misplaced or unknown field is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownFields {
    /// The file is refused.
    #[default]
    Error,
    /// The field does nothing, and a warning says so.
    Warn,
}

/// What becomes of the hits that a request's other descriptors took when the request is denied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeniedRequests {
    /// They stay counted, as with envoyproxy/ratelimit.
    #[default]
    Count,
    /// They are given back.
    Free,
}

impl DeniedRequests {
    /// As rule files write it.
    pub fn from_name(name: &str) -> Option<DeniedRequests> {
        match name {
            "count" => Some(DeniedRequests::Count),
            "free" => Some(DeniedRequests::Free),
            _ => None,
        }
    }
}
