//! Declares the settings `admin.*`.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::settings::format::{COUNT_MAX, address, file, number, optional, secret, switch};
use crate::settings::secret::Secret;
use crate::settings::section::section;

section! {
    /// The admin listener: `/metrics`, `/rules`, `/rlconfig`, `/settings`, `/top`, `/explain`,
    /// `/counters`, `/quotas`, `/usage`, `/changes`. Most of it has no authentication, so it listens on
    /// loopback by default.
    pub struct AdminSettings {
        /// Address of the listener.
        listen: SocketAddr = "127.0.0.1:6070", address();
        /// Bearer token for `/counters`, `/quotas`, `/usage`, `/changes`, and paths below `/plans`.
        /// Required if the listener is not on loopback. Never shown.
        token: Option<Secret> = "", optional(secret());
        /// File whose first line is the token, instead of `admin.token`. weir reads the file for
        /// every request that needs the token.
        token_file: Option<PathBuf> = "", optional(file());
        /// The [live page](admin.md#the-live-page) at `/` for browsers, and its events at `/live`. `/` is a list of
        /// paths for other clients, and for all clients if it is off.
        page: bool = "true", switch();
        /// Maximum number of open connections of the admin listener. The metrics listener
        /// (`metrics.listen`) has the same limit. One client address gets at most a quarter of it. At
        /// most half of the connections of each listener have a page in memory.
        max_connections: usize = "64", number(1..=COUNT_MAX);
    }
}
