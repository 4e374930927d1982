//! The options for reading rule files.

/// How rule files, and rules by xDS, are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Joins the files of one domain, in the order of their names. Otherwise a second file is an
    /// error.
    pub merge_domains: bool,
    /// How a misplaced or unknown field is reported.
    pub unknown_fields: UnknownFields,
    /// The default for domains whose files do not set `denied_requests`.
    pub denied_requests: DeniedRequests,
    /// Most limits of all rules by xDS.
    pub xds_limits_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            merge_domains: false,
            unknown_fields: UnknownFields::default(),
            denied_requests: DeniedRequests::default(),
            xds_limits_max: 200_000,
        }
    }
}

/// How a misplaced or unknown field is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownFields {
    /// Reported as an error.
    #[default]
    Error,
    /// Reported as a warning; the field has no effect.
    Warn,
}

/// What happens to the hits of a denied request's other descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeniedRequests {
    /// The hits stay counted, as with envoyproxy/ratelimit.
    #[default]
    Count,
    /// The hits are given back.
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
