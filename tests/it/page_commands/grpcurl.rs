//! The part of grpcurl that the pages use: a gRPC call with JSON, by the definitions that reflection
//! serves.

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::Deserializer;

use crate::support::rls::{Client, RateLimitRequest};
use crate::support::weir::cli::Run;

/// Runs `grpcurl -plaintext -d JSON ADDRESS METHOD` with the service of `client` at the address.
/// Reflection itself is tested in services.rs.
pub(super) fn run(args: &[String], client: &Client) -> Run {
    let [plain, data, json, address, path] = args else { panic!("not expected: {args:?}") };
    let fixed = [plain, data, address].map(|word| word.as_str());
    assert_eq!(fixed, ["-plaintext", "-d", "localhost:8081"]);
    let (service, name) = path.split_once('/').expect("a service and a method");
    let pool = DescriptorPool::decode(weir::proto::DESCRIPTORS).expect("descriptors");
    let service = pool.get_service_by_name(service).expect("a service with reflection");
    let method = service.methods().find(|method| method.name() == name).expect("a method");
    assert_eq!(name, "ShouldRateLimit", "the client calls no other method");

    let request = DynamicMessage::deserialize(method.input(), &mut Deserializer::from_str(json));
    let request = request.unwrap_or_else(|error| panic!("{json}: {error}")).encode_to_vec();
    let request = RateLimitRequest::decode(&request[..]).expect("the same message");
    match client.try_check(request) {
        Ok(response) => {
            let bytes = response.encode_to_vec();
            let response = DynamicMessage::decode(method.output(), &bytes[..]).expect("a response");
            let stdout = serde_json::to_string_pretty(&response).expect("proto3 JSON");
            Run { code: Some(0), stdout, stderr: String::new() }
        }
        // grpcurl adds 64 to the code of the status.
        Err(status) => {
            let (code, stderr) = (64 + status.code() as i32, status.message().to_owned());
            Run { code: Some(code), stdout: String::new(), stderr }
        }
    }
}
