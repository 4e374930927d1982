//! gRPC reflection, in both versions: many tools still ask for the older one.

use tonic::service::Routes;
use tonic_reflection::server::Builder;

use crate::proto::DESCRIPTORS;

/// Adds both versions to `routes`.
pub(in crate::server) fn add_to(routes: Routes) -> Routes {
    let builder = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    const WHY: &str = "the descriptor sets come from the build";
    routes
        .add_service(builder().build_v1().expect(WHY))
        .add_service(builder().build_v1alpha().expect(WHY))
}
