//! Declares the settings `readyz.*`.

use crate::settings::format::{choice, switch};
use crate::settings::section::section;

section! {
    /// The conditions of readiness.
    pub struct ReadyzSettings {
        /// `/readyz` fails while the store is unreachable.
        require_store: bool = "false", switch();
        /// `loaded`: `/readyz` fails while no domain is defined. `current`: it also fails while the
        /// rule files have errors or the last rules by xDS were rejected, although older rules are
        /// active. `off` (also `false`): `/readyz` depends on the first rules by xDS only
        /// (`rules.start_without_rules`).
        require_rules: RequireRules = "off", choice([
            ("off", RequireRules::Off),
            ("loaded", RequireRules::Loaded),
            ("current", RequireRules::Current),
            ("false", RequireRules::Off),
        ]);
    }
}

/// The rules that readiness requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequireRules {
    /// None.
    Off,
    /// The active rules define at least one domain.
    Loaded,
    /// [`RequireRules::Loaded`], and the last reload of the files and the last update by xDS have
    /// succeeded.
    Current,
}
