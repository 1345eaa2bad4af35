//! Spans of requests, made when a request is over, and sent in batches by a thread of the OpenTelemetry library.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor};

use super::collector::Collector;
use super::context::Context;
use crate::config::Traces;
use crate::record::{Decided, RecordEnd, RequestRecord};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Makes spans, where the configuration has `[traces]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans(Option<Arc<Inner>>);

struct Inner {
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
    /// Of the traces that begin here, the share that is kept, as a bound on a random number.
    bound: u64,
}

/// A request's place in its trace.
#[derive(Debug)]
pub(crate) struct Trace {
    /// What the client said of itself; made up where it said nothing.
    context: Context,
    /// Whether the client said something.
    continued: bool,
    /// The spans of the request and of its time at a server.
    request: SpanId,
    server: SpanId,
    wait: SpanId,
}

impl Spans {
    /// Starts the exporter.
    ///
    /// # Errors
    /// When it cannot be built.
    pub(crate) fn start(config: Option<&Traces>) -> io::Result<Self> {
        let Some(config) = config else { return Ok(Spans(None)) };
        let exporter = SpanExporter::builder().with_http().with_http_client(Collector);
        let exporter = exporter.with_endpoint(config.endpoint.clone()).build().map_err(io::Error::other)?;
        let mut processor = BatchSpanProcessor::builder(exporter).build();
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let resource = Resource::builder().with_service_name(config.service.clone()).with_attribute(version);
        processor.set_resource(&resource.build());
        let scope = InstrumentationScope::builder("tidegate").with_version(env!("CARGO_PKG_VERSION")).build();
        let bound = (config.share * u64::MAX as f64) as u64;
        Ok(Spans(Some(Arc::new(Inner { processor, scope, bound }))))
    }

    /// A request's place in the trace that its `traceparent` names, or in a new one.
    pub(crate) fn begin<'v>(
        &self,
        traceparent: impl FnOnce() -> Option<&'v [u8]>,
        random: impl Fn() -> u64,
    ) -> Option<Box<Trace>> {
        let inner = self.0.as_ref()?;
        let given = traceparent().and_then(Context::read);
        let context = given.unwrap_or_else(|| {
            let sampled = random() <= inner.bound && inner.bound > 0;
            let flags = if sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
            let trace = u128::from(random()) << 64 | u128::from(random());
            Context { trace: TraceId::from_bytes(trace.to_be_bytes()), span: SpanId::INVALID, flags }
        });
        let [request, server, wait] = [0; 3].map(|_| SpanId::from_bytes(random().to_be_bytes()));
        Some(Box::new(Trace { context, continued: given.is_some(), request, server, wait }))
    }

    /// The request is over: its spans go to the exporter, or are dropped if that cannot follow.
    pub(crate) fn end(
        &self,
        trace: &Trace,
        application: &str,
        class: &str,
        server: Option<&str>,
        record: &RequestRecord<'_>,
    ) {
        let Some(inner) = self.0.as_ref().filter(|_| trace.is_sampled()) else { return };
        let end = SystemTime::now();
        let began = end - record.total;
        let turn = began + record.waited.min(record.total);
        let span = |id, parent, kind, name: String, from, to, attributes, status| SpanData {
            span_context: trace.context_of(id),
            parent_span_id: parent,
            parent_span_is_remote: parent == trace.context.span && trace.continued,
            span_kind: kind,
            name: name.into(),
            start_time: from,
            end_time: to,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: inner.scope.clone(),
        };
        let refused = matches!(record.decision, Decided::Rejected(_));
        let admission = vec![
            KeyValue::new("tidegate.class", class.to_owned()),
            KeyValue::new("tidegate.decision", decision(&record.decision)),
        ];
        let to = if record.server.is_none() { end } else { turn };
        let (request, wait) = (trace.request, trace.wait);
        let kind = SpanKind::Internal;
        inner.processor.on_end(span(wait, request, kind, "admission".into(), began, to, admission, Status::Unset));
        if let Some(server) = server.filter(|_| !refused) {
            let attributes = at_server(server, record);
            let status = status_of(record.end, record.status);
            let name = format!("{} upstream", record.method);
            inner.processor.on_end(span(trace.server, request, SpanKind::Client, name, turn, end, attributes, status));
        }
        let attributes = of_request(application, class, record);
        let (parent, kind) = (trace.context.span, SpanKind::Server);
        let status = status_of(record.end, record.status);
        inner.processor.on_end(span(request, parent, kind, record.method.to_owned(), began, end, attributes, status));
    }

    /// Sends what is left. Waits for the collector, for some seconds at most.
    pub(crate) fn flush(&self) {
        if let Some(inner) = &self.0 {
            // The collector is gone: so is what was meant for it.
            let _ = inner.processor.shutdown_with_timeout(Duration::from_secs(5));
        }
    }
}

impl Trace {
    /// Whether its spans are kept.
    pub(crate) fn is_sampled(&self) -> bool {
        self.context.is_sampled()
    }

    /// Names the span of the time at the server as the parent of what the server does.
    pub(crate) fn pass_on(&self, headers: &mut HeaderMap) {
        // It is hexadecimal.
        if let Ok(field) = HeaderValue::from_str(&self.context.write(self.server)) {
            headers.insert(TRACEPARENT, field);
        }
    }

    fn context_of(&self, span: SpanId) -> SpanContext {
        SpanContext::new(self.context.trace, span, self.context.flags, false, TraceState::default())
    }
}

fn of_request(application: &str, class: &str, record: &RequestRecord<'_>) -> Vec<KeyValue> {
    let path = record.path.split('?').next().unwrap_or_default();
    let mut all = vec![
        KeyValue::new("http.request.method", record.method.to_owned()),
        KeyValue::new("url.scheme", "http"),
        KeyValue::new("url.path", path.to_owned()),
        KeyValue::new("client.address", record.client.ip().to_canonical().to_string()),
        KeyValue::new("http.response.status_code", i64::from(record.status)),
        KeyValue::new("tidegate.application", application.to_owned()),
        KeyValue::new("tidegate.class", class.to_owned()),
        KeyValue::new("tidegate.decision", decision(&record.decision)),
        KeyValue::new("tidegate.end", record.end.name()),
    ];
    all.extend(record.host.map(|host| KeyValue::new("server.address", host.to_owned())));
    all.extend(record.request_id.map(|id| KeyValue::new("http.request.header.x-request-id", id.to_owned())));
    if let Decided::Rejected(rejection) = &record.decision {
        all.push(KeyValue::new("tidegate.reason", rejection.reason.name()));
    }
    all
}

fn at_server(server: &str, record: &RequestRecord<'_>) -> Vec<KeyValue> {
    let mut all = vec![
        KeyValue::new("http.request.method", record.method.to_owned()),
        KeyValue::new("server.address", server.to_owned()),
        KeyValue::new("http.response.status_code", i64::from(record.status)),
    ];
    if record.retries > 0 {
        all.push(KeyValue::new("http.request.resend_count", i64::from(record.retries)));
    }
    if let Some(first_byte) = record.first_byte {
        all.push(KeyValue::new("tidegate.first_byte_seconds", first_byte.as_secs_f64()));
    }
    all
}

fn decision(decided: &Decided) -> &'static str {
    match decided {
        Decided::Admitted => "admitted",
        Decided::Shadow(_) => "shadow",
        Decided::Exempt => "exempt",
        Decided::Rejected(_) => "rejected",
        Decided::Error(name) => name,
    }
}

/// By the rules for HTTP spans: what fails on our side or behind us is an error, a client's leaving is not.
fn status_of(end: RecordEnd, status: u16) -> Status {
    match end {
        RecordEnd::ServerFailed | RecordEnd::TimedOut | RecordEnd::Cancelled => Status::error(end.name()),
        _ if status >= 500 => Status::error(""),
        _ => Status::Unset,
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spans").field("processor", &self.processor).finish_non_exhaustive()
    }
}
