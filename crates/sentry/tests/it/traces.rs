//! Spans of requests on their way through a real sentry, as a collector gets them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::support::protobuf::{Field, fields};
use crate::support::{self, PATIENCE, RawServer, Running, application, config, ok, refuse_all, until};
use tidegate_sentry::Sentry;
use tidegate_sentry::config::{Application, Traces};
use tidegate_sentry::record::NoRecords;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// A span as it was exported.
#[derive(Clone, Debug)]
struct Span {
    trace: String,
    id: String,
    parent: String,
    name: String,
    /// 1 internal, 2 server, 3 client.
    kind: u64,
    began: u64,
    ended: u64,
    attributes: BTreeMap<String, String>,
}

/// A collector on loopback.
struct Collector {
    server: RawServer,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    fn start() -> Self {
        let spans: Arc<Mutex<Vec<Span>>> = Arc::default();
        let kept = spans.clone();
        let server = RawServer::start(move |mut peer| {
            while let Some(asked) = peer.request() {
                assert_eq!((asked.method.as_str(), asked.target.as_str()), ("POST", "/v1/traces"));
                assert_eq!(asked.field("content-type"), Some("application/x-protobuf"));
                kept.lock().expect("a lock").extend(read(&asked.body));
                if !peer.send(ok("")) {
                    return;
                }
            }
        });
        Collector { server, spans }
    }

    fn traces(&self) -> Traces {
        let endpoint = format!("http://{}/v1/traces", self.server.address);
        Traces { endpoint, service: "the-sentry".to_owned(), ..Traces::default() }
    }

    /// What was exported once the sentry, stopped, has sent everything.
    fn after(self, sentry: Running) -> Vec<Span> {
        sentry.handle.shutdown(PATIENCE);
        std::mem::take(&mut self.spans.lock().expect("a lock"))
    }
}

/// Reads an ExportTraceServiceRequest: resource spans, scope spans, spans.
fn read(message: &[u8]) -> Vec<Span> {
    let resources = fields(message).into_iter().filter(|(number, _)| *number == 1);
    let scopes = resources.flat_map(|(_, resource)| {
        let inside = fields(resource.bytes());
        assert!(inside.iter().any(|(number, field)| *number == 1 && find(field.bytes(), b"the-sentry")));
        inside
            .into_iter()
            .filter(|(number, _)| *number == 2)
            .map(|(_, scope)| scope.bytes().to_vec())
            .collect::<Vec<_>>()
    });
    let spans = scopes.flat_map(|scope| {
        let all = fields(&scope).into_iter().filter(|(number, _)| *number == 2);
        all.map(|(_, span)| span_of(span.bytes())).collect::<Vec<_>>()
    });
    spans.collect()
}

fn span_of(message: &[u8]) -> Span {
    let all = fields(message);
    let get = |wanted: u64| all.iter().find(|(number, _)| *number == wanted).map(|(_, field)| field);
    let hex = |wanted| {
        get(wanted).map(|field| field.bytes().iter().map(|b| format!("{b:02x}")).collect()).unwrap_or_default()
    };
    let number = |wanted| get(wanted).map_or(0, Field::number);
    let attributes = all.iter().filter(|(number, _)| *number == 9).map(|(_, pair)| attribute(pair.bytes()));
    Span {
        trace: hex(1),
        id: hex(2),
        parent: hex(4),
        name: String::from_utf8(get(5).map(|field| field.bytes().to_vec()).unwrap_or_default()).expect("text"),
        kind: number(6),
        began: number(7),
        ended: number(8),
        attributes: attributes.collect(),
    }
}

/// A KeyValue whose value is text (1) or a whole number (3).
fn attribute(message: &[u8]) -> (String, String) {
    let pair = fields(message);
    let key = String::from_utf8(pair[0].1.bytes().to_vec()).expect("text");
    let value = fields(pair[1].1.bytes());
    let value = match &value[0] {
        (1, text) => String::from_utf8(text.bytes().to_vec()).expect("text"),
        (_, number) => number.number().to_string(),
    };
    (key, value)
}

fn find(all: &[u8], wanted: &[u8]) -> bool {
    support::find(all, wanted).is_some()
}

fn traced(application: Application, traces: Traces) -> Running {
    let mut config = config(application, 1);
    config.traces = Some(traces);
    let handle = Sentry::start(config, Arc::new(NoRecords)).expect("a sentry");
    let address = handle.addresses("app")[0];
    Running { handle, address }
}

/// Tells which `traceparent` it got.
fn server() -> RawServer {
    RawServer::answering(|asked| ok(asked.field("traceparent").unwrap_or("nothing")))
}

fn get(fields: &str) -> String {
    format!("GET /hello?secret=1 HTTP/1.1\r\nHost: shop\r\n{fields}\r\n")
}

