//! Tests of leases: limits are kept whatever happens, and the store is seldom asked.

mod cost;
mod fixture;
mod oracle;
mod simulation;
mod single;
