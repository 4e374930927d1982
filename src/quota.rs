//! Quotas: the limit of one counter, divided among the holders that decide by themselves.
//!
//! A share is a part of a quota in billionths. [`divide`] calculates the shares, [`Ledger`] grants
//! them so that their sum stays within the quota, and [`Assignment`] is what an Envoy gets.

mod assignment;
mod division;
mod group;
mod ledger;
mod share;

pub use assignment::Assignment;
pub use division::{HEAD_ROOM_PERCENT, WANT_MIN, Want, divide, want_of};
pub use group::{
    DueAssignment, GroupConfig, HOLDER_BYTES, HolderTakenOver, PresentUse, QuotaGroup,
};
pub use ledger::{
    Change, HELD_MAX, HOLDERS_MAX, HolderId, Holding, Ledger, LedgerSnapshot, Settlement,
};
pub use share::{Quota, SHARE_MAX, SHARES};

#[cfg(test)]
mod tests;
