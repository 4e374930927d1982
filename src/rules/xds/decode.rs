//! Decodes resources within bounds.

use prost::{DecodeError, Message};

use super::XdsResource;
use crate::escape::excerpt;
use crate::proto::ratelimit::config::ratelimit::v3::RateLimitConfig;
use crate::proto::wire::{self, Malformed, Value};
use crate::rules::excerpt::shorten;

/// The type of all resources.
const TYPE: &str = "ratelimit.config.ratelimit.v3.RateLimitConfig";

/// What precedes a type in a URL of a type.
const TYPE_URL_START: &str = "type.googleapis.com/";

/// Most bytes of the resources of one response.
pub(super) const BYTES_MAX: usize = 64 << 20;

/// Most resources and descriptors of one response, and of all active rules by xDS. An empty
/// descriptor has two bytes, so the bound of bytes does not bound memory.
pub(super) const DESCRIPTORS_MAX: usize = 1_000_000;

/// Deepest nesting that is counted. prost decodes 100 levels at most, and rejects the rest.
const DEPTH_MAX: usize = 100;

/// Longest text of a decoding error, in characters.
const ERROR_CHARS_MAX: usize = 300;

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
pub(super) fn check_size(resources: &[XdsResource<'_>]) -> Result<(), String> {
    let bytes: usize = resources.iter().map(|resource| resource.value.len()).sum();
    if bytes > BYTES_MAX {
        return Err(format!("resources of more than {} MiB in one response", BYTES_MAX >> 20));
    }
    let mut count = 0;
    for resource in resources {
        // A malformed resource has no more descriptors than were counted: decoding stops there.
        let _ = count_descriptors(resource.value, TOP_DESCRIPTORS, 0, &mut count);
    }
    check_count(count)
}

/// Checks a number of resources and descriptors against the bound.
pub(super) fn check_count(count: usize) -> Result<(), String> {
    if count <= DESCRIPTORS_MAX {
        return Ok(());
    }
    Err(format!("more than {DESCRIPTORS_MAX} resources and descriptors"))
}

/// Adds the message itself and every descriptor below it to `count`.
fn count_descriptors(
    mut message: &[u8],
    field: u32,
    depth: usize,
    count: &mut usize,
) -> Result<(), Malformed> {
    *count += 1;
    if depth == DEPTH_MAX {
        return Ok(());
    }
    while let Some((number, value)) = wire::next(&mut message)? {
        let Value::Bytes(below) = value else { continue };
        if number == field {
            count_descriptors(below, CHILD_DESCRIPTORS, depth + 1, count)?;
        } else if field == CHILD_DESCRIPTORS && matches!(number, RATE_LIMIT | METADATA) {
            *count += below.len() / BYTES_PER_COUNT;
        }
    }
    Ok(())
}

/// Decodes a resource. The errors contain the words of envoyproxy/ratelimit.
pub(super) fn config(resource: &XdsResource<'_>) -> Result<RateLimitConfig, String> {
    if resource.type_url.strip_prefix(TYPE_URL_START) != Some(TYPE) {
        let got = shorten(resource.type_url);
        return Err(format!("mismatched message type: got \"{got}\", want \"{TYPE}\""));
    }
    // The text of the error has a part per level of the message.
    let short = |error: DecodeError| excerpt(&error.to_string(), ERROR_CHARS_MAX);
    RateLimitConfig::decode(resource.value)
        .map_err(|error| format!("cannot parse invalid wire-format data: {}", short(error)))
}
