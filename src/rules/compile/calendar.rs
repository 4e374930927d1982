//! Turns the map under `window` into a calendar and checks every value.

use super::limit_reader::LimitReader;
use crate::limit::{Algorithm, Calendar, Period, Tier, WEEKDAYS, WindowStart, Zone};
use crate::rules::excerpt::shorten;
use crate::rules::file::model::{RawRateLimit, RawTier};
use crate::rules::file::raw_calendar::{RawCalendar, RawStarts};
use crate::rules::file::reader::{Field, Text};
use crate::spelling::nearest;

impl LimitReader<'_> {
    /// A tier whose `window` is a map.
    pub(super) fn calendar_tier(
        &mut self,
        raw: &RawTier,
        window: &RawCalendar,
        algorithm: Algorithm,
    ) -> Option<Tier> {
        let requests = self.requests(raw);
        let calendar = self.calendar(window);
        let burst = self.burst(raw, algorithm);
        let requests = requests?;
        Some(Tier { burst: burst?.unwrap_or(requests), ..Tier::by_calendar(requests, calendar?) })
    }

    /// Checks the calendars of a limit whose other fields may be missing.
    pub(super) fn calendars(&mut self, raw: &RawRateLimit) {
        let tiers = raw.tiers.as_ref().and_then(|tiers| tiers.value.as_deref());
        for tier in tiers.unwrap_or_default().iter().chain([&raw.tier]) {
            if let Some(window) = &tier.calendar {
                self.calendar(window);
            }
        }
    }

    fn calendar(&mut self, raw: &RawCalendar) -> Option<Calendar> {
        let period = self.period(raw);
        let zone = match &raw.zone {
            Some(text) => self.zone(text),
            None => Some(Zone::UTC),
        };
        let starts = match (&raw.starts, period) {
            (Some(starts), Some(period)) => self.starts(starts, period),
            _ => Some(WindowStart::FIRST),
        };
        Some(Calendar { period: period?, zone: zone?, starts: starts? })
    }

    fn period(&mut self, raw: &RawCalendar) -> Option<Period> {
        let names = Period::ALL.map(Period::name);
        let choices = format!("write one of {}", names.join(", "));
        let text = self.required(raw.calendar.as_ref(), "calendar", raw.at, &choices)?;
        let name = text.value.as_deref()?;
        let found = Period::from_name(name);
        if found.is_none() {
            let hint = match nearest(name, names) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => choices,
            };
            self.error(text.at, format!("unknown calendar period `{}`", shorten(name)), hint);
        }
        found
    }

    fn zone(&mut self, text: &Text) -> Option<Zone> {
        let name = text.value.as_deref()?;
        let found = Zone::named(name);
        if found.is_none() {
            // The search reads all names, so it is only for errors that are listed.
            let meant = if self.report.lists_more() { Zone::similar(name) } else { None };
            let hint = match meant {
                Some(zone) => format!("did you mean `{}`?", zone.name()),
                None => {
                    "write a name of the IANA database, such as Europe/Zurich or UTC".to_owned()
                }
            };
            self.error(text.at, format!("unknown time zone `{}`", shorten(name)), hint);
        }
        found
    }

    /// Where a window begins; `None` after a reported error.
    fn starts(&mut self, raw: &RawStarts, period: Period) -> Option<WindowStart> {
        let used: &[&str] = match period {
            Period::Day => &["hour"],
            Period::Week => &["weekday", "hour"],
            Period::Month => &["day", "hour"],
            Period::Quarter | Period::Year => &["month", "day", "hour"],
        };
        let months = if period == Period::Quarter { 3 } else { 12 };
        let of_month = format!("write 1 to {months}, a month of the {}", period.name());
        let day = "write 1 to 31; in a shorter month the last day counts";
        let month = self.start_number("month", raw.month.as_ref(), 1..=months, &of_month);
        let day = self.start_number("day", raw.day.as_ref(), 1..=31, day);
        let hour = self.start_number("hour", raw.hour.as_ref(), 0..=23, "write 0 to 23");
        let weekday = self.weekday(raw.weekday.as_ref());
        let mut is_valid = true;
        for (name, at) in [
            ("month", raw.month.as_ref().map(|field| field.at)),
            ("day", raw.day.as_ref().map(|field| field.at)),
            ("weekday", raw.weekday.as_ref().map(|field| field.at)),
            ("hour", raw.hour.as_ref().map(|field| field.at)),
        ] {
            if let Some(at) = at.filter(|_| !used.contains(&name)) {
                is_valid = false;
                let period = period.name();
                let what = format!("`{name}` does not apply to a calendar {period}");
                let hint = format!("remove it; a {period} starts by {}", used.join(" and "));
                self.error(at, what, hint);
            }
        }
        let starts = WindowStart {
            month: month?.unwrap_or(1),
            day: day?.unwrap_or(1),
            weekday: weekday?.unwrap_or(1),
            hour: hour?.unwrap_or(0),
        };
        is_valid.then_some(starts)
    }

    /// A number of `starts`. The outer `None` means an error, the inner `None` an absent field.
    fn start_number(
        &mut self,
        name: &str,
        field: Option<&Field<u64>>,
        bounds: std::ops::RangeInclusive<u8>,
        hint: &str,
    ) -> Option<Option<u8>> {
        let Some(field) = field else { return Some(None) };
        let number = field.value?;
        let found = u8::try_from(number).ok().filter(|number| bounds.contains(number));
        if found.is_none() {
            self.error(field.at, format!("`{name}` cannot be {number}"), hint);
        }
        found.map(Some)
    }

    /// The `weekday` of `starts`, 1 for Monday. The outer `None` means an error, the inner `None` an
    /// absent field.
    fn weekday(&mut self, field: Option<&Text>) -> Option<Option<u8>> {
        let Some(field) = field else { return Some(None) };
        let name = field.value.as_deref()?;
        let found = WEEKDAYS.iter().position(|day| day.eq_ignore_ascii_case(name));
        if found.is_none() {
            let hint = match nearest(name, WEEKDAYS) {
                Some(meant) => format!("did you mean `{}`?", meant.to_ascii_lowercase()),
                None => format!("write one of {}", WEEKDAYS.join(", ").to_ascii_lowercase()),
            };
            self.error(field.at, format!("unknown weekday `{}`", shorten(name)), hint);
        }
        found.and_then(|index| u8::try_from(index + 1).ok()).map(Some)
    }
}
