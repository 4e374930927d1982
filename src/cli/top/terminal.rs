//! The terminal of `weir top`: another screen, keys without Enter, and the size.

use std::future;
use std::io::{self, IsTerminal, Read, Write};
use std::thread;

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::sync::mpsc;

/// The size of a terminal that does not know its own: columns and rows.
const SIZE_DEFAULT: (usize, usize) = (80, 24);

/// Shows another screen, hides the cursor, and cuts long lines.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l";
/// The opposite of [`ENTER`].
const LEAVE: &[u8] = b"\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The byte of Ctrl-C when it sends no signal.
const CTRL_C: u8 = 3;

/// A terminal with another screen. Drop restores it.
pub(super) struct LiveTerminal {
    /// The modes of the input before; `None` if the input is no terminal.
    before: Option<Termios>,
}

impl LiveTerminal {
    pub(super) fn open() -> io::Result<LiveTerminal> {
        let mut before = None;
        if io::stdin().is_terminal() {
            let modes = tcgetattr(io::stdin())?;
            let mut live = modes.clone();
            live.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
            live.special_codes[SpecialCodeIndex::VMIN] = 1;
            live.special_codes[SpecialCodeIndex::VTIME] = 0;
            tcsetattr(io::stdin(), OptionalActions::Now, &live)?;
            before = Some(modes);
        }
        // From here on, drop restores the modes.
        let terminal = LiveTerminal { before };
        let mut out = io::stdout().lock();
        out.write_all(ENTER)?;
        out.flush()?;
        Ok(terminal)
    }

    /// The columns and rows now.
    pub(super) fn size(&self) -> Option<(usize, usize)> {
        let size = tcgetwinsize(io::stdout()).ok();
        let size = size.map(|size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        Some(size.filter(|(columns, rows)| *columns > 0 && *rows > 0).unwrap_or(SIZE_DEFAULT))
    }

    /// Replaces the screen by `lines`.
    pub(super) fn draw(&self, lines: &[String]) -> io::Result<()> {
        let mut text = String::from("\x1b[H");
        for (index, line) in lines.iter().enumerate() {
            if index > 0 {
                text.push_str("\r\n");
            }
            text.push_str(line);
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J");
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

impl Drop for LiveTerminal {
    fn drop(&mut self) {
        // A closed terminal needs no restoring.
        let mut out = io::stdout().lock();
        let _ = out.write_all(LEAVE).and_then(|()| out.flush());
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// The keys that end the command: `q` and Ctrl-C.
pub(super) struct QuitKeys(Option<mpsc::Receiver<()>>);

impl QuitKeys {
    /// No keys.
    pub(super) fn none() -> QuitKeys {
        QuitKeys(None)
    }

    /// Reads the keys in a thread, if the input is a terminal. The thread ends with the process.
    pub(super) fn read() -> io::Result<QuitKeys> {
        if !io::stdin().is_terminal() {
            return Ok(QuitKeys::none());
        }
        let (sender, receiver) = mpsc::channel(1);
        thread::Builder::new().name("keys".into()).spawn(move || {
            let is_quit = |key: &io::Result<u8>| matches!(key, Ok(b'q' | b'Q' | CTRL_C) | Err(_));
            // The end of the input is that of the terminal.
            let _ = io::stdin().lock().bytes().find(is_quit);
            let _ = sender.blocking_send(());
        })?;
        Ok(QuitKeys(Some(receiver)))
    }

    /// Waits for one of the keys.
    pub(super) async fn next(&mut self) {
        match &mut self.0 {
            Some(keys) => drop(keys.recv().await),
            None => future::pending().await,
        }
    }
}
