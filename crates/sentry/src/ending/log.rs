//! What the log and the traces are told of a request that is over.

use std::net::SocketAddr;
use std::time::Duration;

use http::HeaderValue;
use tidegate_classify::RequestView;
use tidegate_engine::Rejection;

use super::{Ending, Line, Refused};
use crate::permit::{Arrival, Policed};
use crate::record::{Decided, Protocol, RecordEnd, RequestRecord};
use crate::share::WorkerApp;
use crate::spans::Trace;

impl Ending {
    pub(super) fn log(&self, line: &Line, bytes_in: u64) {
        let app = &self.worker.app;
        let text = |value: &Option<HeaderValue>| value.as_ref().and_then(|v| v.to_str().ok()).map(String::from);
        let (host, id) = (text(&line.host), text(&line.request_id));
        let record = RequestRecord {
            client: self.client.peer(),
            method: line.method.as_str(),
            host: host.as_deref(),
            path: line.uri.path_and_query().map_or("*", |path| path.as_str()),
            class: self.request.class,
            request_type: self.request.request_type,
            decision: self.decision,
            server: self.server,
            protocol: if self.client.is_stream.get() { Protocol::Http2 } else { Protocol::Http1 },
            status: self.status,
            grpc_status: line.grpc_status,
            bytes_in,
            bytes_out: self.bytes_out,
            waited: self.waited,
            first_byte: self.first_byte,
            total: self.worker.now().since(self.since.at),
            end: self.end,
            work: self.place.work,
            retries: self.retries,
            request_id: id.as_deref(),
        };
        let class = self.local.live.class_name(self.request.class);
        if app.records.enabled() {
            app.records.record(app.name(), class, &record);
        }
        if let Some(trace) = &self.trace {
            let server = self.server.and_then(|server| self.local.live.server(server));
            app.spans.end(trace, app.name(), class, server.map(|server| server.address.as_str()), &record);
        }
    }
}

/// One that the gate refused.
pub(super) fn log_refusal(
    worker: &WorkerApp,
    arrival: &Arrival,
    view: &impl RequestView,
    peer: SocketAddr,
    refused: Refused,
    trace: Option<&Trace>,
) {
    let Policed::Refused(rejection) = &arrival.policed else { return };
    let rejection: Rejection = *rejection;
    let record = RequestRecord {
        client: peer,
        method: view.method(),
        host: view.host(),
        path: view.path(),
        class: arrival.request.class,
        request_type: arrival.request.request_type,
        decision: Decided::Rejected(rejection),
        server: None,
        protocol: refused.protocol,
        status: refused.status,
        grpc_status: refused.grpc_status,
        bytes_in: 0,
        bytes_out: refused.bytes_out as u64,
        waited: Duration::ZERO,
        first_byte: None,
        total: worker.now().since(arrival.at),
        end: RecordEnd::Complete,
        work: None,
        retries: 0,
        request_id: view.header("x-request-id").and_then(|id| std::str::from_utf8(id).ok()),
    };
    let (app, class) = (&worker.app, arrival.local.live.class_name(arrival.request.class));
    if app.records.enabled() {
        app.records.record(app.name(), class, &record);
    }
    if let Some(trace) = trace {
        app.spans.end(trace, app.name(), class, None, &record);
    }
}
