//! Tests of the algorithms: properties for random limits and calls, held against a naive model, and
//! cases of single states.

mod calendar;
mod model;
mod properties;
mod reservations;
mod states;
