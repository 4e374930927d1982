//! The instance names of open streams. A name belongs to one stream per client and domain.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::contested_names::ContestedNames;
use crate::client_address::ClientAddress;
use crate::key::{CounterKey, KeyBuilder, KeySeed};
use crate::time::Micros;

/// A client, a domain and a name.
type ClaimedName = (ClientAddress, Arc<str>, Arc<str>);

/// The names in use, with their clients and domains. Each open stream has at most one.
pub(super) struct InstanceNames {
    /// Of the hashes of contested names.
    seed: KeySeed,
    names: Mutex<NameTables>,
}

#[derive(Debug, Default)]
struct NameTables {
    claimed: HashSet<ClaimedName>,
    contested: ContestedNames,
}

impl InstanceNames {
    /// Without a name.
    pub(super) fn new() -> InstanceNames {
        InstanceNames { seed: KeySeed::random(), names: Mutex::default() }
    }

    /// Reserves a name of a client in a domain. Returns whether no open stream has it, and it is not
    /// [contested](InstanceNames::contest).
    pub(super) fn claim(
        &self,
        client: ClientAddress,
        domain: &Arc<str>,
        name: &Arc<str>,
        now: Micros,
    ) -> bool {
        let hash = self.hash(client, domain, name);
        let mut names = self.lock();
        !names.contested.has(&hash, now)
            && names.claimed.insert((client, domain.clone(), name.clone()))
    }

    /// The stream with this name ended.
    pub(super) fn release(&self, client: ClientAddress, domain: &Arc<str>, name: &Arc<str>) {
        self.lock().claimed.remove(&(client, domain.clone(), name.clone()));
    }

    /// Another Envoy has the name at another instance. No stream of this instance gets it for a while: each
    /// would use the share of the other one until that is noticed again.
    pub(super) fn contest(&self, client: ClientAddress, domain: &str, name: &str, now: Micros) {
        let hash = self.hash(client, domain, name);
        self.lock().contested.add(client, hash, now);
    }

    fn hash(&self, client: ClientAddress, domain: &str, name: &str) -> CounterKey {
        let mut hash = KeyBuilder::start(&self.seed);
        hash.text(&client.to_string()).text(domain).text(name);
        hash.finish()
    }

    fn lock(&self) -> MutexGuard<'_, NameTables> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
