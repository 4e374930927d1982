//! Shows rules to operators: explains lookups, lists rules and writes selectors.

mod cost_text;
pub(super) mod explain;
pub(super) mod near_miss;
mod node_text;
pub(super) mod rlconfig;
mod rule_names;
pub(super) mod selector;
pub(super) mod sensitive_keys;
pub(super) mod shown_rule;
mod unknown_name;
