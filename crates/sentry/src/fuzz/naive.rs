//! A reader of HTTP/1 that has nothing in common with the two that the sentry uses: strict, slow, and only for judging
//! what they make of the same bytes.

/// A message's head, as RFC 9112 writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The words of the first line.
    pub words: [String; 3],
    /// Names in lower case, and values without white space around them.
    pub fields: Vec<(String, Vec<u8>)>,
    /// Bytes of it, the empty line included.
    pub length: usize,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its head.
    pub head: Head,
    /// Its body, chunks decoded.
    pub body: Vec<u8>,
    /// All of the body is here.
    pub whole: bool,
    /// What follows the body so far is no part of one.
    pub broken: bool,
    /// Bytes of it, as far as they are here.
    pub length: usize,
}

/// What is no HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bad;

impl Head {
    /// The values of a field; `name` in lower case.
    pub fn values(&self, name: &str) -> Vec<&[u8]> {
        self.fields.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_slice()).collect()
    }

    fn is_chunked(&self) -> bool {
        self.values("transfer-encoding").iter().any(|value| value.eq_ignore_ascii_case(b"chunked"))
    }

    fn body_length(&self) -> Result<Option<usize>, Bad> {
        let number = |value: &[u8]| {
            let digits = value.iter().all(u8::is_ascii_digit).then_some(value).ok_or(Bad)?;
            std::str::from_utf8(digits).map_err(|_| Bad)?.parse().map_err(|_| Bad)
        };
        match self.values("content-length").as_slice() {
            [] => Ok(None),
            [one] => number(one).map(Some),
            _ => Err(Bad),
        }
    }
}

/// The request at the start of `bytes`, or as much of it as is here and lawful; `None`: not even its head.
///
/// # Errors
/// When there is none. One whose head is lawful is one, for its server may have read it before the rest came.
pub fn request(bytes: &[u8]) -> Result<Option<Message>, Bad> {
    let Some(head) = head(bytes)? else { return Ok(None) };
    if !matches!(head.words[2].as_str(), "HTTP/1.1" | "HTTP/1.0") {
        return Err(Bad);
    }
    with_body(bytes, head, Some(0)).map(Some)
}

/// The answer at the start of `bytes` to a request of `method`; it reaches to the end of the connection if nothing
/// else is said, and is whole then when `closed`.
///
/// # Errors
/// When there is none.
pub fn answer(bytes: &[u8], method: &str, closed: bool) -> Result<Option<Message>, Bad> {
    let Some(head) = head(bytes)? else { return Ok(None) };
    let status: u16 = head.words[1].parse().map_err(|_| Bad)?;
    if !head.words[0].starts_with("HTTP/1.") || !(100..600).contains(&status) {
        return Err(Bad);
    }
    if method == "HEAD" || status < 200 || status == 204 || status == 304 {
        let length = head.length;
        return Ok(Some(Message { head, body: Vec::new(), whole: true, broken: false, length }));
    }
    let mut message = with_body(bytes, head, None)?;
    if message.broken {
        return Err(Bad);
    }
    message.whole |= closed && !message.head.is_chunked() && message.head.values("content-length").is_empty();
    Ok(Some(message))
}

/// `unsaid`: how long a body is whose length nobody says; `None`: to the end, whole or not.
fn with_body(bytes: &[u8], head: Head, unsaid: Option<usize>) -> Result<Message, Bad> {
    let rest = &bytes[head.length..];
    if head.is_chunked() {
        let mut body = Vec::new();
        let end = chunks(rest, &mut body);
        let length = head.length + end.ok().flatten().unwrap_or(rest.len());
        return Ok(Message { head, body, whole: matches!(end, Ok(Some(_))), broken: end.is_err(), length });
    }
    let said = head.body_length()?.or(unsaid);
    let most = said.unwrap_or(usize::MAX).min(rest.len());
    let length = head.length + most;
    Ok(Message { head, body: rest[..most].to_vec(), whole: said == Some(most), broken: false, length })
}

fn head(bytes: &[u8]) -> Result<Option<Head>, Bad> {
    let Some(length) = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4) else { return Ok(None) };
    let text = &bytes[..length - 4];
    let mut lines = lines(text)?.into_iter();
    let first = lines.next().ok_or(Bad)?;
    let first = std::str::from_utf8(first).map_err(|_| Bad)?;
    let words: Vec<String> = first.splitn(3, ' ').map(str::to_owned).collect();
    let words: [String; 3] = words.try_into().map_err(|_| Bad)?;
    if words[0].is_empty() || words[1].is_empty() {
        return Err(Bad);
    }
    let fields = lines.map(field).collect::<Result<_, _>>()?;
    Ok(Some(Head { words, fields, length }))
}

