//! What weir keeps of the header fields of a request while they are decoded.

use http::header::ALLOW;
use http::{HeaderValue, Response, StatusCode};
use weir_http2::RequestHead;

use super::call_head::{CallHead, RareHeaders};
use super::method::Method;
use super::status::{GrpcCode, GrpcStatus};
use super::timeout;

const POST: HeaderValue = HeaderValue::from_static("POST");

/// The content type of gRPC calls, which a format may follow.
const APPLICATION_GRPC: &[u8] = b"application/grpc";

/// The longest name of an instance, in bytes.
const INSTANCE_BYTES_MAX: usize = 64;

/// Largest part of an unknown path in a status message, in characters.
const PATH_SHOWN: usize = 200;

/// What weir keeps of the fields of a request. Of several fields with one name, the first counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestFields {
    /// Whether the trace context of the caller is kept.
    is_traced: bool,
    is_post: bool,
    /// Whether the content type is that of gRPC; `None` if there is none.
    is_grpc: Option<bool>,
    path: Option<KnownPath>,
    head: CallHead,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum KnownPath {
    Of(Method),
    /// The beginning of another path.
    Unknown(Box<str>),
}

impl RequestFields {
    /// A request without fields. `is_traced` keeps the trace context of the caller.
    pub(super) fn new(is_traced: bool) -> RequestFields {
        RequestFields { is_traced, ..RequestFields::default() }
    }

    /// The method and the head of the call, or the response that refuses it: 405 for another HTTP
    /// method than POST, 415 for another content type
    /// (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>), and UNIMPLEMENTED for an
    /// unknown path.
    pub(super) fn into_call(self) -> Result<(Method, CallHead), Response<()>> {
        let refused = |status| {
            let mut response = Response::new(());
            *response.status_mut() = status;
            response
        };
        if !self.is_post {
            let mut response = refused(StatusCode::METHOD_NOT_ALLOWED);
            response.headers_mut().insert(ALLOW, POST);
            return Err(response);
        }
        if self.is_grpc != Some(true) {
            return Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        match self.path {
            Some(KnownPath::Of(method)) => Ok((method, self.head.finished())),
            unknown => {
                let shown = match unknown {
                    Some(KnownPath::Unknown(path)) => path,
                    _ => Box::default(),
                };
                let message = format!("unknown method {shown}");
                Err(GrpcStatus::new(GrpcCode::Unimplemented, message).into_response())
            }
        }
    }

    /// The head of the call alone.
    #[cfg(any(test, feature = "fuzz"))]
    pub(super) fn into_head(self) -> CallHead {
        self.head.finished()
    }
}

impl RequestHead for RequestFields {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b":method" => self.is_post = value == b"POST",
            b":path" => self.path = Some(known(value)),
            b"content-type" => {
                self.is_grpc.get_or_insert_with(|| is_grpc(value));
            }
            b"grpc-timeout" => {
                let timeout = || text(value).and_then(timeout::of);
                self.head.timeout = self.head.timeout.or_else(timeout);
            }
            b"grpc-encoding" => set(&mut self.rare().encoding, || header(value)),
            b"grpc-accept-encoding" => set(&mut self.rare().accepted, || header(value)),
            b"traceparent" if self.is_traced => set(&mut self.rare().trace_parent, || boxed(value)),
            b"tracestate" if self.is_traced => set(&mut self.rare().trace_state, || boxed(value)),
            b"x-weir-instance" => set(&mut self.rare().instance, || instance_name(value)),
            _ => {}
        }
    }

    fn memory(&self) -> usize {
        let path = match &self.path {
            Some(KnownPath::Unknown(path)) => path.len(),
            _ => 0,
        };
        path + self.head.rare.as_ref().map_or(0, |rare| rare.memory())
    }
}

impl RequestFields {
    fn rare(&mut self) -> &mut RareHeaders {
        self.head.rare.get_or_insert_default()
    }
}

/// Sets `field` unless it is set.
fn set<T>(field: &mut Option<T>, value: impl FnOnce() -> Option<T>) {
    if field.is_none() {
        *field = value();
    }
}

