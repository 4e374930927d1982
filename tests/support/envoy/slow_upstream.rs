//! An upstream that starts every response at once and ends it when the test allows it.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;

use crate::support::wait::TIMEOUT;

/// A listening server. Its threads end with the test process.
///
/// Responds like a language model, with the numbers of tokens that the headers of the request say, or 0:
/// `x-total-tokens`, or `x-prompt-tokens` and `x-completion-tokens`.
pub(crate) struct SlowUpstream {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    count: Mutex<Count>,
    change: Condvar,
}

#[derive(Default)]
struct Count {
    /// Requests so far.
    arrived: usize,
    /// Requests that have not been released.
    running: usize,
    /// The maximum that ran at the same time.
    most: usize,
    /// Number of requests that may end.
    passes: usize,
    /// Whether every request may end.
    open: bool,
}

impl SlowUpstream {
    /// Listens on a free port.
    pub(crate) fn start() -> SlowUpstream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port on loopback");
        let address = listener.local_addr().expect("a bound address");
        let state = Arc::new(State::default());
        let upstream = SlowUpstream { address, state: Arc::clone(&state) };
        thread::spawn(move || {
            for stream in listener.incoming() {
                let state = Arc::clone(&state);
                thread::spawn(move || serve(stream.ok()?, &state));
            }
        });
        upstream
    }

    /// Waits until `count` requests in all have arrived.
    pub(crate) fn wait_for(&self, count: usize) {
        let deadline = Instant::now() + TIMEOUT;
        let mut now = self.state.count();
        while now.arrived < count {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{count} requests expected, {} came", now.arrived);
            now = self.state.change.wait_timeout(now, left).expect("no server thread panics").0;
        }
    }

    /// Releases one more request, the first that waits. A request whose client has disconnected
    /// counts.
    pub(crate) fn let_one_go(&self) {
        self.state.count().passes += 1;
        self.state.change.notify_all();
    }

    /// Releases all requests, future ones too.
    pub(crate) fn let_all_go(&self) {
        self.state.count().open = true;
        self.state.change.notify_all();
    }

    /// Holds requests again, after [`SlowUpstream::let_all_go`].
    pub(crate) fn hold_again(&self) {
        self.state.count().open = false;
    }

    /// Requests so far.
    pub(crate) fn arrived(&self) -> usize {
        self.state.count().arrived
    }

    /// The maximum of requests that ran at the same time.
    pub(crate) fn most_at_once(&self) -> usize {
        self.state.count().most
    }
}

impl State {
    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().expect("no thread panics inside")
    }

    fn enter(&self) {
        let mut count = self.count();
        count.arrived += 1;
        count.running += 1;
        count.most = count.most.max(count.running);
        self.change.notify_all();
    }

    /// Waits until the request is released.
    fn leave(&self) {
        let mut count = self.count();
        while !count.open && count.passes == 0 {
            count = self.change.wait(count).expect("no thread panics inside");
        }
        if !count.open {
            count.passes -= 1;
        }
        count.running -= 1;
    }
}

/// Serves one connection until it closes. Requests must have no body.
fn serve(stream: TcpStream, state: &State) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut usage = Usage::default();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some((name, value)) = line.split_once(':') {
                usage.read(name, value.trim())?;
            }
            if line.is_empty() {
                break;
            }
        }
        state.enter();
        let body = usage.body();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let (begin, end) = body.split_at(1);
        let begun = reader.get_mut().write_all((head + begin).as_bytes());
        // Count it as ended before the client can see the last byte.
        state.leave();
        begun.ok()?;
        reader.get_mut().write_all(end.as_bytes()).ok()?;
    }
}

/// The tokens of one response.
#[derive(Default)]
struct Usage {
    total: u64,
    prompt: u64,
    completion: u64,
}

impl Usage {
    /// Reads one header of the request; `None` if its number is invalid.
    fn read(&mut self, name: &str, value: &str) -> Option<()> {
        let tokens = match name {
            "x-total-tokens" => &mut self.total,
            "x-prompt-tokens" => &mut self.prompt,
            "x-completion-tokens" => &mut self.completion,
            _ => return Some(()),
        };
        *tokens = value.parse().ok()?;
        Some(())
    }

    fn body(&self) -> String {
        let numbers = [
            ("prompt_tokens", self.prompt),
            ("completion_tokens", self.completion),
            ("total_tokens", self.total),
        ];
        let numbers = numbers.map(|(name, number)| format!(r#""{name}": {number}"#)).join(", ");
        format!(r#"{{"usage": {{{numbers}}}}}"#)
    }
}

/// The response body for a request that costs `tokens`.
pub(crate) fn body(tokens: u64) -> String {
    Usage { total: tokens, ..Usage::default() }.body()
}
