//! Metrics of the listeners, their connections and their calls, as atomic counts.

use crate::atomic_count::AtomicCount;
use crate::telemetry::Exposition;

/// The bytes of a part of `grpc.max_client_memory`.
#[derive(Debug, Default)]
pub struct PartMemory {
    /// Bytes held now.
    pub held: AtomicCount,
    /// The maximum.
    pub max: AtomicCount,
}

/// The memory that clients of the gRPC listener make the process hold, by part. The memory budget
/// decides by these counts.
#[derive(Debug, Default)]
pub struct ClientMemory {
    /// Connections, each at a fixed cost.
    pub connections: PartMemory,
    /// What connections buffer in addition.
    pub buffers: PartMemory,
    /// Calls that wait for their client.
    pub waiting: PartMemory,
    /// Calls that wait for their decision.
    pub deciding: PartMemory,
}

/// Metrics of one listener.
#[derive(Debug, Default)]
pub struct ListenerMetrics {
    /// Connections accepted.
    pub accepted: AtomicCount,
    /// Connections open now.
    pub open: AtomicCount,
    /// Open connections that wait for their client: for TLS and the preface (gRPC), or for a
    /// request.
    pub waiting: AtomicCount,
    /// Connections closed for a new one, because a maximum was reached: waiting ones, or those of an
    /// address with most of all.
    pub evicted: AtomicCount,
    /// Connections closed at once because the listener had its maximum of open connections.
    pub refused_total: AtomicCount,
    /// Connections closed at once because the client address had its maximum of open connections.
    pub refused_peer: AtomicCount,
}

/// Metrics of all listeners and their connections.
#[derive(Debug, Default)]
pub struct ServerMetrics {
    /// Metrics of the gRPC listener.
    pub grpc: ListenerMetrics,
    /// Metrics of the HTTP listener.
    pub http: ListenerMetrics,
    /// Metrics of the admin listener.
    pub admin: ListenerMetrics,
    /// Metrics of the metrics listener.
    pub metrics: ListenerMetrics,
    /// TLS handshakes that succeeded.
    pub tls_accepted: AtomicCount,
    /// TLS handshakes that failed: no TLS, an untrusted certificate, no common version.
    pub tls_failed: AtomicCount,
    /// Reloads of TLS files that succeeded.
    pub tls_reloaded: AtomicCount,
    /// Reloads of TLS files that failed.
    pub tls_reload_failed: AtomicCount,
    /// Expiry of the active certificate, in seconds since 1970; 0 without TLS.
    pub tls_expiry: AtomicCount,
    /// Connections that did not finish TLS and the HTTP/2 preface in time.
    pub handshake_timeout: AtomicCount,
    /// Connections closed because the headers of a call were incomplete for `grpc.call_timeout`.
    pub headers_timeout: AtomicCount,
    /// Connections closed because the client did not read for `grpc.write_timeout`.
    pub write_timeout: AtomicCount,
    /// Connections closed because the client did not answer a ping in time.
    pub keepalive_timeout: AtomicCount,
    /// Connections closed for too many resets, control frames or CONTINUATION frames, for a push, or
    /// for a header without a name.
    pub flood: AtomicCount,
    /// Connections closed for another violation of HTTP/2.
    pub protocol_error: AtomicCount,
    /// Connections that got GOAWAY because of their age.
    pub aged: AtomicCount,
    /// Connections that got GOAWAY because they were idle.
    pub idle: AtomicCount,
    /// Connections closed at the end of their grace period.
    pub grace_expired: AtomicCount,
    /// Calls that were reset at `grpc.call_timeout`.
    pub call_timeout: AtomicCount,
    /// Calls rejected because their message exceeded `grpc.max_message_bytes`, as it was sent, and quota
    /// streams with a report over `rlqs.max_message_bytes`.
    /// Messages that exceed it only after decompression are not counted.
    pub message_too_large: AtomicCount,
    /// Calls rejected at `grpc.max_client_memory`. Those that the fallback decides are not counted.
    pub memory_full: AtomicCount,
    /// Health watches, reflection calls and quota streams rejected: too many, or too large.
    pub streaming_refused: AtomicCount,
    /// The memory that clients hold.
    pub client_memory: ClientMemory,
    /// gRPC connections closed because their address buffered most, and the memory was used.
    pub memory_evicted: AtomicCount,
    /// HTTP requests whose head or body was sent too slowly, or whose response was read too slowly.
    pub http_timeout: AtomicCount,
    /// HTTP requests whose head or body was too large. A body that ends early is not counted.
    pub http_too_large: AtomicCount,
    /// HTTP requests refused because too many large requests and responses were open.
    pub http_busy: AtomicCount,
    /// Open streams of the live page.
    pub live_viewers: AtomicCount,
    /// Events that were rendered for the live page.
    pub live_events: AtomicCount,
}

