//! Metrics of the process from `/proc`, under the standard names of Prometheus clients.

use std::fs;

use super::exposition::Exposition;
use crate::time::Micros;

/// Clock ticks per second in `/proc` (`USER_HZ`): 100 on all architectures of Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Writes the version, the start of the process (`started`) and the values of `/proc` onto the
/// page. Values that cannot be read are left out.
pub fn expose(started: Micros, page: &mut Exposition) {
    page.gauge("weir_build_info", "Always 1. The label has the version of weir.")
        .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    let help = "When the process started, in seconds since the epoch.";
    page.gauge("process_start_time_seconds", help).single(started.0 as f64 / 1e6);
    if let Some(ProcStatus { resident, virtual_, threads }) = status() {
        let help = "Resident memory of the process.";
        page.gauge("process_resident_memory_bytes", help).single(resident);
        let help = "Virtual memory of the process.";
        page.gauge("process_virtual_memory_bytes", help).single(virtual_);
        page.gauge("process_threads", "Threads of the process.").single(threads);
    }
    if let Some(seconds) = cpu_seconds() {
        let help = "CPU time of the process in user and kernel mode.";
        page.counter("process_cpu_seconds_total", help).single(seconds);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // Without the descriptor that reads this folder.
        let open = open.count().saturating_sub(1) as u64;
        page.gauge("process_open_fds", "Open file descriptors.").single(open);
    }
    if let Some(max) = max_fds() {
        page.gauge("process_max_fds", "Maximum number of open file descriptors.").single(max);
    }
}

struct ProcStatus {
    resident: u64,
    virtual_: u64,
    threads: u64,
}

fn status() -> Option<ProcStatus> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let number = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    };
    let bytes = |name: &str| number(name).map(|kib| kib * 1024);
    let threads = number("Threads:")?;
    Some(ProcStatus { resident: bytes("VmRSS:")?, virtual_: bytes("VmSize:")?, threads })
}

fn cpu_seconds() -> Option<f64> {
    // The second field is the name in parentheses, which may contain spaces.
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    // utime and stime: fields 14 and 15.
    let mut ticks = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    let (user, system) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    Some((user + system) as f64 / TICKS_PER_SECOND)
}

fn max_fds() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/limits").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn linux_has_every_value() {
        let mut page = Exposition::default();
        expose(Micros::from_secs(5), &mut page);
        let value = |name: &str| -> f64 {
            let text = page.to_prometheus();
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
            line.unwrap_or_else(|| panic!("no {name}: {text}")).parse().unwrap()
        };
        assert_eq!(value("process_start_time_seconds"), 5.0);
        let resident = value("process_resident_memory_bytes");
        assert!(resident > 1e5 && resident < value("process_virtual_memory_bytes"), "{resident}");
        assert!(value("process_threads") >= 1.0);
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_open_fds") < value("process_max_fds"));
        assert!(value("process_cpu_seconds_total") >= 0.0);
    }
}
