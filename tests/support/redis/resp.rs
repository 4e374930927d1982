//! A minimal blocking and pipelining client of the Redis protocol.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// `+OK`
    Simple(String),
    /// `-ERR ...`
    Error(String),
    /// `:1`
    Integer(i64),
    /// A string.
    Bulk(Vec<u8>),
    /// A missing string or list.
    Nil,
    /// A list.
    List(Vec<Reply>),
}

impl Reply {
    /// The integers of a flat list.
    pub(crate) fn integers(&self) -> Option<Vec<i64>> {
        let Reply::List(items) = self else { return None };
        let integer = |item: &Reply| match item {
            Reply::Integer(number) => Some(*number),
            _ => None,
        };
        items.iter().map(integer).collect()
    }

    /// The text of a string, an error or a status.
    pub(crate) fn text(&self) -> String {
        match self {
            Reply::Simple(text) | Reply::Error(text) => text.clone(),
            Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => format!("{other:?}"),
        }
    }
}

/// One connection.
pub(crate) struct Client {
    reader: BufReader<Box<dyn Read + Send>>,
    writer: Box<dyn Write + Send>,
    queued: Vec<u8>,
}

impl Client {
    /// Connects over a unix socket.
    pub(crate) fn unix(path: &Path) -> io::Result<Client> {
        let stream = UnixStream::connect(path)?;
        Ok(Client::over(stream.try_clone()?, stream))
    }

    /// Connects over TCP. A reply later than `timeout` is an error.
    pub(crate) fn tcp(address: SocketAddr, timeout: Duration) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Client::over(stream.try_clone()?, stream))
    }

    fn over(read: impl Read + Send + 'static, write: impl Write + Send + 'static) -> Client {
        let reader = BufReader::with_capacity(1 << 16, Box::new(read) as Box<dyn Read + Send>);
        Client { reader, writer: Box::new(write), queued: Vec::new() }
    }

    /// Sends one command and reads its reply.
    pub(crate) fn try_run(&mut self, command: &[&str]) -> io::Result<Reply> {
        let parts: Vec<&[u8]> = command.iter().map(|part| part.as_bytes()).collect();
        self.queue(&parts);
        self.send()?;
        self.read()
    }

    /// Sends one command and returns its reply. Panics on an error reply.
    pub(crate) fn run(&mut self, command: &[&str]) -> Reply {
        match self.try_run(command) {
            Ok(Reply::Error(text)) => panic!("{command:?}: {text}"),
            Ok(reply) => reply,
            Err(error) => panic!("{command:?}: {error}"),
        }
    }

    /// Queues a command for [`Client::send`].
    pub(crate) fn queue(&mut self, command: &[&[u8]]) {
        self.queued.extend(format!("*{}\r\n", command.len()).bytes());
        for part in command {
            self.queued.extend(format!("${}\r\n", part.len()).bytes());
            self.queued.extend(*part);
            self.queued.extend(b"\r\n");
        }
    }

    /// Sends the queued commands. Each has one reply for [`Client::read`].
    pub(crate) fn send(&mut self) -> io::Result<()> {
        self.writer.write_all(&self.queued)?;
        self.queued.clear();
        self.writer.flush()
    }

    /// The next reply.
    pub(crate) fn read(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::InvalidData)?;
        let number =
            || rest.parse::<i64>().map_err(|_| io::Error::from(io::ErrorKind::InvalidData));
        match kind {
            "+" => Ok(Reply::Simple(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => Ok(Reply::Integer(number()?)),
            "$" => match usize::try_from(number()?) {
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.reader.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Ok(Reply::Bulk(bytes))
                }
                Err(_) => Ok(Reply::Nil),
            },
            "*" => match usize::try_from(number()?) {
                Ok(length) => {
                    Ok(Reply::List((0..length).map(|_| self.read()).collect::<Result<_, _>>()?))
                }
                Err(_) => Ok(Reply::Nil),
            },
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Reads one command of a client: an array of strings.
pub(crate) fn read_command(commands: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let words = read_number(commands, b'*')?;
    (0..words)
        .map(|_| {
            let mut word = vec![0; read_number(commands, b'$')? + 2];
            commands.read_exact(&mut word).ok()?;
            word.truncate(word.len() - 2);
            Some(word)
        })
        .collect()
}

fn read_number(commands: &mut impl BufRead, kind: u8) -> Option<usize> {
    let mut line = Vec::new();
    commands.by_ref().read_until(b'\n', &mut line).ok()?;
    let text = std::str::from_utf8(line.strip_prefix(&[kind])?).ok()?;
    text.trim_end().parse().ok()
}
