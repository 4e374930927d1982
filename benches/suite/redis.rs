//! The measured Redis: its CPU time, its latency, and the cost of a script call.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::support::redis::resp::{Client, Reply};
use crate::support::redis::server;

/// Longer than any reply takes.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Commands in one write, as redis-benchmark's `-P 16`.
const PIPELINE: usize = 16;
/// Connections, as many as the load on weir has.
const CONNECTIONS: usize = 8;

/// A Redis started for the measurement.
pub(crate) struct Redis(server::Server);

impl Redis {
    /// Starts an empty one without persistence.
    pub(crate) fn start() -> Redis {
        Redis(server::Server::listening(&[]))
    }

    /// The address that it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// The URL for weir.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// CPU time used so far, in seconds, as Redis reports it.
    pub(crate) fn cpu(&self) -> anyhow::Result<f64> {
        let info = Client::tcp(self.address(), TIMEOUT)?.try_run(&["INFO", "CPU"])?.text();
        let field = |name: &str| -> anyhow::Result<f64> {
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            Ok(line.with_context(|| format!("INFO CPU has {name}"))?.trim().parse()?)
        };
        Ok(field("used_cpu_sys:")? + field("used_cpu_user:")?)
    }

    /// Calls of scripts and functions so far.
    pub(crate) fn script_calls(&self) -> anyhow::Result<f64> {
        let info = Client::tcp(self.address(), TIMEOUT)?.try_run(&["INFO", "commandstats"])?.text();
        let calls = info.lines().filter_map(|line| {
            let of = |name: &str| line.strip_prefix(name)?.split(',').next();
            of("cmdstat_fcall:calls=").or_else(|| of("cmdstat_evalsha:calls="))
        });
        Ok(calls.map(str::parse::<f64>).sum::<Result<f64, _>>()?)
    }

    /// The script call that `decide` causes, from MONITOR.
    pub(crate) fn call_of(&self, decide: impl FnOnce()) -> anyhow::Result<Vec<Vec<u8>>> {
        let mut monitor = Client::tcp(self.address(), TIMEOUT)?;
        monitor.try_run(&["MONITOR"])?;
        decide();
        loop {
            let words = words(&monitor.read()?.text());
            let is = |name: &[u8]| words.first().is_some_and(|it| it.eq_ignore_ascii_case(name));
            if is(b"FCALL") || is(b"EVALSHA") {
                return Ok(words);
            }
        }
    }

