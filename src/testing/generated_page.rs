//! Parts of pages that `make docs` writes: it sets `WEIR_WRITE_DOCS`, and tests write files instead of
//! comparing them.

use std::path::Path;

const END: &str = "<!-- End of the generated part. -->\n";

/// `page` with `text` from the line `begin` to the next end.
///
/// # Panics
///
/// If the page has no such line, or no end.
pub(crate) fn with_generated(page: &str, begin: &str, text: &str) -> String {
    let (head, rest) = page.split_once(begin).unwrap_or_else(|| panic!("no line {begin}"));
    let (_, tail) = rest.split_once(END).expect("the end of the generated part");
    format!("{head}{begin}{text}{END}{tail}")
}

/// Compares a file of the repository with what `generate` makes of it, or writes it.
///
/// # Panics
///
/// If they differ.
pub(crate) fn compare_or_write(path: &str, generate: impl FnOnce(&str) -> String) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    let generated = generate(&found);
    if found != generated && std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        std::fs::write(&file, &generated).expect("docs/ is writable");
        return;
    }
    assert!(found == generated, "{path} differs from what the tests generate; run `make docs`");
}
