//! Metrics under envoyproxy/ratelimit's names, for its dashboards.
//!
//! envoyproxy/ratelimit writes dotted statsd names, which statsd_exporter maps: the first segments of
//! `domain.key_value.key_value` become labels, and deeper segments are summed. Two rules share a
//! line if their keys and values join to the same text, as in envoyproxy/ratelimit.

use std::collections::BTreeMap;

use super::decisions::Decisions;
use super::exposition::Exposition;
use super::outcomes::EnvoyRatelimitSnapshot;
use super::requests::Requests;
use super::rule_metrics::RuleMetrics;
use crate::histogram::Distribution;
use crate::rules::RuleSet;

/// The only counted method.
const METHOD: (&str, &str) = ("grpc_method", "ShouldRateLimit");

/// Upper bounds in seconds of statsd_exporter's buckets: the default of Prometheus clients.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The labels of a line: domain, first key, and second key.
type Names = (String, String, Option<String>);

/// Writes the metrics onto the page, with `rule_metrics` of `rules`. `loads`: successful and failed loads
/// of the rules.
pub fn expose(
    decisions: &Decisions,
    rules: &RuleSet,
    rule_metrics: &RuleMetrics,
    requests: &Requests,
    loads: (u64, u64),
    page: &mut Exposition,
) {
    hits(decisions, rules, rule_metrics, page);
    unknown_domains(decisions, page);
    page.counter(
        "ratelimit_service_global_shadow_mode",
        "Requests over their limit that passed in global shadow mode.",
    )
    .single(requests.shadowed());
    let fallbacks: u64 = rule_metrics.all().iter().flat_map(|one| one.snapshot().causes).sum();
    let fallbacks = fallbacks + decisions.overrides().causes.iter().sum::<u64>();
    page.counter(
        "ratelimit_service_should_rate_limit_error",
        "Errors by type. After a Redis error, the fallback decides.",
    )
    .sample(&[("err_type", "redis_error")], fallbacks)
    .sample(&[("err_type", "service_error")], requests.errors());
    page.counter("ratelimit_service_total_requests", "Requests for a decision.")
        .sample(&[METHOD], requests.total());
    page.histogram("ratelimit_service_response_time_seconds", "Duration of requests.")
        .sample(&[METHOD], coarse(requests.durations().distribution()));
    let (good, bad) = loads;
    page.counter("ratelimit_service_config_load_success", "Successful loads of rules.")
        .single(good);
    page.counter("ratelimit_service_config_load_error", "Failed loads of rules.").single(bad);
}

/// One counter per unknown domain. Its name has the domain, as in envoyproxy/ratelimit.
fn unknown_domains(decisions: &Decisions, page: &mut Exposition) {
    let series = decisions.client_named_series().into_iter();
    for (domain, descriptors) in series.flat_map(|series| series.unknown_domains()) {
        let name = format!("ratelimit_service_rate_limit_{domain}_domain_not_found");
        page.counter(name, "Descriptors of a domain that no file defines.").single(descriptors);
    }
}

/// The hits of rules, and of limits that requests carried.
fn hits(decisions: &Decisions, rules: &RuleSet, rule_metrics: &RuleMetrics, page: &mut Exposition) {
    let mut sums: BTreeMap<Names, EnvoyRatelimitSnapshot> = BTreeMap::new();
    let mut add = |dotted: &str, snapshot: EnvoyRatelimitSnapshot| {
        sums.entry(names(dotted)).or_default().add(&snapshot);
    };
    for (rule, series) in rules.rules().iter().zip(rule_metrics.all()) {
        if !rule_metrics.shows(series) {
            continue;
        }
        let (values, domain) = (series.values(), &series.domain);
        if values.is_empty() {
            let dotted = format!("{domain}.{}", rule.written_stat_key());
            add(&dotted, series.snapshot().envoy_ratelimit);
        }
        for (_, stat_key, snapshot) in values {
            add(&format!("{domain}.{stat_key}"), snapshot.envoy_ratelimit);
        }
    }
    for (dotted, snapshot) in decisions.client_named_series().iter().flat_map(|one| one.overrides())
    {
        add(&dotted, snapshot);
    }
    type HitsField = fn(&EnvoyRatelimitSnapshot) -> u64;
    let families: [(&str, &str, HitsField); 5] = [
        ("ratelimit_service_rate_limit_total_hits", "Hits of all requests.", |sum| sum.total_hits),
        ("ratelimit_service_rate_limit_within_limit", "Hits that passed.", |sum| sum.within_limit),
        ("ratelimit_service_rate_limit_near_limit", "Hits over four fifths of the limit.", |s| {
            s.near_limit
        }),
        ("ratelimit_service_rate_limit_over_limit", "Hits over the limit.", |s| s.over_limit),
        (
            "ratelimit_service_rate_limit_shadow_mode",
            "Hits over the limit in shadow mode.",
            |sum| sum.shadow_mode,
        ),
    ];
    for (name, help, field) in families {
        let family = page.counter(name, help);
        for ((domain, key1, key2), sum) in &sums {
            let mut labels = vec![("domain", domain.as_str()), ("key1", key1.as_str())];
            labels.extend(key2.as_deref().map(|key| ("key2", key)));
            family.sample(&labels, field(sum));
        }
    }
}

