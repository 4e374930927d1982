//! The samples of docs/start/clients.md in every language, as processes: with a weir, without one, and with a
//! server that never responds. `make grpc-clients` builds them.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::page_commands::text::root;
use crate::support::process::Process;
use crate::support::wait::until;
use crate::support::weir::Weir;
use crate::support::window_edge::within_a_minute;

/// A deadline that no call reaches, because a sample lets a request pass when a busy machine is late.
const UNHURRIED: Duration = Duration::from_secs(30);

/// A file that `make grpc-clients` writes.
fn built(name: &str) -> PathBuf {
    let path = root().join("target/grpc-clients").join(name);
    assert!(path.exists(), "there is no {}; run `make grpc-clients`", path.display());
    path
}

/// The sample in Rust, which cargo builds with the tests: beside the folder of this program.
fn example() -> PathBuf {
    let program = std::env::current_exe().expect("the path of this program");
    let folder = program.ancestors().nth(2).expect("the folder of the build");
    let path = folder.join("examples/client");
    assert!(path.exists(), "there is no {}; run `cargo build --example client`", path.display());
    path
}

/// The command of a sample, without its arguments.
fn sample(language: &str) -> Command {
    let (program, args) = match language {
        "go" => (built("go/client"), vec![]),
        "java" => ("java".into(), vec!["-jar".into(), built("java/target/client.jar")]),
        "node" => ("node".into(), vec![built("node/client.mjs")]),
        "python" => {
            let file = root().join("examples/clients/python/client.py");
            (built("python/bin/python"), vec!["-B".into(), file])
        }
        "rust" => (example(), vec![]),
        other => panic!("there is no sample in {other}"),
    };
    let mut command = Command::new(program);
    command.args(args).env("PYTHONPATH", built("stubs")).env("PROTO", root().join("proto"));
    command
}

/// What a sample has done.
struct Run {
    /// Its lines `pass` and `stop`.
    verdicts: Vec<String>,
    /// The reasons why its four requests have no decision, in lower case without `_`.
    reasons: Vec<String>,
    /// Everything that it has printed.
    output: String,
    took: Duration,
}

/// Runs a sample to its end. It fails if that takes longer than any event of a test may take.
fn run(language: &str, address: &str, deadline: Duration) -> Run {
    let mut command = sample(language);
    command.arg(address).arg(deadline.as_millis().to_string());
    // A proxy of the user has no part in the test.
    for variable in ["http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
        command.env_remove(variable);
    }
    let start = Instant::now();
    let mut process = Process::spawn(language, command);
    let status = process.wait_for_exit();
    let (took, output) = (start.elapsed(), process.output());
    assert!(status.success(), "{language}: {status}\n{output}");
    let verdicts = output.lines().filter(|line| ["pass", "stop"].contains(line));
    let reasons = output.lines().filter(|line| line.contains("no decision"));
    let reasons: Vec<String> = reasons.map(|line| line.to_lowercase().replace('_', "")).collect();
    // The first one would be that of the peek before the requests.
    let reasons = reasons[reasons.len().saturating_sub(4)..].to_vec();
    Run { verdicts: verdicts.map(str::to_owned).collect(), reasons, output, took }
}

/// The number of gRPC connections that weir has accepted.
fn connections(weir: &Weir) -> u64 {
    weir.metric("weir_connections_accepted_total", &["listener=\"grpc\""])
}

/// Three requests a minute pass, and the fourth does not. The sample uses one connection.
fn is_decided(language: &str) {
    within_a_minute(|| {
        let weir = Weir::example().start();
        let run = run(language, &weir.grpc.to_string(), UNHURRIED);
        assert_eq!(run.verdicts, ["pass", "pass", "pass", "stop"], "{}", run.output);
        assert_eq!(connections(&weir), 1, "{}", run.output);
    });
}

