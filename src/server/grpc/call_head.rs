//! What weir reads of a call's headers. The headers themselves are dropped before the call starts:
//! 400 short ones take 80 kB, and a call may wait for seconds.

use std::time::Duration;

use http::header::{ALLOW, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};

use super::status::GRPC;
use super::timeout;
use crate::descriptor::TraceContext;

const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const INSTANCE: HeaderName = HeaderName::from_static("x-weir-instance");
const POST: HeaderValue = HeaderValue::from_static("POST");

/// The content type of gRPC calls, which a format may follow.
const APPLICATION_GRPC: &[u8] = b"application/grpc";

/// The longest name of an instance, in bytes.
const INSTANCE_BYTES_MAX: usize = 64;

/// What weir reads of a call's headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CallHead {
    timeout: Option<Duration>,
    compression: Option<Box<Compression>>,
    trace: Option<Box<Trace>>,
}

/// The headers of a compressed call.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Compression {
    encoding: HeaderValue,
    accepted: Option<HeaderValue>,
}

/// The trace context of the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Trace {
    parent: Option<Box<str>>,
    state: Option<Box<str>>,
}

/// The name by which a client of quotas is known again after it has reconnected; `None` if it has none,
/// or one that is too long or not printable ASCII.
pub(super) fn instance_name(headers: &HeaderMap) -> Option<&str> {
    let name = headers.get(INSTANCE)?.to_str().ok()?.trim();
    (!name.is_empty() && name.len() <= INSTANCE_BYTES_MAX).then_some(name)
}

impl CallHead {
    /// Reads `headers`, and the caller's trace context only if requests are traced.
    pub(super) fn read(headers: &HeaderMap, is_traced: bool) -> CallHead {
        CallHead {
            timeout: timeout::of(headers),
            compression: Compression::read(headers),
            trace: is_traced.then(|| Box::new(Trace::read(headers))),
        }
    }

    /// The time that the caller waits, less the margin.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Whether the messages of the call are compressed.
    pub(super) fn is_compressed(&self) -> bool {
        self.compression.is_some()
    }

    /// The trace context of the caller; empty unless requests are traced.
    pub(super) fn trace(&self) -> TraceContext<'_> {
        let Some(trace) = &self.trace else { return TraceContext::default() };
        TraceContext { traceparent: trace.parent.as_deref(), tracestate: trace.state.as_deref() }
    }

    /// Bytes of the texts.
    pub(super) fn bytes(&self) -> usize {
        let trace = self.trace();
        let compression = self.compression.as_ref().map_or(0, |compression| {
            compression.encoding.len() + compression.accepted.as_ref().map_or(0, HeaderValue::len)
        });
        compression + trace.traceparent.map_or(0, str::len) + trace.tracestate.map_or(0, str::len)
    }

    /// A request to tonic with `body`. Its extensions have the head.
    ///
    /// Without `grpc-encoding`, it has no `grpc-accept-encoding` either: a response is compressed if
    /// its request was, as grpc-go's servers do. tonic would compress for every client that accepts
    /// gzip, which costs CPU time and saves nothing at 30 bytes.
    pub(super) fn into_request<B>(self, path: &'static str, body: B) -> Request<B> {
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static(path);
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, GRPC);
        if let Some(compression) = &self.compression {
            headers.insert(GRPC_ENCODING, compression.encoding.clone());
            if let Some(accepted) = &compression.accepted {
                headers.insert(GRPC_ACCEPT_ENCODING, accepted.clone());
            }
        }
        request.extensions_mut().insert(self);
        request
    }
}

impl Compression {
    /// `None` if the messages are sent as they are.
    fn read(headers: &HeaderMap) -> Option<Box<Compression>> {
        let encoding = headers.get(GRPC_ENCODING)?;
        if encoding.as_bytes() == b"identity" {
            return None;
        }
        let (encoding, accepted) = (encoding.clone(), headers.get(GRPC_ACCEPT_ENCODING).cloned());
        Some(Box::new(Compression { encoding, accepted }))
    }
}

impl Trace {
    fn read(headers: &HeaderMap) -> Trace {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let [parent, state] = ["traceparent", "tracestate"].map(|name| text(name).map(Box::from));
        Trace { parent, state }
    }
}

