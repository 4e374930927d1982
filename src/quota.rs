//! Quotas: the limit of one counter, divided among the holders that decide by themselves.
//!
//! A share is a part of a quota in billionths. [`divide`] calculates the shares, first of clients and then of
//! their holders, [`Ledger`] grants them so that their sum stays within the quota, and [`Assignment`] is what
//! an Envoy gets.

mod assignment;
mod division;
mod fair_parts;
mod group;
mod ledger;
mod settlement_pace;
mod share;

pub use assignment::Assignment;
pub use division::{ClientHolders, HEAD_ROOM_PERCENT, WANT_MIN, Want, divide, equal_part, want_of};
pub use fair_parts::{PartClaim, fair_parts};
pub use group::{
    DueAssignment, GroupConfig, HOLDER_BYTES, HolderTakenOver, OutstandingShares, PresentUse,
    QuotaGroup,
};
pub use ledger::{
    Change, HELD_MAX, HOLDERS_MAX, HolderId, Holding, Ledger, LedgerSnapshot, Settlement,
};
pub use settlement_pace::SettlementPace;
pub use share::{Quota, SHARE_MAX, SHARES};

#[cfg(test)]
mod tests;
