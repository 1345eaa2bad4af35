//! What a refused client gets: a status, a reason, when to come back, and a short page in a form it reads.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use tidegate_engine::{ClassId, Explanation, Reason, Rejection, field_value};

use crate::answered::Refusal;
use crate::gate::head::Bad;
use crate::grpc::{self, PushBack};
use crate::headers::{self, changes::of_refusal};
use crate::in_force::InForce;
use crate::upstream::failure::Failure;

/// Distinct refusals that are kept; far more than there are classes, reasons and forms together.
const KEPT: usize = 1024;

/// Refusals as bytes, ready to be sent, made once each.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    prepared: HashMap<Key, Prepared>,
    /// The one used last: under overload it is nearly always the next one too.
    last: Option<(Key, Prepared)>,
    /// The same as a head for HTTP/2, and whether it is gRPC's.
    last_head: Option<(Key, bool, Response<()>)>,
}

/// What a client wants to read, and how its connection goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// Its `Accept` field.
    pub(crate) accept: Option<&'a [u8]>,
    /// The answer has no body.
    pub(crate) head_only: bool,
    /// The connection closes after it.
    pub(crate) close: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    class: ClassId,
    reason: Reason,
    policy: &'static str,
    retry_after: u64,
    format: Format,
    close: bool,
}

#[derive(Debug)]
struct Prepared {
    bytes: Box<[u8]>,
    head: usize,
}

/// The forms a refusal comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Format {
    Html,
    Json,
    Text,
}

/// A refusal in words.
struct Page {
    status: u16,
    retry_after: u64,
    /// Reason, policy and class, where clients are told.
    decision: Option<String>,
    content_type: String,
    body: Bytes,
    /// Fields that the operator wants.
    fields: Vec<(HeaderName, HeaderValue)>,
}

impl Refusals {
    /// Appends the answer to `out`; how many bytes its body has.
    pub(crate) fn append(
        &mut self,
        live: &InForce,
        rejection: &Rejection,
        wanted: &Wanted<'_>,
        out: &mut Vec<u8>,
    ) -> usize {
        let format = Format::wanted(wanted.accept);
        let retry_after = whole_seconds(rejection.retry_after);
        let Rejection { class, reason, policy, .. } = *rejection;
        let key = Key { class, reason, policy, retry_after, format, close: wanted.close };
        let prepared = match &self.last {
            Some((last, prepared)) if *last == key => prepared,
            _ => self.find(key, || prepare(&page(live, rejection, format), key.close)),
        };
        let end = if wanted.head_only { prepared.head } else { prepared.bytes.len() };
        out.extend_from_slice(&prepared.bytes[..end]);
        end - prepared.head
    }

    /// The refusal as a head without a body.
    pub(crate) fn head(&mut self, live: &InForce, rejection: &Rejection, is_call: bool) -> Response<()> {
        // gRPC's says in milliseconds when to come back.
        let retry_after = match is_call {
            true => u64::from(pushback(rejection)),
            false => whole_seconds(rejection.retry_after),
        };
        let Rejection { class, reason, policy, .. } = *rejection;
        let key = Key { class, reason, policy, retry_after, format: Format::Text, close: false };
        match &self.last_head {
            Some((last, of_grpc, head)) if (*last, *of_grpc) == (key, is_call) => head.clone(),
            _ => {
                let response = if is_call { call(live, rejection) } else { plain(live, rejection, Format::Text) };
                let mut head = response.map(|_| ());
                if !is_call {
                    head.headers_mut().remove(header::CONTENT_TYPE);
                }
                self.last_head = Some((key, is_call, head.clone()));
                head
            }
        }
    }

    /// Takes the refusal from among all, or makes it; from now on it is the last.
    fn find(&mut self, key: Key, make: impl FnOnce() -> Prepared) -> &Prepared {
        if let Some((key, prepared)) = self.last.take() {
            if self.prepared.len() >= KEPT {
                self.prepared.clear();
            }
            self.prepared.insert(key, prepared);
        }
        let prepared = self.prepared.remove(&key).unwrap_or_else(make);
        &self.last.insert((key, prepared)).1
    }

    /// Forgets everything: pages or class names may have changed.
    pub(crate) fn forget(&mut self) {
        self.last = None;
        self.last_head = None;
        self.prepared.clear();
    }
}

/// The same refusal as a response for hyper to send.
pub(crate) fn response(live: &InForce, rejection: &Rejection, headers: &HeaderMap) -> Response<Bytes> {
    if is_grpc(headers) {
        return call(live, rejection);
    }
    let accept = headers.get(header::ACCEPT).map(HeaderValue::as_bytes);
    plain(live, rejection, Format::wanted(accept))
}

