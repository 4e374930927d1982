//! Declares the settings `drain.*`.

use std::time::Duration;

use crate::settings::format::duration;
use crate::settings::section::section;

section! {
    /// Graceful shutdown.
    pub struct DrainSettings {
        /// Time between failing health and closing the ports, so that load balancers stop sending.
        /// It starts at SIGTERM or SIGINT.
        delay: Duration = "5s", duration();
        /// Time for requests in flight after the ports are closed. A tenth of it, at most 1 s, is
        /// reserved for the last writes to Redis and to collectors.
        timeout: Duration = "30s", duration();
    }
}
