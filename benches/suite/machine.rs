//! The machine and the versions of a measurement.

use std::process::Command;

/// What a program printed that failed or printed nothing.
const UNKNOWN: &str = "unknown";

/// One row per fact: name and value.
pub(crate) fn facts() -> Vec<(&'static str, String)> {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    vec![
        ("processor", format!("{}, {cores} cores", field("/proc/cpuinfo", "model name"))),
        ("memory", field("/proc/meminfo", "MemTotal")),
        ("kernel", output_of("uname", &["-sr"])),
        ("compiler", output_of("rustc", &["--version"])),
        ("Redis", output_of("redis-server", &["--version"])),
        ("weir", commit()),
        ("date", output_of("date", &["-u", "+%Y-%m-%d"])),
    ]
}

/// The commit, with `-dirty` if files differ from it that the figures are not written to.
fn commit() -> String {
    let commit = output_of("git", &["describe", "--always"]);
    let is_clean = Command::new("git")
        .args(["diff", "--quiet", "HEAD", "--", ".", ":!docs", ":!README.md"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .is_ok_and(|status| status.success());
    if is_clean { commit } else { commit + "-dirty" }
}

fn field(path: &str, name: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim());
    value.unwrap_or(UNKNOWN).to_owned()
}

fn output_of(program: &str, words: &[&str]) -> String {
    let root = env!("CARGO_MANIFEST_DIR");
    let output = Command::new(program).args(words).current_dir(root).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok().filter(|text| !text.is_empty()).unwrap_or_else(|| UNKNOWN.into())
}