fn plain(live: &InForce, rejection: &Rejection, format: Format) -> Response<Bytes> {
    let page = page(live, rejection, format);
    let mut response = Response::new(page.body);
    *response.status_mut() = StatusCode::from_u16(page.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from(page.retry_after));
    if let Some(decision) = &page.decision {
        headers.insert(DECISION, visible(decision));
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::CONTENT_TYPE, visible(&page.content_type));
    headers.extend(page.fields.into_iter().map(|(name, value)| (Some(name), value)));
    response
}

/// The status of a refusal: 504 where the client's own deadline is the reason, which is what proxies answer then, and
/// what nobody takes for a reason to come back later; else what the operator wants.
pub(crate) fn status(live: &InForce, rejection: &Rejection) -> u16 {
    match rejection.reason {
        Reason::Deadline => 504,
        _ => live.config.rejection.status,
    }
}

/// `Tidegate-Decision` of a request that was admitted and then ended by the controller.
pub(crate) fn cancelled(live: &InForce, class: ClassId) -> HeaderValue {
    visible(&format!("cancelled; reason=runaway; class={}", field_value(live.class_name(class))))
}

/// `Tidegate-Decision` of a request that was admitted, and refused by a service that its server called; `None`: clients
/// are not told.
pub(crate) fn refused_below(live: &InForce, class: ClassId, refusal: Refusal) -> Option<HeaderValue> {
    let text =
        || format!("rejected; reason={}; class={}", refusal.reason().name(), field_value(live.class_name(class)));
    live.config.rejection.details.then(|| visible(&text()))
}

/// `Tidegate-Decision` of an admitted request.
pub(crate) fn admitted(live: &InForce, class: ClassId) -> HeaderValue {
    visible(&format!("admitted; class={}", field_value(live.class_name(class))))
}

/// The header that explains a decision.
pub(crate) const DECISION: http::HeaderName = http::HeaderName::from_static("tidegate-decision");

/// Appends the answer to what is no acceptable request.
pub(crate) fn append_bad(bad: Bad, out: &mut Vec<u8>) {
    let status = bad.status();
    let body = error_body(status, bad.name());
    let _ = std::io::Write::write_fmt(
        out,
        format_args!(
            "HTTP/1.1 {status} {}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
             cache-control: no-store\r\nconnection: close\r\n\r\n{body}",
            reason_phrase(status),
            body.len(),
        ),
    );
}

/// Why `asked` has no answer, as a response for hyper to send: gRPC's way where a call asked.
pub(crate) fn failed(failure: Failure, asked: &HeaderMap) -> Response<Bytes> {
    let (status, name) = failure.answer();
    if !is_grpc(asked) {
        return error(status, name);
    }
    let mut response = Response::new(Bytes::new());
    // What was ended for others' sake would be again.
    let push_back = if failure == Failure::Cancelled { PushBack::Never } else { PushBack::Unsaid };
    grpc::end(response.headers_mut(), failure.grpc_status(), name, push_back);
    response
}

/// An error of the sentry's own.
pub(crate) fn error(status: u16, name: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(error_body(status, name)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn error_body(status: u16, name: &str) -> String {
    format!("{status} {}: {name}\n", reason_phrase(status))
}

fn reason_phrase(status: u16) -> &'static str {
    StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Error")
}

/// Whole seconds, rounded up, never "at once".
fn whole_seconds(duration: Duration) -> u64 {
    (duration.as_secs() + u64::from(duration.subsec_nanos() > 0)).max(1)
}

fn page(live: &InForce, rejection: &Rejection, format: Format) -> Page {
    let pages = &live.config.rejection;
    let class = live.class_name(rejection.class);
    let retry_after = whole_seconds(rejection.retry_after);
    let told = Explanation::new(rejection.reason, rejection.policy, class, retry_after);
    let decision = pages.details.then(|| told.field());
    let own = pages.pages.get(rejection.class.index()).and_then(Option::as_ref);
    let (content_type, body) = match own {
        // A program that asks for JSON is better served by JSON than by the operator's page for people.
        Some(page) if format != Format::Json || page.content_type.contains("json") => {
            (page.content_type.clone(), page.body.clone())
        }
        _ if pages.details => (String::from(format.content_type()), Bytes::from(built_in(&told, format))),
        _ => (String::from(format.content_type()), Bytes::from(terse(retry_after, format))),
    };
    let wanted = of_refusal(&live.config.routing.response_headers, (rejection.class, class));
    let fields = wanted.map(|(name, value)| (name.clone(), value)).collect();
    Page { status: status(live, rejection), retry_after, decision, content_type, body, fields }
}

fn built_in(told: &Explanation<'_>, format: Format) -> String {
    match format {
        Format::Html => told.html(),
        // It has nothing that JSON has not.
        Format::Json => serde_json::to_string(told).unwrap_or_default() + "\n",
        Format::Text => told.text(),
    }
}

/// The same for those who are not told why.
fn terse(retry_after: u64, format: Format) -> String {
    match format {
        Format::Html => format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Please try again soon</title>\
             </head>\n<body><h1>Please try again in {retry_after} s</h1>\n<p>The service is busy.</p></body></html>\n"
        ),
        Format::Json => format!("{{\"error\":\"rejected\",\"retry_after_s\":{retry_after}}}\n"),
        Format::Text => format!("The service is busy; please try again in {retry_after} s.\n"),
    }
}

