//! Writes entries and nodes of the tree as text for explanations.

use crate::descriptor::Entry;
use crate::rules::excerpt::shorten;
use crate::rules::lookup::matcher::Matcher;
use crate::rules::lookup::rule::EntryMatcher;

/// The entry as `key=value`.
pub(super) fn entry_text(entry: &Entry<'_>) -> String {
    format!("{}={}", shorten(entry.key), shorten(entry.value))
}

/// The key and the values that a node accepts, in words.
pub(super) fn accepts(node: &EntryMatcher) -> String {
    let key = shorten(&node.key);
    match &node.matcher {
        Matcher::Any => format!("`{key}` with any value"),
        other => format!("`{key}` with {} `{}`", other.noun(), shorten(other.source())),
    }
}
