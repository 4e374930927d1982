//! Envoys with one instance name. At two instances they are one holder for a while, and use one share twice.

use std::collections::{BTreeMap, BTreeSet};

use super::laws::Figures;
use crate::quota::HolderId;
use crate::testing::simulated_bucket::{Rate, SimBucket};
use crate::time::Micros;

/// How long a share may be used twice: two reports until both instances have written the holder, a read of
/// the ledger in 2 s, and another report, which gets its own id.
const TWICE_MAX: Micros = Micros::from_secs(30);

/// How long one instance may have given it twice. An Envoy whose stream ended still uses it until it has
/// another stream, and the name is free meanwhile.
const ONE_INSTANCE_MAX: Micros = Micros::from_secs(6);

/// When what an Envoy uses above the holding has expired.
const EXPIRED: Micros = Micros::from_secs(14);

/// A holder with a shared name.
#[derive(Debug, Default)]
struct SharedHolder {
    /// The rates of the Envoys that have an assignment of it, and the instances that gave them.
    users: BTreeMap<usize, (Rate, usize)>,
    /// The instances that have it.
    instances: BTreeSet<usize>,
    /// Since when two of them have a rate, when two instances last had it, and since when two have it from one
    /// instance.
    twice: Option<Micros>,
    last_twice: Option<Micros>,
    at_one: Option<Micros>,
}

/// The holders with a shared name.
#[derive(Debug, Default)]
pub(super) struct SharedNames {
    holders: BTreeMap<HolderId, SharedHolder>,
    /// Names with the instances that noticed that another one has them too.
    noticed: BTreeSet<(u64, usize)>,
}

impl SharedHolder {
    fn is_twice(&self) -> bool {
        self.users.values().filter(|(rate, _)| *rate > 0).count() > 1
    }

    fn is_at_one(&self) -> bool {
        let mut instances: Vec<usize> =
            self.users.values().filter(|(rate, _)| *rate > 0).map(|(_, given)| *given).collect();
        instances.sort_unstable();
        instances.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Notes that it is used twice. Also without a rate: another instance may lower the holder.
    fn note(&mut self, now: Micros) {
        if self.is_at_two() {
            self.last_twice = Some(now);
        }
    }

    fn is_at_two(&self) -> bool {
        self.is_twice() || self.instances.len() > 1
    }

    /// What its users may have above its holding in the ledger: all that they have. Each instance writes the
    /// share that it gave, so the holding may be smaller than each of them.
    fn excess(&self, now: Micros) -> Rate {
        let recently = self.last_twice.is_some_and(|last| now < last.saturating_add(EXPIRED));
        if self.is_at_two() || recently {
            self.users.values().map(|(rate, _)| *rate).sum()
        } else {
            0
        }
    }
}

impl SharedNames {
    /// An instance notices that another one has a name too. It gives the name to no stream after that.
    pub(super) fn notice(&mut self, name: u64, instance: usize, figures: &mut Figures) {
        if !self.noticed.insert((name, instance)) {
            figures.violate("9 one name again", || format!("name {name}: instance {instance}"));
        }
    }

    /// An Envoy uses the share of `holder` that `instance` gave.
    pub(super) fn add(&mut self, holder: HolderId, instance: usize, bucket: &SimBucket) {
        let known = self.holders.entry(holder).or_default();
        known.users.insert(bucket.envoy, (bucket.rate(), instance));
    }

    pub(super) fn remove(&mut self, holder: HolderId, bucket: &SimBucket, now: Micros) {
        if let Some(known) = self.holders.get_mut(&holder) {
            known.note(now);
            known.users.remove(&bucket.envoy);
        }
    }

    /// An instance has the holder from now on, or no longer.
    pub(super) fn claim(&mut self, holder: HolderId, instance: usize, is_there: bool, now: Micros) {
        let known = self.holders.entry(holder).or_default();
        known.note(now);
        if is_there {
            known.instances.insert(instance);
        } else {
            known.instances.remove(&instance);
        }
        known.note(now);
    }

    /// By how much the sum may exceed the quota.
    pub(super) fn most(&self, now: Micros) -> Rate {
        self.holders.values().map(|known| known.excess(now)).sum()
    }

    /// Judges that no share is used twice for a long time.
    pub(super) fn judge(&mut self, quota: usize, now: Micros, figures: &mut Figures) {
        for known in self.holders.values_mut() {
            known.note(now);
            known.twice = known.is_twice().then(|| known.twice.unwrap_or(now));
            known.at_one = known.is_at_one().then(|| known.at_one.unwrap_or(now));
            let time =
                |since: Option<Micros>| since.map_or(Micros::ZERO, |at| now.saturating_sub(at));
            figures.twice = figures.twice.max(time(known.twice));
            let is_long = time(known.twice) > TWICE_MAX || time(known.at_one) > ONE_INSTANCE_MAX;
            if is_long {
                figures.violate("9 one name", || format!("{now:?} quota {quota}: {known:?}"));
            }
        }
    }
}
