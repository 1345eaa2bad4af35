//! Going through the bytes at a message boundary: plain requests that are refused are answered here and now,
//! pipelined ones in one pass; the first request that is not refused stops the pass and goes to the service.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use tidegate_classify::RequestView;
use tidegate_engine::Timestamp;

use super::head::{Bad, Examined, Framing, Head, examine, header_table, leading_lines};
use super::whole::Whole;
use crate::acme::challenge;
use crate::client::Client;
use crate::door::Door;
use crate::ending::{self, Refused};
use crate::permit::{Arrival, BodyIs, Policed, police};
use crate::record::Protocol;
use crate::reject;
use crate::share::WorkerApp;
use crate::tls::Facts;

/// A refused request's body of up to so many bytes is read and thrown away; for a longer one, closing is cheaper.
const DISCARD_AT_MOST: usize = 64 * 1024;

/// A pass ends when its answers are this many bytes: a client that does not read is owed that and one answer more.
pub(crate) const ANSWER_AT_MOST: usize = 32 * 1024;

/// Whose bytes they are.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'a> {
    peer: SocketAddr,
    /// What its handshake said, where there was one.
    facts: Option<&'a Facts>,
    /// hyper has the connection, and gets what passes.
    has_hyper: bool,
}

impl<'a> Origin<'a> {
    /// A new connection without a handshake.
    pub(crate) fn plain(peer: SocketAddr) -> Self {
        Origin { peer, facts: None, has_hyper: false }
    }

    pub(crate) fn of(client: &'a Client, has_hyper: bool) -> Self {
        Origin { peer: client.peer(), facts: client.facts(), has_hyper }
    }
}

/// How far a pass came.
#[derive(Debug)]
pub(crate) struct Sifted {
    /// Bytes that are dealt with and can be forgotten.
    pub(crate) consumed: usize,
    /// Why it stopped.
    pub(crate) step: Step,
}

/// Why a pass stopped.
#[derive(Debug)]
pub(crate) enum Step {
    /// It needs more bytes.
    More,
    /// There was nothing but empty lines.
    Blank,
    /// The answers so far go out before it goes on.
    Full,
    /// A request was answered whose body is not all here: this much of it is still to be thrown away.
    Discard(u64),
    /// A request for the service follows.
    Pass(Passing),
    /// Nothing after this is read: the connection closes once the answers are out.
    Close {
        /// The client may have sent more than was read.
        unread: bool,
    },
}

/// A request that is not refused here.
#[derive(Debug)]
pub(crate) struct Passing {
    /// Bytes of its head.
    pub(crate) head: usize,
    /// Where its body ends.
    pub(crate) framing: Framing,
    /// Its target names a host and no path.
    pub(crate) whole_server: bool,
    /// The decision, when it was plain.
    pub(crate) arrival: Option<Box<Arrival>>,
    /// The request, where it takes no hyper. Its bytes are dealt with.
    pub(crate) whole: Option<Box<Whole>>,
}

/// Goes through `input`; answers are appended to `out`.
pub(crate) fn sift(worker: &Rc<Door>, origin: Origin<'_>, input: &[u8], out: &mut Vec<u8>) -> Sifted {
    let mut consumed = 0;
    // One reading of the clock serves the whole pass.
    let now = worker.now();
    let before = out.len();
    let step = loop {
        consumed += leading_lines(&input[consumed..]);
        if consumed == input.len() {
            break if out.len() == before && consumed > 0 { Step::Blank } else { Step::More };
        }
        if out.len() - before >= ANSWER_AT_MOST {
            break Step::Full;
        }
        match sift_one(worker, origin, &input[consumed..], out, now) {
            One::Answered { length, close: false } => consumed += length,
            One::Answered { length, close: true } => {
                consumed += length;
                break Step::Close { unread: false };
            }
            One::Stop(step) => {
                if let Step::Pass(Passing { head, whole: Some(_), .. }) = step {
                    consumed += head;
                }
                break step;
            }
        }
    };
    Sifted { consumed, step }
}

enum One {
    /// A request of `length` bytes was answered.
    Answered {
        length: usize,
        close: bool,
    },
    Stop(Step),
}

