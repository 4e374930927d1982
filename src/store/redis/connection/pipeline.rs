//! Sends commands over one session without waiting for the replies to earlier ones.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval};

use crate::store::redis::error::{CallError, ConnectionError, result};
use crate::store::redis::reply::{Reply, ReplyBound, ReplyReader};
use crate::store::redis::session::RedisSession;

/// Bytes that wait to be written, over which no further command is taken.
const WRITE_BYTES_MAX: usize = 256 << 10;

/// How often the connection is checked for missing replies.
const CHECK_PERIOD: Duration = Duration::from_millis(500);

/// Checks without a reply, while one is missing, after which the connection counts as lost: 2 s to
/// 2.5 s. One end may have lost the connection without the other noticing. The callers' timeouts
/// are far shorter.
const SILENT_CHECKS_MAX: u32 = 5;

/// Commands that are sent together.
pub(super) struct PipelinedCommands {
    pub(super) bytes: Vec<u8>,
    /// The number of commands, at least 1.
    pub(super) replies: usize,
    /// The bound of each reply.
    pub(super) bound: ReplyBound,
    /// The reply that is the result.
    pub(super) result_of: ResultOf,
    /// Dropped without a result if the connection is lost.
    pub(super) reply: oneshot::Sender<Result<Reply, CallError>>,
}

/// Which of the replies to commands that are sent together is their result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultOf {
    /// The last one.
    Last,
    /// The first error, or else the last one: `EXEC` does not repeat why a command was refused.
    FirstError,
}

/// The commands that wait for replies.
struct Pipeline {
    waiting: VecDeque<Waiting>,
    replies: ReplyReader,
    /// Commands that were answered.
    answered: u64,
    checked: Check,
}

/// Commands without their bytes, after these were taken for writing.
struct Waiting {
    replies: usize,
    bound: ReplyBound,
    result_of: ResultOf,
    /// The first error reply, if it is the result.
    error: Option<Bytes>,
    reply: oneshot::Sender<Result<Reply, CallError>>,
}

/// The result of the last check for missing replies.
#[derive(Default)]
struct Check {
    answered: u64,
    silent: u32,
}

/// Bytes that wait to be written.
#[derive(Default)]
struct Output {
    bytes: BytesMut,
    /// Whether bytes may be in the buffers of the stream. TLS has such buffers.
    is_unflushed: bool,
}

/// How a session ended.
#[derive(Debug)]
pub(super) struct SessionEnd {
    /// Why; `None` if the owner of the connection dropped it.
    pub(super) error: Option<ConnectionError>,
    /// Whether a command was answered.
    pub(super) answered: bool,
}

/// Sends the commands and delivers their replies until the session fails or every sender of
/// commands is dropped. Commands without a reply are then dropped.
pub(super) async fn run(
    session: RedisSession,
    queue: &mut mpsc::Receiver<PipelinedCommands>,
) -> SessionEnd {
    let (stream, replies) = session.into_parts();
    let mut pipeline =
        Pipeline { waiting: VecDeque::new(), replies, answered: 0, checked: Check::default() };
    let error = exchange(stream, &mut pipeline, queue).await.err();
    SessionEnd { error, answered: pipeline.answered > 0 }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    pipeline: &mut Pipeline,
    queue: &mut mpsc::Receiver<PipelinedCommands>,
) -> Result<(), ConnectionError> {
    // Bytes after the replies to the login belong to no command.
    pipeline.receive()?;
    let (mut reader, mut writer) = split(stream);
    let mut output = Output::default();
    let mut checks = interval(CHECK_PERIOD);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // Replies first, because they free memory. Commands before writing, so that all
            // commands of one turn are written together.
            biased;
            read = reader.read_buf(pipeline.replies.room()) => {
                if read? == 0 {
                    return Err(ConnectionError::new("the server closed the connection"));
                }
                pipeline.receive()?;
            }
            commands = queue.recv(), if output.bytes.len() < WRITE_BYTES_MAX => {
                let Some(commands) = commands else { return Ok(()) };
                pipeline.begin(commands, &mut output);
            }
            written = output.write(&mut writer), if output.is_unflushed => written?,
            _ = checks.tick() => {
                if pipeline.is_silent() {
                    return Err(ConnectionError::new("a reply is missing for 2 s"));
                }
            }
        }
    }
}

