//! A measured server: a child process with its address and its usage.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use weir_bench::{CancelSignal, Plan, Report, run};

use crate::support::resident::resident_kib;
use crate::support::wait::TIMEOUT;

/// A running server. It is killed on drop.
pub(crate) struct Server {
    child: Child,
    /// The gRPC address.
    pub(crate) address: String,
    /// The admin address, if the server is weir.
    admin: Option<String>,
    /// Kept open, because the server keeps writing to it.
    output: Box<dyn Read + Send + Sync>,
}

/// The errors of a load whose calls do not fail, but come too late.
pub(crate) const OVERLOAD_ERRORS: [&str; 2] = ["unsent", "unanswered"];

/// Resident memory, in bytes.
pub(crate) type Bytes = u64;

impl Server {
    /// `weir serve` with these rules and settings (`WEIR__SECTION__KEY`).
    pub(crate) fn weir(rules: &Path, settings: &[(&str, &str)]) -> anyhow::Result<Server> {
        Server::program(Path::new(env!("CARGO_BIN_EXE_weir")), rules, settings)
    }

    /// Runs another build of weir with these rules and settings.
    pub(crate) fn program(
        program: &Path,
        rules: &Path,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Server> {
        let mut command = Command::new(program);
        command.env_clear().arg("serve").arg("--rules").arg(rules);
        for listener in ["--grpc-listen", "--http-listen", "--admin-listen"] {
            command.args([listener, "127.0.0.1:0"]);
        }
        command.env("WEIR__LOG__FORMAT", "json").envs(settings.iter().copied());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = child.spawn()?;
        let log = child.stderr.take().context("stderr is piped")?;
        Server::wait(child, log, |line| {
            let line: Value = serde_json::from_str(line).ok()?;
            let at = |port: &str| line[port].as_str().map(str::to_owned);
            (line["message"] == "listening").then(|| Some((at("grpc")?, at("admin"))))?
        })
    }

    /// A server that is this program with an argument: `baseline`, `h2` or `weir-http2`.
    pub(crate) fn own(program: &str) -> anyhow::Result<Server> {
        let mut command = Command::new(std::env::current_exe()?);
        let child = command.arg(program).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = child.spawn()?;
        let out = child.stdout.take().context("stdout is piped")?;
        Server::wait(child, out, |line| {
            Some((line.strip_prefix("listening on ")?.to_owned(), None))
        })
    }

    /// A server without a line of output for its start, once it accepts connections at `address`.
    pub(crate) fn listening(child: Child, address: SocketAddr) -> anyhow::Result<Server> {
        let output = Box::new(std::io::empty());
        let mut server = Server { child, address: address.to_string(), admin: None, output };
        let end = Instant::now() + TIMEOUT;
        while TcpStream::connect(address).is_err() {
            let ended = server.child.try_wait()?;
            ensure!(ended.is_none(), "a server has ended before it listened at {address}");
            ensure!(Instant::now() < end, "no server listens at {address}");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    fn wait(
        child: Child,
        output: impl Read + Send + Sync + 'static,
        listening: impl Fn(&str) -> Option<(String, Option<String>)>,
    ) -> anyhow::Result<Server> {
        let mut server =
            Server { child, address: String::new(), admin: None, output: Box::new(output) };
        let mut output = BufReader::with_capacity(1, &mut server.output);
        let mut all = String::new();
        let (address, admin) = loop {
            let mut line = String::new();
            if output.read_line(&mut line)? == 0 {
                bail!("a server does not start; its output:\n{all}");
            }
            all += &line;
            if let Some(addresses) = listening(line.trim_end()) {
                break addresses;
            }
        };
        (server.address, server.admin) = (address, admin);
        Ok(server)
    }

    /// CPU time used so far by all threads, in seconds.
    pub(crate) fn cpu(&self) -> anyhow::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, fields) = stat.rsplit_once(") ").context("a name in parentheses")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        // User and system time, in hundredths of a second.
        Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / 100.0)
    }

    /// As [`scheduled`], of the server.
    pub(crate) fn scheduled(&self) -> anyhow::Result<f64> {
        scheduled(self.child.id())
    }

    /// Resident memory.
    pub(crate) fn resident(&self) -> Bytes {
        resident_kib(&self.child.id().to_string()) * 1024
    }

    /// The highest resident memory so far.
    pub(crate) fn peak(&self) -> anyhow::Result<Bytes> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.context("the process has VmHWM")?.trim().trim_end_matches(" kB");
        Ok(kib.parse::<Bytes>()? * 1024)
    }

    /// The share of decisions so far by fallback, from its metrics.
    pub(crate) fn fallback_share(&self) -> anyhow::Result<f64> {
        let admin = self.admin.as_deref().context("the baseline has no metrics")?;
        let mut stream = TcpStream::connect(admin)?;
        write!(stream, "GET /metrics HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let sum = |name: &str| -> f64 {
            let lines = text.lines().filter(|line| line.starts_with(name));
            // The sum of nothing is -0.
            0.0 + lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
        };
        let decided = sum("weir_requests_total{");
        ensure!(decided > 0.0, "the metrics show no decision: {text:.200}");
        Ok(sum("weir_fallback_total{") / decided)
    }

    /// Loads the server. Returns the report and the CPU time that the server used during the load.
    /// Every call must be decided.
    pub(crate) fn load(&self, plan: &Plan) -> anyhow::Result<(Report, f64)> {
        let (report, used) = self.paced_load(plan)?;
        if report.failed > 0 {
            bail!("calls to {} were not decided: {:?}", self.address, report.errors);
        }
        Ok((report, used))
    }

    /// As [`load`](Server::load), but some calls may stay unsent or unanswered, as under overload.
    pub(crate) fn paced_load(&self, plan: &Plan) -> anyhow::Result<(Report, f64)> {
        let before = self.cpu()?;
        let plan = Plan { warmup: Duration::ZERO, ..plan.clone() };
        let (_canceller, cancel) = CancelSignal::new();
        let report = run(&plan, &self.address, &cancel, |_| {})?;
        let used = self.cpu()? - before;
        let is_overload = |error: &String| OVERLOAD_ERRORS.contains(&error.as_str());
        if report.decided == 0 || !report.errors.keys().all(is_overload) {
            bail!("calls to {} were not decided: {:?}", self.address, report.errors);
        }
        Ok((report, used))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CPU time of a process by the scheduler's count, of living threads, in seconds with nanosecond
/// resolution.
pub(crate) fn scheduled(process: u32) -> anyhow::Result<f64> {
    let mut nanos = 0.0;
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        nanos += text.split(' ').next().context("a first number")?.parse::<f64>()?;
    }
    Ok(nanos / 1e9)
}

/// Runs `work`. Returns its duration in milliseconds.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed().as_secs_f64() * 1e3)
}
