//! Tests of the division as a whole.

mod simulation;