impl Pipeline {
    /// Takes the bytes of commands for writing.
    fn begin(&mut self, commands: PipelinedCommands, output: &mut Output) {
        let PipelinedCommands { bytes, replies, bound, result_of, reply } = commands;
        // This caller already used its fallback, so its hits must not count.
        if !reply.is_closed() {
            output.push(&bytes);
            self.waiting.push_back(Waiting { replies, bound, result_of, error: None, reply });
        }
    }

    /// Delivers the replies that have arrived.
    fn receive(&mut self) -> Result<(), ConnectionError> {
        loop {
            let Some(first) = self.waiting.front_mut() else {
                if self.replies.has_bytes() {
                    return Err(ConnectionError::new("Redis sent a reply to no command"));
                }
                return Ok(());
            };
            let Some(reply) = self.replies.next(first.bound)? else { return Ok(()) };
            self.answered += 1;
            first.replies = first.replies.saturating_sub(1);
            if let (ResultOf::FirstError, Reply::Error(text)) = (first.result_of, &reply) {
                first.error.get_or_insert_with(|| text.clone());
            }
            if first.replies == 0
                && let Some(answered) = self.waiting.pop_front()
            {
                let error = answered.error.map(|text| Err(CallError::Reply(text)));
                // A caller that stopped waiting has closed the channel.
                let _ = answered.reply.send(error.unwrap_or_else(|| result(reply)));
            }
        }
    }

    /// Checks for missing replies. Returns whether the connection counts as lost.
    fn is_silent(&mut self) -> bool {
        let is_waiting = !self.waiting.is_empty() && self.answered == self.checked.answered;
        let silent = if is_waiting { self.checked.silent + 1 } else { 0 };
        self.checked = Check { answered: self.answered, silent };
        silent >= SILENT_CHECKS_MAX
    }
}

