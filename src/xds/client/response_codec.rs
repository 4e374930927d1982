//! Decodes the responses of the server, with a bound on their resources.

use bytes::Buf;
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use crate::proto::wire::{self, Value};
use crate::proto::xds::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};

/// The number of the field `resources` of a response.
const RESOURCES: u32 = 2;

/// The codec of a stream. An empty resource has two bytes, but takes far more memory once it is decoded, so
/// the size of a response does not bound its memory.
#[derive(Debug)]
pub(super) struct ResponseCodec {
    /// A response with more resources ends the stream.
    pub(super) resources_max: usize,
}

impl Codec for ResponseCodec {
    type Encode = DiscoveryRequest;
    type Decode = DiscoveryResponse;
    type Encoder = ProstEncoder<DiscoveryRequest>;
    type Decoder = ResponseDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> ResponseDecoder {
        ResponseDecoder { resources_max: self.resources_max }
    }
}

/// The decoder of a stream.
#[derive(Debug)]
pub(super) struct ResponseDecoder {
    resources_max: usize,
}

impl Decoder for ResponseDecoder {
    type Item = DiscoveryResponse;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<DiscoveryResponse>, Status> {
        let message = message.copy_to_bytes(message.remaining());
        response(&message, self.resources_max).map(Some)
    }
}

/// The response of a message. Its resources are counted before they are decoded.
fn response(message: &[u8], resources_max: usize) -> Result<DiscoveryResponse, Status> {
    let (mut rest, mut resources) = (message, 0);
    // Decoding stops at the same malformed field, and reports it.
    while let Ok(Some((field, value))) = wire::next(&mut rest) {
        resources += usize::from(field == RESOURCES && matches!(value, Value::Bytes(_)));
    }
    if resources > resources_max {
        let what = format!("a response with more than {resources_max} resources");
        return Err(Status::resource_exhausted(format!("{what} (`rules.xds.max_limits`)")));
    }
    DiscoveryResponse::decode(message).map_err(|error| Status::internal(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_types::Any;
    use tonic::Code;

    fn encoded(resources: usize) -> Vec<u8> {
        let resources = vec![Any::default(); resources];
        let (version_info, nonce) = ("7".to_owned(), "n".to_owned());
        DiscoveryResponse { version_info, resources, nonce, ..DiscoveryResponse::default() }
            .encode_to_vec()
    }

    #[test]
    fn the_number_of_resources_is_bounded() {
        for resources in [0, 1, 3] {
            let decoded = response(&encoded(resources), 3).expect("a response");
            assert_eq!(decoded.resources.len(), resources);
            assert_eq!((decoded.version_info.as_str(), decoded.nonce.as_str()), ("7", "n"));
        }
        for resources in [4, 1_000] {
            let error = response(&encoded(resources), 3).expect_err("too many");
            assert_eq!(error.code(), Code::ResourceExhausted);
            assert_eq!(
                error.message(),
                "a response with more than 3 resources (`rules.xds.max_limits`)"
            );
        }
    }

    #[test]
    fn malformed_bytes_are_an_error() {
        let mut bytes = encoded(2);
        bytes.extend_from_slice(b"\x12\x7f");
        assert_eq!(response(&bytes, 3).expect_err("malformed").code(), Code::Internal);
        // The resources before it count.
        assert_eq!(response(&bytes, 1).expect_err("too many").code(), Code::ResourceExhausted);
    }
}
