//! Client for memcached look-ups, by its text protocol.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

use crate::spec::LookUps;

/// Who does not answer within this is gone.
const PATIENCE: Duration = Duration::from_secs(5);
/// Values that are stored at once.
const LOT: u32 = 500;

type Connection = tokio::io::BufStream<tokio::net::TcpStream>;

/// A memcached as an application server has it: a connection for each request at work, kept for the next.
#[derive(Debug)]
pub(crate) struct Memcached {
    look_ups: LookUps,
    idle: Mutex<Vec<Connection>>,
    drawn: AtomicU32,
}

impl Memcached {
    pub(crate) fn new(look_ups: LookUps) -> Memcached {
        Memcached { look_ups, idle: Mutex::default(), drawn: AtomicU32::new(0) }
    }

    /// The look-ups of one request, one after the other.
    pub(crate) async fn look_up(&self) -> io::Result<()> {
        let idle = self.lock().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => {
                let stream = tokio::net::TcpStream::connect(self.look_ups.memcached).await?;
                stream.set_nodelay(true)?;
                tokio::io::BufStream::new(stream)
            }
        };
        let mut line = String::new();
        let mut value = Vec::new();
        for _ in 0..self.look_ups.count {
            connection.write_all(request(self.draw()).as_bytes()).await?;
            connection.flush().await?;
            line.clear();
            connection.read_line(&mut line).await?;
            value.resize(value_length(&line)?, 0);
            connection.read_exact(&mut value).await?;
            line.clear();
            connection.read_line(&mut line).await?;
            check_end(&line)?;
        }
        self.lock().push(connection);
        Ok(())
    }

    /// A key; all come equally often, in an order that looks random.
    fn draw(&self) -> u32 {
        let number = self.drawn.fetch_add(1, Ordering::Relaxed);
        scatter(number) % self.look_ups.keys
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection of one's own, for whoever asks from a thread.
#[derive(Debug)]
pub struct Client(BufReader<TcpStream>);

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn connect(to: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Client(BufReader::new(stream)))
    }

    /// Stores a value under every key.
    pub fn fill(&mut self, keys: u32, value_bytes: u32) -> io::Result<()> {
        let value = "v".repeat(value_bytes as usize);
        for first in (0..keys).step_by(LOT as usize) {
            let lot = first..keys.min(first + LOT);
            let text: String = lot.clone().map(|key| format!("set k{key} 0 0 {value_bytes}\r\n{value}\r\n")).collect();
            self.0.get_mut().write_all(text.as_bytes())?;
            for _ in lot {
                let mut line = String::new();
                self.0.read_line(&mut line)?;
                if line != "STORED\r\n" {
                    return Err(nonsense(&line));
                }
            }
        }
        Ok(())
    }

    /// Looks one key up.
    pub fn look_up(&mut self, key: u32) -> io::Result<()> {
        self.0.get_mut().write_all(request(key).as_bytes())?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let mut value = vec![0; value_length(&line)?];
        self.0.read_exact(&mut value)?;
        line.clear();
        self.0.read_line(&mut line)?;
        check_end(&line)
    }
}

/// Neighbours lie far apart.
pub fn scatter(number: u32) -> u32 {
    number.wrapping_mul(0x9e37_79b1).rotate_left(15)
}

fn request(key: u32) -> String {
    format!("get k{key}\r\n")
}

/// Bytes that follow `VALUE key flags bytes`, with the line's end.
fn value_length(line: &str) -> io::Result<usize> {
    let bytes = line.strip_prefix("VALUE ").and_then(|rest| rest.trim_end().rsplit(' ').next()?.parse::<usize>().ok());
    bytes.filter(|bytes| *bytes <= 1 << 20).map(|bytes| bytes + 2).ok_or_else(|| nonsense(line))
}

fn check_end(line: &str) -> io::Result<()> {
    if line == "END\r\n" { Ok(()) } else { Err(nonsense(line)) }
}

fn nonsense(line: &str) -> io::Error {
    io::Error::other(format!("memcached answers {:?}", line.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        assert_eq!(value_length("VALUE k1 0 100\r\n").expect("a value"), 102);
        for line in ["END\r\n", "", "VALUE k1 0 x\r\n", "ERROR\r\n", "VALUE k 0 99999999999\r\n"] {
            assert!(value_length(line).is_err(), "{line:?}");
        }
        assert!(check_end("END\r\n").is_ok() && check_end("VALUE").is_err());
    }
}
