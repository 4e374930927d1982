//! Declares the settings `fallback.*`.

use crate::limit::OnError;
use crate::settings::format::{choice, number};
use crate::settings::section::section;

section! {
    /// Decisions while the store fails.
    pub struct FallbackSettings {
        /// Decision about a request that the store cannot count: `allow`, `deny`, or `local`, which
        /// uses counters of this instance. `on_error` in a rule takes precedence.
        on_error: OnError = "allow", choice(OnError::ALL.map(|choice| (choice.name(), choice)));
        /// Number of instances that share the traffic. With `on_error: local`, each of them allows
        /// its share of a limit, rounded up.
        instances: u64 = "1", number(1..=1_000_000);
    }
}