impl ServerMetrics {
    /// Writes all metrics to `page`.
    pub fn expose(&self, page: &mut Exposition) {
        let ports = [
            ("grpc", &self.grpc),
            ("http", &self.http),
            ("admin", &self.admin),
            ("metrics", &self.metrics),
        ];
        let help = "Open connections of each listener.";
        let family = page.gauge("weir_connections_open", help);
        for (listener, port) in ports {
            family.sample(&[("listener", listener)], port.open.get());
        }
        let family = page.gauge(
            "weir_connections_waiting",
            "Open connections that wait for their client: for TLS and the HTTP/2 preface (grpc), \
             or for a request.",
        );
        for (listener, port) in ports {
            family.sample(&[("listener", listener)], port.waiting.get());
        }
        let help = "Connections that each listener has accepted.";
        let family = page.counter("weir_connections_accepted_total", help);
        for (listener, port) in ports {
            family.sample(&[("listener", listener)], port.accepted.get());
        }
        let help = "Connections closed for a new one at a maximum of open connections.";
        let family = page.counter("weir_connections_evicted_total", help);
        for (listener, port) in ports {
            family.sample(&[("listener", listener)], port.evicted.get());
        }
        let family = page.counter(
            "weir_connections_refused_total",
            "Connections closed at once: over the maximum of the listener (total) or of one client \
             address (peer), and no other connection could be closed.",
        );
        for (listener, port) in ports {
            for (reason, count) in [("total", &port.refused_total), ("peer", &port.refused_peer)] {
                family.sample(&[("listener", listener), ("reason", reason)], count.get());
            }
        }
        self.expose_grpc(page);
        let help = "Open streams of the live page.";
        page.gauge("weir_live_viewers", help).single(self.live_viewers.get());
        let help = "Events rendered for the live page, each one for all viewers.";
        page.counter("weir_live_events_total", help).single(self.live_events.get());
        let family = page.counter(
            "weir_http_requests_aborted_total",
            "HTTP requests ended by weir because they or their responses were too slow (timeout), \
             because they were too large (too_large), or because too many large ones were open \
             (busy).",
        );
        for (reason, count) in [
            ("timeout", &self.http_timeout),
            ("too_large", &self.http_too_large),
            ("busy", &self.http_busy),
        ] {
            family.sample(&[("reason", reason)], count.get());
        }
    }

    fn expose_grpc(&self, page: &mut Exposition) {
        let help = "TLS handshakes of the gRPC listener, by result.";
        let family = page.counter("weir_grpc_tls_handshakes_total", help);
        for (result, count) in [("ok", &self.tls_accepted), ("failed", &self.tls_failed)] {
            family.sample(&[("result", result)], count.get());
        }
        let help = "Reloads of the changed TLS files of the gRPC listener, by result.";
        let family = page.counter("weir_grpc_tls_reloads_total", help);
        for (result, count) in [("ok", &self.tls_reloaded), ("failed", &self.tls_reload_failed)] {
            family.sample(&[("result", result)], count.get());
        }
        let help =
            "Expiry of the gRPC listener's certificate, in seconds since 1970; 0 without TLS.";
        page.gauge("weir_grpc_tls_certificate_expiry_timestamp_seconds", help)
            .single(self.tls_expiry.get());
        let family = page.counter(
            "weir_grpc_connections_ended_total",
            "gRPC connections that weir closed, at once or with GOAWAY, by reason.",
        );
        for (reason, count) in [
            ("handshake_timeout", &self.handshake_timeout),
            ("headers_timeout", &self.headers_timeout),
            ("write_timeout", &self.write_timeout),
            ("keepalive_timeout", &self.keepalive_timeout),
            ("flood", &self.flood),
            ("protocol_error", &self.protocol_error),
            ("age", &self.aged),
            ("idle", &self.idle),
            ("grace_expired", &self.grace_expired),
            ("memory", &self.memory_evicted),
        ] {
            family.sample(&[("reason", reason)], count.get());
        }
        self.expose_memory(page);
        let family = page.counter(
            "weir_grpc_calls_aborted_total",
            "gRPC calls rejected or reset by weir: over the call timeout (timeout), the message \
             size (too_large), grpc.max_client_memory (memory), the number or size of health \
             watches and reflection calls, or the number of quota streams (streams).",
        );
        for (reason, count) in [
            ("timeout", &self.call_timeout),
            ("too_large", &self.message_too_large),
            ("memory", &self.memory_full),
            ("streams", &self.streaming_refused),
        ] {
            family.sample(&[("reason", reason)], count.get());
        }
    }

