//! Files with many rules, and one rule among them that changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::runtime::{Builder, Runtime};
use tonic::transport::Channel;
use weir::proto::{Entry, RateLimitDescriptor, RateLimitRequest, RateLimitServiceClient};

use crate::child::Server;
use crate::support::wait::TIMEOUT;

/// Rules of one file, which is then far below the bound of 16 MiB.
const PER_FILE: u64 = 100_000;
/// One rule of this many is a pattern. The others are exact values of one key.
const PATTERN_SHARE: u64 = 100;

const HEAD: &str = "domain: bench\ndescriptors:\n";
/// A limit that no load reaches.
const LIMIT: &str = "rate_limit: { unit: hour, requests_per_unit: 1000000 }";

/// The entry that the changing rule limits.
const MARKER: (&str, &str) = ("marker", "reload");
/// Its first limit, in requests per hour.
const FIRST_LIMIT: u32 = 1_000_000;
/// Pause between two calls that ask for its active limit.
const POLL: Duration = Duration::from_millis(2);

/// Writes `count` rules of the domain `bench` as files in a new folder, with one more rule that
/// changes. Several files have the same domain.
///
/// The exact values are `/v1/product/` with numbers of seven digits from 0 on.
pub(crate) fn write(folder: &Path, count: u64) -> anyhow::Result<()> {
    fs::create_dir(folder)?;
    let exact = count - count / PATTERN_SHARE;
    let mut first = 0;
    while first < count {
        let next = count.min(first + PER_FILE);
        let mut text = HEAD.to_owned();
        for number in first..next {
            let matcher = match number.checked_sub(exact) {
                None => format!("key: path, value: /v1/product/{number:07}"),
                Some(index) => pattern(index),
            };
            text += &format!("- {{ {matcher}, {LIMIT} }}\n");
        }
        fs::write(folder.join(format!("{:03}.yaml", first / PER_FILE)), text)?;
        first = next;
    }
    Ok(())
}

/// The matcher of pattern number `index`, below 65 536: templates, networks, wildcards and regular
/// expressions.
fn pattern(index: u64) -> String {
    match index % 10 {
        0..=3 => {
            format!("key: route, value_template: '/v1/{{org}}/{index}/{{id}}', count_by: [org]")
        }
        4..=6 => format!("key: address, value_cidr: 10.{}.{}.0/24", index / 256, index % 256),
        7..=8 => format!("key: file, value: '/static/{index}/*'"),
        _ => format!("key: image, value_regex: '/image-{index}/[0-9]+[.]png'"),
    }
}

/// The rule that changes, with a client that sees which limit is active.
pub(crate) struct Marker {
    folder: PathBuf,
    limit: u32,
    client: RateLimitServiceClient<Channel>,
    runtime: Runtime,
}

impl Marker {
    /// Writes the first limit. No server reads the folder yet.
    pub(crate) fn reset(folder: &Path) -> anyhow::Result<()> {
        replace(folder, FIRST_LIMIT).map(|_| ())
    }

    /// Connects to a server that has started with the first limit.
    pub(crate) fn connect(folder: &Path, server: &Server) -> anyhow::Result<Marker> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let to = format!("http://{}", server.address);
        let client = runtime.block_on(RateLimitServiceClient::connect(to))?;
        Ok(Marker { folder: folder.to_owned(), limit: FIRST_LIMIT, client, runtime })
    }

    /// Changes the limit. Returns the time from the change of the file until the new limit decides.
    pub(crate) fn reload(&mut self) -> anyhow::Result<Duration> {
        self.limit += 1;
        let begin = replace(&self.folder, self.limit)?;
        while self.active()? != self.limit {
            ensure!(begin.elapsed() < TIMEOUT, "the rules are not reloaded");
            thread::sleep(POLL);
        }
        Ok(begin.elapsed())
    }

    /// The limit of the active rules.
    fn active(&mut self) -> anyhow::Result<u32> {
        let (key, value) = MARKER;
        let entry = Entry { key: key.into(), value: value.into() };
        let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
        let request = RateLimitRequest {
            domain: "bench".into(),
            descriptors: vec![descriptor],
            hits_addend: 0,
        };
        let response = self.runtime.block_on(self.client.should_rate_limit(request))?;
        let response = response.into_inner();
        let status = response.statuses.first().context("one descriptor has one status")?;
        let limit = status.current_limit.as_ref().context("the rule has a limit")?;
        Ok(limit.requests_per_unit)
    }
}

/// Replaces the file of the rule that changes. Returns the instant just before.
fn replace(folder: &Path, limit: u32) -> anyhow::Result<Instant> {
    let (key, value) = MARKER;
    let limit = format!("rate_limit: {{ unit: hour, requests_per_unit: {limit} }}");
    let text = format!("{HEAD}- {{ key: {key}, value: {value}, {limit} }}\n");
    // weir does not read names that start with a dot.
    let new = folder.join(".marker");
    fs::write(&new, text)?;
    let before = Instant::now();
    fs::rename(&new, folder.join("marker.yaml"))?;
    Ok(before)
}
