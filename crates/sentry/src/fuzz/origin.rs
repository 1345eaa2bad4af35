//! A server that writes down what it reads, and answers in every way that servers do.

use std::cell::RefCell;
use std::rc::Rc;

use tidegate_engine::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::yield_now;

use super::naive::{self, Message};

/// What a server read.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The request, and as much of its body as came.
    pub(super) message: Message,
    /// The connection that it came on.
    pub(super) connection: usize,
}

/// What all connections of the server share.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Every request, in the order of their heads.
    pub(super) seen: Vec<Seen>,
    /// Counts up with everything that happens.
    pub(super) steps: u64,
    /// Connections so far, and those that are open.
    pub(super) connections: usize,
    pub(super) open: usize,
}

/// A large answer: more than both sides of a connection keep of it.
const LARGE: usize = 300_000;

/// Serves a connection to its end.
pub(super) async fn serve(mut io: UnixStream, record: Rc<RefCell<Record>>, mut rng: Rng) {
    let connection = {
        let mut record = record.borrow_mut();
        record.connections += 1;
        record.open += 1;
        record.connections
    };
    let mut held = Vec::new();
    while let Some(id) = next(&mut io, &record, &mut held, connection, &mut rng).await {
        if !answer(&mut io, &record, id, &mut rng).await {
            break;
        }
    }
    drop(io);
    let mut record = record.borrow_mut();
    record.open -= 1;
    record.steps += 1;
}

/// Reads the next request, and often its body; its number.
async fn next(
    io: &mut UnixStream,
    record: &Rc<RefCell<Record>>,
    held: &mut Vec<u8>,
    connection: usize,
    rng: &mut Rng,
) -> Option<usize> {
    let early = rng.below(4) == 0;
    let mut id = None;
    loop {
        match naive::request(held) {
            Err(bad) => panic!("the server got what is no request ({bad:?}): {}", held.escape_ascii()),
            Ok(None) => assert!(held.len() < 64 * 1024, "a head without an end: {}", held.escape_ascii()),
            Ok(Some(message)) => {
                let (whole, length) = (message.whole, message.length);
                let mut record = record.borrow_mut();
                let at = *id.get_or_insert(record.seen.len());
                let seen = Seen { message, connection };
                match record.seen.get_mut(at) {
                    Some(before) => *before = seen,
                    None => record.seen.push(seen),
                }
                record.steps += 1;
                if whole {
                    held.drain(..length);
                }
                // Who answers before the body is there closes: what follows on the connection is still that body.
                if whole || early {
                    return Some(at);
                }
            }
        }
        let mut buffer = [0; 4096];
        match io.read(&mut buffer).await {
            Ok(read @ 1..) => held.extend_from_slice(&buffer[..read]),
            _ => return None,
        }
        record.borrow_mut().steps += 1;
    }
}

/// Answers; whether the connection goes on.
async fn answer(io: &mut UnixStream, record: &Rc<RefCell<Record>>, id: usize, rng: &mut Rng) -> bool {
    let seen = record.borrow().seen[id].clone();
    let is_head = seen.message.head.words[0] == "HEAD";
    let body = |text: &str| if is_head { String::new() } else { text.to_owned() };
    let ok = format!("HTTP/1.1 200 OK\r\nX-Id: {id}\r\n");
    let (pieces, goes_on): (Vec<String>, bool) = match rng.below(12) {
        0 => (vec![format!("{ok}Transfer-Encoding: chunked\r\n\r\n"), body("2\r\nhi\r\n"), body("0\r\n\r\n")], true),
        1 => (vec![format!("{ok}Content-Length: {LARGE}\r\n\r\n{}", body(&"x".repeat(LARGE)))], true),
        2 => (Vec::new(), false),
        3 => (vec![format!("{ok}Connection: close\r\n\r\n"), body("to the end")], false),
        4 => (vec!["HTTP/1.1 103 Early Hints\r\n\r\n".into(), format!("{ok}Content-Length: 0\r\n\r\n")], true),
        5 => (vec![format!("{ok}Content-Length: 9\r\n\r\n{}", body("broken"))], false),
        6 => (vec![format!("{ok}Content-Length: 9\r\n\r\n")], false),
        7 => (vec!["no answer at all\r\n\r\n".into()], false),
        8 => (vec![format!("HTTP/1.1 204 No Content\r\nX-Id: {id}\r\n\r\n")], true),
        _ => (vec![format!("{ok}Content-Length: 2\r\n\r\n{}", body("hi"))], true),
    };
    for piece in pieces {
        for _ in 0..rng.below(4) {
            yield_now().await;
        }
        if io.write_all(piece.as_bytes()).await.is_err() {
            return false;
        }
        record.borrow_mut().steps += 1;
    }
    goes_on && seen.message.whole
}
