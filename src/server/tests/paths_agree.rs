//! The fast path and tonic respond to the same call with the same status, message and bytes.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use prost::Message;

use super::raw::stored_gzip;
use super::test_handlers::ByDomain;
use crate::descriptor::RequestBounds;
use crate::proto::{Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest};
use crate::server::grpc_fuzz_harness::{GrpcService, UnaryResponse};

/// Two services: one with the fast path, and one that sends every call to tonic.
static PATHS: LazyLock<[GrpcService<ByDomain>; 2]> = LazyLock::new(|| {
    [true, false].map(|fast| GrpcService::new(Arc::new(ByDomain), RequestBounds::default(), fast))
});

/// A call before it is sent.
#[derive(Clone, Debug)]
struct Call {
    message: Vec<u8>,
    framing: Framing,
    headers: Vec<(&'static str, &'static str)>,
}

/// How a message becomes a body.
#[derive(Clone, Copy, Debug)]
enum Framing {
    Whole,
    Gzip,
    Flag(u8),
    /// The length in the prefix is wrong by this number of bytes.
    Length(i32),
    Twice,
    /// The body is cut to this many bytes.
    Cut(usize),
}

fn request() -> impl Strategy<Value = RateLimitRequest> {
    let text = || prop::sample::select(vec!["", "ok", "over", "full", "k", "\u{e9}", "x y%"]);
    let entry = (text(), text()).prop_map(|(k, v)| Entry { key: k.into(), value: v.into() });
    let limit = (any::<u32>(), -1..9)
        .prop_map(|(requests_per_unit, unit)| RateLimitOverride { requests_per_unit, unit });
    let hits = prop::option::of(prop_oneof![0..9_u64, any::<u64>()]);
    let entries = prop::collection::vec(entry, 0..3);
    let descriptor = (entries, prop::option::of(limit), hits, any::<bool>()).prop_map(
        |(entries, limit, hits_addend, is_negative_hits)| RateLimitDescriptor {
            entries,
            limit,
            hits_addend,
            is_negative_hits,
        },
    );
    let descriptors = prop::collection::vec(descriptor, 0..4);
    (text(), descriptors, any::<u32>()).prop_map(|(domain, descriptors, hits_addend)| {
        RateLimitRequest { domain: domain.into(), descriptors, hits_addend }
    })
}

/// A valid message, one with some bytes replaced, or random bytes.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let valid = || request().prop_map(|request| request.encode_to_vec());
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4);
    let mutated = (valid(), changes).prop_map(|(mut bytes, changes)| {
        for (index, byte) in changes {
            if !bytes.is_empty() {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
        }
        bytes
    });
    prop_oneof![valid(), mutated, prop::collection::vec(any::<u8>(), 0..64)]
}

fn call() -> impl Strategy<Value = Call> {
    let framing = prop_oneof![
        4 => Just(Framing::Whole),
        1 => Just(Framing::Gzip),
        1 => (0..4_u8).prop_map(Framing::Flag),
        1 => (-9..9).prop_map(Framing::Length),
        1 => Just(Framing::Twice),
        1 => (0..40_usize).prop_map(Framing::Cut),
    ];
    let header = prop::sample::select(vec![
        ("grpc-encoding", "identity"),
        ("grpc-encoding", "gzip"),
        ("grpc-encoding", "deflate"),
        ("grpc-accept-encoding", "identity,gzip"),
        ("grpc-timeout", "20m"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ]);
    let headers = prop::collection::vec(header, 0..3);
    (message(), framing, headers).prop_map(|(message, framing, headers)| Call {
        message,
        framing,
        headers,
    })
}

impl Call {
    fn body(&self) -> Bytes {
        let framed = |flag: u8, length: usize, message: &[u8]| {
            let length = u32::try_from(length).unwrap().to_be_bytes();
            [&[flag], &length[..], message].concat()
        };
        let (message, length) = (&self.message[..], self.message.len());
        let whole = framed(0, length, message);
        let bytes = match self.framing {
            Framing::Whole => whole,
            Framing::Gzip => {
                let gzip = stored_gzip(message);
                framed(1, gzip.len(), &gzip)
            }
            Framing::Flag(flag) => framed(flag, length, message),
            Framing::Length(off) => {
                let off = isize::try_from(off).unwrap();
                framed(0, length.saturating_add_signed(off), message)
            }
            Framing::Twice => whole.repeat(2),
            Framing::Cut(bytes) => whole[..bytes.min(whole.len())].to_vec(),
        };
        bytes.into()
    }

    fn answers(&self) -> [UnaryResponse; 2] {
        let headers: HeaderMap = self
            .headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        [0, 1].map(|path| {
            let answer = PATHS[path].call(headers.clone(), self.body());
            answer.now_or_never().expect("a decision without I/O")
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn both_paths_give_the_same_answer(call in call()) {
        let [fast, tonic] = call.answers();
        prop_assert_eq!(&fast, &tonic, "{:?}", call);
        prop_assert!((fast.status == 0) == fast.message.is_empty(), "{:?}", fast);
    }
}

/// A table of usual calls with their expected results, valid and invalid.
#[test]
fn both_paths_return_the_expected_status() {
    let valid = |domain: &str| super::support::request(domain).encode_to_vec();
    let whole = |message| Call { message, framing: Framing::Whole, headers: Vec::new() };
    let gzip = Call {
        framing: Framing::Gzip,
        headers: vec![("grpc-encoding", "gzip")],
        ..whole(valid("ok"))
    };
    for (call, status, message) in [
        (whole(valid("ok")), 0, ""),
        (gzip, 0, ""),
        (whole(valid("")), 3, "domain must not be empty"),
        (Call { framing: Framing::Twice, ..whole(valid("ok")) }, 12, "more than one message"),
        (Call { framing: Framing::Cut(0), ..whole(valid("ok")) }, 12, "no message"),
        (Call { framing: Framing::Cut(9), ..whole(valid("ok")) }, 13, "EOF"),
        (Call { framing: Framing::Flag(1), ..whole(valid("ok")) }, 13, "compressed-flag"),
        (Call { headers: vec![("grpc-encoding", "deflate")], ..whole(valid("ok")) }, 12, "deflate"),
    ] {
        for answer in call.answers() {
            assert_eq!(answer.status, status, "{call:?}: {answer:?}");
            assert!(answer.message.contains(message), "{call:?}: {answer:?}");
        }
    }
}
