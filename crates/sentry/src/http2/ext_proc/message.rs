//! The messages of `envoy.service.ext_proc.v3` (Envoy 1.40), as far as a sentry reads and writes them. What is not here
//! is skipped where it is read, and has its default where it is written.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

/// What Envoy tells.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProcessingRequest {
    #[prost(oneof = "Told", tags = "2, 3, 4, 5, 6, 7")]
    pub(super) told: Option<Told>,
}

/// How far a request is.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Told {
    /// Its head is here.
    #[prost(message, tag = "2")]
    RequestHeaders(HttpHeaders),
    /// The head of its answer is.
    #[prost(message, tag = "3")]
    ResponseHeaders(HttpHeaders),
    #[prost(message, tag = "4")]
    RequestBody(HttpBody),
    #[prost(message, tag = "5")]
    ResponseBody(HttpBody),
    #[prost(message, tag = "6")]
    RequestTrailers(HttpTrailers),
    #[prost(message, tag = "7")]
    ResponseTrailers(HttpTrailers),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpHeaders {
    #[prost(message, optional, tag = "1")]
    pub(super) headers: Option<Fields>,
    /// There is no body, and nothing behind it.
    #[prost(bool, tag = "3")]
    pub(super) end_of_stream: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpBody {
    #[prost(bool, tag = "2")]
    pub(super) end_of_stream: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpTrailers {
    #[prost(message, optional, tag = "1")]
    pub(super) trailers: Option<Fields>,
}

/// Fields, the pseudo-fields of HTTP/2 among them whatever the client spoke.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Fields {
    #[prost(message, repeated, tag = "1")]
    fields: Vec<Field>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Field {
    #[prost(string, tag = "1")]
    name: String,
    /// What Envoy before 1.27 wrote.
    #[prost(string, tag = "2")]
    text: String,
    #[prost(bytes = "bytes", tag = "3")]
    value: Bytes,
}

impl Field {
    fn value(&self) -> &[u8] {
        if self.value.is_empty() { self.text.as_bytes() } else { &self.value }
    }
}

impl Fields {
    /// The first value of a field, pseudo-fields too.
    pub(super) fn first(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|field| field.name == name).map(Field::value)
    }

    /// All but pseudo-fields; `None`: one of them can be none.
    pub(super) fn map(&self) -> Option<HeaderMap> {
        let mut map = HeaderMap::with_capacity(self.fields.len());
        for field in self.fields.iter().filter(|field| !field.name.starts_with(':')) {
            let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
            map.append(name, HeaderValue::from_bytes(field.value()).ok()?);
        }
        Some(map)
    }

    #[cfg(test)]
    pub(super) fn of(fields: &[(&str, &str)]) -> Self {
        let field = |(name, value): &(&str, &str)| Field {
            name: String::from(*name),
            text: String::new(),
            value: Bytes::copy_from_slice(value.as_bytes()),
        };
        Fields { fields: fields.iter().map(field).collect() }
    }
}

/// What Envoy is told to do.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProcessingResponse {
    #[prost(oneof = "Say", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub(super) say: Option<Say>,
}

/// To go on, in answer to what it told; or to answer.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Say {
    #[prost(message, tag = "1")]
    RequestHeaders(GoOn),
    #[prost(message, tag = "2")]
    ResponseHeaders(GoOn),
    #[prost(message, tag = "3")]
    RequestBody(GoOn),
    #[prost(message, tag = "4")]
    ResponseBody(GoOn),
    #[prost(message, tag = "5")]
    RequestTrailers(TrailersGoOn),
    #[prost(message, tag = "6")]
    ResponseTrailers(TrailersGoOn),
    #[prost(message, tag = "7")]
    Immediate(ImmediateResponse),
}

/// `HeadersResponse`, and `BodyResponse`, which is the same as far as this.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct GoOn {
    #[prost(message, optional, tag = "1")]
    response: Option<CommonResponse>,
}

