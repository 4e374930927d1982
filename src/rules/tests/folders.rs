//! Tests of which files of a folder are read, and in which order.

use std::fs;

use super::*;

fn domain(name: &str) -> String {
    format!("domain: {name}\n")
}

fn read(paths: &[PathBuf]) -> (Vec<String>, Vec<RuleProblem>) {
    let (set, warnings) = load(paths, &Options::default()).unwrap_or_else(|p| panic!("{p:#?}"));
    let domains = set.files().iter().map(|file| file.domain.to_string()).collect();
    (domains, warnings)
}

#[test]
fn yaml_files_are_read_in_byte_order_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("sub/deeper")).expect("folders");
    fs::create_dir_all(path(".hidden")).expect("folders");
    fs::create_dir_all(path("folder.yaml")).expect("folders");
    for name in ["b.yaml", "a.yml", "Z.yaml", "sub/deeper/c.yaml"] {
        fs::write(path(name), domain(name)).expect("a file");
    }
    for name in ["README.md", ".dot.yaml", ".hidden/x.yaml", "b.yaml~", "yaml"] {
        fs::write(path(name), "neither: [yaml").expect("a file");
    }
    let (domains, warnings) = read(&[folder.path().to_owned()]);
    assert_eq!(domains, ["Z.yaml", "a.yml", "b.yaml", "sub/deeper/c.yaml"]);
    assert!(warnings.is_empty(), "{warnings:#?}");

    // A named file is read whatever its extension, and only once.
    fs::write(path("rules.conf"), domain("conf")).expect("a file");
    let (domains, _) = read(&[path("rules.conf"), path("b.yaml"), path("b.yaml")]);
    assert_eq!(domains, ["conf", "b.yaml"]);
}

#[test]
fn a_missing_or_empty_folder_is_a_warning() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let missing = folder.path().join("missing");
    for path in [folder.path().to_owned(), missing] {
        let (domains, warnings) = read(std::slice::from_ref(&path));
        assert!(domains.is_empty());
        assert_eq!(warnings.len(), 1);
        assert_eq!(*warnings[0].location.file, *path.to_string_lossy());
    }
}

#[test]
fn invalid_utf8_and_large_files_are_errors() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a.yaml");
    fs::write(&path, b"domain: d\nx: \xff\n").expect("a file");
    let errors = load(std::slice::from_ref(&path), &Options::default()).expect_err("not UTF-8");
    assert_eq!(errors.len(), 1);
    assert_eq!((errors[0].location.line, errors[0].location.column), (2, 4));

    fs::write(&path, vec![b' '; crate::rules::file::source::FILE_BYTES_MAX + 1]).expect("a file");
    let errors = load(&[path], &Options::default()).expect_err("too large");
    assert!(errors[0].what.contains("larger than 16 MiB"), "{errors:#?}");
}

/// Kubernetes mounts a ConfigMap as a link per file, through a hidden link to a hidden folder.
#[cfg(unix)]
#[test]
fn a_config_map_is_read_once_through_its_links() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("..2026_01_01")).expect("a folder");
    fs::write(path("..2026_01_01/a.yaml"), domain("a")).expect("a file");
    symlink("..2026_01_01", path("..data")).expect("a link");
    symlink("..data/a.yaml", path("a.yaml")).expect("a link");
    // A link back to the folder itself must not be followed.
    symlink(".", path("loop")).expect("a link");
    let (domains, _) = read(&[folder.path().to_owned()]);
    assert_eq!(domains, ["a"]);

    // A named link to a folder is followed.
    let outer = tempfile::tempdir().expect("a temporary folder");
    let link = outer.path().join("rules");
    symlink(folder.path(), &link).expect("a link");
    assert_eq!(read(&[link]).0, ["a"]);
}

/// Opening a socket fails and opening a pipe would wait, so neither is opened.
#[cfg(unix)]
#[test]
fn a_socket_as_a_rule_file_is_an_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a.yaml");
    let _socket = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let errors = load(&[folder.path().to_owned()], &Options::default()).expect_err("a socket");
    assert!(errors[0].what.contains("not a regular file"), "{errors:#?}");
}
