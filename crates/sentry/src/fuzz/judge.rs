//! What came of a connection, judged: what the client sent, what the server read, what the client got.

use super::naive::{self, Head, Message};
use super::origin::Seen;

/// A connection that is over.
pub(super) struct Exchange<'a> {
    /// What the client sent.
    pub(super) sent: &'a [u8],
    /// What the server read.
    pub(super) seen: &'a [Seen],
    /// What the client read.
    pub(super) got: &'a [u8],
    /// That was all.
    pub(super) closed: bool,
}

/// The class that rules give a request, `None` when it is exempt from them.
pub(super) type Class<'a> = &'a dyn Fn(&Head) -> Option<String>;

impl Exchange<'_> {
    /// `guarded`: only gold is admitted. `patient`: the client read all, and left its side open.
    pub(super) fn judge(&self, class: Class<'_>, guarded: bool, patient: bool) {
        let (framed, is_lawful) = framed(self.sent);
        self.framed_alike(&framed);
        for seen in self.seen {
            let read = class(&seen.message.head);
            assert!(!guarded || read.as_deref() != Some("low"), "rules read another request than {seen:?}");
        }
        let answers = self.answers(&framed);
        assert!(answers.len() <= framed.len() + 1, "{} answers to {} requests", answers.len(), framed.len());
        for (number, answer) in answers.iter().enumerate() {
            self.belongs(answer, framed.get(number), class);
        }
        let whole = framed.iter().filter(|request| request.whole).count();
        assert!(
            !patient || self.closed || !is_lawful || answers.len() >= whole,
            "{} answers to {whole} requests, and the connection stays open: {}",
            answers.len(),
            self.sent.escape_ascii()
        );
    }

    /// What the server read is what the client sent, in its order; what was refused is missing.
    fn framed_alike(&self, framed: &[Message]) {
        let mut next = 0;
        for (number, seen) in self.seen.iter().enumerate() {
            let fits = |request: &Message| is_same(request, &seen.message);
            // A connection that its server closed meanwhile: the request is sent once more, on another.
            let again = number > 0 && next > 0 && self.seen[number - 1].connection != seen.connection;
            if again && is_same(&self.seen[number - 1].message, &seen.message) && fits(&framed[next - 1]) {
                continue;
            }
            let Some(found) = framed[next..].iter().position(fits) else {
                panic!("the server read {seen:?}, and the client sent {}", self.sent.escape_ascii());
            };
            next += found + 1;
        }
    }

    /// The client's answers, the last one perhaps in part.
    fn answers(&self, framed: &[Message]) -> Vec<Message> {
        let mut answers: Vec<Message> = Vec::new();
        let mut at = 0;
        while at < self.got.len() {
            let method = framed.get(answers.len()).map_or("GET", |request| request.head.words[0].as_str());
            let answer = match naive::answer(&self.got[at..], method, self.closed) {
                Ok(Some(answer)) => answer,
                Ok(None) => break,
                Err(bad) => panic!("{bad:?}: the client got {}", self.got[at..].escape_ascii()),
            };
            at += answer.length;
            let is_interim = answer.head.words[1].starts_with('1');
            let whole = answer.whole;
            if !is_interim {
                answers.push(answer);
            }
            if !whole {
                break;
            }
        }
        answers
    }

    /// An answer of the server is that to the request at its place.
    fn belongs(&self, answer: &Message, request: Option<&Message>, class: Class<'_>) {
        let Some(id) = answer.head.values("x-id").first().and_then(|id| std::str::from_utf8(id).ok()) else { return };
        let seen = &self.seen[id.parse::<usize>().expect("the server's own number")].message;
        let request = request.unwrap_or_else(|| panic!("an answer to nothing: {answer:?}"));
        assert!(is_same(request, seen), "the answer to {seen:?} went to {request:?}");
        if let (Some(told), Some(read)) = (answer.head.values("tidegate-decision").first(), class(&seen.head)) {
            let told = String::from_utf8_lossy(told);
            assert_eq!(told, format!("admitted; class={read}"), "rules read another request than {seen:?}");
        }
    }
}

/// The requests that the client framed, and whether all it sent was lawful. Who goes on behind a request that closes
/// the connection is not heard.
fn framed(sent: &[u8]) -> (Vec<Message>, bool) {
    let mut framed = Vec::new();
    let mut at = 0;
    loop {
        while sent[at..].starts_with(b"\r\n") {
            at += 2;
        }
        match naive::request(&sent[at..]) {
            Ok(Some(message)) => {
                at += message.length;
                let (whole, broken) = (message.whole, message.broken);
                framed.push(message);
                if !whole {
                    return (framed, !broken);
                }
            }
            Ok(None) => return (framed, true),
            Err(_) => return (framed, false),
        }
    }
}

