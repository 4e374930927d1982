//! Envoy configurations of a concurrency limit: the examples and variations.

use crate::support::envoy::{NEWEST, OLDEST};

/// A configuration and the version of Envoy that runs it.
pub(crate) struct Form<'a> {
    pub(crate) version: &'a str,
    pub(crate) example: &'a str,
}

/// The example: a release with negative hits and its own metadata namespace.
pub(crate) const NEW: Form<'_> =
    Form { version: NEWEST, example: include_str!("../../../examples/envoy/concurrency.yaml") };

/// The example for older Envoys: the lease alone marks a release.
pub(crate) const OLD: Form<'_> = Form {
    version: OLDEST,
    example: include_str!("../../../examples/envoy/concurrency-1.36.yaml"),
};

/// The example without leases: one slot is taken, and one released at the end of every stream.
pub(crate) fn naive() -> String {
    let (before, rest) = NEW.example.split_once("- metadata:").expect("the lease's entry");
    let (_, after) = rest.split_once("hits_addend:").expect("the release's hits");
    let after = without(after, r#"format: "%DYNAMIC_METADATA(weir.lease:lease:n)%""#, "number: 1");
    format!("{}\n                      hits_addend:{after}", before.trim_end())
}

/// The example with its descriptors in the route's `rate_limits`, where Envoy has no hits.
pub(crate) fn classic() -> String {
    let namespace = "envoy.filters.http.ratelimit";
    let format = format!("format: \"%DYNAMIC_METADATA({namespace}:lease:n)%\"\n");
    let example = without(OLD.example, "hits_addend: { number: 1 }\n", "\n");
    let example = without(&example, &format, "\n");
    let example = without(&example, "hits_addend:\n", "\n");
    let (before, rest) = example.split_once("typed_per_filter_config:").expect("costs");
    let (_, limits) = rest.split_once("rate_limits:").expect("descriptors");
    format!("{before}  rate_limits:{limits}")
}

/// Replaces `part`, which must occur, by `other`.
fn without(text: &str, part: &str, other: &str) -> String {
    assert!(text.contains(part), "the example has no {part}");
    text.replace(part, other)
}
