//! The limiter: the one function that knows the order in which a request is decided.
