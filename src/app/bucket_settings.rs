//! The settings that explanations of buckets of RLQS depend on.

use std::fmt;

use serde_json::{Value, json};

use crate::settings::Settings;

/// Their sections and names.
const NAMES: [(&str, &str); 5] = [
    ("rlqs", "enabled"),
    ("rlqs", "key_order"),
    ("rlqs", "burst_percent"),
    ("request", "max_entries"),
    ("request", "max_text_bytes"),
];

/// Their values, in the shape of `weir.yaml`.
#[derive(Debug)]
pub struct BucketSettings(Value);

impl BucketSettings {
    /// The values in `settings`.
    pub fn of(settings: &Settings) -> BucketSettings {
        let all = settings.to_json();
        let mut used = json!({});
        for (section, name) in NAMES {
            used[section][name] = all[section][name].clone();
        }
        BucketSettings(used)
    }

    /// The values, in the shape of `weir.yaml`.
    pub fn to_json(&self) -> &Value {
        &self.0
    }
}

impl fmt::Display for BucketSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (section, name)) in NAMES.into_iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{section}.{name} ")?;
            match &self.0[section][name] {
                Value::String(text) if text.is_empty() => write!(f, "empty")?,
                Value::String(text) => write!(f, "{text}")?,
                value => write!(f, "{value}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_a_setting() {
        let settings = BucketSettings::of(&Settings::default());
        for (section, name) in NAMES {
            assert!(!settings.to_json()[section][name].is_null(), "{section}.{name}");
        }
        assert_eq!(
            settings.to_string(),
            "rlqs.enabled true, rlqs.key_order empty, rlqs.burst_percent 20, \
             request.max_entries 32, request.max_text_bytes 65536"
        );
    }
}
