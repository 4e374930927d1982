//! Turns the map under `rate_limit` into a limit and checks every number.

use std::sync::Arc;

use crate::limit::{
    Algorithm, Limit, LimitError, Mode, OnError, RequestLines, Tier, Unit, WINDOW_MAX,
};
use crate::rules::excerpt::shorten;
use crate::rules::file::model::{self, RawRateLimit};
use crate::rules::file::problem::{Position, Report};
use crate::rules::file::reader::{Field, Text};
use crate::rules::lookup::rule::RuleLimit;
use crate::spelling::nearest;
use crate::time::Micros;

/// Reads the limits of one file.
pub(super) struct LimitReader<'a> {
    pub(super) file: &'a Arc<str>,
    pub(super) report: &'a mut Report,
}

/// The fields of a `rate_limit` that affect decisions.
pub(super) struct LimitFields {
    /// `None` after a reported error.
    pub(super) limit: Option<RuleLimit>,
    pub(super) mode: Mode,
    /// The time in which a reservation must be settled; `None` without `reserve`.
    pub(super) reserve: Option<Micros>,
    /// The fallback of the rule when the store fails.
    pub(super) on_error: Option<OnError>,
    /// The requests of the rule that get a line in the log.
    pub(super) log: Option<RequestLines>,
    /// The limit of `shadow`.
    pub(super) what_if: Option<Limit>,
}

