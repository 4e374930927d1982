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

/// A name with a newline would otherwise add a line to the log.
#[test]
fn special_characters_of_the_file_are_escaped() {
    for (file, shown) in [
        (r#"{"a\nb\u202ec": {}}"#, r"1:2: there is no setting `a\nb\u{202e}c`"),
        (r#"grpc: {"listen\u2028": 1}"#, r"1:8: there is no setting `grpc.listen\u{2028}`"),
    ] {
        let lines = errors(file, &[], Flags::default());
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with(&format!("weir.yaml:{shown}")), "{lines:?}");
    }
}
