//! examples/compose: the commands, variables and files of its services, as processes of this machine.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::envoy::upstream::Upstream;
use crate::support::envoy::{self, Envoy, NEWEST};
use crate::support::http::get_with;
use crate::support::on_redis::ready;
use crate::support::redis::server::Server;
use crate::support::schedule::shared;
use crate::support::weir::Weir;
use crate::support::window_edge::within_a_minute;
use crate::support::yaml;

const COMPOSE: &str = include_str!("../../examples/compose/compose.yaml");
const ENVOY: &str = include_str!("../../examples/compose/envoy.yaml");

/// The address of Redis in the example.
const REDIS: &str = "redis://valkey:6379";

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

/// One instance of the service `weir`, with `redis` instead of the service `valkey`, and free
/// ports.
fn instance(redis: &Server) -> Weir {
    let service = service("weir");
    let mounts = mounts(&service);
    let command = service["command"].as_array().expect("a list of words");
    assert_eq!(command[0], "serve", "the entry point of the image is the binary");
    // Waits for Redis, so that no fallback decides.
    let setup = Weir::setup().rules_of_settings().store_timeout("5s");
    let mut setup = setup.env("WEIR__READYZ__REQUIRE_STORE", "true");
    for word in &command[1..] {
        let word = text(word).replace(REDIS, &format!("redis://{}", redis.address()));
        let mounted = mounts.iter().find(|(inside, _)| *inside == word);
        setup = setup.arg(&mounted.map_or(word.clone(), |(_, here)| here.display().to_string()));
    }
    // The flags of the free ports override the addresses among the variables.
    for (name, value) in service["environment"].as_object().expect("a map") {
        setup = setup.env(name, &text(value));
    }
    let weir = setup.start();
    ready(&weir);
    weir
}

/// The Envoy of the example, with `instances` instead of the name that resolves to them.
fn proxy(instances: &[Weir], upstream: &Upstream) -> Envoy {
    // At its timeout, Envoy would let a request pass.
    let unhurried = ENVOY.replace("timeout: 0.1s", "timeout: 5s");
    let config = envoy::tuned(&unhurried, instances[0].grpc, upstream.address);
    let endpoint = |host: &str, port: u16| {
        let address = format!("{{ address: {host}, port_value: {port} }}");
        format!("{{ endpoint: {{ address: {{ socket_address: {address} }} }} }}")
    };
    let named = endpoint("weir", instances[0].grpc.port());
    assert!(config.contains(&named), "the cluster has moved:\n{config}");
    let all: Vec<String> =
        instances.iter().map(|weir| endpoint("127.0.0.1", weir.grpc.port())).collect();
    Envoy::start(NEWEST, &config.replace(&named, &all.join(", ")))
}

/// The limit of three per minute holds for both instances together, and both decide.
#[test]
fn compose_instances_share_the_limit() {
    let _permit = shared();
    let replicas = service("weir")["deploy"]["replicas"].as_u64().expect("a number");
    assert_eq!(replicas, 2);
    within_a_minute(|| {
        let redis = Server::listening(&[]);
        let upstream = Upstream::start();
        let instances: Vec<Weir> = (0..replicas).map(|_| instance(&redis)).collect();
        let envoy = proxy(&instances, &upstream);
        let statuses = [(); 4].map(|()| envoy.get("/", &[("x-user", "alice")]).status);
        assert_eq!(statuses, [200, 200, 200, 429]);
        for weir in &instances {
            let code = |code| weir.metric("weir_requests_total", &[code]);
            assert!(code("code=\"ok\"") + code("code=\"over_limit\"") > 0, "it decides");
            let authorization = [("authorization", "Bearer try-it")];
            let path = "/counters?domain=demo&descriptor=user=alice";
            let counter = get_with(weir.admin, path, &authorization);
            assert_eq!(counter.json()["store"], "redis", "{}", counter.body);
        }
    });
}

#[test]
fn compose_mounts_existing_files() {
    for name in ["weir", "envoy"] {
        let mounts = mounts(&service(name));
        assert!(!mounts.is_empty(), "{name} has no files");
        for (inside, here) in mounts {
            assert!(here.exists(), "{name}: {inside} is mounted from {}", here.display());
        }
    }
}
