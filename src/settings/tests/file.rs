//! Tests of reading the settings file.

use super::*;

/// Opening a named pipe would block the start until there is a writer.
#[test]
fn only_small_regular_files_are_read() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("weir.yaml");
    let error = || {
        let flags = Flags { config: Some(path.clone()), ..Flags::default() };
        load(&flags, &[]).expect_err("not a settings file").to_string()
    };
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("mkfifo is installed").success());
    assert!(error().contains("not a regular file"), "{}", error());
    std::fs::remove_file(&path).expect("a pipe");
    std::fs::write(&path, b"# \xff").expect("a file");
    assert!(error().contains("not a text in UTF-8"), "{}", error());
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(1 << 40).expect("a sparse file");
    assert!(error().contains("larger than 1 MiB"), "{}", error());
}