impl LimitReader<'_> {
    /// Reads and checks all fields.
    pub(super) fn limit(&mut self, raw: &RawRateLimit) -> LimitFields {
        let mut limit = self.rule_limit(raw);
        let mode = self.mode(raw, limit.as_mut());
        let reserve = self.reserve(raw, limit.as_ref());
        let what_if = self.what_if(raw, limit.as_ref());
        let (on_error, log) = (self.on_error(raw), self.request_lines(raw));
        LimitFields { limit, mode, reserve, on_error, log, what_if }
    }

    /// The limit of the rule; `None` after a reported error.
    fn rule_limit(&mut self, raw: &RawRateLimit) -> Option<RuleLimit> {
        if raw.unlimited.as_ref().is_some_and(|flag| flag.value == Some(true)) {
            self.unlimited(raw);
            return Some(RuleLimit::Unlimited);
        }
        let algorithm = self.algorithm(raw.algorithm.as_ref())?;
        let tiers = match algorithm {
            Algorithm::Concurrency => self.slots(raw).map(|tier| vec![tier]),
            Algorithm::FixedWindow
            | Algorithm::SlidingWindow
            | Algorithm::SlidingWindowLog
            | Algorithm::TokenBucket
            | Algorithm::LeakyBucket => self.tiers(raw, algorithm),
        };
        let written = raw.count_denied.as_ref().and_then(|flag| flag.value);
        let count_denied = written.unwrap_or(algorithm == Algorithm::FixedWindow);
        let limit = Limit { algorithm, tiers: tiers?.into(), count_denied };
        self.check_bounds(&limit, raw);
        Some(RuleLimit::Limit(limit))
    }

    /// The time in which a reservation must be settled; `None` without `reserve`.
    fn reserve(&mut self, raw: &RawRateLimit, limit: Option<&RuleLimit>) -> Option<Micros> {
        let reserve = raw.reserve.as_ref()?;
        match limit {
            Some(RuleLimit::Limit(Limit { algorithm: Algorithm::Concurrency, .. })) => {
                let hint = "leave it out: a slot is held until it is released anyway";
                self.error(reserve.at, "`reserve` cannot be set for `concurrency`", hint);
            }
            Some(RuleLimit::Unlimited) => {
                let problem = "a rule cannot be `unlimited` and have `reserve`";
                self.error(reserve.at, problem, "leave out one of them");
            }
            _ => {}
        }
        let Some(hold) = &reserve.hold else {
            self.error(reserve.at, "`reserve` has no `hold`", "write `reserve: { hold: 10m }`");
            return None;
        };
        let length = hold.value?;
        if length > WINDOW_MAX {
            self.error(hold.at, LimitError::LongWindow(length).to_string(), "");
        }
        Some(length)
    }

    /// The fallback of the rule when the store fails.
    pub(super) fn on_error(&mut self, raw: &RawRateLimit) -> Option<OnError> {
        let text = raw.on_error.as_ref()?;
        let name = text.value.as_deref()?;
        let found = OnError::ALL.into_iter().find(|known| known.name() == name);
        if found.is_none() {
            let what = format!("unknown `on_error` `{}`", shorten(name));
            self.error(text.at, what, "write allow, deny or local");
        }
        found
    }

    /// The requests of the rule that get a line in the log.
    pub(super) fn request_lines(&mut self, raw: &RawRateLimit) -> Option<RequestLines> {
        let text = raw.log.as_ref()?;
        let name = text.value.as_deref()?;
        let found = RequestLines::from_name(name);
        if found.is_none() {
            let what = format!("unknown `log` `{}`", shorten(name));
            self.error(text.at, what, "write off, denied or all");
        }
        found
    }

    fn unlimited(&mut self, raw: &RawRateLimit) {
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
            ("window", tier.window_at()),
            ("burst", tier.burst.as_ref().map(|field| field.at)),
            ("tiers", raw.tiers.as_ref().map(|field| field.at)),
            ("max", raw.max.as_ref().map(|field| field.at)),
            ("hold", raw.hold.as_ref().map(|field| field.at)),
            ("count_denied", raw.count_denied.as_ref().map(|field| field.at)),
            ("on_error", raw.on_error.as_ref().map(|field| field.at)),
            ("mode", raw.mode.as_ref().map(|field| field.at)),
            ("sync_interval", raw.sync_interval.as_ref().map(|field| field.at)),
            ("over_limit_cache", raw.over_limit_cache.as_ref().map(|field| field.at)),
            ("cost", raw.cost.as_ref().map(|field| field.at)),
            ("shadow", raw.shadow.as_ref().map(|shadow| shadow.at)),
            ("limit_from", raw.limit_from.as_ref().map(|from| from.at)),
            ("usage", raw.usage.as_ref().map(|field| field.at)),
        ];
        for (name, at) in others {
            if let Some(at) = at {
                let what = format!("a rule cannot be `unlimited` and have `{name}`");
                self.error(at, what, format!("remove `{name}`, or remove `unlimited`"));
            }
        }
    }

    pub(super) fn algorithm(&mut self, written: Option<&Text>) -> Option<Algorithm> {
        let Some(text) = written else { return Some(Algorithm::FixedWindow) };
        let name = text.value.as_deref()?;
        let found = Algorithm::from_name(name);
        if found.is_none() {
            let names = Algorithm::ALL.map(Algorithm::name);
            let hint = match nearest(name, names) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("write one of {}", names.join(", ")),
            };
            self.error(text.at, format!("unknown algorithm `{}`", shorten(name)), hint);
        }
        found
    }

    /// `max` and `hold` of a concurrency limit.
    fn slots(&mut self, raw: &RawRateLimit) -> Option<Tier> {
        let written = tier_fields(&raw.tier)
            .into_iter()
            .chain([("tiers", raw.tiers.as_ref().map(|field| field.at))]);
        for (name, at) in written {
            if let Some(at) = at {
                let what = format!("`{name}` does not apply to `concurrency`");
                self.error(at, what, "write `max` (slots) and `hold` (how long one is kept)");
            }
        }
        let hint = "write for example `max: 50`, the slots that may be held at the same time";
        let max = self.required(raw.max.as_ref(), "max", raw.at, hint);
        let hint = "write for example `hold: 30s`, after which an unreleased slot is free";
        let hold = self.required(raw.hold.as_ref(), "hold", raw.at, hint);
        let (requests, window) = (max?.value?, hold?.value?);
        Some(Tier { requests, window, burst: requests, calendar: None })
    }

    fn tiers(&mut self, raw: &RawRateLimit, algorithm: Algorithm) -> Option<Vec<Tier>> {
        for (name, at) in [
            ("max", raw.max.as_ref().map(|field| field.at)),
            ("hold", raw.hold.as_ref().map(|field| field.at)),
        ] {
            if let Some(at) = at {
                let what = format!("`{name}` applies only to `concurrency`");
                self.error(at, what, "add `algorithm: concurrency`, or remove it");
            }
        }
        let Some(Field { value, .. }) = &raw.tiers else {
            return Some(vec![self.tier(&raw.tier, algorithm)?]);
        };
        self.check_fields_beside_tiers(raw);
        let written = value.as_deref().unwrap_or_default();
        let tiers: Vec<_> = written.iter().map(|tier| self.tier(tier, algorithm)).collect();
        tiers.into_iter().collect()
    }

    /// Reports fields of a tier that are beside `tiers`.
    pub(super) fn check_fields_beside_tiers(&mut self, raw: &RawRateLimit) {
        for (name, location) in tier_fields(&raw.tier) {
            if let Some(location) = location {
                let what = format!("`{name}` is beside `tiers`");
                self.error(location, what, "move it into an item of `tiers`, or remove `tiers`");
            }
        }
    }

    pub(super) fn tier(&mut self, raw: &model::RawTier, algorithm: Algorithm) -> Option<Tier> {
        let by_unit =
            raw.unit.is_some() || raw.requests_per_unit.is_some() || raw.unit_multiplier.is_some();
        let by_window = raw.requests.is_some() || raw.window_at().is_some();
        if by_unit && by_window {
            let hint = "write `requests_per_unit` with `unit`, or `requests` with `window`";
            self.error(raw.at, "two ways of writing a limit are mixed", hint);
            return None;
        }
        if let Some(window) = &raw.calendar {
            return self.calendar_tier(raw, window, algorithm);
        }
        let pair = if by_window { self.free_window(raw) } else { self.named_window(raw) };
        let burst = self.burst(raw, algorithm);
        let (requests, window) = pair?;
        Some(Tier { requests, window, burst: burst?.unwrap_or(requests), calendar: None })
    }

    /// `requests_per_unit` per `unit_multiplier` times `unit`.
    fn named_window(&mut self, raw: &model::RawTier) -> Option<(u64, Micros)> {
        let unit = self.unit(raw);
        let hint = "write for example `requests_per_unit: 100`; an explicit 0 blocks every request";
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
        let window = unit?.window().0.saturating_mul(multiplier.value?);
        Some((requests?, Micros(window)))
    }

    fn unit(&mut self, raw: &model::RawTier) -> Option<Unit> {
        let found = raw.unit.as_ref().and_then(|unit| Unit::from_name(unit.value.as_deref()?));
        if found.is_some() {
            return found;
        }
        let names = Unit::ALL.map(Unit::name);
        let choices = format!("write one of {}", names.join(", "));
        let unit = self.required(raw.unit.as_ref(), "unit", raw.at, &choices)?;
        let name = unit.value.as_deref()?;
        let hint = match nearest(name, names) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => choices,
        };
        self.error(unit.at, format!("unknown unit `{}`", shorten(name)), hint);
        None
    }

    /// `requests` per `window`.
    fn free_window(&mut self, raw: &model::RawTier) -> Option<(u64, Micros)> {
        let requests = self.requests(raw);
        let hint = "write for example `window: 10s`";
        let window = self.required(raw.window.as_ref(), "window", raw.at, hint);
        Some((requests?, window?.value?))
    }

    /// The `requests` of a tier with a `window`.
    pub(super) fn requests(&mut self, raw: &model::RawTier) -> Option<u64> {
        let hint = "write for example `requests: 100`; an explicit 0 blocks every request";
        self.required(raw.requests.as_ref(), "requests", raw.at, hint)?.value
    }

    /// The `burst` of a tier. The outer `None` means an error. The inner `None` means an absent
    /// field.
    pub(super) fn burst(
        &mut self,
        raw: &model::RawTier,
        algorithm: Algorithm,
    ) -> Option<Option<u64>> {
        let Some(burst) = &raw.burst else { return Some(None) };
        if !algorithm.has_burst() {
            let hint = "add `algorithm: token_bucket` or `leaky_bucket`, or remove it";
            self.error(burst.at, "`burst` applies only to buckets", hint);
        }
        Some(Some(burst.value?))
    }

    /// Checks a limit against the bounds of the stores.
    pub(super) fn check_bounds(&mut self, limit: &Limit, raw: &RawRateLimit) {
        for (tier, error) in limit.problems() {
            let written = raw.tiers.as_ref().and_then(|tiers| tiers.value.as_ref()?.get(tier?));
            let at = error_position(raw, written.unwrap_or(&raw.tier), &error);
            self.error(at, error.to_string(), "");
        }
    }
}

