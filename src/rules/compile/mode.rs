//! Reads the `mode` of a rule and checks that its limit supports the mode.

use super::limit_reader::LimitReader;
use crate::limit::{Algorithm, Limit, Mode};
use crate::rules::excerpt::shorten;
use crate::rules::file::model::RawRateLimit;
use crate::rules::file::problem::Position;
use crate::rules::file::reader::Field;
use crate::rules::lookup::rule::RuleLimit;
use crate::spelling::nearest;
use crate::time::Micros;

/// The default `sync_interval`.
const SYNC_INTERVAL: Micros = Micros::SECOND;

/// The shortest and the longest `sync_interval`. Below 10 ms, `exact` costs no more. Above an hour,
/// a counter could stay over its limit for too long.
const SYNC_INTERVALS: (Micros, Micros) = (Micros::from_millis(10), Micros::from_secs(3_600));

const NAMES: [&str; 3] = ["exact", "leased", "synced"];

impl LimitReader<'_> {
    /// The mode of the rule. `leased` and `synced` decide in this process, so the store does not
    /// count denied hits.
    pub(super) fn mode(&mut self, raw: &RawRateLimit, limit: Option<&mut RuleLimit>) -> Mode {
        let mode = self.written_mode(raw);
        if let Some(interval) = &raw.sync_interval
            && !matches!(mode, Mode::Synced { .. })
        {
            let hint = "add `mode: synced`, or remove it";
            self.error(interval.at, "`sync_interval` applies only to `mode: synced`", hint);
        }
        if let (Some(text), Some(RuleLimit::Limit(limit))) = (&raw.mode, limit)
            && mode != Mode::Exact
        {
            self.check_mode(mode, text.at, raw, limit);
            limit.count_denied = false;
        }
        mode
    }

    fn written_mode(&mut self, raw: &RawRateLimit) -> Mode {
        let Some(text) = &raw.mode else { return Mode::Exact };
        match text.value.as_deref() {
            Some("leased") => Mode::Leased,
            Some("synced") => {
                let interval = raw.sync_interval.as_ref();
                Mode::Synced { interval: interval.map_or(SYNC_INTERVAL, |one| self.interval(one)) }
            }
            Some("exact") | None => Mode::Exact,
            Some(name) => {
                let hint = match nearest(name, NAMES) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!("write one of {}", NAMES.join(", ")),
                };
                self.error(text.at, format!("unknown mode `{}`", shorten(name)), hint);
                Mode::Exact
            }
        }
    }

    fn interval(&mut self, written: &Field<Micros>) -> Micros {
        let Some(interval) = written.value else { return SYNC_INTERVAL };
        let (shortest, longest) = SYNC_INTERVALS;
        if interval < shortest || interval > longest {
            let hint = "write between 10ms and 1h";
            self.error(written.at, "this `sync_interval` is out of bounds", hint);
        }
        interval.clamp(shortest, longest)
    }

    fn check_mode(&mut self, mode: Mode, at: Position, raw: &RawRateLimit, limit: &Limit) {
        let word = mode.name();
        let name = limit.algorithm.name();
        let hint = match limit.algorithm {
            Algorithm::SlidingWindowLog => {
                Some("use `algorithm: sliding_window`, or remove `mode`")
            }
            Algorithm::Concurrency => Some("remove `mode`: slots are counted exactly"),
            Algorithm::FixedWindow
            | Algorithm::SlidingWindow
            | Algorithm::TokenBucket
            | Algorithm::LeakyBucket => None,
        };
        if let Some(hint) = hint {
            self.error(at, format!("`{name}` cannot be {word}"), hint);
        }
        if let Some(reserve) = &raw.reserve {
            let hint = "remove `reserve`, or `mode`: a reservation is settled in the store";
            self.error(reserve.at, format!("a {word} rule cannot `reserve`"), hint);
        }
        let written = raw.count_denied.as_ref().filter(|flag| flag.value == Some(true));
        if let Some(written) = written {
            let hint = "remove it, or `mode`: this mode does not send denied hits to the store";
            self.error(written.at, format!("a {word} rule cannot have `count_denied`"), hint);
        }
    }
}
