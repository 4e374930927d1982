//! The resident memory of a process.

#![allow(dead_code, reason = "each test binary uses its part")]

/// Resident memory of a process (`self` or a pid) in KiB, as Linux accounts it.
pub(crate) fn resident_kib(process: &str) -> u64 {
    status_kib(process, "VmRSS:")
}

/// The most resident memory of a process since its start, in KiB.
pub(crate) fn peak_kib(process: &str) -> u64 {
    status_kib(process, "VmHWM:")
}

fn status_kib(process: &str, name: &str) -> u64 {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the line");
    line.trim().trim_end_matches(" kB").parse().expect("a number of kB")
}
