//! The sweeper: a thread that frees expired counters in small slices while nobody asks for them.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::service::Service;
use crate::time::Clock;

/// Time between slices. At the slice's size a full store of a million counters is seen through
/// once in about half a minute, and an empty one costs a wake-up per second.
const PAUSE: Duration = Duration::from_secs(1);

/// Counters looked at per slice.
const SLICE: usize = 32_768;

/// Stops its thread when dropped.
#[derive(Debug)]
pub(super) struct Sweeper {
    _alive: mpsc::Sender<()>,
}

impl Sweeper {
    /// Starts to sweep the service's store.
    pub(super) fn start(service: Arc<Service>) -> io::Result<Sweeper> {
        let (alive, ended) = mpsc::channel();
        thread::Builder::new().name("weir-sweeper".into()).spawn(move || {
            while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                if let Some(counters) = service.in_memory() {
                    counters.sweep(service.clock.now(), SLICE);
                }
            }
        })?;
        Ok(Sweeper { _alive: alive })
    }
}
