//! A build of envoyproxy/ratelimit: its version, its environment and its start.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

use crate::child::Server;
use crate::support::redis::ports::Port;

/// Variables of every instance, besides those with addresses and folders. Without `DISABLE_STATS`
/// an instance would write its metrics to its log.
pub(crate) const ENVIRONMENT: &[(&str, &str)] = &[
    ("REDIS_SOCKET_TYPE", "tcp"),
    ("USE_STATSD", "false"),
    ("DISABLE_STATS", "true"),
    ("LOG_LEVEL", "error"),
];

/// Variables that let calls to Redis share a pipeline.
pub(crate) const PIPELINES: &[(&str, &str)] =
    &[("REDIS_PIPELINE_WINDOW", "150us"), ("REDIS_PIPELINE_LIMIT", "8")];

/// The variables of each address of an instance. The first one is that of gRPC.
const ADDRESSES: [(&str, &str); 3] =
    [("GRPC_HOST", "GRPC_PORT"), ("HOST", "PORT"), ("DEBUG_HOST", "DEBUG_PORT")];

/// `RUNTIME_SUBDIRECTORY`.
const SUBDIRECTORY: &str = "limits";

/// A build and the rules of its instances.
pub(crate) struct EnvoyRatelimit {
    program: PathBuf,
    /// `RUNTIME_ROOT`.
    root: PathBuf,
    /// The log of all instances.
    log: PathBuf,
}

impl EnvoyRatelimit {
    /// The build `program` with one file of rules, which is written below `folder`.
    pub(crate) fn new(
        program: &Path,
        folder: &Path,
        rules: &str,
    ) -> anyhow::Result<EnvoyRatelimit> {
        let root = folder.join("envoy-ratelimit");
        let rule_folder = root.join(SUBDIRECTORY).join("config");
        fs::create_dir_all(&rule_folder)?;
        fs::write(rule_folder.join("rules.yaml"), rules)?;
        let log = folder.join("envoy-ratelimit.log");
        Ok(EnvoyRatelimit { program: program.to_owned(), root, log })
    }

    /// Starts an instance that counts in the Redis at `redis`, with more variables.
    pub(crate) fn start(
        &self,
        redis: SocketAddr,
        variables: &[(&str, &str)],
    ) -> anyhow::Result<Server> {
        let ports = [Port::take(), Port::take(), Port::take()];
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.program);
        command.env_clear().envs(ENVIRONMENT.iter().copied()).envs(variables.iter().copied());
        command.env("RUNTIME_ROOT", &self.root).env("RUNTIME_SUBDIRECTORY", SUBDIRECTORY);
        command.env("REDIS_URL", redis.to_string());
        for ((host, port), free) in ADDRESSES.into_iter().zip(&ports) {
            command.env(host, "127.0.0.1").env(port, free.number().to_string());
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let child = child.with_context(|| self.program.display().to_string())?;
        let address = (Ipv4Addr::LOCALHOST, ports[0].number()).into();
        Server::listening(child, address).with_context(|| {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            format!("{}; its log:\n{log}", self.program.display())
        })
    }
}

/// The version of the build. Go writes it into the program, with the names of all modules.
pub(crate) fn version(program: &Path) -> anyhow::Result<String> {
    const MODULE: &[u8] = b"mod\tgithub.com/envoyproxy/ratelimit\t";
    let bytes = fs::read(program)
        .with_context(|| format!("--envoy-ratelimit: {} is not readable", program.display()))?;
    let at = bytes.windows(MODULE.len()).position(|window| window == MODULE);
    let version = at.map(|at| {
        let rest = &bytes[at + MODULE.len()..];
        let end = rest.iter().position(u8::is_ascii_control).unwrap_or(rest.len());
        String::from_utf8_lossy(&rest[..end]).into_owned()
    });
    Ok(version.unwrap_or_else(|| "unknown".into()))
}
