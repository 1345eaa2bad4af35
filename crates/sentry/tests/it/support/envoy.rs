//! Envoy's side of `ext_proc`, by hand from its definitions: a second reading of them beside the sentry's.

use bytes::{Buf, Bytes};
use h2::client::SendRequest;
use h2::{Reason, RecvStream, SendStream};
use http::Request;

use super::protobuf::{Field, fields};

/// Where Envoy asks.
pub const PROCESS: &str = "http://tidegate/envoy.service.ext_proc.v3.ExternalProcessor/Process";

/// What Envoy tells, by its number in `ProcessingRequest`.
pub const REQUEST_HEADERS: u8 = 2;
pub const RESPONSE_HEADERS: u8 = 3;
pub const RESPONSE_TRAILERS: u8 = 7;

/// What it is told, by its number in `ProcessingResponse`.
pub const GO_ON: u64 = 1;
pub const GO_ON_WITH_ANSWER: u64 = 2;
pub const IMMEDIATE: u64 = 7;

/// The call that goes with one request.
pub struct Call {
    to: SendStream<Bytes>,
    from: RecvStream,
    read: Vec<u8>,
}

/// What a sentry says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Which answer it is.
    pub what: u64,
    /// Fields that are to be there.
    pub set: Vec<(String, String)>,
    /// Fields that are not.
    pub removed: Vec<String>,
    /// Of an immediate response: the status, the body, the status of gRPC.
    pub status: u64,
    pub body: String,
    pub grpc_status: Option<u64>,
}

impl Said {
    /// The value that a field is to have.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.set.iter().find(|(of, _)| of == name).map(|(_, value)| &**value)
    }
}

impl Call {
    pub async fn begin(sender: &SendRequest<Bytes>) -> Call {
        let request = Request::builder().method("POST").uri(PROCESS).header("content-type", "application/grpc");
        let mut sender = sender.clone().ready().await.expect("room for a stream");
        let (answer, to) = sender.send_request(request.body(()).expect("a call"), false).expect("a stream");
        let answer = answer.await.expect("the head comes at once");
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["content-type"]),
            (200, &"application/grpc".parse().unwrap())
        );
        Call { to, from: answer.into_body(), read: Vec::new() }
    }

    /// A call with a request's head, of which only that is said which differs from the usual.
    pub async fn asking(sender: &SendRequest<Bytes>, fields: &[(&str, &str)]) -> Call {
        let mut call = Call::begin(sender).await;
        let usual = [(":method", "GET"), (":scheme", "http"), (":authority", "shop.test"), (":path", "/")];
        let is_usual = |(name, _): &(&str, &str)| !fields.iter().any(|(own, _)| own == name);
        let fields: Vec<_> = usual.into_iter().filter(is_usual).chain(fields.iter().copied()).collect();
        call.tell(REQUEST_HEADERS, &fields, true);
        call
    }

    /// Tells of a head, or of trailers.
    pub fn tell(&mut self, what: u8, fields: &[(&str, &str)], is_last: bool) {
        let field =
            |(name, value): &(&str, &str)| long(1, &[long(1, name.as_bytes()), long(3, value.as_bytes())].concat());
        let map = long(1, &fields.iter().flat_map(field).collect::<Vec<u8>>());
        let end = if is_last && what != RESPONSE_TRAILERS { vec![3 << 3, 1] } else { Vec::new() };
        self.send(&long(what, &[map, end].concat()));
    }

    /// Sends one message.
    pub fn send(&mut self, message: &[u8]) {
        let prefix = [&[0][..], &u32::try_from(message.len()).expect("a message").to_be_bytes()].concat();
        self.to.send_data([&prefix, message].concat().into(), false).expect("the call goes on");
    }

    /// The next message.
    pub async fn said(&mut self) -> Said {
        while self.read.len() < 5 || self.read.len() < 5 + (&self.read[1..5]).get_u32() as usize {
            let data = self.from.data().await.expect("a message").expect("a message");
            self.from.flow_control().release_capacity(data.len()).expect("what was taken");
            self.read.extend_from_slice(&data);
        }
        let length = (&self.read[1..5]).get_u32() as usize;
        let message: Vec<u8> = self.read.drain(..5 + length).skip(5).collect();
        read(&message)
    }

    /// The request is over for Envoy, and nothing follows.
    pub fn half_close(&mut self) {
        self.to.send_data(Bytes::new(), true).expect("the call goes on");
    }

    /// The status of gRPC with which the sentry ends it.
    pub async fn end(mut self) -> u8 {
        assert!(self.from.data().await.is_none_or(|data| data.is_err()), "nothing more is said");
        let trailers = self.from.trailers().await.expect("an end").expect("trailers");
        trailers["grpc-status"].to_str().expect("text").parse().expect("a status")
    }

    /// Envoy lets go of it, as it does when the request's client has left.
    pub fn reset(mut self) {
        self.to.send_reset(Reason::CANCEL);
    }
}

fn read(message: &[u8]) -> Said {
    let (what, said) = only(message);
    let mut read = Said { what, ..Said::default() };
    let changes = match what {
        IMMEDIATE => {
            for (tag, value) in fields(said.bytes()) {
                match tag {
                    1 => read.status = only(value.bytes()).1.number(),
                    3 => read.body = text(&value),
                    4 => read.grpc_status = Some(only(value.bytes()).1.number()),
                    _ => {}
                }
            }
            fields(said.bytes()).into_iter().find(|(tag, _)| *tag == 2).map(|(_, changes)| changes)
        }
        _ if said.bytes().is_empty() => None,
        _ => Some(only(only(said.bytes()).1.bytes()).1),
    };
    for (tag, value) in changes.iter().flat_map(|changes| fields(changes.bytes())) {
        match tag {
            1 => {
                let option = fields(value.bytes());
                assert_eq!(option[1].1.number(), 2, "it is there once");
                let field = fields(option[0].1.bytes());
                read.set.push((text(&field[0].1), text(&field[1].1)));
            }
            _ => read.removed.push(text(&value)),
        }
    }
    read
}

fn text(field: &Field) -> String {
    String::from_utf8(field.bytes().to_vec()).expect("text")
}

fn only(message: &[u8]) -> (u64, Field) {
    let mut fields = fields(message);
    assert_eq!(fields.len(), 1, "{message:?}");
    fields.remove(0)
}

fn long(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![tag << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        message.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend_from_slice(bytes);
    message
}
