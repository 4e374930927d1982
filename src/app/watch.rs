//! A watcher: tells when the content of files and folders has changed, and has then been quiet.
//!
//! The system's notifications are hints to look sooner. What counts is the content: it is hashed
//! when all has been quiet for a while, and from time to time whatever was heard, because some
//! file systems (NFS, many overlays) tell nothing, and a machine may have no notifications left to
//! give. So a touch is no change, and none is missed.
//!
//! [`debounce`] decides when to look, [`watch_set`] what to listen to; this file does both.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use std::{io, thread};

use arc_swap::ArcSwap;

use crate::secret_file;
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

/// What a look at the content yields: equal as long as nothing has changed.
pub(super) type Digest = u64;

/// Watches until it is dropped.
#[derive(Debug)]
pub(super) struct Watcher {
    wake: SyncSender<()>,
    ended: Arc<AtomicBool>,
}

impl Watcher {
    /// Calls `changed` whenever `look` differs from its last result, first from `known`. Both are
    /// called on a thread of the watcher's own. `look` reads what it is about at `paths`: files
    /// and folders, which need not exist yet.
    pub(super) fn start(
        thread: &str,
        paths: Vec<PathBuf>,
        timing: Timing,
        known: Digest,
        look: impl FnMut() -> Digest + Send + 'static,
        changed: impl FnMut() + Send + 'static,
    ) -> io::Result<Watcher> {
        // One place: whoever finds it taken has nothing to add.
        let (wake, woken) = sync_channel(1);
        let ended = Arc::new(AtomicBool::new(false));
        let watch_set = Arc::new(ArcSwap::default());
        let fs_events = FsEvents::open(watch_set.clone(), wake.clone());
        let (clock, debounce) = (SystemClock::new(), Debounce::new(timing));
        let mut watch =
            Watch { paths, watch_set, fs_events, clock, debounce, known, look, changed };
        let watcher = Watcher { wake, ended: ended.clone() };
        thread::Builder::new().name(thread.to_owned()).spawn(move || watch.run(&woken, &ended))?;
        Ok(watcher)
    }

    /// Calls `changed` whenever the content of one of `files` has changed since `known`, which is
    /// what [`contents`] said before they were read.
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

/// The content of files as one number; a file that cannot be read, or that is larger than whoever
/// reads it would take, counts as its error.
pub(super) fn contents(files: &[PathBuf]) -> Digest {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    for file in files {
        secret_file::read(file).map_err(|error| error.kind()).hash(&mut hasher);
    }
    hasher.finish()
}

/// The watcher's thread.
struct Watch<L, C> {
    paths: Vec<PathBuf>,
    /// What is listened to, shared with `fs_events`.
    watch_set: Arc<ArcSwap<WatchSet>>,
    fs_events: FsEvents,
    clock: SystemClock,
    debounce: Debounce,
    known: Digest,
    look: L,
    changed: C,
}

impl<L: FnMut() -> Digest, C: FnMut()> Watch<L, C> {
    fn run(&mut self, woken: &Receiver<()>, ended: &AtomicBool) {
        self.listen();
        // What changed between the first reading and now was not heard.
        self.poll();
        loop {
            let now = self.clock.now();
            let pause = self.debounce.next(self.fs_events.is_complete()).saturating_sub(now);
            // Not heard out first: who never rests could put the look off for ever.
            if pause == Micros::ZERO {
                self.wait_is_over();
            }
            let heard = woken.recv_timeout(Duration::from_micros(pause.0));
            if ended.load(Ordering::Relaxed) || heard == Err(RecvTimeoutError::Disconnected) {
                return;
            } else if heard.is_ok() {
                self.debounce.on_event(self.clock.now());
            }
        }
    }

    fn wait_is_over(&mut self) {
        if !self.debounce.is_pending() {
            return self.poll();
        }
        // First, so that nothing changes unheard between the look and the next one.
        self.listen();
        let digest = (self.look)();
        if self.debounce.settle(digest, self.clock.now()) && digest != self.known {
            self.known = digest;
            (self.changed)();
        }
    }

    /// A look without a hint. What differs may still be being written, so it waits like a hint.
    fn poll(&mut self) {
        let digest = (self.look)();
        let now = self.clock.now();
        self.debounce.polled(now);
        if digest != self.known {
            self.debounce.on_poll_change(digest, now);
        }
    }

    /// Hears what may matter now: links and folders come and go.
    fn listen(&mut self) {
        let watch_set = WatchSet::under(&self.paths);
        self.fs_events.watch(&watch_set);
        self.watch_set.store(Arc::new(watch_set));
    }
}
