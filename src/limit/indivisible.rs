//! Limits that the quota service (RLQS) cannot divide.

/// Why the quota service cannot divide a limit among Envoys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indivisible {
    /// It counts slots, which are not a rate.
    Slots,
    /// It has reservations, which are settled on the counter that granted them.
    Reservation,
    /// It has windows of the calendar, which have no constant rate.
    Calendar,
    /// It has a cost, and Envoys report requests without their costs.
    Cost,
    /// It has plans, whose numbers differ by customer.
    Plans,
    /// It has no tier. No valid limit does that.
    NoRate,
}

impl Indivisible {
    /// The reason in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Indivisible::Slots => "concurrency",
            Indivisible::Reservation => "reservation",
            Indivisible::Calendar => "calendar",
            Indivisible::Cost => "cost",
            Indivisible::Plans => "plans",
            Indivisible::NoRate => "no_rate",
        }
    }

    /// The limit in words.
    pub const fn words(self) -> &'static str {
        match self {
            Indivisible::Slots => "a concurrency limit",
            Indivisible::Reservation => "a limit with reservations",
            Indivisible::Calendar => "a limit with a calendar window",
            Indivisible::Cost => "a limit with a cost",
            Indivisible::Plans => "a limit with plans",
            Indivisible::NoRate => "a limit without a rate",
        }
    }
}
