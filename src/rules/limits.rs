//! Limits: from the map under `rate_limit` to a policy, with every number checked.

use std::sync::Arc;

use super::duration;
use super::fields::{nearest, shorten};
use super::model::{self, Field, RateLimit, Text};
use super::problem::{Mark, Report};
use super::rule::Policy;
use crate::limit::{Algorithm, HITS_END, Limit, Tier, Unit};
use crate::time::Micros;

/// Most tiers of one rule: they travel and are kept together.
const TIERS_MAX: usize = 16;
/// Longest window.
const WINDOW_MAX: Micros = Micros::from_secs(10 * 365 * 86_400);
/// Most entries of a counter that remembers each one (a log's admissions, a gate's holders).
const REMEMBERED_MAX: u64 = 100_000;

const ALGORITHMS: [(&str, Algorithm); 6] = [
    ("fixed_window", Algorithm::FixedWindow),
    ("sliding_window", Algorithm::SlidingWindow),
    ("sliding_window_log", Algorithm::SlidingWindowLog),
    ("token_bucket", Algorithm::TokenBucket),
    ("leaky_bucket", Algorithm::LeakyBucket),
    ("concurrency", Algorithm::Concurrency),
];

/// The name by which rule files call an algorithm.
pub(super) fn algorithm_name(algorithm: Algorithm) -> &'static str {
    let found = ALGORITHMS.iter().find(|(_, known)| *known == algorithm);
    found.map(|(name, _)| *name).expect("the table names every algorithm")
}

/// Reads the limits of one file.
pub(super) struct Limits<'a> {
    pub(super) file: &'a Arc<str>,
    pub(super) report: &'a mut Report,
}

