//! The resident memory of a process.

/// Resident memory of a process (`self` or a pid) in KiB, as Linux accounts it.
pub(crate) fn resident_kib(process: &str) -> u64 {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("has VmRSS");
    line.trim().trim_end_matches(" kB").parse().expect("VmRSS is a number of kB")
}