#[test]
fn a_request_becomes_three_spans_in_its_callers_trace() {
    let (server, collector) = (server(), Collector::start());
    let sentry = traced(application(&[server.address]), collector.traces());
    let passed = sentry.ask(&get(&format!("traceparent: 00-{TRACE}-{CALLER}-01\r\ntracestate: a=1\r\n"))).text();
    sentry.assert_quiet();
    let spans = collector.after(sentry);
    assert_eq!(spans.len(), 3, "{spans:?}");
    let of = |kind| spans.iter().find(|span| span.kind == kind).expect("a span of the kind");
    let (admission, request, upstream) = (of(1), of(2), of(3));
    assert!(spans.iter().all(|span| span.trace == TRACE));
    assert_eq!(request.parent, CALLER);
    assert_eq!((&admission.parent, &upstream.parent), (&request.id, &request.id));
    assert_eq!(passed, format!("00-{TRACE}-{}-01", upstream.id), "the server's parent is the time at it");
    assert!(request.began <= admission.began && admission.ended <= upstream.began && upstream.ended <= request.ended);
    assert!(upstream.began < upstream.ended);
    assert_eq!((request.name.as_str(), admission.name.as_str()), ("GET", "admission"));
    let told = |name: &str| request.attributes.get(name).map(String::as_str);
    assert_eq!((told("url.path"), told("server.address")), (Some("/hello"), Some("shop")), "and no query");
    assert_eq!((told("tidegate.decision"), told("tidegate.class")), (Some("admitted"), Some("default")));
    assert_eq!((told("http.response.status_code"), told("tidegate.end")), (Some("200"), Some("complete")));
    assert_eq!(upstream.attributes["server.address"], server.address.to_string());
}

#[test]
fn a_request_without_a_trace_begins_one() {
    let (server, collector) = (server(), Collector::start());
    let sentry = traced(application(&[server.address]), collector.traces());
    let passed: Vec<String> =
        ["", "traceparent: 00-nonsense-01\r\n"].map(|field| sentry.ask(&get(field)).text()).into();
    sentry.assert_quiet();
    let spans = collector.after(sentry);
    assert_eq!(spans.len(), 6);
    for field in passed {
        let parts: Vec<&str> = field.split('-').collect();
        assert_eq!((parts.len(), parts[0], parts[3]), (4, "00", "01"), "{field}");
        let of: Vec<_> = spans.iter().filter(|span| span.trace == parts[1]).collect();
        assert_eq!(of.len(), 3, "{field}");
        assert!(of.iter().any(|span| span.kind == 2 && span.parent.chars().all(|c| c == '0')), "it has no parent");
        assert!(of.iter().any(|span| span.kind == 3 && span.id == parts[2]));
    }
}

#[test]
fn what_is_not_sampled_is_passed_on_and_not_exported() {
    let (server, collector) = (server(), Collector::start());
    let sentry = traced(application(&[server.address]), Traces { share: 0.0, ..collector.traces() });
    let passed = sentry.ask(&get(&format!("traceparent: 00-{TRACE}-{CALLER}-00\r\n"))).text();
    assert!(passed.starts_with(&format!("00-{TRACE}-")) && passed.ends_with("-00"), "{passed}");
    let made = sentry.ask(&get("")).text();
    assert!(made.ends_with("-00"), "{made}");
    // Who asks for spans gets them, whatever the share.
    sentry.ask(&get(&format!("traceparent: 00-{TRACE}-{CALLER}-01\r\n")));
    sentry.assert_quiet();
    assert_eq!(collector.after(sentry).len(), 3);
}

#[test]
fn a_refusal_has_spans_too_but_none_at_a_server() {
    let (server, collector) = (server(), Collector::start());
    let mut app = application(&[server.address]);
    app.setup.admission = refuse_all();
    let sentry = traced(app, collector.traces());
    assert_eq!(sentry.ask(&get(&format!("traceparent: 00-{TRACE}-{CALLER}-01\r\n"))).status, 503);
    let spans = collector.after(sentry);
    assert_eq!(spans.len(), 2, "{spans:?}");
    let request = spans.iter().find(|span| span.kind == 2).expect("the request's");
    assert_eq!((request.trace.as_str(), request.parent.as_str()), (TRACE, CALLER));
    assert_eq!(request.attributes["tidegate.decision"], "rejected");
    assert_eq!(request.attributes["tidegate.reason"], "concurrency-limit");
}

#[test]
fn a_collector_that_is_gone_costs_no_request() {
    let server = server();
    let collector = Collector::start();
    let traces = collector.traces();
    drop(collector);
    let sentry = traced(application(&[server.address]), traces);
    for _ in 0..50 {
        assert_eq!(sentry.ask(&get("")).status, 200);
    }
    until("all is answered", || sentry.app().in_flight() == 0);
    sentry.handle.shutdown(PATIENCE);
}
