//! The build script: turns `proto/*.proto` into Rust, without a `protoc` on the machine.
//!
//! It writes to `OUT_DIR`, with the packages as nested modules:
//!
//! - `protos.rs`: messages and clients of rate-limit services, of quota services (RLQS) and of gRPC health;
//! - `server/envoy.service.ratelimit.v3.rs` and `server/grpc.health.v1.rs`: the traits that a server
//!   implements. The server reads streams of quotas itself, so there is none for them;
//! - `descriptors.bin`: the encoded descriptor set of these services, for reflection and JSON;
//! - `xds/protos.rs`: messages of xDS servers. weir serves no xDS, so these are not in `descriptors.bin`.
//!   Its client has a codec that bounds responses, so none is generated.

use std::path::PathBuf;
use std::{env, fs};

use tonic_prost_build::configure;

const ROOT: &str = "proto";
const RATE_LIMIT: &str = "envoy/service/ratelimit/v3/rls.proto";
const QUOTAS: &str = "envoy/service/rate_limit_quota/v3/rlqs.proto";
const HEALTH: &str = "grpc/health/v1/health.proto";
const XDS: &[&str] =
    &["envoy/service/discovery/v3/ads.proto", "ratelimit/config/ratelimit/v3/rls_conf.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed={ROOT}");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let all = compiler(&[RATE_LIMIT, QUOTAS, HEALTH])?;
    fs::write(out.join("descriptors.bin"), all.encode_file_descriptor_set())?;
    configure()
        .bytes(".envoy")
        .btree_map(".envoy")
        .build_server(false)
        .include_file("protos.rs")
        .compile_fds(all.file_descriptor_set())?;
    let server = out.join("server");
    fs::create_dir_all(&server)?;
    // The server decodes requests itself, so its trait takes the bytes of the message.
    configure()
        .build_client(false)
        .extern_path(".envoy.service.ratelimit.v3.RateLimitRequest", "::bytes::Bytes")
        .extern_path(".envoy", "crate::proto::envoy")
        .codec_path("crate::server::grpc::tonic_services::RateLimitCodec")
        .out_dir(&server)
        .compile_fds(compiler(&[RATE_LIMIT])?.file_descriptor_set())?;
    configure()
        .build_client(false)
        .extern_path(".grpc", "crate::proto::grpc")
        .out_dir(&server)
        .compile_fds(compiler(&[HEALTH])?.file_descriptor_set())?;
    let xds = out.join("xds");
    fs::create_dir_all(&xds)?;
    configure()
        .build_client(false)
        .build_server(false)
        .out_dir(xds)
        .include_file("protos.rs")
        .compile_fds(compiler(XDS)?.file_descriptor_set())?;
    Ok(())
}

/// The definitions of `files` and of their imports.
fn compiler(files: &[&str]) -> Result<protox::Compiler, protox::Error> {
    let mut compiler = protox::Compiler::new([ROOT])?;
    compiler.include_imports(true).open_files(files)?;
    Ok(compiler)
}
