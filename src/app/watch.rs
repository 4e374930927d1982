//! A watcher of files and folders: reports changed content once the changes have stopped.
//!
//! File system events only trigger an earlier check. A check hashes the content, so a touch is not a
//! change. Checks also run periodically, because some file systems (NFS, many overlays) send no
//! events, and the system's number of watches is limited.
//!
//! [`debounce`] decides when to check, and [`watch_set`] lists the paths to watch. Each watcher has
//! its own thread, because reading files can block for minutes on a hanging network volume.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use std::{io, thread};

use arc_swap::ArcSwap;

use crate::bounded_file;
use crate::thread_priority;
use crate::time::{Clock, Micros, SystemClock};

mod debounce;
mod fs_events;
#[cfg(test)]
mod tests;
mod watch_set;

pub(super) use debounce::Timing;

use debounce::Debounce;
use fs_events::FsEvents;
use watch_set::WatchSet;

/// A hash of the watched content.
pub(super) type Digest = u64;

/// A running watcher. It stops when this value is dropped.
#[derive(Debug)]
pub(super) struct Watcher {
    wake: SyncSender<()>,
    ended: Arc<AtomicBool>,
}

impl Watcher {
    /// Starts a thread that calls `digest`, and calls `changed` whenever the result differs from the
    /// previous one. `known` is the result before the start. `digest` reads `paths`: files and
    /// folders, which need not exist yet.
    pub(super) fn start(
        thread: &str,
        paths: Vec<PathBuf>,
        timing: Timing,
        known: Digest,
        digest: impl FnMut() -> Digest + Send + 'static,
        changed: impl FnMut() + Send + 'static,
    ) -> io::Result<Watcher> {
        // Capacity 1: a further wake-up would add nothing.
        let (wake, woken) = sync_channel(1);
        let ended = Arc::new(AtomicBool::new(false));
        let watch_set = Arc::new(ArcSwap::default());
        let fs_events = FsEvents::open(watch_set.clone(), wake.clone());
        let (clock, debounce) = (SystemClock::new(), Debounce::new(timing));
        let mut watch =
            Watch { paths, watch_set, fs_events, clock, debounce, known, digest, changed };
        let watcher = Watcher { wake, ended: ended.clone() };
        thread::Builder::new().name(thread.to_owned()).spawn(move || {
            // A large file takes seconds, and calls need the processors meanwhile.
            thread_priority::lower();
            watch.run(&woken, &ended);
        })?;
        Ok(watcher)
    }

    /// Starts a thread that calls `changed` whenever the content of one of `files` has changed.
    /// `known` is the result of [`contents`] from before the files were read.
    pub(super) fn of_files(
        thread: &str,
        files: Vec<PathBuf>,
        known: Digest,
        changed: impl FnMut() + Send + 'static,
    ) -> io::Result<Watcher> {
        let read = files.clone();
        Watcher::start(thread, files, Timing::default(), known, move || contents(&read), changed)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = self.wake.try_send(());
    }
}

/// The hash of the files' content. For an unreadable or too large file, the kind of error is
/// hashed instead.
pub(super) fn contents(files: &[PathBuf]) -> Digest {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    for file in files {
        bounded_file::read(file).map_err(|error| error.kind()).hash(&mut hasher);
    }
    hasher.finish()
}

/// The watcher's thread.
struct Watch<D, C> {
    paths: Vec<PathBuf>,
    /// The watched paths, shared with `fs_events`.
    watch_set: Arc<ArcSwap<WatchSet>>,
    fs_events: FsEvents,
    clock: SystemClock,
    debounce: Debounce,
    known: Digest,
    digest: D,
    changed: C,
}

impl<D: FnMut() -> Digest, C: FnMut()> Watch<D, C> {
    fn run(&mut self, woken: &Receiver<()>, ended: &AtomicBool) {
        self.rewatch();
        // Changes between the caller's reading and `rewatch` caused no event.
        self.poll();
        loop {
            let now = self.clock.now();
            let pause = self.debounce.next(self.fs_events.is_complete()).saturating_sub(now);
            // Before the events: constant writes must not postpone the check forever.
            if pause == Micros::ZERO {
                self.on_timer();
            }
            let event = woken.recv_timeout(Duration::from_micros(pause.0));
            if ended.load(Ordering::Relaxed) || event == Err(RecvTimeoutError::Disconnected) {
                return;
            } else if event.is_ok() {
                self.debounce.on_event(self.clock.now());
            }
        }
    }

    fn on_timer(&mut self) {
        if !self.debounce.is_pending() {
            return self.poll();
        }
        // Before the check, so that a change during the check causes an event.
        self.rewatch();
        let digest = (self.digest)();
        if self.debounce.accept(digest, self.clock.now()) && digest != self.known {
            self.known = digest;
            (self.changed)();
        }
    }

    /// Checks without an event. A difference may be a write in progress, so a quiet period follows,
    /// as after an event.
    fn poll(&mut self) {
        let digest = (self.digest)();
        let now = self.clock.now();
        self.debounce.polled(now);
        if digest != self.known {
            self.debounce.on_poll_change(digest, now);
        }
    }

    /// Watches the paths that exist now. Links and folders may have appeared or gone since the last
    /// call.
    fn rewatch(&mut self) {
        let watch_set = WatchSet::under(&self.paths);
        self.fs_events.watch(&watch_set);
        self.watch_set.store(Arc::new(watch_set));
    }
}
