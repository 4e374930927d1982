//! Start and shutdown, and the errors that prevent them.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};

use crate::support::http::get;
use crate::support::process::Process;
use crate::support::rls::{descriptor, request};
use crate::support::weir::{Weir, weir, write};
use crate::support::window_edge::within_an_hour;

const GOOD: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 5 }
";

const BAD: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: fortnight, requests_per_unit: 5 }
  - ky: other
";

#[test]
fn bad_rules_at_the_start_are_all_listed_and_exit_64() {
    let (status, output) = Weir::setup().rules("bad.yaml", BAD).start_in_vain();
    assert_eq!(status.code(), Some(64), "{output}");
    for place in ["bad.yaml:5:25", "bad.yaml:6:5"] {
        assert!(output.contains(place), "no {place} in:\n{output}");
    }
}

#[test]
fn weir_can_start_without_rules() {
    for name in ["WEIR__RULES__START_WITHOUT_RULES", "FORCE_START_WITHOUT_INITIAL_CONFIG"] {
        let weir = Weir::setup().rules("bad.yaml", BAD).env(name, "true").start();
        let answer = weir.client().check(request("d", vec![descriptor(&[("user", "x")])]));
        assert_eq!(answer.statuses[0].current_limit, None, "{name}");
    }
}

#[test]
fn an_empty_folder_of_rules_limits_nothing() {
    let weir = Weir::setup().start();
    let answer = weir.client().check(request("d", vec![descriptor(&[("user", "x")])]));
    assert_eq!(answer.statuses.len(), 1);
    assert_eq!(answer.statuses[0].current_limit, None);
}

#[test]
fn a_wrong_setting_exits_64_and_names_it() {
    let settings = [
        ("WEIR__RESPONSE__HEADERS", "loud"),
        ("WEIR__RESPONSE__HEADRES", "off"),
        ("WEIR__STORE__TIMEOUT", "soon"),
        ("WEIR__STORE__KIND", "paper"),
    ];
    for (name, value) in settings {
        let setup = Weir::setup().rules("good.yaml", GOOD).env(name, value);
        let (status, output) = setup.start_in_vain();
        assert_eq!(status.code(), Some(64), "{name}={value}: {output}");
        let key = name.rsplit("__").next().expect("a name has parts");
        let named = output.to_ascii_uppercase().contains(key);
        assert!(named, "{key} is not named in:\n{output}");
    }
}

/// Variables of envoyproxy/ratelimit that weir must not ignore.
#[test]
fn unsupported_backends_and_rule_sources_exit_64() {
    for (name, value, fix) in [
        ("BACKEND_TYPE", "memcache", "write BACKEND_TYPE=redis and set REDIS_URL"),
        ("BACKEND_TYPE", "redis", "set REDIS_URL or redis.url"),
        ("CONFIG_TYPE", "ETCD", "write FILE or GRPC_XDS_SOTW"),
    ] {
        let setup = Weir::setup().rules_of_settings().env(name, value);
        let (status, output) = setup.start_in_vain();
        assert_eq!(status.code(), Some(64), "{output}");
        assert!(output.contains(&format!("{name}={value}: ")), "{output}");
        assert!(output.contains(fix), "{output}");
    }
}

#[test]
fn the_name_of_the_machine_does_not_stop_the_start() {
    let setup = Weir::setup().rules("good.yaml", GOOD).without_flag("--http-listen");
    let setup = setup.env("HOST", "my-laptop.local").env("PORT", "0");
    let weir = setup.start();
    assert_eq!(weir.http.ip(), Ipv6Addr::UNSPECIFIED);
}

#[test]
fn the_environment_overrides_the_settings_file() {
    within_an_hour(|| {
        let file = "response: { headers: ietf, shadow_mode: true }\n";
        let setup = || Weir::setup().rules("good.yaml", GOOD).file("weir.yaml", file);
        let names = |weir: &Weir| {
            let answer = weir.client().check(request("d", vec![descriptor(&[("user", "x")])]));
            let headers = answer.response_headers_to_add.into_iter();
            headers.map(|header| header.key.to_ascii_lowercase()).collect::<Vec<_>>()
        };
        let weir = setup().config("weir.yaml").start();
        assert!(names(&weir).contains(&"ratelimit-policy".to_owned()));
        let weir = setup().config("weir.yaml").env("WEIR__RESPONSE__HEADERS", "off").start();
        assert_eq!(names(&weir), [""; 0]);
    });
}

#[test]
fn a_misspelt_field_in_the_settings_file_is_refused() {
    let setup = Weir::setup().rules("good.yaml", GOOD);
    let setup = setup.file("weir.yaml", "response: { heders: ietf }\n").config("weir.yaml");
    let (status, output) = setup.start_in_vain();
    assert_eq!(status.code(), Some(64), "{output}");
    assert!(output.contains("heders"), "{output}");
}

