//! A client of the nats-server that listens to everything and says what it likes: a few lines of its text protocol, enough
//! for an injector.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

/// A message as it was published.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) subject: String,
    pub(super) reply: Option<String>,
    /// With the line that begins them and the empty one that ends them; empty: none.
    pub(super) headers: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

/// A connection.
pub(super) struct Client {
    from: BufReader<TcpStream>,
    to: TcpStream,
}

impl Client {
    #[allow(clippy::disallowed_methods, reason = "an injector beside the processes that it does harm to")]
    pub(super) fn connect(port: u16) -> Result<Self> {
        let to = TcpStream::connect(("127.0.0.1", port)).context("connect to the nats-server")?;
        to.set_nodelay(true)?;
        let mut client = Self { from: BufReader::new(to.try_clone()?), to };
        ensure!(client.line()?.starts_with("INFO "), "no nats-server");
        // What we say ourselves we do not want to hear.
        let options = r#"{"verbose":false,"pedantic":false,"echo":false,"headers":true,"no_responders":false}"#;
        write!(client.to, "CONNECT {options}\r\nPING\r\n")?;
        let answer = client.line()?;
        ensure!(answer == "PONG", "the nats-server says {answer}");
        Ok(client)
    }

    /// Hears all messages of a cluster from now on.
    pub(super) fn listen(&mut self) -> Result<()> {
        Ok(write!(self.to, "SUB exo.v1.> 1\r\n")?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.from.read_line(&mut line)? > 0, "the nats-server has closed the connection");
        Ok(line.trim_end().to_owned())
    }

    /// The next message, if one comes within this time.
    pub(super) fn next(&mut self, within: Duration) -> Result<Option<Message>> {
        loop {
            self.to.set_read_timeout(Some(within))?;
            match self.from.fill_buf() {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Ok(None);
                }
                filled => ensure!(!filled?.is_empty(), "the nats-server has closed the connection"),
            }
            // What has begun comes whole.
            self.to.set_read_timeout(None)?;
            let line = self.line()?;
            let words: Vec<&str> = line.split(' ').collect();
            let size = |word: &str| word.parse::<usize>().with_context(|| format!("a size in {line:?}"));
            let (subject, reply, headers, all) = match words[..] {
                ["PING"] => {
                    self.to.write_all(b"PONG\r\n")?;
                    continue;
                }
                ["PONG" | "+OK"] | ["INFO", ..] => continue,
                ["MSG", subject, _, all] => (subject, None, 0, size(all)?),
                ["MSG", subject, _, reply, all] => (subject, Some(reply), 0, size(all)?),
                ["HMSG", subject, _, headers, all] => (subject, None, size(headers)?, size(all)?),
                ["HMSG", subject, _, reply, headers, all] => (subject, Some(reply), size(headers)?, size(all)?),
                _ => bail!("the nats-server says {line}"),
            };
            let mut bytes = vec![0; all + 2];
            self.from.read_exact(&mut bytes)?;
            bytes.truncate(all);
            let payload = bytes.split_off(headers);
            let (subject, reply) = (subject.to_owned(), reply.map(str::to_owned));
            return Ok(Some(Message { subject, reply, headers: bytes, payload }));
        }
    }

    /// Publishes messages, all at once.
    pub(super) fn publish<'a>(&mut self, messages: impl IntoIterator<Item = &'a Message>) -> Result<()> {
        let mut out = Vec::new();
        for Message { subject, reply, headers, payload } in messages {
            let reply = reply.as_ref().map_or(String::new(), |reply| format!("{reply} "));
            let all = headers.len() + payload.len();
            if headers.is_empty() {
                write!(out, "PUB {subject} {reply}{all}\r\n")?;
            } else {
                write!(out, "HPUB {subject} {reply}{} {all}\r\n", headers.len())?;
            }
            out.extend_from_slice(headers);
            out.extend_from_slice(payload);
            out.extend_from_slice(b"\r\n");
        }
        Ok(self.to.write_all(&out)?)
    }
}
