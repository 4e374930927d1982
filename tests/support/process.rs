//! A child process whose output is read to the last line and which never outlives its test.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;

use super::wait::TIMEOUT;

/// A running child. Dropped: killed by its pid and reaped.
pub(crate) struct Process {
    name: String,
    child: Child,
    log: Arc<Log>,
}

/// What the child has said so far.
#[derive(Default)]
struct Log {
    spoken: Mutex<Spoken>,
    more: Condvar,
}

#[derive(Default)]
struct Spoken {
    lines: Vec<String>,
    /// Streams that the child has closed; it has two.
    closed: usize,
}

impl Process {
    /// Starts `command` and reads its output in the background.
    pub(crate) fn spawn(name: &str, mut command: Command) -> Process {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("start {name}: {error}"));
        let log = Arc::new(Log::default());
        drain(child.stdout.take().expect("stdout is piped"), &log);
        drain(child.stderr.take().expect("stderr is piped"), &log);
        Process { name: name.to_owned(), child, log }
    }

    /// The first line, past or future, of which `pick` makes something. Fails when the child stops
    /// talking before it says such a line.
    pub(crate) fn wait_for<T>(&self, what: &str, pick: impl Fn(&str) -> Option<T>) -> T {
        let deadline = Instant::now() + TIMEOUT;
        let mut seen = 0;
        let mut spoken = self.log.spoken();
        loop {
            if let Some(found) = spoken.lines[seen..].iter().find_map(|line| pick(line)) {
                return found;
            }
            seen = spoken.lines.len();
            let left = deadline.saturating_duration_since(Instant::now());
            if spoken.closed == 2 || left.is_zero() {
                let log = spoken.lines.join("\n");
                drop(spoken);
                panic!("{} never said {what}; it said:\n{log}", self.name);
            }
            spoken = self.log.more.wait_timeout(spoken, left).expect("no reader panics").0;
        }
    }

    /// Waits until the child has ended.
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        let deadline = Instant::now() + TIMEOUT;
        let mut spoken = self.log.spoken();
        // Both streams end with the process (it has no children that could hold them open).
        while spoken.closed < 2 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let log = spoken.lines.join("\n");
                drop(spoken);
                panic!("{} does not end; it said:\n{log}", self.name);
            }
            spoken = self.log.more.wait_timeout(spoken, left).expect("no reader panics").0;
        }
        drop(spoken);
        self.child.wait().expect("the child is ours to wait for")
    }

    /// Everything said so far.
    pub(crate) fn output(&self) -> String {
        self.log.spoken().lines.join("\n")
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks the child to end, as an orchestrator does.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends a signal by its name without the `SIG`.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status();
        assert!(status.expect("kill runs").success(), "cannot signal {}", self.name);
    }

    /// Has not ended.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("the child is ours to ask").is_none()
    }

    /// Resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        resident_kib(&self.pid().to_string())
    }
}

/// Resident memory of a process (`self` or a pid) in KiB, as Linux accounts it.
fn resident_kib(process: &str) -> u64 {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("has VmRSS");
    line.trim().trim_end_matches(" kB").parse().expect("VmRSS is a number of kB")
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only when it has already ended, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- {} said:\n{}\n---", self.name, self.output());
        }
    }
}

impl Log {
    fn spoken(&self) -> MutexGuard<'_, Spoken> {
        self.spoken.lock().expect("no reader panics")
    }
}

fn drain(stream: impl Read + Send + 'static, log: &Arc<Log>) {
    let log = Arc::clone(log);
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while matches!(stream.read_until(b'\n', &mut line), Ok(1..)) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            log.spoken().lines.push(text);
            log.more.notify_all();
            line.clear();
        }
        log.spoken().closed += 1;
        log.more.notify_all();
    });
}
