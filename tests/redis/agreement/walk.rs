//! Random walks: sequences of steps on one counter that favour edge cases.

use std::fmt;

use weir::limit::{
    Algorithm, Calendar, FILL_MAX, HITS_END, Limit, Period, SLIDING_REQUESTS_END, Tier, WINDOW_MAX,
    WindowStart, Zone,
};
use weir::splitmix64;
use weir::step::{Lease, LeaseId, State, Step};
use weir::time::Micros;

use super::origin::Origin;

/// Every algorithm, in the order of docs/reference/algorithms.md.
pub(crate) const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingWindowLog,
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::Concurrency,
];

/// One operation of a caller.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) limit: Limit,
    pub(crate) now: Micros,
    pub(crate) hits: i64,
    pub(crate) lease: Option<Lease>,
    pub(crate) origin: Origin,
}

/// One short line per operation.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.limit.algorithm)?;
        for Tier { requests, window, burst, calendar } in &self.limit.tiers {
            match calendar {
                Some(calendar) => write!(f, " {requests}/{calendar}")?,
                None => write!(f, " {requests}/{}us:{burst}", window.0)?,
            }
        }
        let denied = if self.limit.count_denied { " count_denied" } else { "" };
        write!(f, "{denied} | at {} hits {}", self.now.0, self.hits)?;
        if !matches!(self.origin, Origin::Decided) {
            write!(f, " {:?} {:?}", self.origin, self.step().params)?;
        }
        self.lease.map_or(Ok(()), |lease| write!(f, " {lease:?}"))
    }
}

impl Operation {
    /// The step of the operation.
    pub(crate) fn step(&self) -> Step {
        let mut step = weir::algorithm::plan(&self.limit, self.hits, self.now);
        self.origin.change(&mut step);
        match self.lease {
            Some(lease) => step.with_lease(lease),
            None => step,
        }
    }
}

/// A generator of random choices, the same for the same seed.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    fn roll(&mut self) -> u64 {
        splitmix64::next(&mut self.0)
    }

    /// A number in `0..end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.roll() % end.max(1)
    }

    /// A number in `0..end`, as likely between 8 and 16 as between 2^40 and 2^41.
    pub(crate) fn of_any_size(&mut self, end: u64) -> u64 {
        let shift = self.below(u64::from(end.max(1).ilog2()) + 1);
        self.below(end >> shift)
    }

    /// True with probability `times / of`.
    fn happens(&mut self, times: u64, of: u64) -> bool {
        self.below(of) < times
    }

    /// One of these values.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// The parameters of one walk. They make walks differ more from each other than the steps of one
/// walk do.
struct WalkProfile {
    /// The number of operations that open or close a lease, out of 10.
    leases: u64,
    /// Whether all operations take hits, so that lists grow long.
    piling: bool,
    /// Whether time advances by at most a small part of the window.
    slow: bool,
    /// Whether most operations repeat the one before them, at a near instant.
    repeats: bool,
}

/// About sixty operations on one counter of `algorithm`.
pub(crate) fn walk(algorithm: Algorithm, rng: &mut Rng) -> Vec<Operation> {
    let starts = [0, 1, 99, 1_785_000_000_000_000, 1_785_000_000_000_001, (1 << 52) - 7];
    let mut now = rng.pick(&starts) + rng.below(3);
    let mut limit = limit(algorithm, rng);
    let profile = WalkProfile {
        leases: rng.pick(&[0, 2, 2, 9]),
        piling: rng.happens(1, 4),
        slow: rng.happens(1, 3),
        repeats: rng.happens(1, 3),
    };
    let length = 20 + rng.below(80);
    let changes = rng.happens(1, 4);
    let (mut operations, mut state) = (Vec::<Operation>::new(), None::<State>);
    for _ in 0..length {
        if let Some(last) = operations.last()
            && profile.repeats
            && rng.happens(4, 5)
        {
            // Also an instant before the last one: the clock was set back. Not with reservations, whose
            // time to live depends on the instant.
            let reserved = matches!(state, Some(State::Reserved(_)));
            let near = last.now.0.saturating_sub(rng.below(2)) + rng.below(3);
            let near = if reserved { last.now.0 } else { near };
            let again = Operation { now: Micros(near), ..last.clone() };
            again.step().apply(&mut state);
            operations.push(again);
            continue;
        }
        if changes && rng.happens(1, 12) {
            limit = changed(&limit, algorithm, rng);
        }
        now = later(now, &limit, &profile, rng);
        let hits = hits(&limit, &profile, rng);
        let lease = rng.happens(profile.leases, 10).then(|| lease(now, &limit, rng));
        // Never with a lease: rules whose hits are counted elsewhere cannot reserve.
        let origin = match rng.below(5) {
            0 if hits != 0 && lease.is_none() => Origin::Elsewhere(rng.roll()),
            1 if hits != 0 && lease.is_none() => {
                Origin::span(&limit, hits, Micros(now), &state, rng)
            }
            _ => Origin::Decided,
        };
        let operation = Operation { limit: limit.clone(), now: Micros(now), hits, lease, origin };
        operation.step().apply(&mut state);
        operations.push(operation);
    }
    operations
}

