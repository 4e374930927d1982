//! Listeners: gRPC, HTTP and admin, on one single-threaded runtime per core.
