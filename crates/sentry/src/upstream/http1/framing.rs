//! Where an answer's body ends: read out of the bytes that follow its head, none of which are copied.

use bytes::{Buf, Bytes};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;

/// Bytes of all chunks' extensions together. Nobody reads them.
const EXTENSIONS: u32 = 16 * 1024;

/// Bytes of trailers, and how many there may be.
const TRAILER_BYTES: usize = 16 * 1024;
const TRAILERS: usize = 100;

/// What ends most bodies in chunks, behind the last byte of the last chunk.
const USUAL_END: &[u8] = b"\r\n0\r\n\r\n";

/// An answer's body, as far as it is not read.
#[derive(Debug)]
pub(crate) enum Rest {
    /// This many bytes; none: it is over.
    Length(u64),
    /// Chunks.
    Chunked(Chunks),
    /// All until the server closes.
    UntilClose,
}

/// It is not framed as it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Odd;

impl Rest {
    /// There is none.
    pub(crate) const NONE: Rest = Rest::Length(0);

    /// A body in chunks.
    pub(super) fn chunked() -> Rest {
        Rest::Chunked(Chunks::default())
    }

    /// Whether all of it was read.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Rest::Length(left) => *left == 0,
            Rest::Chunked(chunks) => chunks.at == At::End,
            Rest::UntilClose => false,
        }
    }

    /// How long the rest is, where the head said so.
    pub(crate) fn exact(&self) -> Option<u64> {
        match self {
            Rest::Length(left) => Some(*left),
            Rest::Chunked(_) | Rest::UntilClose => None,
        }
    }

    /// The next frame, out of what was read; `None`: there is no more, or it is over.
    ///
    /// # Errors
    /// When it is not framed as it must be. It is over then.
    pub(super) fn next(&mut self, read: &mut Bytes) -> Result<Option<Frame<Bytes>>, Odd> {
        let next = match self {
            _ if read.is_empty() => Ok(None),
            Rest::Length(left) => Ok(split(read, left).map(Frame::data)),
            Rest::Chunked(chunks) => chunks.next(read),
            Rest::UntilClose => Ok(Some(Frame::data(std::mem::take(read)))),
        };
        if next.is_err() {
            *self = Rest::NONE;
        }
        next
    }

    /// The server closed. It is over now.
    ///
    /// # Errors
    /// When it was not before.
    pub(super) fn close(&mut self) -> Result<(), Odd> {
        match std::mem::replace(self, Rest::NONE) {
            Rest::UntilClose => Ok(()),
            rest if rest.is_over() => Ok(()),
            _ => Err(Odd),
        }
    }
}

/// As much of `left` bytes as was read; `None`: nothing.
fn split(read: &mut Bytes, left: &mut u64) -> Option<Bytes> {
    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(read.len());
    *left -= length as u64;
    let whole = length == read.len();
    (length > 0).then(|| if whole { std::mem::take(read) } else { read.split_to(length) })
}

/// A body in chunks.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    at: At,
    /// Bytes of the chunk still to come, or its size as far as it was read.
    left: u64,
    /// Bytes of extensions so far.
    extensions: u32,
    trailers: Vec<u8>,
}

/// What comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// The first digit of a size.
    #[default]
    Start,
    Size,
    /// What may stand behind a size.
    Space,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// The first byte of a trailer, or of the last line.
    Line,
    Trailer,
    TrailerLf,
    EndLf,
    /// Nothing.
    End,
}

impl Chunks {
    fn next(&mut self, read: &mut Bytes) -> Result<Option<Frame<Bytes>>, Odd> {
        while self.at != At::End {
            if self.at == At::Data {
                let data = split(read, &mut self.left);
                if self.left == 0 {
                    self.at = At::DataCr;
                    self.see_end(read);
                }
                return Ok(data.map(Frame::data));
            }
            let Some(&byte) = read.first() else { return Ok(None) };
            read.advance(1);
            self.at = self.step(byte)?;
        }
        if self.trailers.is_empty() {
            return Ok(None);
        }
        trailers(&std::mem::take(&mut self.trailers)).map(|trailers| Some(Frame::trailers(trailers)))
    }

    /// Whoever has the last byte is to know it, where that is known.
    fn see_end(&mut self, read: &mut Bytes) {
        if read.starts_with(USUAL_END) {
            read.advance(USUAL_END.len());
            self.at = At::End;
        }
    }

    fn step(&mut self, byte: u8) -> Result<At, Odd> {
        let next = match (self.at, byte) {
            (At::Start | At::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = (byte as char).to_digit(16).ok_or(Odd)?;
                self.left = self.left.checked_mul(16).ok_or(Odd)? | u64::from(digit);
                At::Size
            }
            (At::Size | At::Space, b' ' | b'\t') => At::Space,
            (At::Size | At::Space, b';') => At::Extension,
            (At::Size | At::Space | At::Extension, b'\r') => At::SizeLf,
            (At::Extension, b'\n') => return Err(Odd),
            (At::Extension, _) if self.extensions < EXTENSIONS => {
                self.extensions += 1;
                At::Extension
            }
            (At::SizeLf, b'\n') if self.left == 0 => At::Line,
            (At::SizeLf, b'\n') => At::Data,
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => At::Start,
            (At::Line, b'\r') => At::EndLf,
            (At::Line | At::Trailer, b'\n') => return Err(Odd),
            (At::Trailer, b'\r') => self.keep(byte, At::TrailerLf)?,
            (At::Line | At::Trailer, _) => self.keep(byte, At::Trailer)?,
            (At::TrailerLf, b'\n') => self.keep(byte, At::Line)?,
            (At::EndLf, b'\n') => At::End,
            _ => return Err(Odd),
        };
        Ok(next)
    }

