//! Conservation: Redis has every hit that passed, once, and no other.

use super::*;

/// After the end of all instances, a window that has not ended has the hits that passed.
pub(super) fn windows(facts: &Facts<'_>) -> Option<String> {
    if !facts.counts_all() || !facts.kept {
        return None;
    }
    let count = facts.used(&facts.history.redis.state(&facts.key), facts.history.end);
    let mut passed: i64 = facts.asked.iter().map(|asked| asked.passed() - asked.returned()).sum();
    for asked in &facts.asked {
        if let (Kind::Closes(opened), Decided::Passed) = (asked.kind, asked.decided) {
            passed += asked.hits.abs() - facts.history.asked[opened].hits;
        }
    }
    let denied = |asked: &&&Asked| asked.decided == Decided::Denied;
    let denied: i64 = facts.asked.iter().filter(denied).map(|asked| asked.hits).sum();
    let counts_denied = facts.limit.count_denied || !facts.same_rules;
    let denied = if counts_denied { denied } else { 0 };
    if facts.calm {
        let most = passed + denied;
        return (count < passed || count > most)
            .then(|| format!("{passed} hits passed, and Redis has {count}"));
    }
    // Hits that return possibly never arrived.
    let back = |asked: &&Asked| match (asked.kind, asked.decided) {
        (Kind::Closes(_), _) | (_, Decided::Freed) => asked.hits.abs(),
        (_, Decided::Failed(_)) => (-asked.hits).max(0),
        _ => 0,
    };
    let back: i64 = facts.asked.iter().map(back).sum::<i64>() + facts.unknown_returned;
    let opened = |asked: &&&Asked| matches!(asked.kind, Kind::Closes(_));
    let opened = facts.asked.iter().filter(opened).map(|asked| match asked.kind {
        Kind::Closes(opened) => facts.history.asked[opened].hits,
        Kind::Hits => 0,
    });
    let opened: i64 = opened.sum();
    let most = passed + denied + facts.unknown_taken + back + opened;
    // Redis cannot tell hits of several instances from each other after an unknown exchange, and
    // an instance that ends while Redis is down loses what it has not sent.
    let synced = matches!(facts.mode, Mode::Synced { .. }) || !facts.same_rules;
    let least = if synced { i64::MIN } else { passed - back - opened };
    (count > most || count < least).then(|| {
        format!("{passed} hits passed, {least}..={most} are explained, and Redis has {count}")
    })
}

/// Slots that were released are free again, and all others are taken.
pub(super) fn slots(facts: &Facts<'_>) -> Option<String> {
    if facts.limit.algorithm != Algorithm::Concurrency || !facts.kept || !facts.calm {
        return None;
    }
    let used = facts.used(&facts.history.redis.state(&facts.key), facts.history.end);
    let taken: i64 = facts.asked.iter().map(|asked| asked.passed()).sum();
    let released = |asked: &&Asked| match (asked.kind, asked.decided) {
        (Kind::Closes(_), Decided::Passed) => asked.hits.abs(),
        _ => 0,
    };
    let released: i64 = facts.asked.iter().map(released).sum();
    (used != taken - released)
        .then(|| format!("{taken} slots taken, {released} released, and {used} are in use"))
}
