//! gRPC reflection in the versions v1 and v1alpha. Many tools still use v1alpha.

use tonic::codec::CompressionEncoding;
use tonic::service::Routes;
use tonic_reflection::server::Builder;

use crate::proto::DESCRIPTORS;
use crate::server::grpc::memory::inbox::SMALL_REQUEST_MAX;

/// Adds both versions of reflection to `routes`.
pub(super) fn add_to(routes: Routes) -> Routes {
    let builder = || Builder::configure().register_encoded_file_descriptor_set(DESCRIPTORS);
    const WHY: &str = "the descriptor set comes from the build";
    let v1 = builder().build_v1().expect(WHY);
    let v1alpha = builder().build_v1alpha().expect(WHY);
    routes
        .add_service(
            v1.accept_compressed(CompressionEncoding::Gzip)
                .send_compressed(CompressionEncoding::Gzip)
                .max_decoding_message_size(SMALL_REQUEST_MAX),
        )
        .add_service(
            v1alpha
                .accept_compressed(CompressionEncoding::Gzip)
                .send_compressed(CompressionEncoding::Gzip)
                .max_decoding_message_size(SMALL_REQUEST_MAX),
        )
}
