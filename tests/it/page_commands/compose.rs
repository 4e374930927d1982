//! The compose services of docs/start/migration.md and of examples/compose/memory.yaml, as processes: the
//! entry point of the image with the command and the variables of the service.

use std::fs::create_dir_all;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::text::{pages, root};
use crate::support::http::{get, get_with, post};
use crate::support::process::Process;
use crate::support::weir::{Weir, weir};
use crate::support::window_edge::within_a_minute;
use crate::support::yaml;

const IN_MEMORY: &str = include_str!("../../../examples/compose/memory.yaml");

/// The service on the page.
fn service() -> Value {
    let pages = pages();
    let page = pages.iter().find(|page| page.name == "docs/start/migration.md").expect("the page");
    let blocks = page.blocks();
    let block = blocks.iter().find(|block| block.language == "yaml").expect("a compose file");
    yaml::json(block.text)["services"]["ratelimit"].clone()
}

#[test]
fn the_migrated_compose_service_serves() {
    let service = service();
    let (volume, data) = (&service["volumes"][0], TempDir::new().expect("a temporary folder"));
    let (_, mounted) = volume.as_str().and_then(|text| text.split_once(':')).expect("a path");
    let here = data.path().join(mounted.trim_start_matches("/data/"));
    create_dir_all(here.parent().expect("a path in the folder")).expect("a new folder");
    symlink(root().join("examples/rules"), here).expect("a new link");

    let mut command = weir();
    command.arg(service["command"].as_str().expect("one word"));
    for variable in service["environment"].as_array().expect("a list") {
        let (name, value) = variable.as_str().and_then(|text| text.split_once('=')).expect("a=b");
        // No process listens on port 1 of loopback. weir starts without Redis.
        let value = value.replace("redis:6379", "127.0.0.1:1");
        command.env(name, value.replace("/data", &data.path().display().to_string()));
    }
    command.envs([("LOG_FORMAT", "json"), ("PORT", "0"), ("GRPC_PORT", "0"), ("DEBUG_PORT", "0")]);
    let process = Process::spawn("weir /bin/ratelimit", command);
    let admin: SocketAddr = process.wait_for("where it listens", |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        line["admin"].as_str()?.parse().ok()
    });
    assert!(admin.ip().is_unspecified(), "port 6070 can be published: {admin}");
    let rules = get(([127, 0, 0, 1], admin.port()).into(), "/rules");
    assert!(rules.body.contains("\"domain\":\"demo\""), "{}", rules.body);
}

/// The fourth call of the page within a minute is denied, and the token protects the counter.
#[test]
fn the_compose_service_in_memory_serves() {
    let service = yaml::json(IN_MEMORY)["services"]["weir"].clone();
    assert_eq!(service["command"], json!(["serve", "--rules", "/rules"]));
    assert_eq!(service["volumes"], json!(["../rules:/rules:ro"]));
    within_a_minute(|| {
        let mut setup = Weir::setup().rules_at(&root().join("examples/rules"));
        // The flags of the free ports override the addresses among the variables.
        for (name, value) in service["environment"].as_object().expect("a map") {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            setup = setup.env(name, &value);
        }
        let weir = setup.start();
        let entries = json!([{ "entries": [{ "key": "user", "value": "bob" }] }]);
        let body = json!({ "domain": "demo", "descriptors": entries }).to_string();
        let statuses = [(); 4].map(|()| post(weir.http, "/json", &body).status);
        assert_eq!(statuses, [200, 200, 200, 429]);
        let path = "/counters?domain=demo&descriptor=user=bob";
        assert_eq!(get(weir.admin, path).status, 403);
        let counter = get_with(weir.admin, path, &[("authorization", "Bearer try-it")]);
        assert_eq!(counter.json()["store"], "memory", "{}", counter.body);
    });
}