impl Limits<'_> {
    /// What the rule does with hits; `None` when something is wrong, and reported.
    pub(super) fn policy(&mut self, raw: &RateLimit) -> Option<Policy> {
        if raw.unlimited.as_ref().is_some_and(|flag| flag.value == Some(true)) {
            self.unlimited(raw);
            return Some(Policy::Unlimited);
        }
        let algorithm = self.algorithm(raw.algorithm.as_ref())?;
        let tiers = match algorithm {
            Algorithm::Concurrency => self.slots(raw).map(|tier| vec![tier]),
            _ => self.tiers(raw, algorithm),
        };
        let count_denied = self.count_denied(raw, algorithm);
        let limit = Limit { algorithm, tiers: tiers?.into(), count_denied };
        self.check_bounds(&limit, raw.at);
        Some(Policy::Limit(limit))
    }

    /// How long a reservation waits to be settled.
    pub(super) fn reserve(&mut self, raw: &RateLimit, policy: Option<&Policy>) -> Option<Micros> {
        let reserve = raw.reserve.as_ref()?;
        match policy {
            Some(Policy::Limit(Limit { algorithm: Algorithm::Concurrency, .. })) => {
                let hint = "leave it out: a slot is already held until it is given back";
                self.error(reserve.at, "`reserve` does nothing for `concurrency`", hint);
            }
            Some(Policy::Unlimited) => {
                self.error(reserve.at, "nothing can be reserved from `unlimited`", "leave it out");
            }
            _ => {}
        }
        let Some(hold) = &reserve.hold else {
            self.error(reserve.at, "`reserve` has no `hold`", "write `reserve: { hold: 10m }`");
            return None;
        };
        self.window(hold, "hold")
    }

    fn unlimited(&mut self, raw: &RateLimit) {
        let tier = &raw.tier;
        if let Some(unit) = &tier.unit {
            match unit.value.as_deref().and_then(Unit::from_name) {
                Some(_) => {
                    let hint = "remove `unit`, or remove `unlimited`";
                    self.error(unit.at, "a rule cannot be `unlimited` and have a `unit`", hint);
                }
                None => self.warn(unit.at, "`unit` does nothing beside `unlimited`", "remove it"),
            }
        }
        if let Some(number) = &tier.requests_per_unit {
            let what = "`requests_per_unit` does nothing beside `unlimited`";
            self.warn(number.at, what, "remove it, or remove `unlimited`");
        }
        let others = [
            ("algorithm", raw.algorithm.as_ref().map(|field| field.at)),
            ("unit_multiplier", tier.unit_multiplier.as_ref().map(|field| field.at)),
            ("requests", tier.requests.as_ref().map(|field| field.at)),
            ("window", tier.window.as_ref().map(|field| field.at)),
            ("burst", tier.burst.as_ref().map(|field| field.at)),
            ("tiers", raw.tiers.as_ref().map(|field| field.at)),
            ("max", raw.max.as_ref().map(|field| field.at)),
            ("hold", raw.hold.as_ref().map(|field| field.at)),
            ("count_denied", raw.count_denied.as_ref().map(|field| field.at)),
        ];
        for (name, at) in others {
            if let Some(at) = at {
                let what = format!("a rule cannot be `unlimited` and have `{name}`");
                self.error(at, what, format!("remove `{name}`, or remove `unlimited`"));
            }
        }
    }

    fn algorithm(&mut self, written: Option<&Text>) -> Option<Algorithm> {
        let Some(text) = written else { return Some(Algorithm::FixedWindow) };
        let name = text.value.as_deref()?;
        let found = ALGORITHMS.iter().find(|(known, _)| *known == name);
        if found.is_none() {
            let names = ALGORITHMS.map(|(known, _)| known);
            let hint = match nearest(name, names) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("write one of {}", names.join(", ")),
            };
            self.error(text.at, format!("unknown algorithm `{}`", shorten(name)), hint);
        }
        found.map(|(_, algorithm)| *algorithm)
    }

    fn count_denied(&mut self, raw: &RateLimit, algorithm: Algorithm) -> bool {
        let written = raw.count_denied.as_ref().and_then(|flag| Some((flag.at, flag.value?)));
        match (algorithm, written) {
            (Algorithm::Concurrency, Some((at, true))) => {
                let hint = "remove it, or write `false`";
                self.error(at, "a denied request cannot hold a slot", hint);
                false
            }
            (_, Some((_, flag))) => flag,
            (algorithm, None) => algorithm == Algorithm::FixedWindow,
        }
    }

    /// `max` and `hold` of a concurrency limit.
    fn slots(&mut self, raw: &RateLimit) -> Option<Tier> {
        let written = tier_fields(&raw.tier)
            .into_iter()
            .chain([("tiers", raw.tiers.as_ref().map(|field| field.at))]);
        for (name, at) in written {
            if let Some(at) = at {
                let what = format!("`{name}` does not apply to `concurrency`");
                self.error(at, what, "write `max` (slots) and `hold` (how long one is kept)");
            }
        }
        let hint = "write `max: 50`, say: how many may hold a slot at the same time";
        let max = self.required(raw.max.as_ref(), "max", raw.at, hint);
        let hint = "write `hold: 30s`, say: after that a slot that nobody gave back is free again";
        let hold = self.required(raw.hold.as_ref(), "hold", raw.at, hint);
        let requests = self.hits(max?, "max");
        let window = self.window(hold?, "hold");
        Some(Tier { requests: requests?, window: window?, burst: requests? })
    }

    fn tiers(&mut self, raw: &RateLimit, algorithm: Algorithm) -> Option<Vec<Tier>> {
        for (name, at) in [
            ("max", raw.max.as_ref().map(|field| field.at)),
            ("hold", raw.hold.as_ref().map(|field| field.at)),
        ] {
            if let Some(at) = at {
                let what = format!("`{name}` applies only to `concurrency`");
                self.error(at, what, "add `algorithm: concurrency`, or remove it");
            }
        }
        let Some(Field { at, value }) = &raw.tiers else {
            return Some(vec![self.tier(&raw.tier, algorithm)?]);
        };
        for (name, place) in tier_fields(&raw.tier) {
            if let Some(place) = place {
                let what = format!("`{name}` stands beside `tiers`");
                self.error(place, what, "move it into an item of `tiers`, or remove `tiers`");
            }
        }
        let written = value.as_deref().unwrap_or_default();
        if written.is_empty() || written.len() > TIERS_MAX {
            let what = format!("`tiers` has {} items", written.len());
            self.error(*at, what, format!("write 1 to {TIERS_MAX} of them"));
            return None;
        }
        let tiers: Vec<_> = written.iter().map(|tier| self.tier(tier, algorithm)).collect();
        tiers.into_iter().collect()
    }

    fn tier(&mut self, raw: &model::Tier, algorithm: Algorithm) -> Option<Tier> {
        let by_unit =
            raw.unit.is_some() || raw.requests_per_unit.is_some() || raw.unit_multiplier.is_some();
        let by_window = raw.requests.is_some() || raw.window.is_some();
        if by_unit && by_window {
            let hint = "write `requests_per_unit` with `unit`, or `requests` with `window`";
            self.error(raw.at, "two ways of writing a limit are mixed", hint);
            return None;
        }
        let pair = if by_window { self.free_window(raw) } else { self.named_window(raw) };
        let burst = self.burst(raw, algorithm);
        let (requests, window) = pair?;
        Some(Tier { requests, window, burst: burst?.unwrap_or(requests) })
    }

    /// `requests_per_unit` per `unit_multiplier` times `unit`.
    fn named_window(&mut self, raw: &model::Tier) -> Option<(u64, Micros)> {
        let unit = self.unit(raw);
        let hint = "write `requests_per_unit: 100`, say; an explicit 0 blocks every request";
        let requests =
            self.required(raw.requests_per_unit.as_ref(), "requests_per_unit", raw.at, hint);
        let requests = requests.and_then(|field| {
            let number = field.value?;
            if number > u64::from(u32::MAX) {
                let what = format!("`requests_per_unit` cannot be {number}");
                let hint = "write at most 4294967295, or use `requests` with `window`";
                self.error(field.at, what, hint);
                return None;
            }
            Some(number)
        });
        let Some(multiplier) = &raw.unit_multiplier else {
            return Some((requests?, unit?.window()));
        };
        let window = unit?.window().0.checked_mul(multiplier.value?).map(Micros);
        let window = window.filter(|window| (Micros(1)..=WINDOW_MAX).contains(window));
        if window.is_none() {
            let what = "`unit_multiplier` makes no usable window".to_owned();
            let longest = duration::write(WINDOW_MAX);
            self.error(
                multiplier.at,
                what,
                format!("write at least 1, and at most {longest} in all"),
            );
        }
        Some((requests?, window?))
    }

    fn unit(&mut self, raw: &model::Tier) -> Option<Unit> {
        let names = Unit::ALL.map(Unit::name);
        let choices = format!("write one of {}", names.join(", "));
        let unit = self.required(raw.unit.as_ref(), "unit", raw.at, &choices)?;
        let name = unit.value.as_deref()?;
        let found = Unit::from_name(name);
        if found.is_none() {
            let hint = match nearest(name, names) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => choices,
            };
            self.error(unit.at, format!("unknown unit `{}`", shorten(name)), hint);
        }
        found
    }

    /// `requests` per `window`.
    fn free_window(&mut self, raw: &model::Tier) -> Option<(u64, Micros)> {
        let hint = "write `requests: 100`, say; an explicit 0 blocks every request";
        let requests = self.required(raw.requests.as_ref(), "requests", raw.at, hint);
        let window =
            self.required(raw.window.as_ref(), "window", raw.at, "write `window: 10s`, say");
        let requests = requests.and_then(|field| self.hits(field, "requests"));
        let window = window.and_then(|field| self.window(field, "window"));
        Some((requests?, window?))
    }

    /// The outer `None` is an error, the inner one says that nothing was written.
    fn burst(&mut self, raw: &model::Tier, algorithm: Algorithm) -> Option<Option<u64>> {
        let Some(burst) = &raw.burst else { return Some(None) };
        if !matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket) {
            let hint = "add `algorithm: token_bucket` or `leaky_bucket`, or remove it";
            self.error(burst.at, "`burst` applies only to buckets", hint);
        }
        let number = self.hits(burst, "burst")?;
        if number == 0 {
            let hint = "write at least 1; to block every request, limit to 0";
            self.error(burst.at, "`burst` cannot be 0", hint);
        }
        Some(Some(number))
    }

    /// The one place where a finished limit is held against what stores can keep.
    fn check_bounds(&mut self, limit: &Limit, at: Mark) {
        let most = limit.tiers.iter().map(|tier| tier.requests).max().unwrap_or(0);
        if most <= REMEMBERED_MAX {
            return;
        }
        match limit.algorithm {
            Algorithm::SlidingWindowLog => self.error(
                at,
                format!("`sliding_window_log` remembers every request, and {most} are too many"),
                format!(
                    "stay within {REMEMBERED_MAX}, or use `algorithm: sliding_window`, which \
                         needs two numbers however high the limit is"
                ),
            ),
            Algorithm::Concurrency => self.error(
                at,
                format!("`concurrency` remembers every holder, and {most} are too many"),
                format!("stay within {REMEMBERED_MAX}"),
            ),
            _ => {}
        }
    }
}

