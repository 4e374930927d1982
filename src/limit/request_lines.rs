//! Which decided requests get a line in the log.

use serde::{Deserialize, Serialize};

/// The decided requests that get a line in the log. Its JSON form is [`RequestLines::name`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestLines {
    /// None.
    #[default]
    Off,
    /// Requests that were over a limit and did not pass.
    Denied,
    /// All requests.
    All,
}

impl RequestLines {
    /// The choice with this name in rule files, if there is one. `false` is what YAML 1.1 makes of
    /// `off`.
    pub fn from_name(name: &str) -> Option<RequestLines> {
        match name {
            "off" | "false" => Some(RequestLines::Off),
            "denied" => Some(RequestLines::Denied),
            "all" => Some(RequestLines::All),
            _ => None,
        }
    }

    /// The name in rule files, settings and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            RequestLines::Off => "off",
            RequestLines::Denied => "denied",
            RequestLines::All => "all",
        }
    }

    /// Whether a descriptor gets its request a line: one that was denied, if its request was denied
    /// too, or any.
    pub const fn has(self, is_denied: bool) -> bool {
        match self {
            RequestLines::Off => false,
            RequestLines::Denied => is_denied,
            RequestLines::All => true,
        }
    }
}
