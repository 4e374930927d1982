//! The ways to write a concurrency limit for Envoy: the examples, and what becomes of other ways.

use crate::support::envoy::{NEWEST, OLDEST};

/// A config, and the Envoy that runs it.
pub(crate) struct Form<'a> {
    pub(crate) version: &'a str,
    pub(crate) example: &'a str,
}

/// The example: a release with negative hits, out of a namespace of its own.
pub(crate) const NEW: Form<'_> =
    Form { version: NEWEST, example: include_str!("../../../examples/envoy/concurrency.yaml") };

/// What an older Envoy can say: the lease alone makes a release of it.
pub(crate) const OLD: Form<'_> = Form {
    version: OLDEST,
    example: include_str!("../../../examples/envoy/concurrency-1.36.yaml"),
};

/// The example without its leases: one is taken, and one given back at the end of every stream.
pub(crate) fn naive() -> String {
    let (before, rest) = NEW.example.split_once("- metadata:").expect("the lease's entry");
    let (_, after) = rest.split_once("hits_addend:").expect("the release's hits");
    let after = without(after, r#"format: "%DYNAMIC_METADATA(weir.lease:lease:n)%""#, "number: 1");
    format!("{}\n                      hits_addend:{after}", before.trim_end())
}

/// The example with its descriptors in the route's own `rate_limits`, where Envoy knows no costs.
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

/// `text` with `part`, which is there, exchanged for `other`.
fn without(text: &str, part: &str, other: &str) -> String {
    assert!(text.contains(part), "the example has no {part}");
    text.replace(part, other)
}
