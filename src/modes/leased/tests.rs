//! Tests of mode leased: limits hold in every scenario, and calls to the store are few.

mod calendar;
mod cost;
mod exact;
mod fixture;
mod oracle;
mod simulation;
mod single;
