//! Looks any value up among any regular expressions.

use weir::rules::regex_fuzz_harness::first_regex;

/// The most expressions of an input.
const REGEXES_MAX: usize = 4;

/// The longest expression, in bytes. Compiling longer ones only takes longer.
const REGEX_BYTES_MAX: usize = 64;

/// Looks a value up among regular expressions: `bytes` holds the value, and an expression after each
/// NUL byte. The index must find the same one as a scan. Returns whether one was found.
pub fn lookup(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split('\0');
    let value = parts.next().unwrap_or_default();
    let regexes = parts.filter(|regex| regex.len() <= REGEX_BYTES_MAX).take(REGEXES_MAX);
    let regexes: Vec<&str> = regexes.collect();
    let first = first_regex(&regexes, value);
    assert_eq!(first.by_texts, first.by_scan, "required texts: {value:?} in {regexes:?}");
    assert_eq!(first.by_automata, first.by_scan, "automata: {value:?} in {regexes:?}");
    first.by_scan.is_some()
}
