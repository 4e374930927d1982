//! The build script: turns `proto/*.proto` into Rust, without a `protoc` on the machine.
//!
//! It leaves two files in `OUT_DIR`: `protos.rs` (the packages as nested modules) and
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
        .include_file("protos.rs")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
