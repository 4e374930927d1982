//! What weir says about itself: decisions per rule, as plain atomics that exporters read.
