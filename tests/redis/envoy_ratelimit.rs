//! The sample deployments of Istio and Envoy for envoyproxy/ratelimit, with only the image changed.

use std::fs::{create_dir_all, remove_dir_all, rename};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::http::{get, post};
use crate::support::process::Process;
use crate::support::redis::resp::Reply;
use crate::support::redis::server::Server;
use crate::support::rls::{Client, Code, costing, descriptor, request};
use crate::support::schedule::shared;
use crate::support::wait::until;
use crate::support::weir::{program, write};

/// The environment of Istio's sample. Only the host of Redis and the root of the rules differ, and
/// Kubernetes' variables for the sample's Services are added.
const ISTIO: [(&str, &str); 12] = [
    ("LOG_LEVEL", "debug"),
    ("REDIS_SOCKET_TYPE", "tcp"),
    ("REDIS_URL", "<redis>"),
    ("USE_STATSD", "false"),
    ("RUNTIME_ROOT", "<root>"),
    ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ("RUNTIME_WATCH_ROOT", "false"),
    ("RUNTIME_IGNOREDOTFILES", "true"),
    ("HOST", "::"),
    ("GRPC_HOST", "::"),
    ("REDIS_PORT", "tcp://10.96.0.9:6379"),
    ("RATELIMIT_PORT_8081_TCP_ADDR", "10.96.0.10"),
];

/// The environment of the sample in envoyproxy/ratelimit's repository.
const ENVOY: [(&str, &str); 7] = [
    ("USE_STATSD", "false"),
    ("LOG_LEVEL", "debug"),
    ("REDIS_SOCKET_TYPE", "tcp"),
    ("REDIS_URL", "<redis>"),
    ("RUNTIME_ROOT", "<root>"),
    ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ("RUNTIME_WATCH_ROOT", "false"),
];

/// The rules of Istio's sample with a limit to fill in.
const RULES: &str = "
domain: echo-ratelimit
descriptors:
  - key: PATH
    value: \"/\"
    rate_limit:
      unit: minute
      requests_per_unit: LIMIT
  - key: PATH
    rate_limit:
      unit: minute
      requests_per_unit: 100
";

fn rules(limit: u32) -> String {
    RULES.replace("LIMIT", &limit.to_string())
}

/// Installs version `number` of the ConfigMap as the kubelet does: by renaming one link.
fn mount(folder: &Path, number: u32, text: &str) {
    let version = format!("..2026_{number}");
    create_dir_all(folder.join(&version)).expect("a folder");
    write(&folder.join(&version).join("config.yaml"), text);
    symlink(&version, folder.join("..data_tmp")).expect("a link");
    rename(folder.join("..data_tmp"), folder.join("..data")).expect("a rename");
    if number == 1 {
        symlink("..data/config.yaml", folder.join("config.yaml")).expect("a link");
    } else {
        remove_dir_all(folder.join(format!("..2026_{}", number - 1))).expect("the one before");
    }
}

/// A pod of a sample: the binary as `ratelimit`, its environment and its mounted rules.
struct Pod {
    process: Process,
    data: TempDir,
}

impl Pod {
    /// Starts the pod. Only the ports differ from the sample: fixed ports would collide on one
    /// machine.
    fn start(env: &[(&str, &str)], redis: &Server, text: &str) -> Pod {
        let data = TempDir::new().expect("a temporary folder");
        let config = data.path().join("ratelimit/config");
        create_dir_all(&config).expect("a folder");
        mount(&config, 1, text);
        let redis = redis.address().to_string();
        let root = data.path().display().to_string();
        let mut command = ratelimit(data.path());
        for (name, value) in env {
            command.env(name, value.replace("<redis>", &redis).replace("<root>", &root));
        }
        command.envs([("PORT", "0"), ("GRPC_PORT", "0"), ("DEBUG_PORT", "0")]);
        Pod { process: Process::spawn("ratelimit", command), data }
    }

    /// The port after `name=` in the log line with the addresses.
    fn port(&self, name: &str) -> u16 {
        self.process.wait_for("where it listens", |line| {
            let (_, rest) = line.split_once(&format!(" {name}="))?;
            let address: SocketAddr = rest.split_whitespace().next()?.parse().ok()?;
            Some(address.port())
        })
    }

    fn config(&self) -> PathBuf {
        self.data.path().join("ratelimit/config")
    }
}

/// `/bin/ratelimit` without arguments, as in an image.
fn ratelimit(folder: &Path) -> Command {
    let path = folder.join("ratelimit-bin");
    create_dir_all(&path).expect("a folder");
    symlink(env!("CARGO_BIN_EXE_weir"), path.join("ratelimit")).expect("a link");
    program(&path.join("ratelimit"))
}

/// The limit of `/`, read by a peek. A response of the fallback has none, so the peek is repeated.
fn limit(client: &Client) -> u32 {
    let mut limit = None;
    until("Redis answers a peek", || {
        let peek = costing(0, descriptor(&[("PATH", "/")]));
        let answer = client.check(request("echo-ratelimit", vec![peek]));
        limit = answer.statuses[0].current_limit.as_ref().map(|limit| limit.requests_per_unit);
        limit.is_some()
    });
    limit.unwrap_or(0)
}

/// The pod serves the sample's rules over IPv4 and IPv6, counts in the sample's Redis, names
/// ignored variables in one line, and follows the ConfigMap.
fn serves(sample: &[(&str, &str)]) {
    let _permit = shared();
    let redis = Server::listening(&[]);
    let pod = Pod::start(sample, &redis, &rules(1));
    let (grpc, http) = (pod.port("grpc"), pod.port("http"));
    let hosts: [SocketAddr; 2] =
        [(Ipv4Addr::LOCALHOST, http).into(), (Ipv6Addr::LOCALHOST, http).into()];
    for host in hosts {
        assert_eq!((get(host, "/healthcheck").status, get(host, "/readyz").status), (200, 200));
    }

    let client = Client::connect((Ipv6Addr::LOCALHOST, grpc).into());
    until("Redis counts", || {
        // Two hits in one call are over the limit in every minute.
        let check = costing(2, descriptor(&[("PATH", "/")]));
        let over = client.check(request("echo-ratelimit", vec![check])).overall_code();
        over == Code::OverLimit && redis.client().run(&["DBSIZE"]) != Reply::Integer(0)
    });
    let other =
        r#"{"domain":"echo-ratelimit","descriptors":[{"entries":[{"key":"PATH","value":"/x"}]}]}"#;
    let answer = post(hosts[0], "/json", other);
    assert_eq!(answer.status, 200);
    assert!(answer.body.contains("100"), "{}", answer.body);

    let output = pod.process.output();
    let ignored: Vec<&str> = output.lines().filter(|line| line.contains("no effect")).collect();
    assert_eq!(ignored.len(), 1, "{output}");
    assert!(ignored[0].contains("REDIS_SOCKET_TYPE"), "{output}");

    assert_eq!(limit(&client), 1);
    mount(&pod.config(), 2, &rules(7));
    until("the new ConfigMap is active", || limit(&client) == 7);
    mount(&pod.config(), 3, "domain: echo-ratelimit\ndescriptors:\n  - ky: PATH\n");
    pod.process.wait_for("what is wrong with the third", |line| {
        (line.contains("config.yaml:3:5") && line.contains("ky")).then_some(())
    });
    assert_eq!(limit(&client), 7, "a bad ConfigMap changes nothing");
}

#[test]
fn istio_sample_runs_with_only_the_image_changed() {
    serves(&ISTIO);
}

#[test]
fn envoy_sample_runs_with_only_the_image_changed() {
    serves(&ENVOY);
}