/// The labels of a domain and a stat key, joined by a dot. A dot of the domain or of a value starts
/// the next label, except a dot of an IPv4 address.
fn names(dotted: &str) -> Names {
    let text = without_address_dots(&dotted.replace([':', '|'], "_"));
    let mut parts = text.split('.').map(str::to_owned);
    let mut next = || parts.next();
    (next().unwrap_or_default(), next().unwrap_or_default(), next())
}

/// `text` with the dots of IPv4 addresses replaced by `_`.
fn without_address_dots(text: &str) -> String {
    let is_number = |part: &str| {
        (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let parts: Vec<&str> = text.split('.').collect();
    let mut written = String::with_capacity(text.len());
    let mut glued = 0;
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            written.push(if glued > 0 { '_' } else { '.' });
            glued = usize::saturating_sub(glued, 1);
        }
        written.push_str(part);
        // The first number may follow a key, and more text may follow the last.
        if glued == 0
            && let [a, b, c, d, ..] = parts[index..]
            && is_number(a.rsplit('_').next().unwrap_or(a))
            && is_number(b)
            && is_number(c)
            && is_number(d.split(|c: char| !c.is_ascii_digit()).next().unwrap_or(d))
        {
            glued = 3;
        }
    }
    written
}

/// The distribution in envoyproxy/ratelimit's buckets. Each of their bounds is also one of
/// [`Histogram`](crate::histogram::Histogram).
fn coarse(fine: Distribution) -> Distribution {
    let up_to = |end: f64| {
        let ours = fine.buckets.iter().rev().find(|(ours, _)| *ours <= end);
        (end, ours.map_or(0, |(_, count)| *count))
    };
    Distribution { buckets: BUCKETS.map(up_to).to_vec(), ..fine }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_keys_become_labels_as_in_statsd_exporter() {
        for (domain, stat_key, expected) in [
            ("d", "k", ("d", "k", None)),
            ("d", "k_v", ("d", "k_v", None)),
            ("d", "k_v.l_w", ("d", "k_v", Some("l_w"))),
            ("d", "k_v.l_w.m_x", ("d", "k_v", Some("l_w"))),
            ("d", "k_a:b|c", ("d", "k_a_b_c", None)),
            ("d.e", "k", ("d", "e", Some("k"))),
            ("d", "ip_10.0.0.1", ("d", "ip_10_0_0_1", None)),
            ("d", "ip_10.0.0.1.k_v", ("d", "ip_10_0_0_1", Some("k_v"))),
            ("d", "ip_10.0.0.0/8.k", ("d", "ip_10_0_0_0/8", Some("k"))),
            ("d", "v_1.2.3", ("d", "v_1", Some("2"))),
        ] {
            let (domain, first, second) = names(&format!("{domain}.{stat_key}"));
            assert_eq!((&*domain, &*first, second.as_deref()), expected, "{stat_key}");
        }
    }

    #[test]
    fn buckets_of_envoy_ratelimit_end_where_ours_do() {
        let histogram = crate::histogram::Histogram::default();
        for micros in [1, 5_000, 5_001, 2_500_000, 7_000_000] {
            histogram.record(crate::time::Micros(micros));
        }
        let seen = coarse(histogram.distribution());
        let counts: Vec<u64> = seen.buckets.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [2, 3, 3, 3, 3, 3, 3, 3, 4, 4, 5]);
        assert_eq!(seen.count, 5);
    }
}
