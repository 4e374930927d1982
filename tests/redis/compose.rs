//! examples/compose: the commands, settings and files of its services, as processes of this machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::envoy::upstream::Upstream;
use crate::support::envoy::{self, Envoy, NEWEST};
use crate::support::http::{get, get_with};
use crate::support::on_redis::ready;
use crate::support::redis::ports::Port;
use crate::support::redis::server::Server;
use crate::support::schedule::shared;
use crate::support::wait::until;
use crate::support::weir::Weir;
use crate::support::weir::cli::run;
use crate::support::window_edge::within_a_minute;
use crate::support::yaml;

const COMPOSE: &str = include_str!("../../examples/compose/compose.yaml");
const SETTINGS: &str = include_str!("../../examples/compose/weir.yaml");
const ENVOY: &str = include_str!("../../examples/compose/envoy.yaml");

/// The folder of the example.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/compose")
}

/// The service `name` of the example.
fn service(name: &str) -> Value {
    yaml::json(COMPOSE)["services"][name].clone()
}

/// The text of a YAML value.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The words of the command of a service.
fn command(service: &Value) -> Vec<String> {
    service["command"].as_array().expect("a list of words").iter().map(text).collect()
}

/// The files that the service mounts: the path in the container, and the path here.
fn mounts(service: &Value) -> Vec<(String, PathBuf)> {
    let volumes = service["volumes"].as_array().into_iter().flatten();
    let mount = |volume: &Value| {
        let volume = text(volume);
        let [here, inside, "ro"] = volume.split(':').collect::<Vec<_>>()[..] else {
            panic!("{volume} is not HERE:INSIDE:ro");
        };
        (inside.to_owned(), folder().join(here))
    };
    volumes.map(mount).collect()
}

/// One instance of the service `weir`, with its listener of metrics.
struct Instance {
    weir: Weir,
    metrics: SocketAddr,
    _port: Port,
}

impl Instance {
    /// Starts the service with `redis` instead of the service `valkey`, with the mounted files, and
    /// with free ports.
    fn start(redis: &Server) -> Instance {
        let service = service("weir");
        let mounts = mounts(&service);
        let here = |inside: &str| -> String {
            let mounted = mounts.iter().find(|(path, _)| path == inside);
            mounted.map_or(inside.to_owned(), |(_, here)| here.display().to_string())
        };
        let settings = yaml::json(SETTINGS);
        assert_eq!(settings["redis"]["url"], "redis://valkey:6379");
        let rules = here(settings["rules"]["paths"][0].as_str().expect("a path"));

        let port = Port::take();
        let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()));
        // Variables and flags override the settings in the file. With the timeout, no fallback
        // decides on a busy machine.
        let mut setup = Weir::setup()
            .rules_of_settings()
            .store_timeout("5s")
            .env("WEIR__REDIS__URL", &format!("redis://{}", redis.address()))
            .env("WEIR__RULES__PATHS", &rules)
            .env("WEIR__METRICS__LISTEN", &metrics.to_string())
            .env("WEIR__READYZ__REQUIRE_STORE", "true");
        let command = command(&service);
        assert_eq!(command[0], "serve", "the entry point of the image is the binary");
        for word in &command[1..] {
            setup = setup.arg(&here(word));
        }
        let weir = setup.start();
        ready(&weir);
        Instance { weir, metrics, _port: port }
    }

    /// Whether it has decided a request.
    fn decides(&self) -> bool {
        let count = |code| self.weir.metric("weir_requests_total", &[code]);
        count("code=\"ok\"") + count("code=\"over_limit\"") > 0
    }
}

/// The Envoy of the example, with `instances` instead of the name that resolves to them.
fn proxy(instances: &[Instance], upstream: &Upstream) -> Envoy {
    // At its timeout, Envoy would let a request pass.
    let unhurried = ENVOY.replace("timeout: 0.1s", "timeout: 5s");
    let config = envoy::tuned(&unhurried, instances[0].weir.grpc, upstream.address);
    let endpoint = |host: &str, port: u16| {
        let address = format!("{{ address: {host}, port_value: {port} }}");
        format!("{{ endpoint: {{ address: {{ socket_address: {address} }} }} }}")
    };
    let named = endpoint("weir", instances[0].weir.grpc.port());
    assert!(config.contains(&named), "the cluster has moved:\n{config}");
    let ports = instances.iter().map(|instance| instance.weir.grpc.port());
    let all: Vec<String> = ports.map(|port| endpoint("127.0.0.1", port)).collect();
    Envoy::start(NEWEST, &config.replace(&named, &all.join(", ")))
}

/// The limit of three per minute holds for all instances together, and all decide.
#[test]
fn compose_instances_share_the_limit() {
    let _permit = shared();
    let replicas = service("weir")["deploy"]["replicas"].as_u64().expect("a number");
    assert_eq!(replicas, 3);
    within_a_minute(|| {
        let redis = Server::listening(&[]);
        let upstream = Upstream::start();
        let instances: Vec<Instance> = (0..replicas).map(|_| Instance::start(&redis)).collect();
        let envoy = proxy(&instances, &upstream);
        let statuses = [(); 4].map(|()| envoy.get("/", &[("x-user", "alice")]).status);
        assert_eq!(statuses, [200, 200, 200, 429]);
        until("every instance decides", || {
            envoy.get("/", &[("x-user", "bob")]);
            instances.iter().all(Instance::decides)
        });
        for Instance { weir, metrics, .. } in &instances {
            let authorization = [("authorization", "Bearer try-it")];
            let path = "/counters?domain=demo&descriptor=user=alice";
            let counter = get_with(weir.admin, path, &authorization);
            assert_eq!(counter.json()["store"], "redis", "{}", counter.body);
            assert_eq!(get(weir.admin, path).status, 403, "the token protects it");
            let page = get(*metrics, "/metrics").body;
            assert!(page.contains("\nweir_build_info{"), "Prometheus scrapes it: {page}");
        }
    });
}

/// The service `load`, for a shorter time: every call is decided.
#[test]
fn compose_load_is_decided() {
    let _permit = shared();
    let redis = Server::listening(&[]);
    let instance = Instance::start(&redis);
    let words = command(&service("load"));
    let shorter: Vec<String> = words
        .iter()
        .map(|word| match word.as_str() {
            "--addr=weir:8081" => format!("--addr={}", instance.weir.grpc),
            "--duration=3600" => "--duration=2".to_owned(),
            other => other.to_owned(),
        })
        .collect();
    let changed = words.iter().zip(&shorter).filter(|(before, after)| before != after).count();
    assert_eq!(changed, 2, "{words:?}");
    let mut args: Vec<&str> = shorter.iter().map(String::as_str).collect();
    args.extend(["--json", "--timeout", "30"]);
    let run = run(Path::new("."), &args);
    assert_eq!(run.code, Some(0), "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).expect("a report in JSON");
    assert!(report["over_limit"].as_u64() > Some(0), "some calls are over a limit: {report}");
    assert!(report["ok"].as_u64() > Some(0), "some calls are within all limits: {report}");
}

#[test]
fn compose_mounts_existing_files() {
    for name in ["weir", "envoy", "prometheus", "grafana"] {
        let mounts = mounts(&service(name));
        assert!(!mounts.is_empty(), "{name} has no files");
        for (inside, here) in mounts {
            assert!(here.exists(), "{name}: {inside} is mounted from {}", here.display());
        }
    }
}