fn prepare(page: &Page, close: bool) -> Prepared {
    let mut bytes = Vec::with_capacity(512 + page.body.len());
    let _ = std::io::Write::write_fmt(
        &mut bytes,
        format_args!(
            "HTTP/1.1 {} {}\r\nretry-after: {}\r\n{}cache-control: no-store\r\n\
             content-type: {}\r\ncontent-length: {}\r\n{}\r\n",
            page.status,
            reason_phrase(page.status),
            page.retry_after,
            page.decision.as_ref().map(|decision| format!("tidegate-decision: {decision}\r\n")).unwrap_or_default(),
            one_line(&page.content_type),
            page.body.len(),
            if close { "connection: close\r\n" } else { "" },
        ),
    );
    // Before the empty line.
    bytes.truncate(bytes.len() - 2);
    for (name, value) in &page.fields {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    bytes.extend_from_slice(b"\r\n");
    let head = bytes.len();
    bytes.extend_from_slice(&page.body);
    Prepared { bytes: bytes.into_boxed_slice(), head }
}

impl Format {
    /// The first form named in `Accept` that there is; plain text when there is none.
    fn wanted(accept: Option<&[u8]>) -> Format {
        let ranges = accept.unwrap_or_default().split(|&b| b == b',');
        let media = ranges.map(|range| range.split(|&b| b == b';').next().unwrap_or_default().trim_ascii());
        media.into_iter().find_map(Format::of).unwrap_or(Format::Text)
    }

    fn of(media: &[u8]) -> Option<Format> {
        let is = |name: &str| media.eq_ignore_ascii_case(name.as_bytes());
        if is("text/html") || is("application/xhtml+xml") {
            Some(Format::Html)
        } else if is("application/json") || media.ends_with(b"+json") {
            Some(Format::Json)
        } else if is("text/plain") {
            Some(Format::Text)
        } else {
            None
        }
    }

    const fn content_type(self) -> &'static str {
        match self {
            Format::Html => "text/html; charset=utf-8",
            Format::Json => "application/json",
            Format::Text => "text/plain; charset=utf-8",
        }
    }
}

pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| headers::is_grpc(value.as_bytes()))
}

/// gRPC's own way: status UNAVAILABLE in a response without messages, and when to push again; DEADLINE_EXCEEDED, and
/// not to push again, where the call's deadline is the reason.
fn call(live: &InForce, rejection: &Rejection) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let page = page(live, rejection, Format::Text);
    let headers = response.headers_mut();
    let message = if page.decision.is_some() { rejection.reason.explanation() } else { "the service is busy" };
    let (status, push_back) = match rejection.reason {
        Reason::Deadline => (grpc::DEADLINE_EXCEEDED, PushBack::Never),
        _ => (grpc::UNAVAILABLE, PushBack::Milliseconds(pushback(rejection))),
    };
    grpc::end(headers, status, message, push_back);
    if let Some(decision) = &page.decision {
        headers.insert(DECISION, visible(decision));
    }
    headers.extend(page.fields.into_iter().map(|(name, value)| (Some(name), value)));
    response
}

/// When to push again, milliseconds.
fn pushback(rejection: &Rejection) -> u32 {
    rejection.retry_after.as_millis().max(1).min(u128::from(u32::MAX)) as u32
}

fn visible(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("?"))
}

/// No header may end early.
fn one_line(text: &str) -> &str {
    text.split(['\r', '\n']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up_and_never_zero() {
        assert_eq!(whole_seconds(Duration::ZERO), 1);
        assert_eq!(whole_seconds(Duration::from_millis(1001)), 2);
        assert_eq!(whole_seconds(Duration::from_secs(3)), 3);
    }

    #[test]
    fn the_form_follows_accept_in_its_order() {
        let of = |accept: &str| Format::wanted(Some(accept.as_bytes()));
        assert_eq!(of("text/html,application/xhtml+xml,*/*;q=0.8"), Format::Html);
        assert_eq!(of("application/json, text/html"), Format::Json);
        assert_eq!(of("application/problem+json"), Format::Json);
        assert_eq!(of("image/png, */*"), Format::Text);
        assert_eq!(Format::wanted(None), Format::Text);
    }
}
