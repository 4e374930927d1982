//! Compressed calls of real gRPC clients: Python's grpcio, grpc-go, and Envoy.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use prost::Message;

use crate::support::envoy::upstream::Upstream;
use crate::support::envoy::{self, Envoy, NEWEST, OLDEST};
use crate::support::rls::{Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use crate::support::weir::Weir;
use crate::support::window_edge::within_an_hour;

const BASIC: &str = include_str!("../../examples/envoy/basic.yaml");

const RULES: &str = "
domain: demo
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 2 }
";

/// A request of about `bytes` equal bytes. Clients send a message uncompressed if it would not get
/// smaller.
fn request(bytes: usize) -> RateLimitRequest {
    let entries = vec![Entry { key: "user".into(), value: "v".repeat(bytes) }];
    let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
    RateLimitRequest { domain: "demo".into(), descriptors, hits_addend: 1 }
}

/// Runs a client and returns the code in its output, or the text of its error.
fn call(client: &[&str], weir: &Weir, request: &RateLimitRequest) -> Result<Code, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = root.join("target/grpc-clients").join(client[0]);
    assert!(program.exists(), "there is no {}; run `make grpc-clients`", program.display());
    let mut hex = String::new();
    for byte in request.encode_to_vec() {
        write!(hex, "{byte:02x}").expect("a String takes all");
    }
    let mut command = Command::new(program);
    command.args(&client[1..]).arg(weir.grpc.to_string()).arg(hex).current_dir(root);
    let output = command.output().expect("the client starts");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let hex = String::from_utf8(output.stdout).expect("hexadecimal text");
    let digits: Vec<char> = hex.trim().chars().collect();
    let bytes = digits.chunks(2).map(|pair| {
        u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("hexadecimal digits")
    });
    let response = RateLimitResponse::decode(&bytes.collect::<Vec<u8>>()[..]).expect("a response");
    Ok(response.overall_code())
}

/// Checks that the client gets a response and that its message is compressed. Only a compressed
/// message over the maximum fails while it is decompressed.
fn is_answered(client: &[&str]) {
    within_an_hour(|| {
        let setup = Weir::setup().rules("demo.yaml", RULES);
        let weir = setup.env("WEIR__GRPC__MAX_MESSAGE_BYTES", "1024").start();
        for expected in [Code::Ok, Code::Ok, Code::OverLimit] {
            assert_eq!(call(client, &weir, &request(500)), Ok(expected));
        }
        let error = call(client, &weir, &request(2000)).expect_err("over the maximum");
        assert!(error.contains("exceeded while decompressing message"), "{error}");
    });
}

#[test]
fn a_compressing_grpcio_client_is_answered() {
    is_answered(&["python/bin/python", "tests/it/gzip/grpcio.py"]);
}

#[test]
#[ignore = "needs Go; `make test-grpc-go` builds the client and runs this"]
fn a_compressing_grpc_go_client_is_answered() {
    is_answered(&["grpc-go"]);
}

/// The codes of three requests through an Envoy whose calls to weir carry `metadata`.
fn through_envoy(version: &str, metadata: &str) -> [u16; 3] {
    let weir = Weir::setup().rules("demo.yaml", RULES).start();
    let upstream = Upstream::start();
    let client = "envoy_grpc: { cluster_name: weir }";
    let with_metadata = format!("{client}\n                  initial_metadata: {metadata}");
    // A request that waits longer than the timeout of the filter passes, and is not counted. On a busy machine
    // the first one may wait longer than that of the example.
    let example = BASIC.replace(client, &with_metadata).replace("timeout: 0.1s", "timeout: 10s");
    let config = envoy::tuned(&example, weir.grpc, upstream.address);
    let envoy = Envoy::start(version, &config);
    [0; 3].map(|_| envoy.get("/", &[("x-user", "anna")]).status)
}

/// Envoy never compresses its calls. A plain call gets a plain answer, whatever it accepts.
#[test]
fn an_envoy_that_accepts_gzip_gets_plain_answers() {
    within_an_hour(|| {
        for version in [NEWEST, OLDEST] {
            let metadata = "[ { key: grpc-accept-encoding, value: gzip } ]";
            assert_eq!(through_envoy(version, metadata), [200, 200, 429], "{version}");
        }
    });
}

/// Envoy cannot read a compressed answer. It fails open, as if weir were down.
#[test]
fn an_envoy_that_claims_gzip_fails_open() {
    let metadata = "[ { key: grpc-encoding, value: gzip }, \
                    { key: grpc-accept-encoding, value: gzip } ]";
    within_an_hour(|| {
        for version in [NEWEST, OLDEST] {
            assert_eq!(through_envoy(version, metadata), [200, 200, 200], "{version}");
        }
    });
}
