//! What weir keeps of a call's headers.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, Request, Uri};

use super::status::GRPC;
use crate::descriptor::TraceContext;

const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// What weir keeps of a call's headers. `request_fields.rs` reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CallHead {
    pub(super) timeout: Option<Duration>,
    pub(super) rare: Option<Box<RareHeaders>>,
}

/// Headers that few calls have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RareHeaders {
    /// The encoding of a compressed call.
    pub(super) encoding: Option<HeaderValue>,
    /// The encodings of the response that the client accepts.
    pub(super) accepted: Option<HeaderValue>,
    /// The trace context of the caller.
    pub(super) trace_parent: Option<Box<str>>,
    pub(super) trace_state: Option<Box<str>>,
    /// The name of a client of quotas.
    pub(super) instance: Option<Box<str>>,
}

impl RareHeaders {
    /// Bytes in memory.
    pub(super) fn memory(&self) -> usize {
        let headers = [&self.encoding, &self.accepted].into_iter().flatten();
        let texts = [&self.trace_parent, &self.trace_state, &self.instance].into_iter().flatten();
        size_of::<RareHeaders>()
            + headers.map(HeaderValue::len).sum::<usize>()
            + texts.map(|text| text.len()).sum::<usize>()
    }
}

impl CallHead {
    /// The head without what is not needed: the accepted encodings of a call that is not compressed.
    pub(super) fn finished(mut self) -> CallHead {
        let Some(rare) = &mut self.rare else { return self };
        if rare.encoding.as_ref().is_none_or(|encoding| encoding == "identity") {
            (rare.encoding, rare.accepted) = (None, None);
        }
        if **rare == RareHeaders::default() {
            self.rare = None;
        }
        self
    }

    /// The time that the caller waits, less the margin.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Whether the messages of the call are compressed.
    pub(super) fn is_compressed(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.encoding.is_some())
    }

    /// The trace context of the caller; empty unless requests are traced.
    pub(super) fn trace(&self) -> TraceContext<'_> {
        let Some(rare) = &self.rare else { return TraceContext::default() };
        TraceContext {
            traceparent: rare.trace_parent.as_deref(),
            tracestate: rare.trace_state.as_deref(),
        }
    }

    /// The name of a client of quotas.
    pub(super) fn into_instance(self) -> Option<Box<str>> {
        self.rare.and_then(|rare| rare.instance)
    }

    /// Bytes of the texts.
    pub(super) fn bytes(&self) -> usize {
        let Some(rare) = &self.rare else { return 0 };
        let headers =
            [&rare.encoding, &rare.accepted].map(|one| one.as_ref().map_or(0, HeaderValue::len));
        let texts = [&rare.trace_parent, &rare.trace_state, &rare.instance];
        let texts = texts.map(|one| one.as_ref().map_or(0, |text| text.len()));
        headers.iter().chain(&texts).sum()
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
        if let Some(rare) = &self.rare
            && let Some(encoding) = &rare.encoding
        {
            headers.insert(GRPC_ENCODING, encoding.clone());
            if let Some(accepted) = &rare.accepted {
                headers.insert(GRPC_ACCEPT_ENCODING, accepted.clone());
            }
        }
        request.extensions_mut().insert(self);
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use http::HeaderMap;
    use weir_http2::RequestHead;

    use crate::server::grpc::request_fields::RequestFields;

    /// The head of a call with these headers, and the headers of its request to tonic.
    fn head(pairs: &[(&str, &str)], is_traced: bool) -> CallHead {
        let mut fields = RequestFields::new(is_traced);
        for (name, value) in pairs {
            fields.field(name.as_bytes(), value.as_bytes());
        }
        fields.into_head()
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_head_has_what_a_call_needs() {
        let all = [
            ("grpc-timeout", "20m"),
            ("grpc-accept-encoding", "identity,gzip"),
            ("grpc-encoding", "gzip"),
            ("traceparent", "00-1-2-01"),
            ("tracestate", "a=b"),
            ("x-other", "text"),
        ];
        let head = head(&all, true);
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
            &[][..],
            &[("grpc-encoding", "identity"), ("grpc-accept-encoding", "gzip")],
            &[("traceparent", "00-1-2-01"), ("tracestate", "a=b")],
        ];
        for headers in table {
            assert_eq!(head(headers, false), CallHead::default(), "{headers:?}");
        }
        let request = CallHead::default().into_request("/", ());
        assert_eq!(request.headers().len(), 1, "the content type alone");
    }
}