/// The fields of the log line `listening`.
fn start_line(weir: &mut Weir) -> serde_json::Value {
    let line = weir.process().wait_for("where it listens", |line| {
        line.contains("\"listening\"").then(|| line.to_owned())
    });
    serde_json::from_str(&line).expect("a line of JSON")
}

#[test]
fn the_start_line_names_version_store_and_rules() {
    let setup = || Weir::setup().rules("good.yaml", GOOD);
    let mut weir = setup().start();
    let line = start_line(&mut weir);
    assert_eq!(line["version"], env!("CARGO_PKG_VERSION"), "{line}");
    assert_eq!(line["store"], "memory", "{line}");
    assert!(line.get("redis_url").is_none(), "{line}");
    assert_eq!(line["rules"], 1, "{line}");
    let folder = weir.rules_folder().display().to_string();
    assert!(line["paths"].as_str().is_some_and(|paths| paths.contains(&folder)), "{line}");
    // No process listens on port 1 of loopback. weir starts without Redis.
    let mut weir = setup().env("WEIR__REDIS__URL", "redis://u:hunter2@127.0.0.1:1").start();
    let line = start_line(&mut weir);
    assert_eq!(line["store"], "redis", "{line}");
    assert_eq!(line["redis_url"], "redis://u:***@127.0.0.1:1", "{line}");
}

#[test]
fn a_port_that_is_taken_is_named_and_exits_69() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("a bound address").to_string();
    let setup = Weir::setup().rules("good.yaml", GOOD).env("WEIR__GRPC__LISTEN", &address);
    let (status, output) = setup.without_flag("--grpc-listen").start_in_vain();
    assert_eq!(status.code(), Some(69), "{output}");
    assert!(output.contains(&address), "{output}");
}

#[test]
fn sigterm_exits_with_0() {
    let setup = Weir::setup().rules("good.yaml", GOOD).env("WEIR__DRAIN__DELAY", "0s");
    let mut weir = setup.start();
    assert_eq!(get(weir.http, "/healthcheck").status, 200);
    weir.process().terminate();
    let status = weir.process().wait_for_exit();
    assert!(status.success(), "{status}: {}", weir.process().output());
}

#[test]
fn a_closed_log_pipe_does_not_block_shutdown() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    write(&folder.path().join("good.yaml"), GOOD);
    let mut command = weir();
    command.args(["serve", "--rules"]).arg(folder.path());
    for listener in ["--grpc-listen", "--http-listen", "--admin-listen"] {
        command.args([listener, "127.0.0.1:0"]);
    }
    command.env("WEIR__DRAIN__DELAY", "0s").stderr(Stdio::piped());
    let mut child = command.spawn().expect("weir starts");
    let mut log = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains("listening") {
        line.clear();
        assert!(log.read_line(&mut line).expect("a log") > 0, "weir ends before it listens");
    }
    drop(log);
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().expect("kill").success());
    assert!(child.wait().expect("it ends").success());
}

/// `command: /bin/ratelimit` of a compose file replaces CMD and keeps ENTRYPOINT of the image.
#[test]
fn command_of_a_compose_file_starts_the_service() {
    let dockerfile = include_str!("../../Dockerfile");
    let entrypoint = dockerfile.lines().find_map(|line| line.strip_prefix("ENTRYPOINT "));
    let mut argv: Vec<String> =
        serde_json::from_str(entrypoint.expect("an entrypoint")).expect("in its exec form");
    argv.push("/bin/ratelimit".to_owned());
    assert_eq!(argv.remove(0), "/bin/weir");
    let root = tempfile::TempDir::new().expect("a temporary folder");
    std::fs::create_dir(root.path().join("config")).expect("a folder in a fresh folder");
    write(&root.path().join("config/good.yaml"), GOOD);
    let mut command = weir();
    command.args(argv).env("RUNTIME_ROOT", root.path()).env("LOG_FORMAT", "json");
    command.envs([("PORT", "0"), ("GRPC_PORT", "0"), ("DEBUG_PORT", "0"), ("HOST", "127.0.0.1")]);
    let process = Process::spawn("weir /bin/ratelimit", command);
    let started: serde_json::Value = process.wait_for("where it listens", |line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        (line["message"] == "listening").then_some(line)
    });
    assert_eq!(started["rules"], 1, "the rules are those of RUNTIME_ROOT: {started}");
    let http: SocketAddr = started["http"].as_str().expect("a text").parse().expect("an address");
    assert_eq!(http.ip(), Ipv4Addr::LOCALHOST, "HOST counts");
    assert_eq!(get(http, "/healthcheck").status, 200);
}