/// Three operations on a sliding window. At the last two the weighted sum is as near to the limit
/// as possible: one that does not fit, and the same one microsecond later, which does.
pub(crate) fn edge(rng: &mut Rng) -> Vec<Operation> {
    let requests = 2 + rng.of_any_size(SLIDING_REQUESTS_END - 2);
    let window = 2 + rng.of_any_size(WINDOW_MAX.0 - 2);
    let previous = 1 + rng.below(requests);
    // Often `room * window` is one more or one less than a multiple of `previous`.
    let (any, near) = (rng.below(previous), inverse(window, previous));
    let room = rng.pick(&[any, near, previous - near]) % previous;
    let rest = u128::from(room) * u128::from(window) / u128::from(previous);
    let rest = u64::try_from(rest).expect("less than the window");
    let tier = Tier { requests, window: Micros(window), burst: requests, calendar: None };
    let limit =
        Limit { algorithm: Algorithm::SlidingWindow, tiers: [tier].into(), count_denied: false };
    let start = 1_785_000_000_000_000 / window * window;
    let operation = |now, hits: u64| {
        let hits = hits as i64;
        let origin = Origin::Decided;
        Operation { limit: limit.clone(), now: Micros(now), hits, lease: None, origin }
    };
    let end = start + 2 * window;
    let hits = requests - room;
    vec![
        operation(start, previous),
        operation(end - rest - 1, hits),
        operation(end - rest.max(1), hits),
    ]
}

/// The inverse of `number` modulo `of`, if there is one (Euclid's algorithm).
fn inverse(number: u64, of: u64) -> u64 {
    let (mut above, mut below) = ((i128::from(of), 0), (i128::from(number % of), 1));
    while below.0 > 0 {
        let times = above.0 / below.0;
        (above, below) = (below, (above.0 - times * below.0, above.1 - times * below.1));
    }
    above.1.rem_euclid(i128::from(of)) as u64
}

fn limit(algorithm: Algorithm, rng: &mut Rng) -> Limit {
    let tiers = (0..=rng.below(4).min(rng.below(4))).map(|_| tier(algorithm, rng)).collect();
    let count_denied = algorithm != Algorithm::Concurrency && rng.happens(1, 2);
    let limit = Limit { algorithm, tiers, count_denied };
    limit.check().expect("walks are about limits that can be counted");
    limit
}

/// A reload of the rule with other numbers or another algorithm.
fn changed(limit: &Limit, algorithm: Algorithm, rng: &mut Rng) -> Limit {
    let mut other = limit.clone();
    let one = rng.below(limit.tiers.len() as u64) as usize;
    match rng.below(4) {
        0 => return self::limit(rng.pick(&ALGORITHMS), rng),
        1 => return self::limit(algorithm, rng),
        2 => other.tiers[one] = tier(limit.algorithm, rng),
        _ if algorithm != Algorithm::Concurrency && limit.algorithm == algorithm => {
            other.count_denied = !other.count_denied;
        }
        _ => {}
    }
    other
}