/// All requests pass, and the sample logs and counts the reason.
fn has_failed_open(run: &Run, reason: &str) {
    assert_eq!(run.verdicts, ["pass"; 4], "{}", run.output);
    assert_eq!(run.reasons.len(), 4, "{}", run.output);
    assert!(run.reasons.iter().all(|line| line.contains(reason)), "{}", run.output);
    assert!(run.output.contains("failures: "), "{}", run.output);
}

/// Calls to the address of a weir that is gone fail at once, and not at their deadline: four deadlines are
/// longer than the time of [`run`].
fn passes_without_weir(language: &str) {
    // A socket that does not listen refuses connections, and no other process gets its port.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
    let address = socket.local_addr().expect("a bound socket").as_socket().expect("an address");
    has_failed_open(&run(language, &address.to_string(), UNHURRIED), "unavailable");
}

/// Calls to a server that accepts connections and never responds end at their deadline.
fn passes_at_the_deadline(language: &str) {
    const DEADLINE: Duration = Duration::from_millis(250);
    // The kernel accepts connections.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = silent.local_addr().expect("a bound socket");
    let run = run(language, &address.to_string(), DEADLINE);
    has_failed_open(&run, "deadlineexceeded");
    assert!(run.took >= 4 * DEADLINE, "{:?}\n{}", run.took, run.output);
    silent.set_nonblocking(true).expect("a socket");
    silent.accept().expect("the sample has connected");
}

macro_rules! samples {
    ($($language:ident)*) => {$(
        mod $language {
            #[test]
            fn sample_is_decided() {
                super::is_decided(stringify!($language));
            }

            #[test]
            fn sample_passes_without_weir() {
                super::passes_without_weir(stringify!($language));
            }

            #[test]
            fn sample_passes_at_the_deadline() {
                super::passes_at_the_deadline(stringify!($language));
            }
        }
    )*};
}

samples!(go java node python rust);

/// With `round_robin`, a channel connects to all addresses. Of the samples, only that in Node accepts a list as it
/// is; the others would need a name with several addresses.
#[test]
fn a_sample_connects_to_every_weir() {
    let weirs = [Weir::example().start(), Weir::example().start()];
    let address = format!("ipv4:{},{}", weirs[0].grpc, weirs[1].grpc);
    let run = run("node", &address, UNHURRIED);
    assert_eq!(run.verdicts.len(), 4, "{}", run.output);
    assert!(run.reasons.is_empty(), "{}", run.output);
    for weir in &weirs {
        until("the sample has connected", || connections(weir) == 1);
    }
}

/// The tests of the handler in Go, of which one needs a weir.
#[test]
fn the_go_handler_asks_weir() {
    within_a_minute(|| {
        let weir = Weir::example().start();
        let mut command = Command::new(built("go-http/weirhttp.test"));
        command.arg("-test.v").env("WEIR", weir.grpc.to_string());
        let mut process = Process::spawn("the tests of the handler in Go", command);
        let status = process.wait_for_exit();
        let output = process.output();
        assert!(status.success(), "{output}");
        assert!(output.contains("--- PASS: TestAgainstWeir"), "{output}");
        assert!(!output.contains("--- SKIP"), "{output}");
    });
}

/// The libraries of Node and Rust have other versions.
#[test]
fn the_samples_use_one_version_of_grpc() {
    let read = |name: &str| {
        let path = root().join("examples/clients").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let python = read("python/requirements.txt");
    let version = python.lines().find_map(|line| line.strip_prefix("grpcio=="));
    let version = version.expect("a version of grpcio");
    let table = [
        ("python/requirements.txt", format!("grpcio-tools=={version}\n")),
        ("go/go.mod", format!("google.golang.org/grpc v{version}\n")),
        ("go-http/go.mod", format!("google.golang.org/grpc v{version}\n")),
        ("java/pom.xml", format!("<version>{version}</version>\n")),
    ];
    for (name, line) in table {
        assert!(read(name).contains(&line), "{name} has no {line}");
    }
}
