//! Which holders of quotas the buckets of a stream are.

use super::bucket_id;
use super::engine::random;
use super::usage_report::IdPairs;
use crate::client_address::ClientAddress;
use crate::key::{CounterKey, KeyBuilder, KeySeed};
use crate::quota::HolderId;

/// The part of a holder's id that the buckets of one stream have in common: the client, and the name of the
/// stream or random numbers.
///
/// A name is one of a client: streams of two addresses have other holders, also with equal names. So no client
/// takes over the share of another one.
#[derive(Clone)]
pub(super) struct HolderIdentity {
    /// [`HolderId::client`].
    client: u64,
    /// The hash of the name, or of random numbers.
    stream: KeyBuilder,
}

impl HolderIdentity {
    /// An identity that no other stream has. `seed` is that of counters, which all instances on one Redis
    /// share, so that an address is the same client for them.
    pub(super) fn random(seed: &KeySeed, address: ClientAddress) -> HolderIdentity {
        let mut client = KeyBuilder::start(seed);
        client.text("client").text(&address.to_string());
        let CounterKey([client, _]) = client.finish();
        HolderIdentity { client, stream: random_stream() }
    }

    /// The identity of the stream with this name.
    pub(super) fn set_name(&mut self, name: &str) {
        self.stream = start();
        self.stream.text("instance").text(name);
    }

    /// Replaces the name by random numbers.
    pub(super) fn drop_name(&mut self) {
        self.stream = random_stream();
    }

    /// The holder of a bucket.
    pub(super) fn holder(&self, pairs: &IdPairs<'_>) -> HolderId {
        let CounterKey([_, own]) = bucket_id::add(&mut self.stream.clone(), pairs).finish();
        HolderId([self.client, own])
    }
}

/// Hashes that are equal in all instances.
fn start() -> KeyBuilder {
    KeyBuilder::start(&KeySeed::fixed([0, 0]))
}

fn random_stream() -> KeyBuilder {
    let mut stream = start();
    let [a, b] = random();
    stream.text("stream").number(a).number(b);
    stream
}
