//! Random valid inputs: requests that a proxy could send, and rule files that load.

use prost::Message;
use weir::proto::{Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest};

use super::rng::Rng;

/// Keys of the rules, and one without a rule.
const KEYS: [&str; 5] = ["a", "c", "u", "q", "none"];
/// Values that match exact rules, wildcards, or nothing.
const VALUES: [&str; 6] = ["b", "axb", "", "z", "\u{e9}\u{1f600}", "a,b=c"];
/// Hits at and over the bounds.
const HITS: [u64; 7] = [0, 1, 5, 11, u32::MAX as u64, (1 << 53) - 1, 1 << 53];

/// An encoded request.
pub(crate) fn protobuf(rng: &mut Rng) -> Vec<u8> {
    request(rng).encode_to_vec()
}

fn request(rng: &mut Rng) -> RateLimitRequest {
    RateLimitRequest {
        domain: (*rng.pick(&["d", "d", "d", "other"])).to_owned(),
        descriptors: (0..=rng.below(4)).map(|_| descriptor(rng)).collect(),
        hits_addend: if rng.one_in(2) { 0 } else { rng.next() as u32 },
    }
}

fn descriptor(rng: &mut Rng) -> RateLimitDescriptor {
    let text = |rng: &mut Rng, from: &[&str]| (*rng.pick(from)).to_owned();
    RateLimitDescriptor {
        entries: (0..rng.below(4))
            .map(|_| Entry { key: text(rng, &KEYS), value: text(rng, &VALUES) })
            .collect(),
        limit: rng.one_in(4).then(|| RateLimitOverride {
            requests_per_unit: rng.next() as u32,
            unit: 1 + rng.below(7) as i32,
        }),
        hits_addend: rng.one_in(3).then(|| *rng.pick(&HITS)),
        is_negative_hits: rng.one_in(4),
    }
}

/// A request as JSON, in camelCase or snake_case.
pub(crate) fn json(rng: &mut Rng) -> Vec<u8> {
    let request = request(rng);
    let snake = rng.one_in(2);
    let name = |camel: &'static str, other: &'static str| if snake { other } else { camel };
    let descriptor = |descriptor: &RateLimitDescriptor| {
        let entry = |entry: &Entry| serde_json::json!({ "key": entry.key, "value": entry.value });
        let entries: Vec<_> = descriptor.entries.iter().map(entry).collect();
        let mut object = serde_json::json!({ "entries": entries });
        if let Some(limit) = &descriptor.limit {
            object["limit"] = serde_json::json!({
                name("requestsPerUnit", "requests_per_unit"): limit.requests_per_unit,
                "unit": limit.unit,
            });
        }
        if let Some(hits) = descriptor.hits_addend {
            object[name("hitsAddend", "hits_addend")] = hits.to_string().into();
        }
        object[name("isNegativeHits", "is_negative_hits")] = descriptor.is_negative_hits.into();
        object
    };
    let descriptors: Vec<_> = request.descriptors.iter().map(descriptor).collect();
    let object = serde_json::json!({
        "domain": request.domain,
        "descriptors": descriptors,
        name("hitsAddend", "hits_addend"): request.hits_addend,
    });
    object.to_string().into_bytes()
}

/// A rule file with every kind of matcher and limit.
pub(crate) fn yaml(rng: &mut Rng) -> Vec<u8> {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    level(rng, 1, &mut text);
    text.into_bytes()
}

/// Nested descriptors. Their keys differ, so none is defined twice.
fn level(rng: &mut Rng, depth: usize, text: &mut String) {
    const MATCHERS: [&str; 6] = [
        "value: v",
        "value: \"*w*\"",
        "value_template: /{x}/t",
        "value_regex: '(?P<x>[a-z]+)r'",
        "value_cidr: 10.0.0.0/8",
        "shadow_mode: true",
    ];
    const LIMITS: [&str; 7] = [
        "{ unit: hour, requests_per_unit: 7 }",
        "{ unlimited: true }",
        "{ unit: second, unit_multiplier: 10, requests_per_unit: 1 }",
        "{ requests: 5, window: 1h30m }",
        "{ algorithm: sliding_window, tiers: [ { requests: 5, window: 1s }, { requests: 9, \
         window: 1m } ] }",
        "{ algorithm: token_bucket, requests_per_unit: 5, unit: second, burst: 9 }",
        "{ algorithm: concurrency, max: 5, hold: 30s }",
    ];
    let indent = "  ".repeat(2 * depth - 1);
    for index in 0..=rng.below(3) {
        *text += &format!("{indent}- key: k{index}\n{indent}  {}\n", rng.pick(&MATCHERS));
        if rng.one_in(2) {
            *text += &format!("{indent}  rate_limit: {}\n", rng.pick(&LIMITS));
        }
        if depth < 4 && rng.one_in(3) {
            *text += &format!("{indent}  descriptors:\n");
            level(rng, depth + 1, text);
        }
    }
}