/// Whether a server read the request that the client sent: method, target, host, cookies, the field that rules look at,
/// and the body, as far as it came.
fn is_same(sent: &Message, read: &Message) -> bool {
    let body = if read.whole { sent.whole && sent.body == read.body } else { sent.body.starts_with(&read.body) };
    sent.head.words[0] == read.head.words[0]
        && target(&sent.head) == target(&read.head)
        && (host(&sent.head) == host(&read.head) || host(&sent.head).is_none())
        && cookies(&sent.head) == cookies(&read.head)
        && sent.head.values("x-tier") == read.head.values("x-tier")
        && body
}

/// Cookies, wherever they stand: several fields are one whose values are joined, and nothing between two is no cookie.
fn cookies(head: &Head) -> Vec<&[u8]> {
    let pairs = head.values("cookie").into_iter().flat_map(|value| value.split(|&byte| byte == b';'));
    pairs.map(<[u8]>::trim_ascii).filter(|pair| !pair.is_empty()).collect()
}

/// Whom a request asks: its target's host goes before the field.
fn host(head: &Head) -> Option<String> {
    let target = &head.words[1];
    let authority = target.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("http://")).map(|_| {
        let rest = &target[7..];
        rest[..rest.find(['/', '?']).unwrap_or(rest.len())].to_owned()
    });
    let host = || head.values("host").first().map(|host| String::from_utf8_lossy(host).into_owned());
    authority.or_else(host).filter(|host| !host.is_empty()).map(|host| host.to_ascii_lowercase())
}

/// A request's path and query in one spelling.
pub(super) fn target(head: &Head) -> String {
    let target = &head.words[1];
    let is_absolute = target.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"));
    let path = match is_absolute {
        true => match target[7..].find(['/', '?']) {
            Some(at) => &target[7 + at..],
            None if head.words[0] == "OPTIONS" => "*",
            None => "/",
        },
        false => target,
    };
    let (path, query) = path.split_at(path.find('?').unwrap_or(path.len()));
    let path = if path.is_empty() { "/" } else { path };
    spelled(path) + query
}

/// Escapes of what needs none decoded, the others in capitals.
fn spelled(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut text = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).filter(|two| bytes[at] == b'%' && two.iter().all(u8::is_ascii_hexdigit));
        let Some(digits) = digits else {
            text.push(bytes[at]);
            at += 1;
            continue;
        };
        let byte = u8::from_str_radix(&String::from_utf8_lossy(digits), 16).unwrap_or(0);
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(byte);
        } else {
            text.push(b'%');
            text.extend(digits.iter().map(u8::to_ascii_uppercase));
        }
        at += 3;
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLD: &str = "GET /gold HTTP/1.1\r\nHost: t\r\n\r\n";
    const OK: &str =
        "HTTP/1.1 200 OK\r\nX-Id: 0\r\nTidegate-Decision: admitted; class=gold\r\nContent-Length: 0\r\n\r\n";

    /// What is wrong with it, if anything is. Requests for `/gold` are gold.
    fn finding(sent: &str, read: &[&str], got: &str) -> Option<String> {
        let message = |text: &&str| naive::request(text.as_bytes()).expect("a request").expect("a head");
        let seen: Vec<Seen> = read.iter().map(|text| Seen { message: message(text), connection: 1 }).collect();
        let class = |head: &Head| Some(String::from(if target(head) == "/gold" { "gold" } else { "low" }));
        let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let exchange = Exchange { sent: sent.as_bytes(), seen: &seen, got: got.as_bytes(), closed: false };
            exchange.judge(&class, true, true);
        }));
        let message =
            |panic: Box<dyn std::any::Any + Send>| panic.downcast_ref::<String>().cloned().unwrap_or_default();
        judged.err().map(message)
    }

    #[test]
    fn what_does_not_hold_is_found() {
        assert_eq!(finding(GOLD, &[GOLD], OK), None);
        let found = |sent: &str, read: &[&str], got: &str, what: &str| {
            let finding = finding(sent, read, got);
            assert!(finding.as_ref().is_some_and(|text| text.contains(what)), "{what}: {finding:?}");
        };
        let post = |body: &str| format!("POST /gold HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        found("", &[GOLD], OK, "the server read");
        found(GOLD, &[GOLD, GOLD], OK, "the server read");
        found(&post(GOLD), &[&post(""), GOLD], OK, "the server read");
        found(&GOLD.replace("/gold", "/g%6fld/x"), &[GOLD], OK, "the server read");
        found(&GOLD.replace("gold", "low"), &[&GOLD.replace("gold", "low")], "", "rules read another request");
        found(GOLD, &[GOLD], &OK.replace("class=gold", "class=low"), "rules read another request");
        found(&(GOLD.to_owned() + &post("")), &[&post("")], OK, "went to");
        found(GOLD, &[GOLD], "", "stays open");
        found(GOLD, &[GOLD], &OK.repeat(3), "3 answers to 1 requests");
        found(GOLD, &[GOLD], "HTTP/1.1 200 OK\nX-Id: 0\r\n\r\n", "Bad");
    }
}