/// Lines that end in a carriage return and a line feed, which stand nowhere else.
fn lines(text: &[u8]) -> Result<Vec<&[u8]>, Bad> {
    let mut lines = Vec::new();
    let mut rest = text;
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n");
        let line = &rest[..end.unwrap_or(rest.len())];
        if line.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
            return Err(Bad);
        }
        lines.push(line);
        match end {
            Some(end) => rest = &rest[end + 2..],
            None => return Ok(lines),
        }
    }
}

fn field(line: &[u8]) -> Result<(String, Vec<u8>), Bad> {
    let colon = line.iter().position(|&byte| byte == b':').ok_or(Bad)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    if name.is_empty() || !name.iter().all(is_token) || value.iter().any(|&byte| byte == 0x7f || byte < 32 && byte != 9)
    {
        return Err(Bad);
    }
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().position(|byte| !blank(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !blank(byte)).map_or(start, |at| at + 1);
    Ok((String::from_utf8_lossy(name).to_ascii_lowercase(), value[start..end].to_vec()))
}

/// Reads a chunked body into `body`, and says how long it is with its frames; `None`: not all of it is here.
fn chunks(bytes: &[u8], body: &mut Vec<u8>) -> Result<Option<usize>, Bad> {
    let mut at = 0;
    let line = |at: usize| bytes[at..].windows(2).position(|two| two == b"\r\n").map(|length| &bytes[at..at + length]);
    loop {
        let Some(size) = line(at) else { return Ok(None) };
        at += size.len() + 2;
        let digits = size.split(|&byte| matches!(byte, b';' | b' ' | b'\t')).next().unwrap_or_default();
        let digits = std::str::from_utf8(digits).map_err(|_| Bad)?;
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Bad);
        }
        let size = usize::from_str_radix(digits, 16).map_err(|_| Bad)?;
        if size == 0 {
            break;
        }
        let here = size.min(bytes.len() - at);
        body.extend_from_slice(&bytes[at..at + here]);
        match bytes[at + here..] {
            [b'\r', b'\n', ..] if here == size => at += here + 2,
            [b'\r'] | [] => return Ok(None),
            _ => return Err(Bad),
        }
    }
    loop {
        let Some(trailer) = line(at) else { return Ok(None) };
        at += trailer.len() + 2;
        if trailer.is_empty() {
            return Ok(Some(at));
        }
        field(trailer)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_what_is_lawful() {
        let get = request(b"GET /a HTTP/1.1\r\nHost: t\r\nX:  y z \r\n\r\nnext").unwrap().unwrap();
        assert_eq!((get.length, get.whole, get.body.len()), (38, true, 0));
        assert_eq!(get.head.values("x"), [b"y z"]);
        let text = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nhi\r\n0\r\nT: v\r\n\r\n";
        for cut in 47..text.len() {
            assert!(!request(&text[..cut]).unwrap().unwrap().whole, "{cut}");
        }
        let post = request(text).unwrap().unwrap();
        assert_eq!((post.body.as_slice(), post.whole, post.length), (&b"hi"[..], true, text.len()));
        let old = answer(b"HTTP/1.1 200 OK\r\n\r\nabc", "GET", true).unwrap().unwrap();
        assert_eq!((old.body.as_slice(), old.whole), (&b"abc"[..], true));
        assert!(answer(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "HEAD", false).unwrap().unwrap().whole);
        assert_eq!(request(b"GET / HTTP/1.1\r\nHost: t\r\n"), Ok(None));
    }

    #[test]
    fn it_reads_nothing_else() {
        for text in [
            "GET / HTTP/1.1\nHost: t\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : t\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
            "GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\na",
            "GET / HTTP/2.0\r\n\r\n",
            "GET /\r\n\r\n",
        ] {
            assert_eq!(request(text.as_bytes()), Err(Bad), "{text:?}");
        }
    }

    #[test]
    fn it_reads_a_body_up_to_its_first_fault() {
        for (chunks, body) in [("z\r\n", ""), ("1\r\nab\r\n", "a"), ("1\r\na\r\n0\r\n: v\r\n\r\n", "a")] {
            let text = format!("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
            let read = request(text.as_bytes()).unwrap().unwrap();
            assert_eq!((read.body.as_slice(), read.whole, read.broken), (body.as_bytes(), false, true), "{text:?}");
            let answered = text.replace("GET / HTTP/1.1", "HTTP/1.1 200 OK");
            assert_eq!(answer(answered.as_bytes(), "GET", false), Err(Bad), "{text:?}");
        }
    }
}
