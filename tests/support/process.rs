//! A child process whose whole output is read, and which ends with its test.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;

use super::resident::{peak_kib, resident_kib};
use super::wait::TIMEOUT;

/// A running child. On drop it is killed by its PID and reaped.
pub(crate) struct Process {
    name: String,
    child: Child,
    log: Arc<Log>,
}

/// The output so far.
#[derive(Default)]
struct Log {
    output: Mutex<Output>,
    more: Condvar,
}

#[derive(Default)]
struct Output {
    lines: Vec<String>,
    /// Closed streams: stdout and stderr make two.
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

    /// The first line, past or future, for which `pick` returns a value. Panics with the output if
    /// the child ends first.
    pub(crate) fn wait_for<T>(&self, what: &str, pick: impl Fn(&str) -> Option<T>) -> T {
        let deadline = Instant::now() + TIMEOUT;
        let mut seen = 0;
        let mut output = self.log.output();
        loop {
            if let Some(found) = output.lines[seen..].iter().find_map(|line| pick(line)) {
                return found;
            }
            seen = output.lines.len();
            let left = deadline.saturating_duration_since(Instant::now());
            if output.closed == 2 || left.is_zero() {
                let log = output.lines.join("\n");
                drop(output);
                panic!("{} does not log {what}; its output:\n{log}", self.name);
            }
            output = self.log.more.wait_timeout(output, left).expect("no reader panics").0;
        }
    }

    /// Waits for the exit of the child.
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        let deadline = Instant::now() + TIMEOUT;
        let mut output = self.log.output();
        // Both streams close with the process: it has no children that could keep them open.
        while output.closed < 2 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let log = output.lines.join("\n");
                drop(output);
                panic!("{} does not end; its output:\n{log}", self.name);
            }
            output = self.log.more.wait_timeout(output, left).expect("no reader panics").0;
        }
        drop(output);
        self.child.wait().expect("the child is not reaped yet")
    }

    /// The output so far.
    pub(crate) fn output(&self) -> String {
        self.log.output().lines.join("\n")
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM, as an orchestrator does.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends a signal, named without `SIG`.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status();
        assert!(status.expect("kill runs").success(), "cannot signal {}", self.name);
    }

    /// Whether the child is running.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("the child is not reaped yet").is_none()
    }

    /// Resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        resident_kib(&self.pid().to_string())
    }

    /// The most resident memory since the start, in KiB.
    pub(crate) fn peak_kib(&self) -> u64 {
        peak_kib(&self.pid().to_string())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- output of {}:\n{}\n---", self.name, self.output());
        }
    }
}

impl Log {
    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().expect("no reader panics")
    }
}

fn drain(stream: impl Read + Send + 'static, log: &Arc<Log>) {
    let log = Arc::clone(log);
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while matches!(stream.read_until(b'\n', &mut line), Ok(1..)) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            log.output().lines.push(text);
            log.more.notify_all();
            line.clear();
        }
        log.output().closed += 1;
        log.more.notify_all();
    });
}
