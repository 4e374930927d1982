//! Tests that credits end with the calendar window that counts their hits.

use super::super::leased_limit::{CreditBatch, LeasedLimit};
use crate::limit::{Algorithm, Limit, Tier};
use crate::testing::calendar_edges;
use crate::time::Micros;

/// Microseconds by which a clock is behind the edge.
const BEHIND: u64 = 400_000;

/// Another instance has begun the next window already, so credits of an instance whose clock is behind
/// are counted there.
#[test]
fn credits_end_with_the_window_that_counts_them() {
    for edge in calendar_edges() {
        let tiers = Box::new([Tier::by_calendar(5, edge.calendar)]);
        let limit = Limit { algorithm: Algorithm::FixedWindow, tiers, count_denied: false };
        let leased = LeasedLimit::of(&limit).expect("credits of windows");
        let (start, end) = (edge.start, edge.end);
        let behind = Micros(start.0 - BEHIND);
        let mut state = None;
        let step = leased.plan(1, behind);
        let outcome = step.apply(&mut state);
        assert_eq!(leased.window_end(&step, &outcome), start, "{edge:?}");
        let step = leased.plan(1, start);
        let outcome = step.apply(&mut state);
        assert_eq!(leased.window_end(&step, &outcome), end, "{edge:?}");
        let step = leased.plan(2, behind);
        let outcome = step.apply(&mut state);
        assert_eq!(leased.window_end(&step, &outcome), end, "{edge:?}");
        // They are returned to that window, as long as it lasts.
        let batch = CreditBatch { credits: 2, drawn: 2, until: end };
        assert_eq!(leased.return_step(&batch, Some(end)), None, "{edge:?}");
        let back = leased.return_step(&batch, Some(start)).expect("the window has not ended");
        back.apply(&mut state);
        assert_eq!(leased.room(state.as_ref(), start), 4, "{edge:?}");
        // The next credits end at the exact end of the window, and are useful until then.
        assert_eq!(leased.window_of(behind), Some(start), "{edge:?}");
        assert_eq!(leased.life_at(behind), Micros(BEHIND), "{edge:?}");
        assert_eq!(leased.life_at(start), end.saturating_sub(start), "{edge:?}");
    }
}
