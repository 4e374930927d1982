//! The recent windows of a thread, so that a decision does not read the zone.
//!
//! The window of an instant is the same in every thread, so this is a table of results and no state.

use std::cell::RefCell;

use super::{Calendar, CalendarSpan};
use crate::time::Micros;

/// Sets of the table. A calendar has one.
const SETS: usize = 1 << SET_BITS;
const SET_BITS: u32 = 5;
/// Windows of a set: of two calendars, or of two instants around the end of a window.
const WAYS: usize = 2;

/// A window of a calendar.
#[derive(Clone, Copy)]
struct RecentWindow {
    calendar: Calendar,
    span: CalendarSpan,
}

thread_local! {
    static RECENT: RefCell<[[Option<RecentWindow>; WAYS]; SETS]> =
        const { RefCell::new([[None; WAYS]; SETS]) };
}

/// The window of `calendar` that contains `at`, which is computed unless it was needed recently.
pub(super) fn span(
    calendar: &Calendar,
    at: Micros,
    compute: impl FnOnce() -> CalendarSpan,
) -> CalendarSpan {
    let set = set_of(calendar);
    let fits = |known: &&RecentWindow| known.calendar == *calendar && known.span.contains(at);
    let known =
        RECENT.with_borrow(|sets| sets[set].iter().flatten().find(fits).map(|one| one.span));
    known.unwrap_or_else(|| {
        let span = compute();
        RECENT.with_borrow_mut(|sets| {
            sets[set] = [Some(RecentWindow { calendar: *calendar, span }), sets[set][0]];
        });
        span
    })
}

/// The set of a calendar, by a multiplicative hash of its bytes.
fn set_of(calendar: &Calendar) -> usize {
    let [low, high] = calendar.zone.number().to_le_bytes();
    let starts = &calendar.starts;
    let period = calendar.period as u8;
    let bytes = [low, high, period, starts.month, starts.day, starts.weekday, starts.hour, 0];
    let hash = u64::from_le_bytes(bytes).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (u64::BITS - SET_BITS)) as usize
}