fn sift_one(door: &Rc<Door>, origin: Origin<'_>, input: &[u8], out: &mut Vec<u8>, now: Timestamp) -> One {
    let limits = door.head();
    let mut table = header_table();
    let head = match examine(input, &mut table, &limits) {
        Examined::Partial => return One::Stop(Step::More),
        Examined::Bad(bad) => {
            answer_bad(door, bad, out);
            return One::Stop(Step::Close { unread: true });
        }
        Examined::Whole(head) => head,
    };
    if let Some(answer) = challenge::answer(&head) {
        door.lane().status(200);
        out.extend_from_slice(&answer);
        return One::Answered { length: head.len, close: true };
    }
    let pass = |arrival, whole| {
        let whole_server = head.asks_whole_server();
        One::Stop(Step::Pass(Passing { head: head.len, framing: head.framing, whole_server, arrival, whole }))
    };
    if !head.plain {
        return pass(None, None);
    }
    let found = door.find(&Seen { head: &head, origin }, origin.facts);
    let worker = match found.and_then(|worker| worker.takes(head.framing).map(|()| worker)) {
        Ok(worker) => worker,
        Err(bad) => {
            answer_bad(door, bad, out);
            return One::Stop(Step::Close { unread: true });
        }
    };
    let body = match head.framing {
        Framing::Length(length) if (input.len() - head.len) as u64 >= length => BodyIs::Here,
        Framing::None => BodyIs::Here,
        Framing::Length(_) | Framing::Chunked => BodyIs::ToCome,
    };
    let arrival = police(worker, &Seen { head: &head, origin }, now, body);
    let (Policed::Refused(rejection), Some(length)) = (&arrival.policed, length_to_skip(&head)) else {
        let whole = if origin.has_hyper { None } else { Whole::of(&head, input, arrival.local.live.lines_pass) };
        return pass(Some(Box::new(arrival)), whole);
    };
    let close = head.close || door.is_closing(origin.peer);
    let wanted = reject::Wanted { accept: head.header("accept"), head_only: head.method == "HEAD", close };
    let bytes = worker.refusals.borrow_mut().append(&arrival.local.live, rejection, &wanted, out);
    let status = reject::status(&arrival.local.live, rejection);
    let refused = Refused { status, grpc_status: None, bytes_out: bytes, protocol: Protocol::Http1 };
    ending::record_refusal(worker, &arrival, &Seen { head: &head, origin }, origin.peer, refused);
    match (length.checked_sub(input.len()), close) {
        (None | Some(0), _) => One::Answered { length, close },
        (Some(_), true) => One::Stop(Step::Close { unread: true }),
        (Some(missing), false) => One::Stop(Step::Discard(missing as u64)),
    }
}

/// Answers what is no acceptable request. The connection closes after it: where the next one begins is unknown.
pub(crate) fn answer_bad(worker: &WorkerApp, bad: Bad, out: &mut Vec<u8>) {
    worker.lane().bad(bad);
    worker.lane().status(bad.status());
    reject::append_bad(bad, out);
}

/// The length of a request with its body, when the gate can get past it: its end is known and not far.
fn length_to_skip(head: &Head<'_, '_>) -> Option<usize> {
    let body = match head.framing {
        Framing::None => 0,
        Framing::Length(length) => usize::try_from(length).ok().filter(|&length| length <= DISCARD_AT_MOST)?,
        Framing::Chunked => return None,
    };
    head.len.checked_add(body)
}

/// A head in place, as the classifier sees it.
pub(crate) struct Seen<'a, 'h, 'b> {
    pub(crate) head: &'a Head<'h, 'b>,
    pub(crate) origin: Origin<'a>,
}

impl RequestView for Seen<'_, '_, '_> {
    fn method(&self) -> &str {
        self.head.method
    }

    fn host(&self) -> Option<&str> {
        self.head.host
    }

    fn path(&self) -> &str {
        self.head.target
    }

    fn header(&self, lowercase_name: &str) -> Option<&[u8]> {
        self.head.header(lowercase_name)
    }

    fn last_header(&self, lowercase_name: &str) -> Option<&[u8]> {
        let mut all = self.head.headers.iter().rev();
        all.find(|header| header.name.eq_ignore_ascii_case(lowercase_name)).map(|header| header.value)
    }

    fn client(&self) -> Option<IpAddr> {
        Some(self.origin.peer.ip().to_canonical())
    }

    fn certificate_names(&self) -> &[String] {
        self.origin.facts.map_or(&[], Facts::names)
    }
}