    /// It is part of a trailer.
    fn keep(&mut self, byte: u8, then: At) -> Result<At, Odd> {
        self.trailers.push(byte);
        if self.trailers.len() < TRAILER_BYTES { Ok(then) } else { Err(Odd) }
    }
}

/// The fields that follow a body; `bytes`: their lines.
fn trailers(bytes: &[u8]) -> Result<HeaderMap, Odd> {
    let mut fields = HeaderMap::new();
    let mut table = [httparse::EMPTY_HEADER; TRAILERS];
    let lines = [bytes, b"\r\n"].concat();
    let parsed = httparse::parse_headers(&lines, &mut table).map_err(|_| Odd)?;
    let httparse::Status::Complete((_, parsed)) = parsed else { return Err(Odd) };
    for field in parsed {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Odd)?;
        fields.append(name, HeaderValue::from_bytes(field.value).map_err(|_| Odd)?);
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body, what follows it, and what is left of `text`, in pieces of `size` bytes; `None`: it is odd, or does not
    /// end.
    fn read(mut rest: Rest, text: &str, size: usize) -> Option<(String, Option<HeaderMap>, String)> {
        let (mut body, mut trailers, mut held) = (Vec::new(), None, Bytes::new());
        let mut pieces = text.as_bytes().chunks(size);
        while !rest.is_over() {
            match rest.next(&mut held).ok()? {
                Some(frame) if frame.is_data() => body.extend(frame.into_data().expect("data")),
                Some(frame) => trailers = frame.into_trailers().ok(),
                None if rest.is_over() => {}
                None => match pieces.next() {
                    Some(piece) => held = [&held, piece].concat().into(),
                    None => rest.close().ok()?,
                },
            }
        }
        held = [&held[..], &pieces.collect::<Vec<_>>().concat()].concat().into();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some((text(&body), trailers, text(&held)))
    }

    fn chunked(text: &str, size: usize) -> Option<(String, String)> {
        read(Rest::chunked(), text, size).map(|(body, _, left)| (body, left))
    }

    #[test]
    fn bodies_end_where_their_heads_say() {
        for size in 1..20 {
            let (body, _, left) = read(Rest::Length(5), "hello, world", size).expect("a body");
            assert_eq!((body.as_str(), left.as_str()), ("hello", ", world"));
            assert_eq!(read(Rest::Length(5), "hell", size), None);
            let (body, ..) = read(Rest::UntilClose, "hello, world", size).expect("a body");
            assert_eq!(body, "hello, world");
        }
    }

    #[test]
    fn chunks_are_one_body_however_they_come() {
        let texts = [
            ("5\r\nhello\r\n0\r\n\r\nnext", "hello"),
            ("5\r\nhello\r\n00\r\n\r\nnext", "hello"),
            ("1\r\nh\r\n004;a=b;c\r\nello\r\n0\r\n\r\nnext", "hello"),
            ("2 \t\r\nhe\r\n3\t;x\r\nllo\r\n0 ;y\r\n\r\nnext", "hello"),
            ("A\r\n0123456789\r\na\r\nabcdefghij\r\n0\r\n\r\nnext", "0123456789abcdefghij"),
            ("7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\nnext", "\r\n0\r\n\r\n"),
            ("0\r\n\r\nnext", ""),
            ("1\r\nx\r\n0\r\nA: b\r\n\r\nnext", "x"),
        ];
        for (text, body) in texts {
            for size in 1..text.len() + 1 {
                assert_eq!(chunked(text, size), Some((body.into(), "next".into())), "{text:?} by {size}");
            }
        }
    }

    #[test]
    fn what_follows_a_body_is_read() {
        let text = "1\r\nx\r\n0\r\nA: b\r\nc:d\r\nA: e\r\n\r\nnext";
        for size in 1..text.len() + 1 {
            let (_, trailers, left) = read(Rest::chunked(), text, size).expect("a body");
            let trailers = trailers.expect("trailers");
            assert_eq!((trailers.get_all("a").iter().count(), left.as_str()), (2, "next"));
            assert_eq!(trailers["c"], "d");
        }
    }

    #[test]
    fn odd_chunks_are_no_body() {
        let many = "A: b\r\n".repeat(TRAILERS + 1);
        let long = "x".repeat(20_000);
        let odd = [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+1\r\nx",
            "0x1\r\nx",
            " 1\r\nx",
            "1\nx",
            "1\rx",
            "1 1\r\nx",
            "1;a\nb\r\n",
            "fffffffffffffffff\r\n",
            "1\r\nxy\r\n0\r\n\r\n",
            "1\r\nx\n0\r\n\r\n",
            "1\r\nx\r0\r\n\r\n",
            "1\r\nx\r\n\r\n",
            "0\r\n\n",
            "0\r\n\rx",
            "0\r\nA: b\n\r\n",
            "0\r\nA: b\rc\r\n\r\n",
            "0\r\nA b\r\n\r\n",
            "0\r\nA : b\r\n\r\n",
            "1\r\nx\r\n0\r\n",
            "1\r\nx\r\n",
            "5\r\nhell",
            "",
            &format!("0\r\n{many}\r\n"),
            &format!("0\r\nA: {long}\r\n\r\n"),
            &format!("1;{long}\r\nx\r\n0\r\n\r\n"),
        ];
        for text in odd {
            for size in [1, 2, 3, 5, 1000, 100_000] {
                assert_eq!(chunked(text, size), None, "{text:?} by {size}");
            }
        }
    }
}