// Single numbers.
impl Limits<'_> {
    fn required<'f, T>(
        &mut self,
        field: Option<&'f Field<T>>,
        name: &str,
        at: Mark,
        hint: &str,
    ) -> Option<&'f Field<T>> {
        if field.is_none() {
            self.error(at, format!("`{name}` is missing"), hint);
        }
        field
    }

    fn hits(&mut self, field: &Field<u64>, name: &str) -> Option<u64> {
        let number = field.value?;
        if number >= HITS_END {
            let what = format!("`{name}` cannot be {number}");
            self.error(field.at, what, "write a number below 2^53 (9007199254740992)");
            return None;
        }
        Some(number)
    }

    fn window(&mut self, field: &Field<Micros>, name: &str) -> Option<Micros> {
        let length = field.value?;
        if length > WINDOW_MAX {
            let what = format!("`{name}` cannot be {}", duration::write(length));
            self.error(field.at, what, format!("write at most {}", duration::write(WINDOW_MAX)));
            return None;
        }
        Some(length)
    }

    fn error(&mut self, at: Mark, what: impl Into<String>, hint: impl Into<String>) {
        self.report.error(at.in_file(self.file), what, hint);
    }

    fn warn(&mut self, at: Mark, what: &str, hint: &str) {
        self.report.warn(at.in_file(self.file), what, hint);
    }
}

/// The fields of a tier, with the places of those that were written.
fn tier_fields(tier: &model::Tier) -> [(&'static str, Option<Mark>); 6] {
    [
        ("unit", tier.unit.as_ref().map(|field| field.at)),
        ("requests_per_unit", tier.requests_per_unit.as_ref().map(|field| field.at)),
        ("unit_multiplier", tier.unit_multiplier.as_ref().map(|field| field.at)),
        ("requests", tier.requests.as_ref().map(|field| field.at)),
        ("window", tier.window.as_ref().map(|field| field.at)),
        ("burst", tier.burst.as_ref().map(|field| field.at)),
    ]
}
