//! The heads of a server's answers, byte by byte on their way to hyper: read as strictly as those of requests.
//!
//! hyper takes a lone line feed for the end of a line, and a carriage return may stand where others see a line's end.
//! It writes such a head anew, so nobody behind the sentry is misled; but a cache before the server, or the server's
//! own idea of where its head ends, may be another. Who writes heads so is not believed to frame bodies well.

use std::cell::Cell;
use std::io;

/// How far the answers on one connection were read.
#[derive(Debug, Default)]
pub(super) struct Answers {
    state: Cell<State>,
    odd: Cell<bool>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// In a head.
    Head(Head),
    /// Behind the last head: what follows is for hyper.
    #[default]
    Behind,
}

#[derive(Clone, Copy, Debug, Default)]
struct Head {
    /// Bytes of the head so far.
    length: u32,
    /// Bytes of the current line so far, but not its end.
    line: u32,
    /// The last byte was a carriage return.
    after_return: bool,
    /// What the status begins with is 1, and another head follows.
    is_interim: bool,
}

/// Where a status begins: `HTTP/1.1 200`.
const STATUS_AT: u32 = 9;

impl Answers {
    /// A request goes out: the next bytes are the head of its answer.
    pub(super) fn expect(&self) {
        self.state.set(State::Head(Head::default()));
    }

    /// Whether the server wrote what is no head.
    pub(super) fn are_odd(&self) -> bool {
        self.odd.get()
    }

    /// Bytes come.
    ///
    /// # Errors
    /// When a line does not end as it must.
    pub(super) fn read(&self, bytes: &[u8]) -> io::Result<()> {
        let State::Head(mut head) = self.state.get() else { return Ok(()) };
        for byte in bytes {
            match head.take(*byte) {
                Ok(false) => {}
                // `101` is followed by another protocol; hyper takes any other 1xx for what it is.
                Ok(true) if head.is_interim => head = Head::default(),
                Ok(true) => {
                    self.state.set(State::Behind);
                    return Ok(());
                }
                Err(Odd) => {
                    self.odd.set(true);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "a line of the answer's head ends oddly"));
                }
            }
        }
        self.state.set(State::Head(head));
        Ok(())
    }
}

/// A line does not end in a carriage return and a line feed.
struct Odd;

impl Head {
    /// Whether this byte ends the head.
    fn take(&mut self, byte: u8) -> Result<bool, Odd> {
        if (byte == b'\n') != self.after_return {
            return Err(Odd);
        }
        match byte {
            // No head begins with an empty line.
            b'\n' if self.length == 1 => return Err(Odd),
            b'\n' => {
                let ends = self.line == 0;
                (self.line, self.after_return) = (0, false);
                self.length = self.length.saturating_add(1);
                return Ok(ends);
            }
            b'\r' => self.after_return = true,
            b'1' if self.length == STATUS_AT => {
                self.is_interim = true;
                self.line += 1;
            }
            // `101` is no interim answer.
            b'1' if self.length == STATUS_AT + 2 => {
                self.is_interim = false;
                self.line += 1;
            }
            _ => self.line = self.line.saturating_add(1),
        }
        self.length = self.length.saturating_add(1);
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How far heads reach in `text`, in pieces of `size` bytes: `None` when they are odd.
    fn heads(text: &str, size: usize) -> Option<bool> {
        let answers = Answers::default();
        answers.expect();
        for piece in text.as_bytes().chunks(size) {
            answers.read(piece).ok()?;
        }
        Some(matches!(answers.state.get(), State::Behind))
    }

    #[test]
    fn heads_are_followed_to_their_end_however_they_come() {
        for size in 1..40 {
            assert_eq!(heads("HTTP/1.1 200 OK\r\nA: b\r\n", size), Some(false));
            assert_eq!(heads("HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody\nof\rany kind", size), Some(true));
            assert_eq!(heads("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 None\r\n", size), Some(false));
            assert_eq!(heads("HTTP/1.1 103 Early\r\nL: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n\n", size), Some(true));
            assert_eq!(heads("HTTP/1.1 101 Other\r\nUpgrade: x\r\n\r\n\n\n", size), Some(true));
        }
    }

    #[test]
    fn lines_that_end_oddly_are_no_head() {
        for size in 1..40 {
            for text in [
                "HTTP/1.1 200 OK\nA: b\r\n\r\n",
                "HTTP/1.1 200 OK\r\nA: b\n\r\n",
                "HTTP/1.1 200 OK\r\nA: b\r\n\n",
                "HTTP/1.1 200 OK\r\nA: b\rC: d\r\n\r\n",
                "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\n\n",
                "\nHTTP/1.1 200 OK\r\n\r\n",
                "\r\nHTTP/1.1 200 OK\r\n\r\n",
            ] {
                assert_eq!(heads(text, size), None, "{text:?}");
            }
        }
    }

    #[test]
    fn what_comes_without_a_request_is_for_hyper() {
        assert!(Answers::default().read(b"\n\n").is_ok());
    }
}
