//! `weir completions` and `weir man`: every command is in them.

use std::path::Path;

use crate::support::weir::cli::run;

/// Commands of every release.
const COMMANDS: [&str; 6] = ["serve", "check", "explain", "counters", "status", "top"];

#[test]
fn every_shell_has_a_script_with_all_commands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = run(Path::new("."), &["completions", shell]);
        assert_eq!((script.code, script.stderr.as_str()), (Some(0), ""), "{shell}");
        for command in COMMANDS {
            assert!(script.stdout.contains(command), "{shell}: no {command}");
        }
    }
    let unknown = run(Path::new("."), &["completions", "tcsh"]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("powershell"), "it lists the shells: {unknown:?}");
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let made = run(folder.path(), &["man", "new/pages"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let read = |name: &str| {
        let path = folder.path().join("new/pages").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    for command in COMMANDS {
        assert!(read(&format!("weir-{command}.1")).contains("DESCRIPTION"), "{command}");
    }
    assert!(read("weir.1").contains("status"));
    std::fs::write(folder.path().join("file"), "").expect("it can be written");
    let refused = run(folder.path(), &["man", "file"]);
    assert_eq!(refused.code, Some(64), "{refused:?}");
    assert!(refused.stderr.contains("name a folder"), "{refused:?}");
}