    fn expose_memory(&self, page: &mut Exposition) {
        let ClientMemory { connections, buffers, waiting, deciding } = &self.client_memory;
        let parts = [
            ("connections", connections),
            ("buffers", buffers),
            ("waiting", waiting),
            ("deciding", deciding),
        ];
        let help = "Memory that gRPC clients hold, by part of grpc.max_client_memory.";
        let family = page.gauge("weir_grpc_client_memory_bytes", help);
        for (part, metrics) in parts {
            family.sample(&[("part", part)], metrics.held.get());
        }
        let help = "Maximum of each part of grpc.max_client_memory.";
        let family = page.gauge("weir_grpc_client_memory_max_bytes", help);
        for (part, metrics) in parts {
            family.sample(&[("part", part)], metrics.max.get());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_exposed() {
        let all_metrics = ServerMetrics::default();
        // No `..`: the compiler reports a new field that is missing here.
        let ServerMetrics {
            grpc,
            http,
            admin,
            metrics,
            tls_accepted,
            tls_failed,
            tls_reloaded,
            tls_reload_failed,
            tls_expiry,
            handshake_timeout,
            headers_timeout,
            write_timeout,
            keepalive_timeout,
            flood,
            protocol_error,
            aged,
            idle,
            grace_expired,
            call_timeout,
            message_too_large,
            memory_full,
            streaming_refused,
            client_memory,
            memory_evicted,
            http_timeout,
            http_too_large,
            http_busy,
            live_viewers,
            live_events,
        } = &all_metrics;
        let by_reason = |name: &str, reason: &str| format!("{name}{{reason=\"{reason}\"}}");
        let ended_connection = |reason| by_reason("weir_grpc_connections_ended_total", reason);
        let aborted_call = |reason| by_reason("weir_grpc_calls_aborted_total", reason);
        let aborted_request = |reason| by_reason("weir_http_requests_aborted_total", reason);
        let handshakes = |result| format!("weir_grpc_tls_handshakes_total{{result=\"{result}\"}}");
        let reloads = |result| format!("weir_grpc_tls_reloads_total{{result=\"{result}\"}}");
        let mut all = vec![
            (tls_accepted, handshakes("ok")),
            (tls_failed, handshakes("failed")),
            (tls_reloaded, reloads("ok")),
            (tls_reload_failed, reloads("failed")),
            (tls_expiry, "weir_grpc_tls_certificate_expiry_timestamp_seconds".to_owned()),
            (handshake_timeout, ended_connection("handshake_timeout")),
            (headers_timeout, ended_connection("headers_timeout")),
            (write_timeout, ended_connection("write_timeout")),
            (keepalive_timeout, ended_connection("keepalive_timeout")),
            (flood, ended_connection("flood")),
            (protocol_error, ended_connection("protocol_error")),
            (aged, ended_connection("age")),
            (idle, ended_connection("idle")),
            (grace_expired, ended_connection("grace_expired")),
            (call_timeout, aborted_call("timeout")),
            (message_too_large, aborted_call("too_large")),
            (memory_full, aborted_call("memory")),
            (streaming_refused, aborted_call("streams")),
            (memory_evicted, ended_connection("memory")),
            (http_timeout, aborted_request("timeout")),
            (http_too_large, aborted_request("too_large")),
            (http_busy, aborted_request("busy")),
            (live_viewers, "weir_live_viewers".to_owned()),
            (live_events, "weir_live_events_total".to_owned()),
        ];
        let ClientMemory { connections, buffers, waiting, deciding } = client_memory;
        for (part, PartMemory { held, max }) in [
            ("connections", connections),
            ("buffers", buffers),
            ("waiting", waiting),
            ("deciding", deciding),
        ] {
            all.push((held, format!("weir_grpc_client_memory_bytes{{part=\"{part}\"}}")));
            all.push((max, format!("weir_grpc_client_memory_max_bytes{{part=\"{part}\"}}")));
        }
        for (name, port) in [("grpc", grpc), ("http", http), ("admin", admin), ("metrics", metrics)]
        {
            let ListenerMetrics { accepted, open, waiting, evicted, refused_total, refused_peer } =
                port;
            let refused = |reason| {
                let labels = format!("listener=\"{name}\",reason=\"{reason}\"");
                format!("weir_connections_refused_total{{{labels}}}")
            };
            all.extend([
                (accepted, format!("weir_connections_accepted_total{{listener=\"{name}\"}}")),
                (open, format!("weir_connections_open{{listener=\"{name}\"}}")),
                (waiting, format!("weir_connections_waiting{{listener=\"{name}\"}}")),
                (evicted, format!("weir_connections_evicted_total{{listener=\"{name}\"}}")),
                (refused_total, refused("total")),
                (refused_peer, refused("peer")),
            ]);
        }
        for (number, (counter, _)) in (1..).zip(&all) {
            counter.set(number);
        }
        let mut page = Exposition::default();
        all_metrics.expose(&mut page);
        let page = page.to_prometheus();
        let mut shown: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        let mut expected: Vec<String> =
            (1..).zip(&all).map(|(number, (_, series))| format!("{series} {number}")).collect();
        shown.sort_unstable();
        expected.sort_unstable();
        assert_eq!(shown, expected);
    }
}
