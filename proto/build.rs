//! The build script: turns `proto/*.proto` into Rust, without a `protoc` on the machine.
//!
//! It writes three files to `OUT_DIR`: `protos.rs` (messages and client, the packages as nested
//! modules), `server/envoy.service.ratelimit.v3.rs` (the trait that a server implements), and
//! `descriptors.bin` (the encoded descriptor set, for reflection and for JSON).

use std::path::PathBuf;
use std::{env, fs};

use tonic_prost_build::configure;

const ROOT: &str = "proto";
const FILES: [&str; 1] = ["envoy/service/ratelimit/v3/rls.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed={ROOT}");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut compiler = protox::Compiler::new([ROOT])?;
    compiler.include_imports(true).open_files(FILES)?;
    fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    configure()
        .bytes(".envoy")
        .build_server(false)
        .include_file("protos.rs")
        .compile_fds(compiler.file_descriptor_set())?;
    // The server decodes requests itself, so its trait takes the bytes of the message.
    let server = out.join("server");
    fs::create_dir_all(&server)?;
    configure()
        .build_client(false)
        .extern_path(".envoy.service.ratelimit.v3.RateLimitRequest", "::bytes::Bytes")
        .extern_path(".envoy", "crate::proto::envoy")
        .codec_path("crate::server::grpc::tonic_services::RateLimitCodec")
        .out_dir(server)
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
