//! A harness for fuzzing: loads settings from bytes instead of a file.
//!
//! Its users are the fuzz target `settings_yaml` and `tests/random_inputs`, both by
//! `fuzz/src/settings.rs`. They are other crates, so `load_bytes` is public, with the feature
//! `fuzz` alone.

use super::Problems;
use super::sources::{Flags, Loaded, layer};

/// Loads the settings from a settings file with this content, and from the environment `env`. Errors
/// name the file `weir.yaml`.
///
/// # Errors
/// All problems of both sources.
pub fn load_bytes(content: &[u8], env: &[(String, String)]) -> Result<Loaded, Problems> {
    let file = ("weir.yaml".to_owned(), Ok(content.to_vec()));
    layer(Some(file), &Flags::default(), env)
}
