//! Decodes resources within bounds.

use prost::{DecodeError, Message};

use super::node::Total;
use super::{XDS_TEXT_BYTES_MAX, XDS_TYPE_URL, XdsResource};
use crate::escape::excerpt;
use crate::proto::ratelimit::config::ratelimit::v3::RateLimitConfig;
use crate::proto::wire::{self, Malformed, Value};
use crate::proto::xds::envoy::service::discovery::v3::DiscoveryResponse;
use crate::rules::excerpt::shorten;

/// What precedes the type in the URL of a type.
const TYPE_URL_START: &str = "type.googleapis.com/";

/// Most resources and descriptors per limit of `rules.xds.max_limits`. An empty descriptor has two
/// bytes, so the size of a response does not bound memory.
pub const XDS_DESCRIPTORS_PER_LIMIT: usize = 3;

/// Deepest nesting that is counted. prost decodes 100 levels at most, and rejects the rest.
const DEPTH_MAX: usize = 100;

/// Longest text of a decoding error, in characters.
const ERROR_CHARS_MAX: usize = 300;

/// The numbers of `name` and `domain` in a resource.
const NAME: u32 = 1;
const DOMAIN: u32 = 2;

/// The numbers of `descriptors` in a resource and in a descriptor.
const TOP_DESCRIPTORS: u32 = 3;
const CHILD_DESCRIPTORS: u32 = 4;

/// The numbers of `rate_limit` and `metadata` in a descriptor.
const RATE_LIMIT: u32 = 3;
const METADATA: u32 = 8;

/// The bytes of a limit or of metadata that count as one more descriptor, because both may have many
/// empty messages inside.
const BYTES_PER_COUNT: usize = 16;

/// Checks a response against the bounds before it is decoded.
pub(super) fn check_size(
    version: &str,
    resources: &[XdsResource<'_>],
    limits_max: usize,
) -> Result<(), String> {
    if version.len() > XDS_TEXT_BYTES_MAX {
        return Err(format!("a version of more than {XDS_TEXT_BYTES_MAX} bytes"));
    }
    let mut total = Total::default();
    for resource in resources {
        // A malformed resource has no more descriptors than were counted: decoding stops there.
        let _ = count_descriptors(resource.value, TOP_DESCRIPTORS, 0, &mut total);
    }
    check_total(&total, limits_max)
}

/// Checks the size of a response, or of all active rules by xDS, against the bounds.
pub(super) fn check_total(total: &Total, limits_max: usize) -> Result<(), String> {
    let descriptors_max = limits_max.saturating_mul(XDS_DESCRIPTORS_PER_LIMIT);
    let what = if total.limits > limits_max {
        format!("more than {limits_max} limits")
    } else if total.descriptors > descriptors_max {
        format!("more than {descriptors_max} resources and descriptors")
    } else {
        return Ok(());
    };
    Err(format!("{what} (`rules.xds.max_limits`)"))
}

/// Adds the message itself and every descriptor below it to `total`.
fn count_descriptors(
    mut message: &[u8],
    field: u32,
    depth: usize,
    total: &mut Total,
) -> Result<(), Malformed> {
    total.descriptors += 1;
    if depth == DEPTH_MAX {
        return Ok(());
    }
    while let Some((number, value)) = wire::next(&mut message)? {
        let Value::Bytes(below) = value else { continue };
        if number == field {
            count_descriptors(below, CHILD_DESCRIPTORS, depth + 1, total)?;
        } else if field == CHILD_DESCRIPTORS && matches!(number, RATE_LIMIT | METADATA) {
            total.descriptors += below.len() / BYTES_PER_COUNT;
            total.limits += usize::from(number == RATE_LIMIT);
        }
    }
    Ok(())
}

/// The name and the domain of a resource that cannot be decoded; `None` for what cannot be read.
pub(super) fn name_and_domain<'r>(
    resource: &XdsResource<'r>,
) -> (Option<&'r str>, Option<&'r str>) {
    let (mut name, mut domain) = (None, None);
    let mut message = if resource.type_url == XDS_TYPE_URL { resource.value } else { &[] };
    while let Ok(Some((number, value))) = wire::next(&mut message) {
        let Value::Bytes(bytes) = value else { continue };
        match number {
            NAME => name = std::str::from_utf8(bytes).ok(),
            DOMAIN => domain = std::str::from_utf8(bytes).ok(),
            _ => {}
        }
    }
    (name, domain.filter(|domain| !domain.is_empty()))
}

/// Decodes a response of a server.
pub(super) fn response(bytes: &[u8]) -> Result<DiscoveryResponse, String> {
    DiscoveryResponse::decode(bytes).map_err(|error| excerpt(&error.to_string(), ERROR_CHARS_MAX))
}

/// Decodes a resource. The errors contain the words of envoyproxy/ratelimit.
pub(super) fn config(resource: &XdsResource<'_>) -> Result<RateLimitConfig, String> {
    if resource.type_url != XDS_TYPE_URL {
        let got = shorten(resource.type_url);
        let want = XDS_TYPE_URL.trim_start_matches(TYPE_URL_START);
        return Err(format!("mismatched message type: got \"{got}\", want \"{want}\""));
    }
    // The text of the error has a part per level of the message.
    let short = |error: DecodeError| excerpt(&error.to_string(), ERROR_CHARS_MAX);
    RateLimitConfig::decode(resource.value)
        .map_err(|error| format!("cannot parse invalid wire-format data: {}", short(error)))
}
