//! The reasons for which a part of what a client sends is refused, and what an operator can do.

/// Why something of a client was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedReason {
    /// `rlqs.max_streams` streams are open.
    Streams,
    /// The client address has as many streams as are left of `rlqs.max_streams`.
    StreamsOfAddress,
    /// The stream has `rlqs.max_buckets_per_stream` buckets.
    BucketsOfStream,
    /// All streams have `rlqs.max_buckets` buckets.
    Buckets,
    /// The client address has as many buckets as are left of `rlqs.max_buckets`.
    BucketsOfAddress,
    /// A bucket id without a pair, or with an empty key.
    EmptyId,
    /// A bucket id over a bound.
    LongId,
    /// A report over `rlqs.max_message_bytes`, or one that is not a report.
    Message,
    /// A report for another domain than the first one, or without a domain.
    Domain,
    /// A stream with the instance name of another one.
    NameInUse,
    /// An assignment that its stream read too late.
    LateReader,
    /// Too many local holders.
    LocalHolders,
}

impl RefusedReason {
    /// Every reason, in the order in which metrics count them.
    pub const ALL: [RefusedReason; 12] = [
        RefusedReason::Streams,
        RefusedReason::StreamsOfAddress,
        RefusedReason::BucketsOfStream,
        RefusedReason::Buckets,
        RefusedReason::BucketsOfAddress,
        RefusedReason::EmptyId,
        RefusedReason::LongId,
        RefusedReason::Message,
        RefusedReason::Domain,
        RefusedReason::NameInUse,
        RefusedReason::LateReader,
        RefusedReason::LocalHolders,
    ];

    /// The reason in metric labels and log lines.
    pub const fn name(self) -> &'static str {
        match self {
            RefusedReason::Streams => "streams",
            RefusedReason::StreamsOfAddress => "streams_of_address",
            RefusedReason::BucketsOfStream => "buckets_of_stream",
            RefusedReason::Buckets => "buckets",
            RefusedReason::BucketsOfAddress => "buckets_of_address",
            RefusedReason::EmptyId => "empty_id",
            RefusedReason::LongId => "long_id",
            RefusedReason::Message => "message",
            RefusedReason::Domain => "domain",
            RefusedReason::NameInUse => "name_in_use",
            RefusedReason::LateReader => "late_reader",
            RefusedReason::LocalHolders => "local_holders",
        }
    }

    /// What an operator can do.
    pub(super) const fn advice(self) -> &'static str {
        match self {
            RefusedReason::Streams => "raise rlqs.max_streams, or find the client",
            RefusedReason::StreamsOfAddress => {
                "find the client; if its Envoys share an address, raise rlqs.max_streams: one \
                 address gets at most half of it"
            }
            RefusedReason::BucketsOfStream => {
                "raise rlqs.max_buckets_per_stream, or put fewer values into bucket ids"
            }
            RefusedReason::Buckets => "raise rlqs.max_buckets, or put fewer values into bucket ids",
            RefusedReason::BucketsOfAddress => {
                "find the client, or put fewer values into bucket ids; if its Envoys share an \
                 address, raise rlqs.max_buckets: one address gets at most half of it"
            }
            RefusedReason::EmptyId => "give every key of bucket_id_builder a name and a value",
            RefusedReason::LongId => {
                "shorten the values of bucket ids, or raise request.max_entries or \
                 request.max_text_bytes; an id may have 4096 bytes"
            }
            RefusedReason::Message => "find the client; it may raise rlqs.max_message_bytes",
            RefusedReason::Domain => "set `domain` in the filter; a stream has one domain",
            RefusedReason::NameInUse => {
                "give each Envoy its own x-weir-instance; a refused one is free again in an hour"
            }
            RefusedReason::LateReader => "find the Envoy or the network that reads slowly",
            RefusedReason::LocalHolders => {
                "raise rlqs.max_buckets, or use other rules for the buckets of Envoys"
            }
        }
    }
}
