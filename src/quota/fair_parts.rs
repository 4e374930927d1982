//! Max-min fairness between parties of which each already uses something.

/// What one party uses and wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartClaim {
    /// What it uses in any case. Its part is not below that.
    pub held: u64,
    /// What it could use, with `held`. A smaller number counts as `held`.
    pub want: u64,
}

/// The parts of `total` for these claims, in their order, by max-min fairness: a part is below its want only
/// if no part is above it, apart from the rounding rest and from what is held.
///
/// What exceeds all wants is spread evenly. The sum is exactly `total`, unless there is no claim, or more is
/// held: then each part is what is held. Where nothing is held, a larger want never gets less. The rounding
/// rest, one each, goes to the largest wants, and among equal wants to the last ones.
pub fn fair_parts(total: u64, claims: &[PartClaim]) -> Vec<u64> {
    let held = claims.iter().fold(0, |sum: u64, claim| sum.saturating_add(claim.held));
    let Some(rest) = total.checked_sub(held) else {
        return claims.iter().map(|claim| claim.held).collect();
    };
    let want = |claim: &PartClaim| claim.want.max(claim.held);
    let mut by_want: Vec<(u64, usize)> = claims.iter().map(want).zip(0..).collect();
    by_want.sort_unstable();
    let mut by_held: Vec<u64> = claims.iter().map(|claim| claim.held).collect();
    by_held.sort_unstable();
    let mut filling = Filling { level: 0, active: 0, rest };
    let mut starts = by_held.into_iter().peekable();
    let mut is_full = false;
    for (want, _) in &by_want {
        while let Some(start) = starts.next_if(|start| !is_full && start <= want) {
            is_full = filling.rise(start);
            filling.active += u64::from(!is_full);
        }
        is_full = is_full || filling.rise(*want);
        if is_full {
            break;
        }
        filling.active -= 1;
    }
    let Filling { level, rest, .. } = filling;
    if !is_full {
        return spread(rest, &by_want);
    }
    let mut parts: Vec<u64> =
        claims.iter().map(|claim| want(claim).min(level).max(claim.held)).collect();
    let raised =
        by_want.iter().rev().filter(|(want, index)| *want > level && claims[*index].held <= level);
    for (_, index) in raised.take(usize::try_from(rest).unwrap_or(usize::MAX)) {
        parts[*index] += 1;
    }
    parts
}

/// All parts between what is held and what is wanted have the same level, which rises.
struct Filling {
    level: u64,
    /// The number of parts at the level.
    active: u64,
    /// What is left of the total.
    rest: u64,
}

impl Filling {
    /// Raises the level to `to`. Returns whether the rest does not suffice: then the level is the last one
    /// that it suffices for, and the rest is below the number of parts there.
    fn rise(&mut self, to: u64) -> bool {
        let step = to - self.level;
        if self.active > 0 && step > self.rest / self.active {
            self.level += self.rest / self.active;
            self.rest %= self.active;
            return true;
        }
        self.rest -= step * self.active;
        self.level = to;
        false
    }
}

/// The wants, and an equal part of `rest` for each. Ordered by want.
fn spread(rest: u64, by_want: &[(u64, usize)]) -> Vec<u64> {
    let mut parts = vec![0; by_want.len()];
    let mut rest = rest;
    for ((want, index), left) in by_want.iter().zip((1..=by_want.len() as u64).rev()) {
        let extra = rest / left;
        parts[*index] = want + extra;
        rest -= extra;
    }
    parts
}

#[cfg(test)]
mod tests;