fn known(path: &[u8]) -> KnownPath {
    let path = path.split(|&byte| byte == b'?').next().unwrap_or_default();
    match Method::at(path) {
        Some(method) => KnownPath::Of(method),
        None => {
            let shown = String::from_utf8_lossy(path).chars().take(PATH_SHOWN).collect::<String>();
            KnownPath::Unknown(shown.into())
        }
    }
}

fn is_grpc(content_type: &[u8]) -> bool {
    let format = content_type
        .split_at_checked(APPLICATION_GRPC.len())
        .filter(|(kind, _)| kind.eq_ignore_ascii_case(APPLICATION_GRPC))
        .map(|(_, format)| format);
    matches!(format, Some([] | [b'+' | b';', ..]))
}

/// A value of printable ASCII and tabs.
fn text(value: &[u8]) -> Option<&str> {
    let is_text = value.iter().all(|&byte| matches!(byte, b' '..=b'~' | b'\t'));
    std::str::from_utf8(value).ok().filter(|_| is_text)
}

fn boxed(value: &[u8]) -> Option<Box<str>> {
    text(value).map(Box::from)
}

fn header(value: &[u8]) -> Option<HeaderValue> {
    HeaderValue::from_bytes(value).ok()
}

/// The name by which a client of quotas is known again after it has reconnected; `None` if it has none,
/// or one that is too long or not printable ASCII.
fn instance_name(value: &[u8]) -> Option<Box<str>> {
    let name = text(value)?.trim();
    (!name.is_empty() && name.len() <= INSTANCE_BYTES_MAX).then(|| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    use http::header::ALLOW;

    use crate::server::grpc::should_rate_limit::PATH;

    fn fields(pairs: &[(&str, &str)]) -> RequestFields {
        let mut fields = RequestFields::new(false);
        for (name, value) in pairs {
            fields.field(name.as_bytes(), value.as_bytes());
        }
        fields
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
            assert_eq!(instance_name(sent.as_bytes()).as_deref(), name, "{sent:?}");
        }
        let twice = fields(&[("x-weir-instance", "a"), ("x-weir-instance", "b")]);
        assert_eq!(twice.into_head().into_instance().as_deref(), Some("a"));
    }

    #[test]
    fn a_head_has_memory() {
        let text = "x".repeat(1000);
        let all = ["grpc-encoding", "grpc-accept-encoding", "traceparent", "tracestate"];
        let mut traced = RequestFields::new(true);
        assert_eq!(traced.memory(), 0);
        for name in all {
            traced.field(name.as_bytes(), text.as_bytes());
        }
        traced.field(b":path", text.as_bytes());
        traced.field(b"x-weir-instance", b"edge");
        assert_eq!(traced.memory(), size_of::<RareHeaders>() + 4 * 1000 + PATH_SHOWN + 4);
        assert_eq!(fields(&[(":path", PATH), ("grpc-timeout", "1S")]).memory(), 0);
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
            let mut all = vec![(":method", method), (":path", PATH)];
            all.extend(content_type.map(|kind| ("content-type", kind)));
            let refused = fields(&all).into_call().err();
            let status = refused.as_ref().map(|response| response.status().as_u16());
            assert_eq!(status, expected, "{method} {content_type:?}");
            let allows = refused.is_some_and(|response| response.headers().contains_key(ALLOW));
            assert_eq!(allows, expected == Some(405));
        }
    }

    #[test]
    fn a_path_has_a_method() {
        let call = |path: &str| {
            let all = [(":method", "POST"), (":path", path), ("content-type", "application/grpc")];
            fields(&all).into_call().map(|(method, _)| method)
        };
        assert_eq!(call(PATH).unwrap(), Method::ShouldRateLimit);
        assert_eq!(call(&format!("{PATH}?x=1")).unwrap(), Method::ShouldRateLimit);
        let watch = "/grpc.health.v1.Health/Watch";
        assert_eq!(call(watch).unwrap(), Method::Streaming(watch));
        let long = format!("/{}", "x".repeat(5000));
        let unknown = call(&long).unwrap_err();
        assert_eq!(unknown.headers()["grpc-status"], "12");
        let shown = format!("unknown method {}", &long[..PATH_SHOWN]);
        assert_eq!(unknown.headers()["grpc-message"], shown);
    }
}