    /// Redis CPU time of calls with `steps` such steps each, on `keys` counters, in seconds per step.
    pub(crate) fn script_cost(
        &self,
        call: &[Vec<u8>],
        steps: usize,
        keys: u64,
        length: Duration,
    ) -> anyhow::Result<f64> {
        let [name, function, _, _, argument, ..] = call else { bail!("a call without a counter") };
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            clients.push(Client::tcp(self.address(), TIMEOUT)?);
        }
        let pipeline = (PIPELINE / steps).max(1);
        let count = steps.to_string();
        // weir sends one argument for all counters of a rule, if there are at least three.
        let group = (steps > 2).then(|| group(argument, steps)).transpose()?;
        let before = self.cpu()?;
        let end = Instant::now() + length;
        let (mut calls, mut random) = (0, 1_u64);
        while Instant::now() < end {
            for client in &mut clients {
                for _ in 0..pipeline {
                    // Random keys, like the load on weir and redis-benchmark's `-r`: keys in the
                    // order of their creation are adjacent in memory. A call names each once.
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let first = random >> 33;
                    let names: Vec<String> =
                        (0..steps as u64).map(|i| name_of(first, i, keys)).collect();
                    let mut words: Vec<&[u8]> = vec![name, function, count.as_bytes()];
                    words.extend(names.iter().map(String::as_bytes));
                    match &group {
                        Some(arguments) => words.extend(arguments.iter().map(Vec::as_slice)),
                        None => words.extend((0..steps).map(|_| argument.as_slice())),
                    }
                    if steps == 2 {
                        words.push(b"");
                    }
                    client.queue(&words);
                }
                client.send()?;
            }
            for client in &mut clients {
                for _ in 0..pipeline {
                    if let Reply::Error(error) = client.read()? {
                        bail!("the script call was refused: {error}");
                    }
                    calls += 1;
                }
            }
        }
        Ok((self.cpu()? - before) / f64::from(calls) / steps as f64)
    }

    /// Redis CPU time for one call of a script that only counts, in seconds per call: by
    /// redis-benchmark with as many connections, equal pipelines and random keys.
    pub(crate) fn plain_cost(&self, keys: u64) -> anyhow::Result<f64> {
        const CALLS: u32 = 150_000;
        const PLAIN: &str = "local count = redis.call('INCRBY', KEYS[1], ARGV[1]) \
            if count == tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], 3600000) end \
            return count";
        let hash =
            Client::tcp(self.address(), TIMEOUT)?.try_run(&["SCRIPT", "LOAD", PLAIN])?.text();
        let before = self.cpu()?;
        let (port, number) = (self.address().port(), |number: u64| number.to_string());
        let ended = Command::new("redis-benchmark")
            .args(["-h", "127.0.0.1", "-p", &number(port.into()), "-q"])
            .args(["-c", &number(CONNECTIONS as u64), "-P", &number(PIPELINE as u64)])
            .args(["-r", &number(keys), "-n", &number(CALLS.into())])
            .args(["EVALSHA", &hash, "1", "plain:{00a}00000000000__rand_int__", "1"])
            .stdout(Stdio::null())
            .status()
            .context("redis-benchmark, which comes with Redis, does not start")?;
        if !ended.success() {
            bail!("redis-benchmark has failed: {ended}");
        }
        Ok((self.cpu()? - before) / f64::from(CALLS))
    }

    /// Starts to send a PING every 2 ms.
    pub(crate) fn ping(&self) -> anyhow::Result<Pings> {
        let mut client = Client::tcp(self.address(), TIMEOUT)?;
        let go_on = Arc::new(AtomicBool::new(true));
        let goes_on = Arc::clone(&go_on);
        let thread = thread::spawn(move || {
            let mut micros = Vec::new();
            while goes_on.load(Ordering::Relaxed) {
                let start = Instant::now();
                client.try_run(&["PING"])?;
                micros.push(start.elapsed().as_secs_f64() * 1e6);
                thread::sleep(Duration::from_millis(2));
            }
            Ok(micros)
        });
        Ok(Pings { go_on, thread })
    }
}

/// The arguments of a call for a group of `counters`, from that of one step of `fixed_window`: the step once, as one
/// that is repeated, and the size of the group (lua/repeated.lua).
fn group(step: &[u8], counters: usize) -> anyhow::Result<[Vec<u8>; 2]> {
    const REPEAT: u8 = 4;
    let mut repeated = step.to_vec();
    *repeated.get_mut(2).context("a step has an act")? = REPEAT;
    repeated.extend([0, 0, 0, 0, 0, 0, 1]);
    Ok([repeated, u16::try_from(counters)?.to_be_bytes().to_vec()])
}

/// The name of the counter `index` of a call, from a random number. The names of one call differ if there are
/// more `keys` than steps: the stride is a prime.
fn name_of(random: u64, index: u64, keys: u64) -> String {
    let number = random.wrapping_add(index * 7_919) % keys;
    format!("weir:{{{:03x}}}{number:022}", number & 0xfff)
}

/// A running sender of PINGs.
pub(crate) struct Pings {
    go_on: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Vec<f64>>>,
}

impl Pings {
    /// Stops and returns the p99 latency in microseconds.
    pub(crate) fn p99(self) -> anyhow::Result<f64> {
        self.go_on.store(false, Ordering::Relaxed);
        let mut micros = self.thread.join().map_err(|_| anyhow::anyhow!("a defect"))??;
        micros.sort_by(f64::total_cmp);
        let at = micros.len() * 99 / 100;
        micros.get(at).copied().context("no PING was answered")
    }
}

/// The words of a line of MONITOR: quoted, with `\xNN` and the usual escapes.
fn words(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut bytes = line.bytes();
    while bytes.by_ref().any(|byte| byte == b'"') {
        let mut word = Vec::new();
        while let Some(byte) = bytes.next().filter(|byte| *byte != b'"') {
            if byte != b'\\' {
                word.push(byte);
                continue;
            }
            let escaped = bytes.next().unwrap_or_default();
            let mut digit = || char::from(bytes.next().unwrap_or(b'0')).to_digit(16).unwrap_or(0);
            word.push(match escaped {
                b'x' => (digit() * 16 + digit()) as u8,
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'a' => 7,
                b'b' => 8,
                other => other,
            });
        }
        words.push(word);
    }
    words
}
