//! Metrics of the client of a server that sends rules by xDS.

use crate::telemetry::Exposition;
use crate::time::Micros;
use crate::xds::{StreamEnd, XdsStatus};

/// Most characters of the version in its label.
const VERSION_MAX: usize = 64;

pub(super) fn expose(status: &XdsStatus, now: Micros, page: &mut Exposition) {
    let help = "1 while a connection to the xDS server is open on which it has sent bytes, else 0.";
    page.gauge("weir_xds_connected", help).single(u64::from(status.is_connected()));
    let help = "1 if the last response of the xDS server was accepted, or none has come. 0 if it \
                was rejected.";
    page.gauge("weir_xds_last_update_successful", help)
        .single(u64::from(status.is_last_accepted()));
    let (kept, dropped) = status.faulty_parts();
    let help = "Parts of the last response of the xDS server that have errors and keep an older \
                version.";
    page.gauge("weir_xds_kept_parts", help).single(kept as u64);
    let help = "Parts of the last response of the xDS server that have errors and no older \
                version: they are left out.";
    page.gauge("weir_xds_dropped_parts", help).single(dropped as u64);
    let updated = status.updated();
    let help = "When the xDS server last sent rules, in seconds since the epoch. With rules of the \
                cache, when the server had sent them.";
    let family = page.gauge("weir_xds_last_update_timestamp_seconds", help);
    if let Some(at) = updated {
        family.single(at.0 as f64 / 1e6);
    }
    let help = "Time since the xDS server last sent rules.";
    let family = page.gauge("weir_xds_rules_age_seconds", help);
    if let Some(at) = updated {
        family.single(now.saturating_sub(at).0 as f64 / 1e6);
    }
    let help = "1 while the rules of the xDS cache are active: the server has sent none yet.";
    page.gauge("weir_xds_rules_from_cache", help).single(u64::from(status.is_from_cache()));
    let help = "1 if the xDS cache has the active rules, or there is no cache. 0 while they are \
                not written.";
    page.gauge("weir_xds_cache_current", help).single(u64::from(status.is_cache_current()));
    let help = "1, with the version of the last response of the xDS server. Parts with errors may \
                have an older one.";
    let family = page.gauge("weir_xds_version_info", help);
    if let Some(version) = status.version() {
        let shown: String = version.chars().take(VERSION_MAX).collect();
        family.sample(&[("version", &shown)], 1);
    }
    let help = "When the certificate for the xDS server expires, in seconds since the epoch; 0 \
                without one.";
    page.gauge("weir_xds_tls_certificate_expiry_timestamp_seconds", help)
        .single(status.certificate_expiry());
    let (accepted, rejected) = status.updates();
    let help =
        "Updates of the xDS server, by result. A response with equal content is not counted.";
    page.counter("weir_xds_updates_total", help)
        .sample(&[("result", "accepted")], accepted)
        .sample(&[("result", "rejected")], rejected);
    let help = "Rejections (NACK) sent to the xDS server, also of content that it sent again.";
    page.counter("weir_xds_nacks_total", help).single(status.nacks());
    let help = "Ended streams and failed connection attempts to the xDS server, by reason.";
    let family = page.counter("weir_xds_stream_ends_total", help);
    for end in StreamEnd::ALL {
        family.sample(&[("reason", end.name())], status.stream_ends(end));
    }
}
