//! One redis-server process: its log, and the signals that stop, freeze and kill it. `REDIS_SERVER`
//! names another program, for example another version or valkey-server.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Instant;

use crate::support::wait::TIMEOUT;

/// Kills the server when the test's end of the pipe closes, even if the test was killed. The shell
/// closes its own copies of the log's pipes, so that they end with the server.
const WATCH: &str =
    r#""$0" "$@" & server=$!; exec >/dev/null 2>&1; read -r gone; kill -9 $server; wait"#;

/// A running `redis-server`. It is killed on drop.
pub(crate) struct Process {
    shell: Child,
    log: Arc<Log>,
    pid: String,
}

#[derive(Default)]
struct Log {
    lines: Mutex<Lines>,
    grown: Condvar,
}

#[derive(Default)]
struct Lines {
    all: Vec<String>,
    /// Number of the process's log pipes that are open. 0 means that the process has ended.
    open_pipes: u8,
}

impl Process {
    /// Starts `redis-server` and waits for the log line that contains `ready`. Returns the log as
    /// the error if the process ends first.
    pub(crate) fn start(arguments: &[String], ready: &str) -> Result<Process, String> {
        let program = std::env::var("REDIS_SERVER").unwrap_or("redis-server".to_owned());
        let installed = Command::new(&program).arg("--version").output().is_ok();
        assert!(installed, "{program} cannot be run; `make test` installs redis-server");
        let shell = Command::new("sh")
            .args(["-c", WATCH, &program])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut shell = shell.expect("a shell is on the path");
        let log = Arc::new(Log::default());
        let (out, err) = (shell.stdout.take(), shell.stderr.take());
        log.follow(out.expect("piped"));
        log.follow(err.expect("piped"));
        let mut process = Process { shell, log, pid: String::new() };
        let started = process.find(0, "pid=")?;
        let pid = started.split_once("pid=").map(|(_, rest)| rest);
        let digits = pid.and_then(|pid| pid.split(|c: char| !c.is_ascii_digit()).next());
        process.pid = digits.expect("the log names the pid").to_owned();
        process.find(0, ready)?;
        Ok(process)
    }

    /// Waits for a log line, past or future, that contains `text`.
    pub(crate) fn wait_for_line(&self, text: &str) -> String {
        self.wait_for_line_after(0, text)
    }

    /// Number of log lines so far, for [`Process::wait_for_line_after`].
    pub(crate) fn lines(&self) -> usize {
        self.log.lines.lock().expect("no reader panicked").all.len()
    }

    /// Waits for a log line that contains `text`, after the first `mark` lines.
    pub(crate) fn wait_for_line_after(&self, mark: usize, text: &str) -> String {
        let found = self.find(mark, text);
        found.unwrap_or_else(|log| panic!("no `{text}` in the log:\n{log}"))
    }

    fn find(&self, mark: usize, text: &str) -> Result<String, String> {
        let end = Instant::now() + TIMEOUT;
        let mut lines = self.log.lines.lock().expect("no reader panicked");
        loop {
            if let Some(found) = lines.all.iter().skip(mark).find(|line| line.contains(text)) {
                return Ok(found.clone());
            }
            let left = end.saturating_duration_since(Instant::now());
            if lines.open_pipes == 0 || left.is_zero() {
                return Err(lines.tail());
            }
            lines = self.log.grown.wait_timeout(lines, left).expect("no reader panicked").0;
        }
    }

    /// Freezes the process (SIGSTOP): connections stay open and get no reply.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Resumes the process (SIGCONT).
    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    /// Kills the process (SIGKILL) and waits for its end.
    pub(crate) fn kill(&mut self) {
        drop(self.shell.stdin.take());
        // An error means that the shell was reaped before.
        let _ = self.shell.wait();
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.pid]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill {signal} {}", self.pid);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Log {
    /// Reads lines until the process ends. A full pipe would stall it.
    fn follow(self: &Arc<Log>, output: impl std::io::Read + Send + 'static) {
        self.lines.lock().expect("no reader panicked").open_pipes += 1;
        let log = Arc::clone(self);
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                log.lines.lock().expect("no reader panicked").all.push(line);
                log.grown.notify_all();
            }
            log.lines.lock().expect("no reader panicked").open_pipes -= 1;
            log.grown.notify_all();
        });
    }
}

impl Lines {
    fn tail(&self) -> String {
        let from = self.all.len().saturating_sub(30);
        self.all[from..].join("\n")
    }
}
