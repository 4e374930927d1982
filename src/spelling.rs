//! Finds the known name that a misspelt name probably means.

/// Longest name that is compared, in bytes. Longer names get no suggestion.
const LENGTH_MAX: usize = 128;

/// The candidate with the fewest edits (Levenshtein distance, case ignored), the first among
/// equals. Returns `None` when every candidate needs more edits than a third of the name's length
/// (at least 1, at most 3).
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > LENGTH_MAX {
        return None;
    }
    let name = name.to_ascii_lowercase();
    let edits_max = (name.chars().count() / 3).clamp(1, 3);
    let edits = |candidate: &str| strsim::levenshtein(&name, &candidate.to_ascii_lowercase());
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= LENGTH_MAX)
        .map(|candidate| (edits(candidate), candidate))
        .filter(|(edits, _)| *edits <= edits_max)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_found() {
        let names = ["key", "value", "value_regex", "rate_limit"];
        for (name, meant) in [
            ("Key", Some("key")),
            ("kye", None),
            ("keys", Some("key")),
            ("ratelimit", Some("rate_limit")),
            ("value_regx", Some("value_regex")),
            ("valeu", None),
            ("values", Some("value")),
            ("", None),
            ("zebra", None),
        ] {
            assert_eq!(nearest(name, names), meant, "{name}");
        }
        assert_eq!(nearest(&"x".repeat(500), names), None);
        assert_eq!(nearest("x", [&*"x".repeat(500)]), None);
    }
}