impl Output {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.is_unflushed = true;
    }

    /// Writes and flushes all bytes. Dropping this future loses none.
    async fn write(&mut self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        while self.bytes.has_remaining() {
            if writer.write_buf(&mut self.bytes).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        writer.flush().await?;
        self.is_unflushed = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tokio::task::JoinHandle;

    use super::*;

    /// A pipeline whose server is the test.
    struct Bench {
        server: DuplexStream,
        queue: mpsc::Sender<PipelinedCommands>,
        run: JoinHandle<SessionEnd>,
    }

    impl Bench {
        fn new() -> Bench {
            let (client, server) = duplex(1 << 16);
            let (queue, mut receiver) = mpsc::channel(8);
            let run =
                tokio::spawn(async move { run(RedisSession::over(client), &mut receiver).await });
            Bench { server, queue, run }
        }

        fn send(
            &self,
            bytes: &[u8],
            replies: usize,
        ) -> oneshot::Receiver<Result<Reply, CallError>> {
            self.send_for(bytes, replies, ResultOf::Last)
        }

        fn send_for(
            &self,
            bytes: &[u8],
            replies: usize,
            result_of: ResultOf,
        ) -> oneshot::Receiver<Result<Reply, CallError>> {
            let (reply, received) = oneshot::channel();
            let (bytes, bound) = (bytes.to_vec(), ReplyBound { bytes: 1_000, elements: 10 });
            let commands = PipelinedCommands { bytes, replies, bound, result_of, reply };
            assert!(self.queue.try_send(commands).is_ok());
            received
        }

        /// Reads this many bytes of commands.
        async fn read(&mut self, count: usize) -> Vec<u8> {
            let mut bytes = vec![0; count];
            self.server.read_exact(&mut bytes).await.expect("commands");
            bytes
        }

        async fn write(&mut self, bytes: &[u8]) {
            self.server.write_all(bytes).await.expect("the pipeline reads");
        }
    }

    fn text(text: &'static str) -> Result<Reply, CallError> {
        Ok(Reply::Text(Bytes::from_static(text.as_bytes())))
    }

    #[tokio::test]
    async fn replies_belong_to_commands_in_order() {
        let mut bench = Bench::new();
        let (first, second) = (bench.send(b"a", 1), bench.send(b"bb", 2));
        let third = bench.send(b"c", 1);
        assert_eq!(bench.read(4).await, b"abbc");
        bench.write(b"+one\r\n+ask").await;
        assert_eq!(first.await.unwrap(), text("one"));
        bench.write(b"ing\r\n-MOVED 1 h:1\r\n:3\r\n").await;
        let moved = CallError::Reply(Bytes::from_static(b"MOVED 1 h:1"));
        assert_eq!(second.await.unwrap(), Err(moved));
        assert_eq!(third.await.unwrap(), Ok(Reply::Integer(3)));
        drop(bench.queue);
        let end = bench.run.await.unwrap();
        assert!(end.error.is_none() && end.answered);
    }

    /// A node that does not own the keys of a transaction refuses each command, and then `EXEC`.
    #[tokio::test]
    async fn a_transaction_fails_with_its_first_error() {
        let mut bench = Bench::new();
        let refused = bench.send_for(b"mhe", 3, ResultOf::FirstError);
        let done = bench.send_for(b"mhe", 3, ResultOf::FirstError);
        assert_eq!(bench.read(6).await, b"mhemhe");
        bench.write(b"+OK\r\n-MOVED 1 h:1\r\n-EXECABORT discarded\r\n").await;
        let moved = CallError::Reply(Bytes::from_static(b"MOVED 1 h:1"));
        assert_eq!(refused.await.unwrap(), Err(moved));
        bench.write(b"+OK\r\n+QUEUED\r\n*1\r\n:3\r\n").await;
        assert_eq!(done.await.unwrap(), Ok(Reply::Array(vec![Reply::Integer(3)])));
    }

    #[tokio::test]
    async fn a_caller_that_left_is_not_served() {
        let mut bench = Bench::new();
        drop(bench.send(b"left", 1));
        let second = bench.send(b"b", 1);
        assert_eq!(bench.read(1).await, b"b");
        bench.write(b"+two\r\n").await;
        assert_eq!(second.await.unwrap(), text("two"));
    }

    #[tokio::test]
    async fn hostile_bytes_end_the_session() {
        let deep = b"*1\r\n".repeat(100);
        let table: [(&[u8], &str); 4] = [
            (b"$2147483647\r\n", "more than 1000 bytes"),
            (&deep, "inside each other"),
            (b"+one\r\n+two\r\n", "a reply to no command"),
            (b"HTTP/1.1 400\r\n", "no reply; check"),
        ];
        for (bytes, problem) in table {
            let mut bench = Bench::new();
            let received = bench.send(b"a", 1);
            bench.read(1).await;
            bench.write(bytes).await;
            let error = bench.run.await.unwrap().error.expect(problem).to_string();
            assert!(error.contains(problem), "{error}");
            let is_answered = problem.contains("no command");
            assert_eq!(received.await.is_ok(), is_answered, "{problem}");
        }
    }

    #[tokio::test]
    async fn a_lost_connection_drops_its_commands() {
        let mut bench = Bench::new();
        let received = bench.send(b"a", 1);
        bench.read(1).await;
        drop(bench.server);
        assert!(received.await.is_err());
        let end = bench.run.await.unwrap();
        assert!(end.error.is_some() && !end.answered);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_reply_ends_the_session() {
        let mut bench = Bench::new();
        let began = tokio::time::Instant::now();
        let received = bench.send(b"a", 1);
        bench.read(1).await;
        // Bytes that complete no reply do not count as one.
        bench.write(b"$5\r\nab").await;
        assert!(received.await.is_err());
        let waited = began.elapsed();
        assert!(waited >= 4 * CHECK_PERIOD && waited <= 6 * CHECK_PERIOD, "{waited:?}");
        assert!(bench.run.await.unwrap().error.is_some());
    }
}
