//! The fallback of a rule: what decides a request when the store cannot count it.

/// The fallback that decides a request when the store cannot count it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnError {
    /// The request is allowed.
    #[default]
    Allow,
    /// The request is denied.
    Deny,
    /// A counter of this instance decides, with the instance's share of the limit.
    Local,
}

impl OnError {
    /// Every fallback.
    pub const ALL: [OnError; 3] = [OnError::Allow, OnError::Deny, OnError::Local];

    /// The name in rule files, settings and headers.
    pub const fn name(self) -> &'static str {
        match self {
            OnError::Allow => "allow",
            OnError::Deny => "deny",
            OnError::Local => "local",
        }
    }
}
