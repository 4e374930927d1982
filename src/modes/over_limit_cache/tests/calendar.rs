//! Tests that denied hits count in the calendar window in which they were denied.

use super::*;
use crate::testing::calendar_edges;

/// Some hits are unreported when their window ends, and the clock is set back to the window before.
#[test]
fn denied_hits_count_in_their_calendar_window() {
    for edge in calendar_edges() {
        let (plain, store, key) = (MemoryStore::new(1_000), fake(), key(1));
        let cached = cache(&store);
        let tiers = Box::new([Tier::by_calendar(2, edge.calendar)]);
        let limit = Limit { algorithm: Algorithm::FixedWindow, tiers, count_denied: true };
        let hit = |at: u64| {
            let step = algorithm::plan(&limit, 1, Micros(at));
            let expected = check_memory(&plain, &key, &limit, &step);
            assert_eq!(check(&cached, &key, &limit, &step), expected, "at {at}, {edge:?}");
            expected
        };
        let (start, end) = (edge.start.0, edge.end.0);
        for at in [start - 900_000, start - 800_000, start - 700_000, start - 600_000, start - 1] {
            hit(at);
        }
        let first = hit(start);
        assert_eq!((first.allowed, first.used), (true, 1), "{edge:?}");
        for at in [start + 1, start + 2, start - 5, start - 4, start - 3, start + 3, start + 4] {
            hit(at);
        }
        let last = hit(start + 5);
        assert_eq!((last.used, last.reset_after), (9, Micros(end - start - 5)), "{edge:?}");
        for at in [end - 900_000, end - 1, end] {
            hit(at);
        }
    }
}