impl GoOn {
    /// With these changes; without any the message is empty.
    pub(super) fn with(changes: Changes) -> Self {
        let changed = changes != Changes::default();
        GoOn { response: changed.then_some(CommonResponse { changes: Some(changes) }) }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct CommonResponse {
    #[prost(message, optional, tag = "2")]
    changes: Option<Changes>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TrailersGoOn {}

/// `HeaderMutation`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Changes {
    #[prost(message, repeated, tag = "1")]
    set: Vec<Set>,
    #[prost(string, repeated, tag = "2")]
    pub(super) remove: Vec<String>,
}

impl Changes {
    /// A field has this value, whatever it had.
    pub(super) fn set(&mut self, name: &str, value: &[u8]) {
        let field = Field { name: String::from(name), text: String::new(), value: Bytes::copy_from_slice(value) };
        self.set.push(Set { field: Some(field), how: OVERWRITE });
    }
}

/// `HeaderValueOption`.
#[derive(Clone, PartialEq, prost::Message)]
struct Set {
    #[prost(message, optional, tag = "1")]
    field: Option<Field>,
    #[prost(int32, tag = "3")]
    how: i32,
}

/// `OVERWRITE_IF_EXISTS_OR_ADD`.
const OVERWRITE: i32 = 2;

/// What Envoy answers the client with.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ImmediateResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<HttpStatus>,
    #[prost(message, optional, tag = "2")]
    pub(super) headers: Option<Changes>,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) body: Bytes,
    #[prost(message, optional, tag = "4")]
    pub(super) grpc_status: Option<GrpcStatus>,
    /// For `%RESPONSE_CODE_DETAILS%` in Envoy's log.
    #[prost(string, tag = "5")]
    pub(super) details: String,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct HttpStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct GrpcStatus {
    #[prost(uint32, tag = "1")]
    pub(super) status: u32,
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    /// By the definitions of Envoy 1.40: field numbers are what this file can get wrong.
    #[test]
    fn messages_are_what_envoy_reads_and_writes() {
        let head = Fields::of(&[(":path", "/")]);
        let told = Told::RequestHeaders(HttpHeaders { headers: Some(head), end_of_stream: true });
        let written = ProcessingRequest { told: Some(told.clone()) }.encode_to_vec();
        let expected = [&[0x12, 16, 0x0a, 12, 0x0a, 10, 0x0a, 5][..], b":path", &[0x1a, 1], b"/", &[0x18, 1]].concat();
        assert_eq!(written, expected);
        let mut more = expected;
        // `observability_mode`, and a field that nobody knows.
        more.extend([0x50, 1, 0xf8, 0x07, 1]);
        assert_eq!(ProcessingRequest::decode(&more[..]).expect("it is skipped").told, Some(told));

        let mut changes = Changes::default();
        changes.set("a", b"1");
        changes.remove.push(String::from("b"));
        let said = ProcessingResponse { say: Some(Say::RequestHeaders(GoOn::with(changes))) }.encode_to_vec();
        let set = [0x0a, 10, 0x0a, 6, 0x0a, 1, b'a', 0x1a, 1, b'1', 0x18, 2];
        assert_eq!(said, [&[0x0a, 19, 0x0a, 17, 0x12, 15][..], &set, &[0x12, 1, b'b']].concat());
        let said = ProcessingResponse { say: Some(Say::ResponseHeaders(GoOn::with(Changes::default()))) };
        assert_eq!(said.encode_to_vec(), [0x12, 0]);
        let immediate = ImmediateResponse {
            status: Some(HttpStatus { code: 503 }),
            headers: None,
            body: Bytes::from_static(b"x"),
            grpc_status: Some(GrpcStatus { status: 14 }),
            details: String::from("d"),
        };
        let said = ProcessingResponse { say: Some(Say::Immediate(immediate)) }.encode_to_vec();
        let status = [0x0a, 3, 0x08, 0xf7, 0x03];
        assert_eq!(said, [&[0x3a, 15][..], &status, &[0x1a, 1, b'x', 0x22, 2, 0x08, 14, 0x2a, 1, b'd']].concat());
    }

    #[test]
    fn what_can_be_no_field_makes_no_head() {
        assert_eq!(Fields::of(&[("a", "1"), (":path", "/"), ("a", "2")]).map().map(|map| map.len()), Some(2));
        assert!(Fields::of(&[("a b", "1")]).map().is_none() && Fields::of(&[("a", "1\n")]).map().is_none());
    }
}
