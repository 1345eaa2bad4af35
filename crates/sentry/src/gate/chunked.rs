//! Following a chunked body to its end, without changing a byte.
//!
//! The gate only needs to know where the next request begins. It is strict: at the first byte that RFC 9112 section 7.1
//! does not foresee it is [`Follower::lost`]: the request is answered with 400, whatever hyper makes of it, and the
//! connection ends.

/// Where in a chunked body the last byte seen was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follower {
    /// At the start of a chunk's size.
    #[default]
    SizeStart,
    /// In a chunk's size.
    Size(u64),
    /// In a chunk's extension.
    Extension(u64),
    /// After the carriage return that ends a size line.
    SizeEnd(u64),
    /// In a chunk's data, with this much to come.
    Data(u64),
    /// After a chunk's data.
    DataEnd,
    /// After the carriage return that follows a chunk's data.
    DataLineEnd,
    /// At the start of a trailer line.
    TrailerStart,
    /// In a trailer line.
    Trailer,
    /// After the carriage return of a trailer line.
    TrailerEnd,
    /// After the carriage return of the last, empty line.
    LastLineEnd,
    /// The body is over.
    Done,
    /// This is no chunked body.
    Lost,
}

impl Follower {
    /// Goes through `bytes` as far as the body reaches, and says how far that is.
    pub fn follow(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            match *self {
                Follower::Done => return at,
                Follower::Lost => return bytes.len(),
                Follower::Data(left) => {
                    let step = left.min((bytes.len() - at) as u64);
                    at += step as usize;
                    *self = if step == left { Follower::DataEnd } else { Follower::Data(left - step) };
                }
                _ => {
                    *self = self.after(bytes[at]);
                    at += 1;
                }
            }
        }
        at
    }

    /// Whether the body is over.
    pub fn done(self) -> bool {
        self == Follower::Done
    }

    /// Whether this stopped being a chunked body.
    pub fn lost(self) -> bool {
        self == Follower::Lost
    }

    fn after(self, byte: u8) -> Follower {
        use Follower::*;
        match (self, byte) {
            (SizeStart, _) => digit(0, byte),
            (Size(n), b'\r') => SizeEnd(n),
            (Size(n), b';') => Extension(n),
            (Size(n), _) => digit(n, byte),
            (Extension(n), b'\r') => SizeEnd(n),
            (Extension(n), b'\t' | b' '..=b'~' | 0x80..) => Extension(n),
            (SizeEnd(0), b'\n') => TrailerStart,
            (SizeEnd(n), b'\n') => Data(n),
            (DataEnd, b'\r') => DataLineEnd,
            (DataLineEnd, b'\n') => SizeStart,
            (TrailerStart, b'\r') => LastLineEnd,
            (TrailerStart, b'!'..=b'~') => Trailer,
            (Trailer, b'\r') => TrailerEnd,
            (Trailer, b'\t' | b' '..=b'~' | 0x80..) => Trailer,
            (TrailerEnd, b'\n') => TrailerStart,
            (LastLineEnd, b'\n') => Done,
            _ => Lost,
        }
    }
}

fn digit(so_far: u64, byte: u8) -> Follower {
    match (byte as char).to_digit(16) {
        Some(d) if so_far >> 56 == 0 => Follower::Size(so_far << 4 | u64::from(d)),
        _ => Follower::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(bytes: &[u8]) -> (usize, Follower) {
        let mut follower = Follower::default();
        (follower.follow(bytes), follower)
    }

    #[test]
    fn a_body_is_followed_to_its_end_and_no_further() {
        assert_eq!(follow(b"3\r\nabc\r\n0\r\n\r\nGET /"), (13, Follower::Done));
        assert_eq!(follow(b"A;x=\"y\"\r\n0123456789\r\n0\r\nT: v\r\n\r\n"), (32, Follower::Done));
        assert_eq!(follow(b"3\r\nab"), (5, Follower::Data(1)));
        assert_eq!(follow("0;a=\"\u{e9}\"\r\nT: \u{e9}\r\n\r\n".as_bytes()), (19, Follower::Done));
    }

    #[test]
    fn one_byte_at_a_time_is_the_same_as_all_at_once() {
        let body = b"1f;a\r\n0123456789012345678901234567890\r\n0\r\nA: b\r\n\r\n";
        let mut follower = Follower::default();
        assert!(body.chunks(1).all(|byte| follower.follow(byte) == 1));
        assert!(follower.done());
    }

    #[test]
    fn anything_else_is_lost() {
        for body in [
            &b"\r\n"[..],
            b"-1\r\n",
            b"0x1\r\n",
            b"1 \r\na",
            b"1\na\n",
            b"1\r\nab\r\n",
            b"fffffffffffffffff\r\n",
            b"1\r\na\r0\r\n",
            b"0\r\n a\r\n\r\n",
            b"0\r\n\n\r\n",
        ] {
            assert!(follow(body).1.lost(), "{body:?}");
        }
    }
}