/// The position of the number that an error is about.
fn error_position(raw: &RawRateLimit, tier: &model::RawTier, error: &LimitError) -> Position {
    fn at<T>(field: &Option<Field<T>>) -> Option<Position> {
        field.as_ref().map(|field| field.at)
    }
    let requests = || at(&tier.requests).or(at(&tier.requests_per_unit)).or(at(&raw.max));
    let written = match error {
        LimitError::Tiers(_) => at(&raw.tiers),
        LimitError::DeniedSlots => at(&raw.count_denied),
        LimitError::NoWindow | LimitError::LongWindow(_) | LimitError::Calendar(_) => {
            tier.window_at().or(at(&tier.unit_multiplier)).or(at(&raw.hold))
        }
        LimitError::Requests(..) | LimitError::Log(_) | LimitError::Slots(_) => requests(),
        // Without `burst`, the burst is the number of requests.
        LimitError::Burst(_) | LimitError::NoBurst | LimitError::SlowBucket(_) => {
            at(&tier.burst).or_else(requests)
        }
    };
    written.unwrap_or(tier.at)
}

impl LimitReader<'_> {
    pub(super) fn required<'f, T>(
        &mut self,
        field: Option<&'f Field<T>>,
        name: &str,
        at: Position,
        hint: &str,
    ) -> Option<&'f Field<T>> {
        if field.is_none() {
            self.error(at, format!("`{name}` is missing"), hint);
        }
        field
    }

    pub(super) fn error(&mut self, at: Position, what: impl Into<String>, hint: impl Into<String>) {
        self.report.error(at.in_file(self.file), what, hint);
    }

    fn warn(&mut self, at: Position, what: &str, hint: &str) {
        self.report.warn(at.in_file(self.file), what, hint);
    }
}

/// The fields of a tier, with the positions of those that are present.
pub(super) fn tier_fields(tier: &model::RawTier) -> [(&'static str, Option<Position>); 6] {
    [
        ("unit", tier.unit.as_ref().map(|field| field.at)),
        ("requests_per_unit", tier.requests_per_unit.as_ref().map(|field| field.at)),
        ("unit_multiplier", tier.unit_multiplier.as_ref().map(|field| field.at)),
        ("requests", tier.requests.as_ref().map(|field| field.at)),
        ("window", tier.window_at()),
        ("burst", tier.burst.as_ref().map(|field| field.at)),
    ]
}
