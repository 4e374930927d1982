//! The compose service of docs/start/migration.md, as a process: the entry point of the image with the
//! command and the variables of the service.

use std::fs::create_dir_all;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;

use serde_json::Value;
use tempfile::TempDir;

use super::text::{pages, root};
use crate::support::http::get;
use crate::support::process::Process;
use crate::support::weir::weir;
use crate::support::yaml;

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