fn tier(algorithm: Algorithm, rng: &mut Rng) -> Tier {
    if algorithm == Algorithm::FixedWindow && rng.happens(1, 4) {
        return tier_by_calendar(rng);
    }
    let window = match rng.below(10) {
        0..3 => 1 + rng.below(60),
        3 => 1,
        4 => WINDOW_MAX.0 - rng.below(3),
        5 => 1 + rng.of_any_size(WINDOW_MAX.0),
        6 => 86_400_000_000,
        7 => 7,
        _ => 1_000_000,
    };
    let listed = matches!(algorithm, Algorithm::SlidingWindowLog | Algorithm::Concurrency);
    let end = match algorithm {
        _ if listed => 400,
        Algorithm::SlidingWindow => SLIDING_REQUESTS_END,
        _ => HITS_END,
    };
    let requests = match rng.below(12) {
        0 => 0,
        1 => end - 1 - rng.below(3),
        2 => rng.of_any_size(end),
        3 => rng.below(200),
        _ => 1 + rng.below(12),
    };
    let most = match algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket if requests > 0 => {
            let fill = u128::from(FILL_MAX.0) * u128::from(requests) / u128::from(window);
            u64::try_from(fill).unwrap_or(u64::MAX).min(HITS_END - 1)
        }
        _ => HITS_END - 1,
    };
    let burst = match rng.below(6) {
        0 => most,
        1 => 1 + rng.of_any_size(most),
        2 => requests,
        _ => 1 + rng.below(12),
    };
    Tier { requests, window: Micros(window), burst: burst.clamp(1, most.max(1)), calendar: None }
}

/// A tier whose windows have unequal lengths.
fn tier_by_calendar(rng: &mut Rng) -> Tier {
    let starts = WindowStart {
        month: 1 + rng.below(12) as u8,
        day: 1 + rng.below(31) as u8,
        weekday: 1 + rng.below(7) as u8,
        hour: rng.below(24) as u8,
    };
    let zones = ["Europe/Zurich", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia"];
    let zone = Zone::named(rng.pick(&zones)).expect("a zone");
    let requests = match rng.below(4) {
        0 => HITS_END - 1 - rng.below(3),
        _ => rng.below(12),
    };
    Tier::by_calendar(requests, Calendar { period: rng.pick(&Period::ALL), zone, starts })
}

/// The start and the length of the window of a tier.
fn window_at(tier: &Tier, now: u64) -> (u64, u64) {
    match &tier.calendar {
        Some(calendar) => {
            let (start, end) = calendar.window_at(Micros(now));
            (start.0, end.0 - start.0)
        }
        None => (now - now % tier.window.0, tier.window.0),
    }
}

/// The next instant: the same, a little later, at an edge, windows later, or earlier.
fn later(now: u64, limit: &Limit, profile: &WalkProfile, rng: &mut Rng) -> u64 {
    let tier = rng.below(limit.tiers.len() as u64) as usize;
    let (edge, window) = window_at(&limit.tiers[tier], now);
    if profile.slow && rng.happens(9, 10) {
        return now + rng.below(window / 50 + 2);
    }
    let ahead = match rng.below(14) {
        0..3 => now,
        3 => now + 1,
        4 => now + window / 3,
        5 => now + window / 2,
        6 => now + window - 1,
        7 => now + window,
        8 => now + window + 1,
        9 => edge + window - rng.below(2),
        10 => edge + 2 * window - rng.below(2),
        11 => now + rng.below(3 * window),
        12 => now.saturating_sub(rng.pick(&[1, window / 2, window, edge % 1_000])),
        _ => now.saturating_sub(rng.below(2 * window)),
    };
    ahead.min(1 << 53)
}

fn hits(limit: &Limit, profile: &WalkProfile, rng: &mut Rng) -> i64 {
    let tier = &limit.tiers[rng.below(limit.tiers.len() as u64) as usize];
    let most = match limit.algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => tier.burst,
        _ => tier.requests,
    };
    let huge = (HITS_END - 1) as i64;
    let around = most as i64 + rng.pick(&[-1, 0, 1, 0]);
    let number = match rng.below(16) {
        0 => 0,
        1 => around,
        2 => around / 2,
        3 => around - 1 - rng.below(3) as i64,
        4 => huge - rng.below(3) as i64,
        5 => rng.of_any_size(HITS_END) as i64,
        6 => (most / 7) as i64,
        _ => 1 + rng.below(5) as i64,
    };
    let gives = !profile.piling && rng.happens(1, 4);
    if gives { -number } else { number }
}

fn lease(now: u64, limit: &Limit, rng: &mut Rng) -> Lease {
    // Few ids, so that they repeat. The bytes of some ids equal shifted bytes of others.
    let ids = [1, 2, 0x0101_0101_0101_0101, 0x0100, u64::MAX, 0x0001_0000_0000_0000];
    let id = LeaseId::from_bits(rng.pick(&ids));
    let window = limit.tiers[0].window.0;
    let length = rng.pick(&[0, 1, window / 2, window, 3 * window, 600_000_000]);
    if rng.happens(3, 5) {
        Lease::Open { id, until: Micros((now + length).min(HITS_END - 1)) }
    } else {
        Lease::Close(id)
    }
}
