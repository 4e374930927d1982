//! Tests of leases: limits are kept whatever happens, and the store is seldom asked.

mod bed;
mod cost;
mod oracle;
mod simulation;
mod single;