/// The response to a request that is no gRPC call: 405 for another method than POST, and 415 for
/// another content type
/// (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).
pub(super) fn not_grpc(head: &Parts) -> Option<Response<()>> {
    let refused = |status| {
        let mut response = Response::new(());
        *response.status_mut() = status;
        response
    };
    if head.method != Method::POST {
        let mut response = refused(StatusCode::METHOD_NOT_ALLOWED);
        response.headers_mut().insert(ALLOW, POST);
        return Some(response);
    }
    let content_type = head.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let format = content_type
        .split_at_checked(APPLICATION_GRPC.len())
        .filter(|(kind, _)| kind.eq_ignore_ascii_case(APPLICATION_GRPC))
        .map(|(_, format)| format);
    let is_grpc = matches!(format, Some([] | [b'+' | b';', ..]));
    (!is_grpc).then(|| refused(StatusCode::UNSUPPORTED_MEDIA_TYPE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_head_has_what_a_call_needs() {
        let all = headers(&[
            ("grpc-timeout", "20m"),
            ("grpc-encoding", "gzip"),
            ("grpc-accept-encoding", "identity,gzip"),
            ("traceparent", "00-1-2-01"),
            ("tracestate", "a=b"),
            ("x-other", "text"),
        ]);
        let head = CallHead::read(&all, true);
        assert_eq!(head.timeout(), Some(Duration::from_millis(16)));
        let trace = TraceContext { traceparent: Some("00-1-2-01"), tracestate: Some("a=b") };
        assert_eq!(head.trace(), trace);
        assert_eq!(head.bytes(), "gzip".len() + "identity,gzip".len() + "00-1-2-01".len() + 3);
        assert!(head.is_compressed());
        let request = head.clone().into_request("/a/b", ());
        assert_eq!((request.method(), request.uri().path()), (&Method::POST, "/a/b"));
        let sent = headers(&[
            ("content-type", "application/grpc"),
            ("grpc-encoding", "gzip"),
            ("grpc-accept-encoding", "identity,gzip"),
        ]);
        assert_eq!(*request.headers(), sent);
        assert_eq!(request.extensions().get::<CallHead>(), Some(&head));
    }

    #[test]
    fn what_a_call_does_not_need_is_left_out() {
        let table = [
            headers(&[]),
            headers(&[("grpc-encoding", "identity"), ("grpc-accept-encoding", "gzip")]),
            headers(&[("traceparent", "00-1-2-01"), ("tracestate", "a=b")]),
        ];
        for headers in table {
            assert_eq!(CallHead::read(&headers, false), CallHead::default(), "{headers:?}");
        }
        let request = CallHead::default().into_request("/", ());
        assert_eq!(request.headers().len(), 1, "the content type alone");
    }

    #[test]
    fn an_instance_has_a_short_printable_name() {
        let longest = "x".repeat(INSTANCE_BYTES_MAX);
        let table = [
            ("edge-7", Some("edge-7")),
            (" a b ", Some("a b")),
            (&longest, Some(&*longest)),
            (&format!("{longest}x"), None),
            ("", None),
            ("  ", None),
            ("\u{e9}", None),
        ];
        for (sent, name) in table {
            let value = HeaderValue::from_bytes(sent.as_bytes()).unwrap();
            let headers = HeaderMap::from_iter([(INSTANCE, value)]);
            assert_eq!(instance_name(&headers), name, "{sent:?}");
        }
        assert_eq!(instance_name(&HeaderMap::new()), None);
    }

    #[test]
    fn other_methods_and_content_types_are_refused() {
        let table = [
            ("POST", Some("application/grpc"), None),
            ("POST", Some("application/grpc+proto"), None),
            ("POST", Some("Application/GRPC; charset=utf-8"), None),
            ("POST", Some("application/grpc-web"), Some(415)),
            ("POST", Some("application/grp"), Some(415)),
            ("POST", Some("application/json"), Some(415)),
            ("POST", Some(""), Some(415)),
            ("POST", None, Some(415)),
            ("GET", Some("application/grpc"), Some(405)),
            ("OPTIONS", None, Some(405)),
        ];
        for (method, content_type, expected) in table {
            let mut request = Request::builder().method(method);
            if let Some(content_type) = content_type {
                request = request.header(CONTENT_TYPE, content_type);
            }
            let (head, ()) = request.body(()).unwrap().into_parts();
            let refused = not_grpc(&head);
            let status = refused.as_ref().map(|response| response.status().as_u16());
            assert_eq!(status, expected, "{method} {content_type:?}");
            let allows = refused.is_some_and(|response| response.headers().contains_key(ALLOW));
            assert_eq!(allows, expected == Some(405));
        }
    }
}
