//! Drawn spans: the pieces of a bucket's time axis that one instance has drawn. Pure.
//!
//! The state of a bucket is the instant at which it is empty. A draw moves it from `from` to `to`,
//! and its instance owns the span between them. The span drains as time passes over it. A hit at
//! `now` uses up a piece that lies after `now` and is as long as the hit's cost.
//!
//! All instants and lengths are in the parts of a microsecond in which the bucket counts.

use smallvec::SmallVec;

/// Most spans per tier. When there are more, the first one is dropped, which drains first.
const SPANS_MAX: usize = 4;

/// A drawn span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DrawnSpan {
    start: i128,
    /// The end of the used piece, which begins at `start`.
    from: i128,
    to: i128,
}

/// The spans of one tier, in the order of the axis. They do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DrawnSpans(SmallVec<[DrawnSpan; 1]>);

impl DrawnSpans {
    /// Adds a drawn span, which lies after all others.
    pub(super) fn add(&mut self, from: i128, to: i128) {
        match self.0.last_mut() {
            Some(last) if last.to == from => last.to = to,
            _ => self.0.push(DrawnSpan { start: from, from, to }),
        }
        if self.0.len() > SPANS_MAX {
            self.0.remove(0);
        }
    }

    /// The length that a hit at `now` can use.
    pub(super) fn unspent(&self, now: i128) -> i128 {
        self.0.iter().map(|span| (span.to - span.from.max(now)).max(0)).sum()
    }

    /// The used length that has not drained at `now`.
    pub(super) fn spent(&self, now: i128) -> i128 {
        self.0.iter().map(|span| (span.from - span.start.max(now)).max(0)).sum()
    }

    /// The end of the piece that a hit of `cost` at `now` would use; `None` if there is too little.
    pub(super) fn end_of(&self, cost: i128, now: i128) -> Option<i128> {
        let mut left = cost;
        self.0.iter().find_map(|span| {
            let from = span.from.max(now).min(span.to);
            let used = left.min(span.to - from);
            left -= used;
            (left == 0).then_some(from + used)
        })
    }

    /// Uses up `cost` at `now`. The caller has checked that there is as much.
    pub(super) fn spend(&mut self, cost: i128, now: i128) {
        let mut left = cost;
        for span in &mut self.0 {
            if now > span.from {
                // The piece before `now` has drained, used or not.
                (span.start, span.from) = (now.min(span.to), now.min(span.to));
            }
            let used = left.min(span.to - span.from);
            (span.from, left) = (span.from + used, left - used);
        }
        self.0.retain(|span| span.to > now);
    }

    /// Turns up to `cost` of the used length that has not drained at `now` into unused length.
    /// Returns how much.
    pub(super) fn refund(&mut self, cost: i128, now: i128) -> i128 {
        let mut left = cost;
        for span in self.0.iter_mut().rev() {
            let back = left.min(span.from - span.start.max(now)).max(0);
            (span.from, left) = (span.from - back, left - back);
        }
        cost - left
    }

    /// Moves all spans by `length` towards the past, because hits before them were given back.
    pub(super) fn shift(&mut self, length: i128) {
        for span in &mut self.0 {
            *span = DrawnSpan {
                start: span.start - length,
                from: span.from - length,
                to: span.to - length,
            };
        }
    }

    /// The unused piece of the last span: its start, not before `now`, and its end.
    pub(super) fn last(&self, now: i128) -> Option<(i128, i128)> {
        let span = self.0.last()?;
        Some((span.from.max(now).min(span.to), span.to))
    }

    /// Removes the unused piece of the last span.
    pub(super) fn drop_last(&mut self) {
        if let Some(span) = self.0.last_mut() {
            span.to = span.from;
        }
        self.0.retain(|span| span.to > span.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_use_what_has_not_drained() {
        let mut spans = DrawnSpans::default();
        spans.add(100, 130);
        spans.add(130, 140);
        spans.add(200, 220);
        assert_eq!((spans.unspent(90), spans.unspent(110), spans.unspent(210)), (60, 50, 10));
        assert_eq!((spans.end_of(20, 110), spans.end_of(35, 110)), (Some(130), Some(205)));
        assert_eq!((spans.end_of(50, 110), spans.end_of(51, 110)), (Some(220), None));
        spans.spend(20, 110);
        assert_eq!((spans.unspent(110), spans.spent(110), spans.spent(120)), (30, 20, 10));
        assert_eq!(spans.refund(15, 120), 10, "the rest has drained");
        spans.spend(25, 120);
        assert_eq!((spans.unspent(120), spans.last(0)), (15, Some((205, 220))));
        spans.drop_last();
        assert_eq!((spans.unspent(0), spans.spent(200)), (0, 5));
        spans.shift(3);
        assert_eq!(spans.spent(200), 2);
    }
}
